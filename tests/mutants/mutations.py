"""Mutants of a module: its functions, each time with one guard, comparison or early return changed.

A mutant is a change that a test of the behaviour should notice.  The changes, within functions and methods:

* a condition (`if`, `while`, a conditional expression, the guard of a case) is negated; the filter of a comprehension also
  lets all through; a case is never taken
* a comparison is negated; `<` and `<=`, `>` and `>=` take each other's place
* `and` and `or` take each other's place; one operand is dropped; `not` is dropped
* a `return`, `raise`, `continue` or `break` below a condition or in a loop is dropped
* True and False take each other's place

Assertions (also `strict=True` of `zip`) and what follows an impossible case (`assert_never`) are left alone: only a defect
reaches them.  Code of modules and of classes (constants, defaults, decorators) runs once, at import: it is counted
(`at_import`), and not changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_RUN = ("annotation", "returns", "decorator_list", "type_comment")  # fields whose code is not part of the behaviour


@dataclass(frozen=True, slots=True)
class Edit:
    """One node in the place of another: the value of a field, or of one place in a list."""

    parent: ast.AST
    name: str
    index: int | None
    node: ast.AST

    def swap(self) -> Edit:
        """Make the change.  Returns the edit that takes it back."""
        if self.index is None:
            before = getattr(self.parent, self.name)
            setattr(self.parent, self.name, self.node)
        else:
            siblings = getattr(self.parent, self.name)
            before = siblings[self.index]
            siblings[self.index] = self.node
        return Edit(self.parent, self.name, self.index, before)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function.

    path      of the module, below the root
    function  its qualified name in the module
    line      of the change
    before    the statement without the change, as text; of a statement that has a body, its head
    after     the same with the change
    """

    path: str
    function: str
    line: int
    before: str
    after: str
    outermost: Outermost = field(repr=False, compare=False)
    edit: Edit = field(repr=False, compare=False)

    @property
    def package(self) -> str:
        """The package of the module, such as `scheduler/rules`; of a module of the root package, the module."""
        above = str(Path(self.path).parent)
        return above if "/" in above else self.path

    @property
    def boundary(self) -> str:
        """The comparison without the change, if the mutant differs at equal sides alone (`<` and `<=`); otherwise empty."""
        value = getattr(self.edit.parent, self.edit.name)
        node = value if self.edit.index is None else value[self.edit.index]
        match node, self.edit.node:
            case ast.Compare(ops=ops), ast.Compare(ops=others):
                changed = [(type(op), type(other)) for op, other in zip(ops, others, strict=True) if op is not other]
                return ast.unparse(node) if all(BOUNDARY.get(op) is other for op, other in changed) else ""
            case _:
                return ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.before}  →  {self.after}"


@dataclass(frozen=True, slots=True)
class Outermost:
    """A function that is in no other function, with the names of the classes that it is in.  source: of its module"""

    path: str
    classes: tuple[str, ...]
    node: ast.FunctionDef | ast.AsyncFunctionDef
    source: str = field(repr=False)

    @property
    def name(self) -> str:
        """The qualified name in the module."""
        return ".".join((*self.classes, self.node.name))

    def module(self) -> ast.Module:
        """A module with this function alone.  Its code objects are named and numbered as those of the whole module."""
        inner: ast.stmt = self.node
        for name in reversed(self.classes):
            inner = ast.ClassDef(name=name, bases=[], keywords=[], body=[inner], decorator_list=[])
        future = ast.ImportFrom(module="__future__", names=[ast.alias(name="annotations")], level=0)
        return ast.fix_missing_locations(ast.Module(body=[future, inner], type_ignores=[]))


@dataclass(frozen=True, slots=True)
class Mutants:
    """Of one module.  at_import: how many changes its code outside of functions would have"""

    mutants: tuple[Mutant, ...]
    at_import: int


def mutants_of(path: str, source: str) -> Mutants:
    """All mutants of the module with this source.  path: below the root, as the mutants show it"""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for outermost in _outermost(path, source, tree.body, ()):
        walk = _Walk()
        walk.body(outermost.node, "body", _Place("", None))
        seen: set[tuple[int, str, int]] = set()
        for place, line, edit in walk.edits:
            before = place.text()
            back = edit.swap()
            after = place.text()
            back.swap()
            known = (id(place.statement), after, line)
            if known not in seen and after != before:
                seen.add(known)
                found.append(Mutant(path, outermost.name, line, before, after, outermost, edit))
    return Mutants(tuple(found), _at_import(tree))


def _outermost(path: str, source: str, body: list[ast.stmt], classes: tuple[str, ...]) -> Iterator[Outermost]:
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield Outermost(path, classes, node, source)
        elif isinstance(node, ast.ClassDef):
            yield from _outermost(path, source, node.body, (*classes, node.name))


def _at_import(tree: ast.Module) -> int:
    """The number of changes of the code that is in no function."""
    walk = _Walk(into_functions=False)
    walk.body(tree, "body", _Place("", None))
    return len(walk.edits)


@dataclass(frozen=True, slots=True)
class _Place:
    """A statement below the head of another; the text of both names it in the report."""

    above: str
    statement: ast.AST | None
    of: ast.AST | None = None  # holds the statement; a statement that is dropped is looked up there
    name: str = ""
    index: int = 0

    def text(self) -> str:
        now = self.statement if self.of is None else getattr(self.of, self.name)[self.index]
        assert now is not None
        return f"{self.above} {_head(now)}".strip() if isinstance(now, (*LEAVES, ast.Pass)) else _head(now)


def _head(node: ast.AST) -> str:
    """The text of a statement, of one with a body its first line."""
    match node:
        case ast.If() | ast.While():
            return f"{'if' if isinstance(node, ast.If) else 'while'} {ast.unparse(node.test)}:"
        case ast.For() | ast.AsyncFor():
            return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}:"
        case ast.match_case():
            guard = f" if {ast.unparse(node.guard)}" if node.guard else ""
            return f"case {ast.unparse(node.pattern)}{guard}:"
        case ast.With() | ast.AsyncWith() | ast.Match() | ast.Try() | ast.FunctionDef() | ast.ClassDef():
            return ast.unparse(node).splitlines()[0]
        case _:
            return ast.unparse(node)


class _Walk:
    """Collects the edits of a tree, each with its place and its line."""

    def __init__(self, *, into_functions: bool = True) -> None:
        self.edits: list[tuple[_Place, int, Edit]] = []
        self._into_functions = into_functions

    def body(self, parent: ast.AST, name: str, above: _Place) -> None:
        """The statements of one body, of which `above` is the head."""
        nested = above.statement is not None
        for index, statement in enumerate(getattr(parent, name)):
            if isinstance(statement, ast.Assert) or _is_impossible(statement):
                continue
            head = above.text() if nested else ""
            if name == "orelse":
                head = f"else of {head}"
            place = _Place(head, statement, parent, name, index)
            if nested and isinstance(statement, LEAVES):
                self._add(place, statement, Edit(parent, name, index, ast.copy_location(ast.Pass(), statement)))
            if self._into_functions or not isinstance(statement, FUNCTIONS):
                self._inside(statement, place)

    def _inside(self, node: ast.AST, place: _Place) -> None:
        """What is below a statement, a case or an expression."""
        for name, value in ast.iter_fields(node):
            if name in NOT_RUN or (isinstance(node, ast.arguments) and name not in ("defaults", "kw_defaults")):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                self.body(node, name, _Place("", None) if isinstance(node, FUNCTIONS) else place)
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        self._one(Edit(node, name, index, each), place)
            elif isinstance(value, ast.AST):
                self._one(Edit(node, name, None, value), place)

    def _one(self, here: Edit, place: _Place) -> None:
        node = here.node
        if isinstance(node, ast.match_case):
            if any(map(_is_impossible, node.body)):
                return
            place = _Place("", node)
            never = ast.copy_location(ast.Constant(False), node.pattern)
            self._add(place, node.pattern, Edit(node, "guard", None, never))
        elif isinstance(node, ast.ExceptHandler):
            place = _Place("", node.type or node)
        elif isinstance(node, ast.expr):
            for other in _instead(here):
                ast.fix_missing_locations(ast.copy_location(other, node))
                self._add(place, node, Edit(here.parent, here.name, here.index, other))
        self._inside(node, place)

    def _add(self, place: _Place, at: ast.AST, edit: Edit) -> None:
        self.edits.append((place, at.lineno, edit))  # type: ignore[attr-defined]


def _instead(here: Edit) -> Iterator[ast.expr]:
    """The expressions that take the place of this one."""
    node = here.node
    assert isinstance(node, ast.expr)
    is_filter = isinstance(here.parent, ast.comprehension) and here.name == "ifs"
    if is_filter:
        yield ast.Constant(True)
    if is_filter or here.name in ("test", "guard"):
        yield _negated(node)
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for index in range(len(values)):
                left = [*values[:index], *values[index + 1 :]]
                yield left[0] if len(left) == 1 else ast.BoolOp(op, left)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)


def _negated(node: ast.expr) -> ast.expr:
    match node:
        case ast.Compare(ops=[op]):
            return ast.Compare(node.left, [NEGATED[type(op)]()], node.comparators)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case _:
            return ast.UnaryOp(ast.Not(), node)


def _compared(node: ast.Compare) -> Iterator[ast.expr]:
    """The comparison with one of its operators changed."""
    for index, op in enumerate(node.ops):
        for table in (NEGATED, BOUNDARY):
            if other := table.get(type(op)):
                yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)


def _is_impossible(statement: ast.AST) -> bool:
    """True of what follows a case that cannot be, and of a guard against a defect of ours."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case _:
            return False
