"""How large the code is: `make count`, or `python tools/count.py [ROOT]`.

- A *code line* is a physical line that holds a token: blank lines, lines with nothing but a comment, and docstrings do
  not count. A string over several lines that is no docstring does.
- *Imports and `__all__`* are the code lines of import statements and of `__all__` at module level.
- *Lines* of a module, for the mean and for too small and too large, are physical lines. An `__init__.py` is never too
  small.
- A *question for a concrete domain* is an `isinstance` or `issubclass` that names one, a comparison with one
  (`type(domain) is Arrays`), a dictionary with one as a key, or a `match` with one among its class patterns, which is
  one question however many cases it has. A name that a module gives to several domains (`_LISTED = Arrays | L2Ball`) is
  one of theirs. Annotations and constructor calls are no questions. Those inside the folder of the domains do not
  count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("src", "experiments", "tests")
PACKAGE = "src/shufflesum"
DOMAINS = frozenset(
    {"L2Ball", "Arrays", "Categories", "MultiChoice", "GroupBy", "OpenVocabulary", "Survey", "UnlistedLabels"}
)
DOMAIN_FOLDERS = ("domain", "domains")
SMALL, LARGE = 60, 800  # lines of a module

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Module:
    """What is counted of one file."""

    path: Path
    lines: int
    code: int
    imports: int

    @property
    def small(self) -> bool:
        """Whether it is too small to be a subject."""
        return self.lines < SMALL and self.path.name != "__init__.py"


def count_module(path: Path) -> Module:
    """Read and count one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code -= _lines_of(node.body[0])
    imports = set[int]().union(*(_lines_of(node) for node in tree.body if _is_import_or_all(node)))
    return Module(path, len(text.splitlines()), len(code), len(code & imports))


def count_folder(folder: Path) -> list[Module]:
    """Every module below a folder."""
    return [count_module(path) for path in sorted(folder.rglob("*.py"))]


def domain_questions(package: Path) -> list[tuple[Path, int]]:
    """File and line of each question for a concrete domain, outside the folder of the domains."""
    return [
        (path, line)
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in DOMAIN_FOLDERS
        for line in _questions(ast.parse(path.read_text(encoding="utf-8")))
    ]


def report(root: Path) -> Iterator[str]:
    """The lines to print."""
    counted = {name: count_folder(root / name) for name in FOLDERS}
    yield f"{'':12}{'modules':>9}{'code lines':>12}{'mean lines':>12}{'below 60':>10}{'imports, __all__':>18}"
    for name, modules in counted.items():
        code = sum(module.code for module in modules)
        mean = sum(module.lines for module in modules) / max(1, len(modules))
        share = sum(module.imports for module in modules) / max(1, code)
        small = sum(module.small for module in modules)
        yield f"{name + '/':12}{len(modules):9,}{code:12,}{mean:12.0f}{small:10,}{share:18.1%}"
    large = [module for modules in counted.values() for module in modules if module.lines > LARGE]
    found = [f"{module.path.relative_to(root)} ({module.lines:,})" for module in sorted(large, key=lambda m: -m.lines)]
    yield f"above {LARGE} lines: {', '.join(found) or 'none'}"
    package = root / PACKAGE
    by_folder = Counter[str]()
    for module in counted["src"]:
        first, *rest = module.path.relative_to(package).parts
        by_folder[first if rest else "(modules)"] += module.code
    yield f"code lines of {PACKAGE}/ by folder:"
    for folder, code in by_folder.most_common():
        yield f"{code:9,} {folder}"
    questions = domain_questions(package)
    yield f"questions for a concrete domain: {len(questions):,} in {len({path for path, _ in questions}):,} files"


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _is_import_or_all(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _questions(tree: ast.Module) -> Iterator[int]:
    names = DOMAINS | _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt) and any(_named(asked) & names for asked in _asked(node)):
            yield node.lineno


def _aliases(tree: ast.Module) -> set[str]:
    """Names of the module that stand for domains: a tuple or a union of them."""
    found: set[str] = set()
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if value is not None and _named(value) & DOMAINS:
                    found.add(name)
    return found


def _asked(node: ast.AST) -> Sequence[ast.expr]:
    """The classes that a node asks for, whatever they are."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        return node.args[1:2]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.Match):
        patterns = [pattern for case in node.cases for pattern in ast.walk(case.pattern)]
        return [pattern.cls for pattern in patterns if isinstance(pattern, ast.MatchClass)]
    return []


def _named(node: ast.expr) -> set[str]:
    """`Arrays`, `domain.Arrays`, `(Arrays, L2Ball)` and `Arrays | L2Ball`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.Tuple(elts=parts):
            return set[str]().union(*map(_named, parts))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _named(left) | _named(right)
    return set()


def main() -> None:
    """Print the counts of the tree at ROOT, by default the one that this file is part of."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    print("\n".join(report(root)))


if __name__ == "__main__":
    main()
