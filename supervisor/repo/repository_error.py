"""What goes wrong with repositories, as one exception. Leaf of `supervisor.repo`.

Exception
  RepositoryError           what, why and the mend, with the exit code `mxs` ends with
    GitFailedError          a git command of ours failed (git.py)
    ApplyConflictError      the result does not fit the work tree as it is now (apply.py)
"""


class RepositoryError(Exception):
    """A typed failure that a person can act on.

    `message` says what and why, `mend` what to do about it, `exit_code` how `mxs` ends (contracts.md, section 2).
    """

    def __init__(self, message: str, mend: str, exit_code: int = 1) -> None:
        self.message = message
        self.mend = mend
        self.exit_code = exit_code
        super().__init__(f"{message} {mend}".strip())


class ApplyConflictError(RepositoryError):
    """Nothing was written: `files` are the paths that stand in the way, as shown to people."""

    def __init__(self, why: str, files: tuple[str, ...]) -> None:
        self.files = files
        shown = ", ".join(repr(name) for name in files[:20]) + (", …" if len(files) > 20 else "")
        super().__init__(
            f"The result was not applied, and nothing was changed: {why}: {shown}.",
            "Commit or move those changes away and apply again, or merge the branch with git.",
        )
