"""Permission files for tests: one role that may write its whole clone, and what a test adds or takes away."""

import json

OWN_TOOLS = ("file.read", "file.write", "shell.exec")
FORBIDDEN = "git push origin main"
"""A command that the role's shell rules deny."""


def role_file(folder, *, native=OWN_TOOLS, grants=""):
    """Write the file and return its path. `grants` is TOML of further grants of the role."""
    path = folder / "permissions.toml"
    path.write_text(f"""\
version = 1

[roles.tester]
description = "What a test lets its worker do."
{grants}
[roles.tester.native]
allow = {json.dumps(native)}

[roles.tester.native.paths]
read = ["."]
write = ["."]
deny = ["secrets"]

[roles.tester.native.shell]
allow = ["*"]
deny = ["git push"]
""")
    return path


INVENTORY = """
[[roles.tester.grants]]
subtree = "demo.inventory"
allow = ["inventory.check"]
deny = ["inventory.delete"]
"""
