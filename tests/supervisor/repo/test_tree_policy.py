"""Names and links, judged without a file system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.repo import PathRules
from supervisor.repo.fast_import import quoted
from supervisor.repo.tree_policy import Spellings, link_refusal, name_refusal


@pytest.mark.parametrize(
    "name",
    [
        b".git/config", b"a/.GIT/x", b".git. /x", b"git~1", b"GIT~27/x", b".g\xe2\x80\x8cit/x", b".git::$INDEX/x",
        b"a\\.git\\hooks", b"nl\n", b"esc\x1b", b"c1\xc2\x9b", b"raw\x9b", b"bidi\xe2\x80\xae", b"../x", b"a/./b",
        b"a//b", b"ls\xe2\x80\xa8", b"x" * 5000,
    ],
)  # fmt: skip
def test_names_that_stand_for_something_else_are_refused(name: bytes) -> None:
    assert name_refusal(name) is not None


@pytest.mark.parametrize(
    "name", [b".github/x", b".gitignore", b"-dash", b"\xc3\xbc", b"raw\xff", b"git", b"a b", b'q"']
)
def test_plain_names_pass(name: bytes) -> None:
    assert name_refusal(name) is None


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"l", b"/etc"), (b"l", b".."), (b"a/l", b"../../x"), (b"l", b"d/../.."), (b"a/b/l", b"d/../../x"),
        (b"l", b".git/config"), (b"a/l", b"../.GIT"), (b"l", b"a\\.git"),
    ],
)  # fmt: skip
def test_links_that_may_leave_are_refused(path: bytes, target: bytes) -> None:
    assert link_refusal(path, target) is not None


@pytest.mark.parametrize(
    ("path", "target"), [(b"l", b"a"), (b"a/l", b"../b/c"), (b"a/b/l", b"../../x"), (b"a/l", b"..")]
)
def test_links_that_stay_pass(path: bytes, target: bytes) -> None:
    assert link_refusal(path, target) is None


SEGMENT = st.sampled_from([b"..", b".", b"a", b"b", b""])


@given(depth=st.integers(0, 3), target=st.lists(SEGMENT, max_size=6).map(b"/".join))
def test_a_link_that_passes_never_climbs_above_the_top(depth: int, target: bytes) -> None:
    if link_refusal(b"d/" * depth + b"l", target) is None:
        level = depth
        for segment in target.split(b"/"):
            level += {b"..": -1, b".": 0, b"": 0}.get(segment, 1)
            assert level >= 0


def test_twins_and_folders_in_place_of_files_are_refused() -> None:
    spellings = Spellings([b"README.md", b"src/main.py", "caf\u00e9".encode()])
    assert spellings.refusal(b"readme.MD") is not None
    assert spellings.refusal(b"SRC/other.py") is not None
    assert spellings.refusal("cafe\u0301".encode()) is not None
    assert spellings.refusal(b"src") is not None
    assert spellings.refusal(b"README.md/x") is not None
    assert spellings.refusal(b"src/other.py") is None


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        (b"shop", False),
        (b"shop/a", False),
        (b"shopX/a", True),
        (b"Shop/a", True),
        (b"shop/secrets/k", True),
        (b"x", True),
    ],
)
def test_path_rules_go_by_whole_segments_and_deny_wins(path: bytes, refused: bool) -> None:
    rules = PathRules(write=("shop", "./tests/"), deny=("shop/secrets",))
    assert (rules.refusal(path) is not None) is refused


@given(st.binary(min_size=1, max_size=20))
def test_a_quoted_path_is_one_line_of_printable_ascii(path: bytes) -> None:
    text = quoted(path)
    assert all(0x20 <= byte < 0x7F for byte in text)
    assert text.startswith(b'"')
    assert text.endswith(b'"')
