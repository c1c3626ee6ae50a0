"""Small wrong changes of a module's source, one at a time: what a slip of the pen would look like."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants_of"]

_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
    "any": "all",
    "all": "any",
    "expm1": "exp",
    "log1p": "log",
}
_CHARGES = ("ROUNDING", "ULP", "ALLOWANCE", "UNDERFLOW", "VANISHED", "BALANCE")
"""Small numbers by which a bound is kept on the safe side, without the underscore of those that a module keeps."""
_TINY = 1e-8


@dataclass(frozen=True, slots=True)
class Mutant:
    """One line of one function, before and after; `kernel` where compiled code depends on it, `charge` where a bound
    would lose what keeps it on the safe side.
    """

    path: Path
    function: str
    before: str
    after: str
    source: str
    kernel: bool
    charge: bool

    @property
    def name(self) -> str:
        """The same wherever in the file the line stands."""
        return f"{self.path}:{self.function}: {self.before} -> {self.after}"


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """Every mutant of a module."""
    text = (root / path).read_text()
    found = []
    for node, function, kernel in _places(ast.parse(text)):
        charge = _is_charge(node)
        for start, stop, new in [_whole(node, text, "0.0")] if charge else _changes(node, text):
            before, after = (
                " ".join(_statement(changed, node.lineno, node.end_lineno).split())
                for changed in (text, text[:start] + new + text[stop:])
            )
            found.append(Mutant(path, function, before, after, text[:start] + new + text[stop:], kernel, charge))
    return found


def _is_charge(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return name.lstrip("_") in _CHARGES
        case ast.Call(ast.Name("slack")):
            return True
        case ast.Constant(float() as value):
            return 0.0 < value < _TINY
        case ast.BinOp(ast.Constant(2.0), ast.Pow(), ast.UnaryOp(ast.USub(), ast.Constant(int() as exponent))):
            return 2.0**-exponent < _TINY
        case ast.BinOp(ast.Constant(), ast.Mult(), charge):
            return _is_charge(charge)
    return False


def _places(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, bool]]:
    """What may be changed, with the function it stands in, and whether it ends up in machine code."""

    def visit(node: ast.AST, function: str, kernel: bool) -> Iterator[tuple[ast.expr | ast.stmt, str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
                continue
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = child.name if not function else f"{function}.{child.name}"
                compiled = any(isinstance(d, ast.Name) and d.id == "kernel" for d in child.decorator_list)
                for part in child.body:
                    yield from visit_one(part, name, kernel or compiled)
            else:
                yield from visit_one(child, function, kernel)

    def visit_one(node: ast.AST, function: str, kernel: bool) -> Iterator[tuple[ast.expr | ast.stmt, str, bool]]:
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.arguments):
            return
        if isinstance(node, ast.keyword) and node.arg == "tolerance":
            return  # how closely a search looks; what it finds is evaluated
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from visit(ast.Module([node], []), function, kernel)
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node, ast.AnnAssign):
            node = ast.Expr(node.value) if node.value else ast.Pass()
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return
        if isinstance(node, ast.expr | ast.stmt) and hasattr(node, "lineno"):
            # constants of a module are part of compiled code that reads them
            yield node, function or "module", kernel or not function
        if not _is_charge(node):  # which is taken away as a whole
            yield from visit(node, function, kernel)

    yield from visit(tree, "", False)


def _whole(node: ast.expr | ast.stmt, text: str, new: str) -> tuple[int, int, str]:
    """The replacement of all of a node."""
    lines = text.splitlines(keepends=True)

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset), new


def _changes(node: ast.expr | ast.stmt, text: str) -> Iterator[tuple[int, int, str]]:
    """Replacements (from, to, by what) that this node alone stands for."""

    def start(of: ast.expr | ast.stmt) -> int:
        return _whole(of, text, "")[0]

    def end(of: ast.expr | ast.stmt) -> int:
        return _whole(of, text, "")[1]

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[tuple[int, int, str]]:
        gap = text[end(left) : start(right)]
        if gap.count(old) == 1 and "#" not in gap:
            place = end(left) + gap.index(old)
            yield place, place + len(old), new

    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            yield from between(left, right, *_OPERATORS[type(op)])
        case ast.Compare(left, [op], [right]):
            yield from between(left, right, *_COMPARISONS[type(op)])
        case ast.BoolOp(op, [left, right]):
            old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from between(left, right, old, new)
        case ast.UnaryOp(ast.Not() | ast.USub() as op, operand) if not isinstance(operand, ast.Constant):
            yield start(node), start(node) + len("not " if isinstance(op, ast.Not) else "-"), ""
        case ast.IfExp(test, _, _):
            yield start(test), end(test), f"not ({text[start(test) : end(test)]})"
        case ast.Constant(bool() as value):
            yield start(node), end(node), str(not value)
        case ast.Constant(int() as value):
            yield start(node), end(node), str(value + 1)
        case ast.Constant(float() as value):
            yield start(node), end(node), repr(2.0 * value) if value else "1.0"
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _NAMES:
            yield end(node) - len(name), end(node), _NAMES[name]
        case ast.AugAssign():
            yield start(node), end(node), "pass"
        case ast.If(test, _, []):
            yield start(test), end(test), "False"


def _statement(text: str, first: int, last: int | None) -> str:
    return "\n".join(text.splitlines()[first - 1 : last or first])
