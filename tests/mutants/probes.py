"""Which mutants differ from the scheduler while a test runs.

A test can notice a mutant only if the changed expression has another value in it, once.  One run of all tests measures
this for all mutants: each expression that has mutants is in a probe, which returns the value of the expression and records
the mutants that would have another one.

Most mutants differ whenever their expression is evaluated.  Three kinds do not:

* `<` and `<=`, `>` and `>=` differ if both sides are equal
* a filter that lets all through differs where the filter is false
* `and` and `or` with the other one in their place, or without an operand: the probe also evaluates the operands that Python
  would skip.  An exception there counts as a difference, and so does a call, which might change something.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import CodeType

from tests.mutants.code_swap import codes_of
from tests.mutants.mutations import BOUNDARY, Edit, Mutant, Outermost

Place = tuple[int, str, int | None]  # the id of a node, and the field and the index in it
Kind = tuple[str, int | None]  # when a mutant has another value; if the mutant lacks an operand: which one
# Of operands: True of `or`, False of `and`; True if only the truth of the value counts; and which of them call something.
Form = tuple[bool, bool, tuple[int, ...]]
ALWAYS, COMPARED, OPERANDS, FALSE = KINDS = "always", "compared", "operands", "false"
ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
LATER = "__mutants_later__"
RAISED = object()
SCOPED = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)  # have another meaning in a lambda
HARMLESS = {
    "isinstance",
    "len",
    "bool",
    "set",
    "frozenset",
    "tuple",
    "list",
    "min",
    "max",
    "abs",
    "get",
    "keys",
    "values",
    "items",
}


class Probes:
    """The mutants, by their places in the list, that differed since the last look."""

    def __init__(self) -> None:
        self._differing: set[int] = set()
        self._skipped = 0  # depth of operands that are evaluated though Python would skip them
        for name, probe in (
            (ALWAYS, self._always),
            (COMPARED, self._compared),
            (OPERANDS, self._operands),
            (FALSE, self._false),
        ):
            setattr(builtins, _global(name), probe)

    def taken(self) -> list[int]:
        """The mutants that differed since the last call."""
        found = sorted(self._differing)
        self._differing.clear()
        return found

    def _always(self, mutants: Sequence[int], value: object = True) -> object:
        if not self._skipped:
            self._differing.update(mutants)
        return value

    def _false(self, mutants: Sequence[int], value: object) -> object:
        return value if value else self._always(mutants, value)

    def _compared(self, mutants: Sequence[int], name: str, left: object, right: object) -> object:
        if left == right:
            self._always(mutants)
        return getattr(operator, name)(left, right)

    def _operands(
        self, mutants: Sequence[tuple[int, int | None]], form: Form, first: object, *others: Callable[[], object]
    ) -> object:
        ends, is_condition, calls = form
        values = [first]
        while bool(values[-1]) is not ends and len(values) <= len(others):
            values.append(others[len(values) - 1]())
        value = values[-1]
        if self._skipped:
            return value
        skipped = range(len(values), len(others) + 1)
        values += [RAISED if index in calls else self._unless_raised(others[index - 1]) for index in skipped]
        for mutant, lacks in mutants:
            left = values if lacks is None else [*values[:lacks], *values[lacks + 1 :]]
            if _differs(_value(left, ends if lacks is not None else not ends), value, is_condition):
                self._differing.add(mutant)
        return value

    def _unless_raised(self, operand: Callable[[], object]) -> object:
        self._skipped += 1
        try:
            return operand()
        except Exception:  # noqa: BLE001 - a mutant may raise anything
            return RAISED
        finally:
            self._skipped -= 1


def _value(operands: Sequence[object], ends: bool) -> object:
    """Of `or` or `and` with these operands.  ends: the truth of an operand after which no other one is evaluated"""
    value: object = None
    for value in operands:
        if value is RAISED or bool(value) is ends:
            break
    return value


def _differs(value: object, other: object, is_condition: bool) -> bool:
    if value is RAISED:
        return True
    return bool(value) is not bool(other) or not (is_condition or value is other or value == other)


def _global(name: str) -> str:
    return f"__mutants_{name}__"


def probed(outermost: Outermost, mutants: Sequence[tuple[int, Mutant]], path: str) -> Iterator[CodeType]:
    """The code objects of a function with probes.  mutants: of this function, each with its place in the list of all"""
    by_place: defaultdict[Place, list[tuple[int, Edit, Kind]]] = defaultdict(list)
    for index, mutant in mutants:
        edit = mutant.edit
        by_place[id(edit.parent), edit.name, edit.index].append((index, edit, _kind(_now(edit), edit)))
    undo = []
    try:
        # A mutant of an expression is found before those of its parts, so parts get their probes first.
        for edits in reversed(by_place.values()):
            place = edits[0][1]
            node = _wrapped(_now(place), [(index, kind) for index, _, kind in edits], _is_condition(place))
            undo.append(Edit(place.parent, place.name, place.index, node).swap())
        module = compile(outermost.module(), path, "exec")
    finally:
        for edit in reversed(undo):
            edit.swap()
    return (code for code in codes_of(module, outermost.name) if LATER not in code.co_varnames)


def _now(edit: Edit) -> ast.AST | None:
    value = getattr(edit.parent, edit.name)
    node: ast.AST | None = value if edit.index is None else value[edit.index]
    return node


def _wrapped(node: ast.AST | None, kinds: Sequence[tuple[int, Kind]], is_condition: bool) -> ast.AST:
    """The statement, the guard of a case, or the expression, with its probes."""
    of = {kind: tuple(index for index, (each, _) in kinds if each == kind) for kind in KINDS}
    if node is None:
        return _call(ALWAYS, of[ALWAYS])
    if isinstance(node, ast.stmt):
        return ast.copy_location(ast.If(test=_call(ALWAYS, of[ALWAYS]), body=[node], orelse=[]), node)
    assert isinstance(node, ast.expr)
    inner = node
    if isinstance(node, ast.BoolOp) and of[OPERANDS]:
        lacking = tuple((index, lacks) for index, (kind, lacks) in kinds if kind == OPERANDS)
        first, *others = node.values
        calls = tuple(index for index, value in enumerate(node.values) if _calls(value))
        form: Form = isinstance(node.op, ast.Or), is_condition, calls
        inner = _call(OPERANDS, lacking, ast.Constant(form), first, *map(_later, others))
    elif isinstance(node, ast.Compare) and of[COMPARED]:
        inner = _call(COMPARED, of[COMPARED], ast.Constant(ORDERS[type(node.ops[0])]), node.left, *node.comparators)
    for kind in (FALSE, ALWAYS):
        if of[kind]:
            inner = _call(kind, of[kind], inner)
    return ast.copy_location(inner, node)


def _kind(node: ast.AST | None, edit: Edit) -> Kind:
    other = edit.node
    match node:
        case ast.BoolOp(values=values) if not any(_is_scoped(value) for value in values[1:]):
            kept = [other] if other in values else other.values if isinstance(other, ast.BoolOp) else []
            lacks = [index for index, value in enumerate(values) if value not in kept]
            if isinstance(other, ast.BoolOp) and not lacks:
                return OPERANDS, None
            if len(lacks) == 1 and len(kept) == len(values) - 1:
                return OPERANDS, lacks[0]
        case ast.Compare(ops=[op]) if isinstance(other, ast.Compare) and type(other.ops[0]) is BOUNDARY.get(type(op)):
            return COMPARED, None
    if isinstance(edit.parent, ast.comprehension) and isinstance(other, ast.Constant) and other.value is True:
        return FALSE, None
    return ALWAYS, None


def _is_condition(edit: Edit) -> bool:
    """True if only the truth of the expression counts."""
    return edit.name in ("test", "guard", "ifs") or isinstance(edit.parent, ast.UnaryOp)


def _calls(node: ast.AST) -> bool:
    """True if evaluating the expression may change something."""
    names = (
        getattr(each.func, "id", None) or getattr(each.func, "attr", None)
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )
    return any(name not in HARMLESS and name not in map(_global, KINDS) for name in names)


def _is_scoped(node: ast.AST) -> bool:
    return any(isinstance(each, SCOPED) for each in ast.walk(node))


def _later(node: ast.expr) -> ast.expr:
    marker = ast.arg(arg=LATER)  # tells its code from that of a lambda of the scheduler
    nothing = ast.arguments(posonlyargs=[], args=[], vararg=marker, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(args=nothing, body=node), node)


def _call(name: str, mutants: tuple[object, ...], *arguments: ast.expr) -> ast.Call:
    return ast.Call(
        func=ast.Name(id=_global(name), ctx=ast.Load()), args=[ast.Constant(mutants), *arguments], keywords=[]
    )
