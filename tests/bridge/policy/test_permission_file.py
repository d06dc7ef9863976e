"""The permission file: what is read from it, and that whatever is wrong is refused with its place and a mend."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.policy.permission_file import MAX_FILE_BYTES, policy_digest, read_policy
from bridge.policy.permission_set import Budget
from bridge.policy.toml_positions import positions_of

EXAMPLE = '''version = 1

[roles.coder]
description = "Fixes bugs in the shop repository."

[[roles.coder.grants]]              # the first
subtree = "demo.inventory"
allow = ["inventory.check", "$introspect", "reports.*"]
ask   = ["inventory.reserve"]
deny  = ["inventory.delete"]

[[roles.coder.grants]]
subtree = "system.catalog"
allow = [
    "catalog.search",  # with a comment, and "quotes"
    """bad one""",
]

[roles.coder.native]
allow = ["file.read"]
paths = { read = ["."], write = ["shop"] }

[roles.coder.budget]
tool_calls = 500
usd = 5.0
'''
GOOD = EXAMPLE.replace('"""bad one"""', '"*"')


def test_a_file_is_read_as_it_is_written() -> None:
    read = read_policy(GOOD.encode())
    assert read.problems == ()
    assert read.permissions is not None
    assert read.permissions.digest == policy_digest(GOOD.encode())
    role = read.permissions.only_role()
    assert role is not None
    assert [grant.subtree for grant in role.grants] == ["demo.inventory", "system.catalog"]
    assert [pattern.text for pattern in role.grants[1].ops.allow] == ["catalog.search", "*"]
    assert role.native.paths.write == ("shop",)
    assert role.budget == Budget(tool_calls=500, usd=5.0)


def test_a_problem_in_a_list_over_several_lines_is_found_where_it_stands() -> None:
    (problem,) = read_policy(EXAMPLE.encode()).problems
    assert (problem.line, problem.column) == (16, 5)
    assert "roles.coder.grants[1].allow" in problem.message
    assert "exact op" in problem.mend


ROLE = "version = 1\n[roles.r]\n"
GRANT = ROLE + '[[roles.r.grants]]\nsubtree = "a"\n'


@pytest.mark.parametrize(
    ("text", "line", "message", "mend"),
    [
        ("", 1, "'version' is missing", "version = 1"),
        ("version = 2\n[roles.r]\n", 1, "'version' is missing or not 1", "version = 1"),
        ("version = true\n[roles.r]\n", 1, "'version'", "version = 1"),
        ("version = 1\n", 1, "no role", "[roles.coder]"),
        ("version = 1\nroles = 3\n", 2, "'roles' is not a table", "[roles]"),
        ("version = 1\nroles.r = 3\n", 2, "'r' is not a table", "[roles.r]"),
        ("version = 1\n[rolls.r]\n[roles.r]\n", 2, "unknown key 'rolls'", "Did you mean 'roles'?"),
        ('version = 1\n[roles."a b"]\n', 2, "role name 'a b'", "letters"),
        (ROLE + "decsription = 'x'\n", 3, "unknown key 'decsription'", "Did you mean 'description'?"),
        (ROLE + "description = 3\n", 3, "a number, not a string", "description"),
        (ROLE + "zzz = 3\n", 3, "unknown key 'zzz'", "Known here: description"),
        (ROLE + "grants = 3\n", 3, "not an array of tables", "[[roles.r.grants]]"),
        (ROLE + "[[roles.r.grants]]\nallow = []\n", 3, "'subtree' is missing", "mount"),
        (ROLE + '[[roles.r.grants]]\nsubtree = "a.*"\n', 4, "the subtree 'a.*' is malformed", "without a wildcard"),
        (ROLE + '[[roles.r.grants]]\nsubtree = ["a"]\n', 4, "a list, not a string", "subtree"),
        (GRANT + 'allow = "x"\n', 5, "'allow' is not a list", "allow ="),
        (GRANT + "allow = [1]\n", 5, "entry 1 of 'allow'", "not a string"),
        (GRANT + 'allow = ["ok", "inv*"]\n', 5, "'inv*'", "prefix"),
        (GRANT + 'allow = ["$*"]\n', 5, "'$*'", "exact op"),
        (GRANT + 'deny = ["$a.*"]\n', 5, "'$a.*'", "exact op"),
        (GRANT + 'deny = ["a.*.b"]\n', 5, "'a.*.b'", "exact op"),
        (GRANT + 'deny = [""]\n', 5, "''", "exact op"),
        (GRANT + 'allow = ["a"]\nallow = ["b"]\n', 6, "not TOML", "syntax"),
        (GRANT + "denny = []\n", 5, "unknown key 'denny'", "Did you mean 'deny'?"),
        (ROLE + "[roles.r.native]\nallow = {}\n", 4, "'allow' is not a list", "allow"),
        (ROLE + "[roles.r.native.paths]\nread = ['/etc']\n", 4, "'/etc'", "relative"),
        (ROLE + "[roles.r.native.paths]\nwrite = ['a/../b']\n", 4, "'a/../b'", "'..'"),
        (ROLE + "[roles.r.native.paths]\ndeny = ['*.pem']\n", 4, "'*.pem'", "without wildcards"),
        (ROLE + "[roles.r.native.paths]\nask = ['a']\n", 4, "unknown key 'ask'", "Known here: read"),
        (ROLE + "[roles.r.native.shell]\ndeny = ['git *']\n", 4, "'git *'", "first words"),
        (ROLE + "[roles.r.native.shell]\ndeny = ['git  push']\n", 4, "'git  push'", "single spaces"),
        (ROLE + "[roles.r.native.shell]\ndeny = ['a; b']\n", 4, "'a; b'", "first words"),
        (ROLE + "[roles.r.budget]\ntokens = -1\n", 4, "'tokens' is not a count", "tokens = 500"),
        (ROLE + "[roles.r.budget]\ntool_calls = 1.5\n", 4, "'tool_calls' is not a count", "whole number"),
        (ROLE + "[roles.r.budget]\nseconds = true\n", 4, "'seconds' is not a count", "whole number"),
        (ROLE + "[roles.r.budget]\nusd = nan\n", 4, "'usd' is not an amount", "dollars"),
        (ROLE + "[roles.r.budget]\nusd = '5'\n", 4, "'usd' is not an amount", "dollars"),
        ("version = 1\n[roles.r\n", 2, "not TOML", "syntax"),
        ('version = 1\nx = "unfinished', 2, "not TOML", "syntax"),
        ("version = 1\n[roles.r]\nx = " + "[" * 20_000, 1, "nested too deeply", "levels"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_and_a_mend(text: str, line: int, message: str, mend: str) -> None:
    read = read_policy(text.encode())
    assert read.permissions is None
    problem = next(problem for problem in read.problems if message in problem.message)
    assert problem.line == line
    assert mend in problem.mend


def test_an_oversized_undecodable_or_crowded_file_is_refused() -> None:
    assert "bytes" in read_policy(b"#" * (MAX_FILE_BYTES + 1)).problems[0].message
    assert read_policy(b"version = 1\n# \xff").problems[0][:2] == (2, 3)
    roles = "version = 1\n" + "".join(f"[roles.r{i}]\n" for i in range(1001))
    assert "over 1000 roles" in read_policy(roles.encode()).problems[0].message
    rules = GRANT + "allow = [" + '"a",' * 1001 + "]\n"
    assert "over 1000 rules" in read_policy(rules.encode()).problems[0].message
    many = read_policy((GRANT + "allow = [" + "1," * 100_000 + "]\n").encode())
    assert many.permissions is None
    assert len(many.problems) == 50


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_make_the_reader_fail_or_grant_by_accident(content: bytes) -> None:
    assert read_policy(content).permissions is None


@given(st.integers(0, len(GOOD)), st.sampled_from(['"', "[", "]", "{", "=", "\n", "#", "'", ",", ".", "x", "", "'''"]))
def test_a_damaged_file_is_read_or_refused_but_never_both(at: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + (not inserted) :]
    read = read_policy(text.encode())
    assert (read.permissions is None) == bool(read.problems)
    lines = text.count("\n") + 1
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in read.problems)


def test_positions_are_those_of_keys_tables_elements_and_inline_tables() -> None:
    lines = (
        "a.b = 1",
        "[[t]]",
        "x = [1, [2, 3]]",
        "[[t]]",
        "'q r' = { k = 'v', l = ['#', 4] }",
        "[t.sub]",
        "y = 1979-05-27",
    )
    at = positions_of("\r\n".join(lines))
    assert at(("a", "b")) == (1, 1)
    assert at(("t", 0, "x", 1, 1)) == (3, 13)
    assert at(("t", 1)) == (4, 1)
    assert at(("t", 1, "q r", "l", 1)) == (5, 30)
    assert at(("t", 1, "sub", "y")) == (7, 1)
    assert at(("t", 1, "sub", "missing", 3)) == (6, 1)
