"""SecurityDelegate (spec: `ISecurityDelegate`): the verdict on a call, as a value with its reason.

Below: `permission_set` and the rules of ops, paths and shell lines. Above: `mcp_bridge_actor`, which asks before
anything happens, and `refusal`, which puts a refusal in words. Pure: no file, no clock, no bus, no log. Deny beats ask
beats allow, over all grants in any order; what nothing grants is denied. With a parent the verdict is the stricter of
both, so that a child worker never has more than its parent.
"""

from collections.abc import Iterable
from typing import Final

from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.names import is_within, parse_op, parse_target
from bridge.contract.tool_invocation import Access, Decision, NativeCall, Reason, ToolInvoke, Verdict
from bridge.policy.nearest import nearest_of
from bridge.policy.op_lists import OpLists
from bridge.policy.permission_set import PermissionSet, Role
from bridge.policy.shell_rules import ANY_LINE

NATIVE_OPS: Final = ("file.read", "file.write", "shell.exec", "net.fetch", "agent.spawn")
"""The native ops with a name of their own; any further tool is `other.<tool>`."""

_STRICTNESS: Final[dict[Verdict, int]] = {"allow": 0, "ask": 1, "deny": 2}
_REASONS: Final[dict[Verdict, Reason]] = {"allow": "GRANTED", "ask": "ASK", "deny": "COMMAND_NOT_ALLOWED"}
_WHOLE_WORKSPACE: Final = "."
_FILE_ACCESS: Final[dict[str, Access]] = {"file.read": "read", "file.write": "write"}


class SecurityDelegate:
    """Judges for one role, under the policy with the digest `policy`, narrowed by `parent` where there is one."""

    def __init__(self, role: Role, policy: str, parent: "SecurityDelegate | None" = None) -> None:
        self.role = role
        self.policy = policy
        self.parent = parent
        self._where = f"roles.{role.name}"
        self._grants = [
            (grant.subtree, f"{self._where}.grants[{index}]", grant.ops) for index, grant in enumerate(role.grants)
        ]

    def is_in_subtree(self, target: str) -> bool:
        """Whether some grant (of the parent's too) holds the target."""
        held = any(is_within(target, grant.subtree) for grant in self.role.grants)
        return held and (self.parent is None or self.parent.is_in_subtree(target))

    def is_command_allowed(self, target: str, op: str) -> bool:
        """Whether the call would run without asking anybody."""
        return self.decide(ToolInvoke(target, op)).verdict == "allow"

    def decide(self, invoke: ToolInvoke) -> Decision:
        """The verdict on a call on the bus. Never raises; a malformed name is a denial."""
        try:
            target, op = parse_target(invoke.target), parse_op(invoke.op)
        except MatrixError:
            return self._decision("deny", "MALFORMED_NAME")
        own = self._decide_op(target, op)
        return own if self.parent is None else strictest((own, self.parent.decide(invoke)))

    def decide_native(self, call: NativeCall) -> Decision:
        """The verdict on a worker's own tool: the strictest of its op, path and shell lists. Never raises.

        Paths have been resolved (`workspace_paths`); a file op that names none is judged as one on the whole workspace.
        """
        try:
            op = parse_op(call.op)
        except MatrixError:
            return self._decision("deny", "MALFORMED_NAME")
        own = strictest((self._decide_native_op(op), *self._decide_paths(call), *self._decide_shell(call)))
        return own if self.parent is None else strictest((own, self.parent.decide_native(call)))

    def usable_ops(self, declaration: ActorDeclaration) -> tuple[str, ...]:
        """The ops of an actor that the role may call, asking or not: what belongs on its tool surface."""
        if not self.is_in_subtree(declaration.mount):
            return ()
        calls = ((op, self.decide(ToolInvoke(declaration.mount, op))) for op in declaration.op_names())
        return tuple(op for op, decision in calls if decision.verdict != "deny")

    def usable_native_ops(self, ops: Iterable[str] = NATIVE_OPS) -> frozenset[str]:
        """Those of `ops` for which some call could be allowed or asked about; the rest is left off the surface."""
        return frozenset(op for op in ops if self._could_be_used(op))

    def _could_be_used(self, op: str) -> bool:
        native = self.role.native
        own = self._decide_native_op(op).verdict != "deny"
        if op == "shell.exec":
            own = own and bool(native.shell.allow or native.shell.ask)
        if op in _FILE_ACCESS:
            own = own and bool(native.paths.read if op == "file.read" else native.paths.write)
        return own and (self.parent is None or op in self.parent.usable_native_ops((op,)))

    def _decide_op(self, target: str, op: str) -> Decision:
        held = [(where, ops) for subtree, where, ops in self._grants if is_within(target, subtree)]
        if not held:
            subtrees = [grant.subtree for grant in self.role.grants if grant.ops.allow or grant.ops.ask]
            return self._decision("deny", "OUT_OF_SUBTREE", nearest=nearest_of(target, subtrees))
        return self._settled(op, held)

    def _decide_native_op(self, op: str) -> Decision:
        return self._settled(op, [(f"{self._where}.native", self.role.native.ops)])

    def _settled(self, op: str, lists: list[tuple[str, OpLists]]) -> Decision:
        verdict: Verdict | None = None
        rule = None
        for where, ops in lists:
            entry = ops.settle(op)
            if entry is not None and (verdict is None or _STRICTNESS[entry.verdict] > _STRICTNESS[verdict]):
                verdict, rule = entry.verdict, f"{where}.{entry.verdict}[{entry.place}]"
        if verdict is None or verdict == "deny":
            return self._decision("deny", "COMMAND_NOT_ALLOWED", rule, _nearest_op(op, lists))
        return self._decision(verdict, _REASONS[verdict], rule)

    def _decide_paths(self, call: NativeCall) -> Iterable[Decision]:
        rules = self.role.native.paths
        touched = [(access.path, access.access) for access in call.paths]
        if not touched and call.op in _FILE_ACCESS:
            touched = [(_WHOLE_WORKSPACE, _FILE_ACCESS[call.op])]
        for path, access in touched:
            refused = rules.refusal(path, access)
            if refused is not None:
                granted = rules.read if access == "read" else rules.write
                nearest = nearest_of(path or "", [entry for entry in granted if entry not in rules.deny])
                yield self._decision("deny", "PATH_DENIED", f"{self._where}.native.paths.{refused}", nearest)

    def _decide_shell(self, call: NativeCall) -> Iterable[Decision]:
        if call.op != "shell.exec" and call.command is None:
            return
        shell = self.role.native.shell
        verdict, settled = shell.judge(call.command)
        rule = None if settled is None else f"{self._where}.native.shell.{settled}"
        if verdict == "deny":
            patterns = [pattern for pattern in (*shell.allow, *shell.ask) if pattern != ANY_LINE]
            yield self._decision("deny", "SHELL_DENIED", rule, nearest_of(call.command or "", patterns))
        else:
            yield self._decision(verdict, _REASONS[verdict], rule)

    def _decision(
        self, verdict: Verdict, reason: Reason, rule: str | None = None, nearest: str | None = None
    ) -> Decision:
        return Decision(verdict, reason, rule, nearest, self.policy)


def delegate_for(permissions: PermissionSet, role: str, parent: SecurityDelegate | None = None) -> SecurityDelegate:
    """The delegate of a role by name. A role that the file does not have, or has no more, grants nothing."""
    return SecurityDelegate(permissions.roles.get(role, Role(role)), permissions.digest, parent)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The first of the strictest decisions: deny beats ask beats allow."""
    return max(decisions, key=lambda decision: _STRICTNESS[decision.verdict])


def _nearest_op(op: str, lists: list[tuple[str, OpLists]]) -> str | None:
    """The most similar entry that would not be denied again."""
    denied = [pattern for _, ops in lists for pattern in ops.deny]
    entries = [pattern.text for _, ops in lists for pattern in (*ops.allow, *ops.ask)]
    return nearest_of(op, [text for text in entries if not any(deny.matches(text) for deny in denied)])
