"""The decision on bus ops: against a reference model written independently, and the rows of threats.md, P."""

import os
import random
import time
from typing import Any

import pytest

from bridge.contract.declarations import ActorDeclaration, OpDeclaration
from bridge.contract.tool_invocation import Decision, NativeCall, PathAccess, ToolInvoke
from bridge.policy.op_lists import OpLists
from bridge.policy.op_pattern import parse_op_pattern
from bridge.policy.path_rules import PathRules
from bridge.policy.permission_file import built_in_permissions, read_policy
from bridge.policy.permission_set import Grant, NativeRules, PermissionSet, Role
from bridge.policy.refusal import refusal
from bridge.policy.security_delegate import SecurityDelegate, delegate_for
from bridge.policy.shell_rules import ShellRules

CASES = int(os.environ.get("MXS_PROOF_CASES", "10000"))
CALLS_PER_ROLE = 4

CODER = """
version = 1
[[roles.coder.grants]]
subtree = "demo.inventory"
allow = ["inventory.check", "$introspect", "reports.*"]
ask = ["inventory.reserve"]
deny = ["inventory.delete"]
[[roles.coder.grants]]
subtree = "system.catalog"
allow = ["catalog.search"]
[roles.coder.native]
allow = ["file.read", "file.write", "shell.exec"]
ask = ["net.fetch"]
deny = ["agent.spawn"]
[roles.coder.native.paths]
read = ["."]
write = ["shop", "tests"]
deny = ["secrets"]
[roles.coder.native.shell]
allow = ["*"]
ask = ["pip install"]
deny = ["git push"]
"""


def permissions(text: str = CODER) -> PermissionSet:
    read = read_policy(text.encode())
    assert read.permissions is not None, read.problems
    return read.permissions


def coder() -> SecurityDelegate:
    return delegate_for(permissions(), "coder")


# --- the reference model: raw lists of strings, no code shared with the bridge ---------------------------------------


def says(pattern: str, op: str) -> bool:
    if op[0] == "$" or pattern[0] == "$":
        return pattern == op
    wanted, given = pattern.split("."), op.split(".")
    if wanted[-1] != "*":
        return wanted == given
    return len(given) >= len(wanted) and given[: len(wanted) - 1] == wanted[:-1]


def expected(grants: list[dict[str, Any]], target: str, op: str) -> tuple[str, str]:
    path = target.split(".")
    held = [g for g in grants if path[: len(g["subtree"].split("."))] == g["subtree"].split(".")]
    if not held:
        return "deny", "OUT_OF_SUBTREE"
    for verdict, reason in (("deny", "COMMAND_NOT_ALLOWED"), ("ask", "ASK"), ("allow", "GRANTED")):
        if any(says(pattern, op) for g in held for pattern in g[verdict]):
            return verdict, reason
    return "deny", "COMMAND_NOT_ALLOWED"


SEGMENTS = ("a", "b", "ab", "a-b", "A", "a_")


def some_name(draw: random.Random, longest: int) -> str:
    return ".".join(draw.choice(SEGMENTS) for _ in range(draw.randint(1, longest)))


def some_pattern(draw: random.Random) -> str:
    name = some_name(draw, 2)
    return draw.choice((name, name, f"{name}.*", f"{draw.choice(SEGMENTS)}.*", "*", f"${name}"))


def some_grants(draw: random.Random) -> list[dict[str, Any]]:
    def entries() -> list[str]:
        return [some_pattern(draw) for _ in range(draw.choice((0, 0, 1, 2)))]

    return [
        {"subtree": some_name(draw, 2), "allow": entries(), "ask": entries(), "deny": entries()}
        for _ in range(draw.randint(0, 4))
    ]


def role_of(grants: list[dict[str, Any]]) -> Role:
    def ops(grant: dict[str, Any]) -> OpLists:
        return OpLists(*(tuple(map(parse_op_pattern, grant[key])) for key in ("allow", "ask", "deny")))

    return Role("r", grants=tuple(Grant(grant["subtree"], ops(grant)) for grant in grants))


def rule_exists(decision: Decision, grants: list[dict[str, Any]], op: str) -> bool:
    if decision.rule is None:
        return decision.verdict == "deny"
    where = decision.rule.removeprefix("roles.r.grants[").replace("[", "").replace("]", " ").replace(".", " ").split()
    grant, key, index = int(where[0]), *_list_and_index(where[1])
    return key == decision.verdict and says(grants[grant][key][index], op)


def _list_and_index(text: str) -> tuple[str, int]:
    key = text.rstrip("0123456789")
    return key, int(text[len(key) :])


def test_decisions_equal_those_of_the_reference_model() -> None:
    draw = random.Random(20261130)
    seen: dict[tuple[str, str], int] = {}
    order = ("allow", "ask", "deny")
    for grants, child in ((some_grants(draw), some_grants(draw)) for _ in range(CASES // CALLS_PER_ROLE)):
        delegate = SecurityDelegate(role_of(grants), "sha256:x")
        shuffled = SecurityDelegate(role_of(draw.sample(grants, len(grants))), "sha256:x")
        narrowed = SecurityDelegate(role_of(child), "sha256:x", delegate)
        for _ in range(CALLS_PER_ROLE):
            invoke = ToolInvoke(some_name(draw, 3), draw.choice(("", "", "", "$")) + some_name(draw, 3))
            decision = delegate.decide(invoke)
            outcome = (str(decision.verdict), str(decision.reason))
            assert outcome == expected(grants, invoke.target, invoke.op), (grants, invoke)
            assert rule_exists(decision, grants, invoke.op), (decision, grants, invoke)
            in_other_order = shuffled.decide(invoke)
            assert (in_other_order.verdict, in_other_order.reason) == outcome
            strictest = max(outcome[0], expected(child, invoke.target, invoke.op)[0], key=order.index)
            assert narrowed.decide(invoke).verdict == strictest
            seen[outcome] = seen.get(outcome, 0) + 1
    # A model that agrees because nothing ever matched would prove nothing.
    assert len(seen) == 4
    assert min(seen.values()) > CASES // 100


@pytest.mark.parametrize(
    ("target", "op", "verdict", "reason", "rule", "nearest"),
    [
        ("demo.inventory", "inventory.check", "allow", "GRANTED", "roles.coder.grants[0].allow[0]", None),
        ("demo.inventory.east", "inventory.check", "allow", "GRANTED", "roles.coder.grants[0].allow[0]", None),
        ("demo.inventory", "$introspect", "allow", "GRANTED", "roles.coder.grants[0].allow[1]", None),
        ("demo.inventory", "reports.a.b", "allow", "GRANTED", "roles.coder.grants[0].allow[2]", None),
        ("demo.inventory", "reports", "deny", "COMMAND_NOT_ALLOWED", None, "reports.*"),
        ("demo.inventory", "inventory.reserve", "ask", "ASK", "roles.coder.grants[0].ask[0]", None),
        ("demo.inventory", "inventory.delete", "deny", "COMMAND_NOT_ALLOWED", "roles.coder.grants[0].deny[0]", None),
        ("demo.inventory", "$getState", "deny", "COMMAND_NOT_ALLOWED", None, None),
        ("demo.inventory", "inventory.Check", "deny", "COMMAND_NOT_ALLOWED", None, "inventory.check"),
        ("demo.inventoryX", "inventory.check", "deny", "OUT_OF_SUBTREE", None, "demo.inventory"),
        ("demo", "inventory.check", "deny", "OUT_OF_SUBTREE", None, "demo.inventory"),
        ("demo.*", "inventory.check", "deny", "MALFORMED_NAME", None, None),
        ("demo.inventory", "inventory.check\n", "deny", "MALFORMED_NAME", None, None),
        ("demo.inventory", "*", "deny", "MALFORMED_NAME", None, None),
    ],
)  # fmt: skip
def test_a_decision_names_its_reason_its_rule_and_the_nearest(
    target: str, op: str, verdict: str, reason: str, rule: str | None, nearest: str | None
) -> None:
    decision = coder().decide(ToolInvoke(target, op))
    assert (decision.verdict, decision.reason, decision.rule) == (verdict, reason, rule)
    assert nearest is None or decision.nearest == nearest
    assert decision.policy == permissions().digest
    assert coder().is_command_allowed(target, op) is (verdict == "allow")


def test_a_role_that_is_not_there_grants_nothing() -> None:
    decision = delegate_for(permissions(), "nobody").decide(ToolInvoke("demo.inventory", "inventory.check"))
    assert (decision.verdict, decision.reason) == ("deny", "OUT_OF_SUBTREE")


def native(op: str, *paths: PathAccess, command: str | None = None) -> NativeCall:
    return NativeCall(op, "Tool", {}, paths, command)


READ_SHOP, WRITE_SHOP = PathAccess("shop/a", "read", "shop/a"), PathAccess("shop/a", "write", "shop/a")


@pytest.mark.parametrize(
    ("call", "verdict", "reason", "rule"),
    [
        (native("file.read", READ_SHOP), "allow", "GRANTED", "native.allow[0]"),
        (native("file.write", WRITE_SHOP), "allow", "GRANTED", "native.allow[1]"),
        (native("file.write", PathAccess("shopX/a", "write", "shopX/a")), "deny", "PATH_DENIED", "native.paths.write"),
        (native("file.write", PathAccess("x", "write", "x"), WRITE_SHOP), "deny", "PATH_DENIED", "native.paths.write"),
        (native("file.write"), "deny", "PATH_DENIED", "native.paths.write"),
        (native("file.read"), "allow", "GRANTED", "native.allow[0]"),
        (native("file.read", PathAccess("s", "read", "secrets/k")), "deny", "PATH_DENIED", "native.paths.deny[0]"),
        (native("file.read", PathAccess("/etc/passwd", "read", None)), "deny", "PATH_DENIED", "native.paths.read"),
        (native("shell.exec", command="ls"), "allow", "GRANTED", "native.allow[2]"),
        (native("shell.exec", command="ls; git push"), "deny", "SHELL_DENIED", "native.shell.deny[0]"),
        (native("shell.exec", command="pip install x"), "ask", "ASK", "native.shell.ask[0]"),
        (native("shell.exec", command="'"), "deny", "SHELL_DENIED", None),
        (native("shell.exec"), "deny", "SHELL_DENIED", None),
        (native("net.fetch"), "ask", "ASK", "native.ask[0]"),
        (native("agent.spawn"), "deny", "COMMAND_NOT_ALLOWED", "native.deny[0]"),
        (native("other.Unknown"), "deny", "COMMAND_NOT_ALLOWED", None),
        (native("other.a b"), "deny", "MALFORMED_NAME", None),
        (native("net.fetch", command="git push"), "deny", "SHELL_DENIED", "native.shell.deny[0]"),
    ],
)
def test_a_native_call_gets_the_strictest_of_op_paths_and_shell(
    call: NativeCall, verdict: str, reason: str, rule: str | None
) -> None:
    decision = coder().decide_native(call)
    assert (decision.verdict, decision.reason) == (verdict, reason)
    assert decision.rule == (rule and f"roles.coder.{rule}")


def test_missing_tables_deny_every_native_call() -> None:
    ops = OpLists(allow=(parse_op_pattern("*"),))
    delegate = SecurityDelegate(Role("r", native=NativeRules(ops=ops)), "")
    assert delegate.decide_native(native("file.read", READ_SHOP)).reason == "PATH_DENIED"
    assert delegate.decide_native(native("shell.exec", command="ls")).reason == "SHELL_DENIED"
    assert SecurityDelegate(Role("r"), "").decide_native(native("net.fetch")).verdict == "deny"


def test_a_child_has_the_intersection_with_its_parent_also_natively() -> None:
    wide = NativeRules(OpLists(allow=(parse_op_pattern("*"),)), PathRules((".",), (".",)), ShellRules(("*",)))
    child = SecurityDelegate(Role("child", native=wide), "", coder())
    assert child.decide_native(native("agent.spawn")).rule == "roles.coder.native.deny[0]"
    assert child.decide_native(native("shell.exec", command="git push")).reason == "SHELL_DENIED"
    assert child.decide_native(native("net.fetch")).verdict == "ask"
    assert child.decide_native(native("file.write", WRITE_SHOP)).verdict == "allow"
    assert child.usable_native_ops() == {"file.read", "file.write", "shell.exec", "net.fetch"}


def test_the_surface_is_what_could_ever_be_called() -> None:
    ops = ("inventory.check", "inventory.reserve", "inventory.delete", "inventory.move", "reports.daily")
    inventory = ActorDeclaration("demo.inventory", "I", "d", accepts={op: OpDeclaration(op, "d") for op in ops})
    assert coder().usable_ops(inventory) == ("inventory.check", "inventory.reserve", "reports.daily", "$introspect")
    assert coder().usable_ops(ActorDeclaration("other.place", "I", "d", accepts=inventory.accepts)) == ()
    assert coder().usable_native_ops(("file.read", "agent.spawn", "other.X")) == {"file.read"}


def test_the_built_in_role_works_in_its_clone_and_searches_the_catalog() -> None:
    default = delegate_for(built_in_permissions(), "default")
    assert default.decide(ToolInvoke("system.catalog", "catalog.search")).verdict == "allow"
    assert default.decide(ToolInvoke("system.registry", "registry.list")).verdict == "deny"
    assert default.decide_native(native("file.write", WRITE_SHOP)).verdict == "allow"
    assert default.decide_native(native("shell.exec", command="$X | `y")).verdict == "allow"
    assert default.decide_native(native("net.fetch")).verdict == "deny"
    assert default.usable_native_ops() == {"file.read", "file.write", "shell.exec"}


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (ToolInvoke("demo.orders", "list"), "MX_AGENT_OUT_OF_SUBTREE", ["on 'demo.orders'", "no grant"]),
        (ToolInvoke("demo.inventory", "inventory.delete"), "MX_AGENT_COMMAND_NOT_ALLOWED", ["deny[0]", "nearest"]),
        (ToolInvoke("demo.inventory", "inventory.chek"), "MX_AGENT_COMMAND_NOT_ALLOWED", ["is 'inventory.check'"]),
        (ToolInvoke("demo.\u202einventory", "x"), "MX_AGENT_MALFORMED_NAME", ["\\u202e", "Correct the name"]),
        (native("shell.exec", command="git push"), "MX_AGENT_COMMAND_NOT_ALLOWED", ["shell.deny[0]", "Asking"]),
        (native("file.write", PathAccess("/etc/x", "write")), "MX_AGENT_COMMAND_NOT_ALLOWED", ["'/etc/x'", "leaves"]),
    ],
)  # fmt: skip
def test_a_refusal_says_what_why_the_nearest_and_whether_asking_helps(
    call: ToolInvoke | NativeCall, code: str, said: list[str]
) -> None:
    decision = coder().decide(call) if isinstance(call, ToolInvoke) else coder().decide_native(call)
    error = refusal(call, decision, "coder")
    assert error.code == code
    assert error.message.isascii()
    assert all(part in error.message for part in said), error.message
    assert error.data == {"reason": decision.reason, "rule": decision.rule, "nearest": decision.nearest}


def test_a_refusal_costs_little_however_hostile_its_words() -> None:
    words = ".".join(["ab" * 32] * 32)
    grants = [{"subtree": "a", "allow": [f"{words[:-1]}{i % 10}" for i in range(900)], "ask": [], "deny": []}]
    delegate = SecurityDelegate(role_of(grants), "")
    started = time.process_time()
    assert delegate.decide(ToolInvoke("a", words)).verdict == "deny"
    # Compared in full, 900 entries of 2 000 characters each would take minutes.
    assert time.process_time() - started < 10
