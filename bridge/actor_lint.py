"""Reads actor modules without importing them and says which fields have no description.

`python -P -m bridge.actor_lint PATH` is a short-lived process of its own, because it parses text that an agent may
have written. It knows Python's grammar and the shape of declarations (contracts.md, section 4). Prints `{"problems":
[{"file", "line", "where", "message"}]}`.
"""

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 1024 * 1024
_FIELD_GROUPS: Final = ("state", "blackboard")
_ENTRY_GROUPS: Final = ("accepts", "emits", "streams")
_MEND: Final = "Write what it is and an example; models choose tools by it."


@dataclass(frozen=True)
class LintProblem:
    """One place where a description is missing, or where a declaration cannot be read from the text."""

    file: str
    line: int
    where: str
    message: str


def lint(path: Path) -> list[LintProblem]:
    """The problems of one file, or of all modules of a folder; a path that holds no actor is a problem too."""
    files = [path] if path.is_file() else sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))
    problems: list[LintProblem] = []
    found = 0
    for file in files:
        linter = _FileLinter(file)
        problems += linter.problems()
        found += linter.actors
    if not found and not problems:
        problems.append(LintProblem(str(path), 0, "", "No actor was found here; give a folder or a file of actors."))
    return problems


class _FileLinter:
    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._path = file
        self.actors = 0

    def problems(self) -> list[LintProblem]:
        try:
            content = self._path.read_bytes()
            if len(content) > MAX_FILE_BYTES:
                return [self._problem(0, "", f"The file has over {MAX_FILE_BYTES} bytes.")]
            tree = ast.parse(content, self._file)
        except SyntaxError as error:
            return [self._problem(error.lineno or 0, "", f"The file is not Python: {error.msg}.")]
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            return [self._problem(0, "", f"The file cannot be read: {type(error).__name__}.")]
        return [problem for node in _actor_classes(tree) for problem in self._of_class(node)]

    def _of_class(self, node: ast.ClassDef) -> Iterator[LintProblem]:
        self.actors += 1
        declared = dict(_assignments(node))
        if "mount" not in declared:
            yield self._problem(node.lineno, node.name, "The class has no 'mount'; give it one, such as 'demo.shop'.")
        if not _has_text(declared.get("description")):
            yield self._problem(node.lineno, f"{node.name}.description", f"The description is missing. {_MEND}")
        for group in _FIELD_GROUPS:
            yield from self._of_fields(declared.get(group), f"{node.name}.{group}")
        for group in _ENTRY_GROUPS:
            yield from self._of_entries(declared.get(group), f"{node.name}.{group}")
        yield from self._of_skills(declared.get("skills"), f"{node.name}.skills")

    def _of_entries(self, entries: ast.expr | None, where: str) -> Iterator[LintProblem]:
        for name, entry in _members(entries):
            yield from self._of_described(entry, f"{where}.{name}")
            members = dict(_members(entry))
            for key in ("schema", "returns"):
                yield from self._of_fields(members.get(key), f"{where}.{name}.{key}")
        yield from self._unread(entries, where)

    def _of_fields(self, fields: ast.expr | None, where: str) -> Iterator[LintProblem]:
        for name, field in _members(fields):
            yield from self._of_field(field, f"{where}.{name}")
        yield from self._unread(fields, where)

    def _of_field(self, field: ast.expr, where: str) -> Iterator[LintProblem]:
        yield from self._of_described(field, where)
        members = dict(_members(field))
        if isinstance(members.get("items"), ast.Dict):
            yield from self._of_field(members["items"], f"{where}.items")
        yield from self._of_fields(members.get("properties"), f"{where}.properties")

    def _of_described(self, described: ast.expr, where: str) -> Iterator[LintProblem]:
        if not isinstance(described, ast.Dict):
            yield from self._unread(described, where)
        elif not _has_text(dict(_members(described)).get("description")):
            yield self._problem(described.lineno, where, f"The description is missing. {_MEND}")

    def _of_skills(self, skills: ast.expr | None, where: str) -> Iterator[LintProblem]:
        for index, skill in enumerate(skills.elts if isinstance(skills, ast.List | ast.Tuple) else ()):
            yield from self._of_described(skill, f"{where}[{index}]")

    def _unread(self, node: ast.expr | None, where: str) -> Iterator[LintProblem]:
        """What is written as code, not as data, cannot be checked without running it."""
        if node is None:
            return
        literal = isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys)
        if not literal:
            yield self._problem(node.lineno, where, "It is computed, so it cannot be checked; write it as a literal.")

    def _problem(self, line: int, where: str, message: str) -> LintProblem:
        return LintProblem(self._file, line, where, message)


def _actor_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    known = {"Actor"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_name_of(base) in known for base in node.bases):
            known.add(node.name)
            yield node


def _members(node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


def _name_of(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _assignments(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))


def _has_text(node: ast.expr | None) -> bool:
    """A literal text, joined literals too, or an expression, which is taken for one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(node.value.strip())
    return node is not None


def main() -> None:
    """Lint the path given as the only argument."""
    problems = [asdict(problem) for problem in lint(Path(sys.argv[1]))]
    sys.stdout.write(json.dumps({"problems": problems}) + "\n")


if __name__ == "__main__":
    main()
