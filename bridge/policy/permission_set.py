"""PermissionSet: the content of a permission file as frozen values.

Leaf of `policy`: read by `permission_file`, held by `permission_source`, judged by `security_delegate`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.policy.op_lists import OpLists
from bridge.policy.path_rules import PathRules
from bridge.policy.shell_rules import ShellRules


@dataclass(frozen=True)
class Grant:
    """Lists for one subtree of targets."""

    subtree: str
    ops: OpLists


@dataclass(frozen=True)
class NativeRules:
    """What the worker's own tools may do. The default denies everything."""

    ops: OpLists = field(default_factory=OpLists)
    paths: PathRules = field(default_factory=PathRules)
    shell: ShellRules = field(default_factory=ShellRules)


@dataclass(frozen=True)
class Budget:
    """Limits of one run of the role; None = no limit."""

    tool_calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: int | None = None


@dataclass(frozen=True)
class Role:
    """One role of the file."""

    name: str
    description: str = ""
    grants: tuple[Grant, ...] = ()
    native: NativeRules = NativeRules()
    budget: Budget = Budget()


@dataclass(frozen=True)
class PermissionSet:
    """All roles of one file. `digest` is `sha256:<hex>` of its bytes and stands in every decision made by it."""

    digest: str
    roles: Mapping[str, Role] = field(default_factory=dict)

    def only_role(self) -> Role | None:
        """The role, where the file has exactly one: then `--role` may be left out."""
        return next(iter(self.roles.values())) if len(self.roles) == 1 else None


BUILT_IN_POLICY: Final = """\
version = 1

[roles.default]
description = "Reads, writes and runs commands in its clone, and searches the catalog."

[[roles.default.grants]]
subtree = "system.catalog"
allow = ["catalog.search"]

[roles.default.native]
allow = ["file.read", "file.write", "shell.exec"]

[roles.default.native.paths]
read = ["."]
write = ["."]

[roles.default.native.shell]
allow = ["*"]
"""
"""The permission file that stands in where there is none."""
