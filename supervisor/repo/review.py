"""What a person should read before running anything of a result (threats.md, R8). Pure: names and modes alone."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from supervisor.repo.tree import EXECUTABLE, LINK, TreeChange, shown

_BY_ITSELF: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "continuous integration",
        (
            ".github/*", ".gitlab-ci*", ".gitlab/*", ".circleci/*", ".buildkite/*", ".ci/*", ".forgejo/*", ".gitea/*",
            ".woodpecker*", ".drone.y*ml", ".travis.y*ml", "jenkinsfile*", "azure-pipelines*", "appveyor.y*ml",
            "bitbucket-pipelines.y*ml", ".tekton/*", "cloudbuild.y*ml",
        ),
    ),
    (
        "hooks",
        (".husky/*", ".githooks/*", "githooks/*", "hooks/*", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml",
         "lefthook.*", ".lefthook*", ".overcommit.yml", ".gitattributes", ".gitmodules", ".lfsconfig", ".gitconfig"),
    ),
    (
        "agent configuration",
        (
            ".claude/*", ".claude.json", "claude*.md", "agents*.md", ".mcp.json", ".codex/*", ".agents/*", ".cursor/*",
            ".cursorrules", ".windsurf*", "gemini.md", ".gemini/*", ".aider*", ".continue/*", ".clinerules*", ".roo*",
            ".goosehints", "mxs.toml",
        ),
    ),
    (
        "editor or shell configuration that runs by itself",
        (".vscode/*", ".idea/*", ".devcontainer/*", ".devcontainer.json", ".envrc", ".env*", ".mise.toml", "mise.toml",
         ".tool-versions", ".exrc", ".vimrc", ".nvim*", ".dir-locals.el", "sitecustomize.py", "usercustomize.py"),
    ),
    (
        "lock file",
        ("*.lock", "*.lockb", "*-lock.json", "*-lock.y*ml", "*.lock.json", "*.lock.hcl", "npm-shrinkwrap.json",
         "go.sum", "gradle.lockfile", "package.resolved", "requirements*.txt"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class ReviewItem:
    """One change to read before running: the path, and what makes it one."""

    path: str
    why: str


def review_before_running(changes: Iterable[TreeChange]) -> tuple[ReviewItem, ...]:
    """The changes that run by themselves or decide what runs, in the order of their paths."""
    return tuple(ReviewItem(shown(change.path), why) for change in changes for why in _reasons(change))


def _reasons(change: TreeChange) -> list[str]:
    reasons = [kind for kind, patterns in _BY_ITSELF if _matches(change.path, patterns)]
    new, old = change.new, change.old
    if new is not None and new.mode == EXECUTABLE and (old is None or old.mode != EXECUTABLE):
        reasons.append("executable bit turned on")
    if new is not None and new.mode == LINK and (old is None or old != new):
        reasons.append("symbolic link")
    return reasons


def _matches(path: bytes, patterns: tuple[str, ...]) -> bool:
    """A pattern holds at the top and in every sub-folder: tools look for their files in both."""
    segments = shown(path).casefold().split("/")
    tails = ["/".join(segments[n:]) for n in range(len(segments))]
    return any(fnmatch.fnmatchcase(tail, pattern) for tail in tails for pattern in patterns)
