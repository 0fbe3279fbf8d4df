"""Which texts of the code reach which reason of a condition or event: found in the syntax trees, nothing is run.

A message is an argument of a few constructors (SINKS).  From there this goes backwards: through assignments, f-strings, calls
to functions that return a part, and parameters to the calls that give them.  A function that passes its own parameters on as
reason and message is a sink, too, so that `status(pod, names.PENDING, message)` is found with its own reason.

What is found is a superset: a value is followed to every place that may give it, whatever the condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from scheduler import names

Function = ast.FunctionDef | ast.AsyncFunctionDef
REASONS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
# Fields that carry a part of a message from one function to another, and the classes that have them.
CARRIED: Mapping[str, frozenset[str]] = {
    "crashes": frozenset({"Pod"}),
    "cut": frozenset({"Lead"}),
    "filled": frozenset({"Tenant"}),
    "of": frozenset({"PodsPerNode"}),
    "problem": frozenset({"Claim", "Feasible"}),
    "refused_fields": frozenset({"Pod"}),
    "rule": frozenset({"Tenant", "_Filling"}),
    "limit_exceeded": frozenset({"Pod"}),
    "waits": frozenset({"Pod"}),
    "why": frozenset({"Blocked"}),
}
# The same of fields that are written later, or that hold many by key.
STORED = frozenset({"bind_trouble", "cannot_read", "anomalies", "late_changes", "reacquired", "release_messages"})
PROPERTIES = frozenset({"about", "gathered"})
# Exceptions that are raised with a part of a sentence, which the handler completes.
CAUGHT = frozenset({"Missing", "QuantityError", "Unreadable"})
# Functions whose answer is a value and no sentence: a time of day, a list of nodes, a number of things, a text of others.
VALUES = frozenset(
    {"age", "clock", "count", "dated", "exact_clock", "folded", "line", "said", "some", "span", "spelled"}
)
IN_LOG = "log"  # what only the log, the traces and `explain` show
IN_SLURM = "Slurm"  # the reason of a node in Slurm
IN_ACCOUNTING = "accounting"  # the comment of a job in Slurm


@dataclass(frozen=True, slots=True)
class Sink:
    """A call whose argument becomes a message.

    reasons  arguments (position and name) that are the reason, the first that is one
    message  the argument that is the message
    fixed    the reason where no argument says it
    """

    message: tuple[int, str]
    reasons: tuple[tuple[int, str], ...] = ()
    fixed: str = ""


SINKS: dict[str, Sink] = {
    "Refusal": Sink((1, "message"), ((0, "reason"),)),
    "PodStatus": Sink((2, "message"), ((6, "event"), (1, "reason"))),
    "PodStatuses": Sink((2, "message"), ((4, "event"), (1, "reason"))),
    "JobStatus": Sink((2, "message"), ((1, "reason"),)),
    "SetPodCondition": Sink((5, "message"), ((6, "event"), (4, "condition"))),
    "SetJobCondition": Sink((5, "message"), ((4, "condition"),)),
    "Condition": Sink((2, "message"), ((1, "reason"),)),  # of a node
    "BindPod": Sink((10, "message"), fixed=names.SCHEDULED),
    "DeletePod": Sink((4, "reason"), fixed=names.ENDED),
    "FailByDeadline": Sink((4, "reason"), fixed=names.ENDED),
    "EvictPod": Sink((4, "reason"), fixed=names.ENDED),
    "RestoreKeys": Sink((5, "reason"), fixed=names.PUT_BACK),
    "CancelJob": Sink((6, "pod_message"), fixed=names.GRANT_RELEASED),
    "Failed": Sink((1, "message"), fixed=names.NODE_REFUSED),
    "ChangeNode": Sink((2, "reason"), fixed=IN_SLURM),
    "RecordEnd": Sink((4, "comment"), fixed=IN_ACCOUNTING),
}
# Actions whose reason only the log and the traces show, and decisions whose reason to wait only `explain` shows.
LOGGED = {
    **{name: Sink((1, "why"), fixed=IN_LOG) for name in ("wake", "wait_for")},
    "Decision": Sink((3, "why"), fixed=IN_LOG),
    **{
        name: Sink((2, "reason"), fixed=IN_LOG)
        for name in ("AllocateNow", "SubmitJob", "FindJobs", "ReadLimits", "ReadOwner")
    },
    **{name: Sink((1, "reason"), fixed=IN_LOG) for name in ("ReadJob", "RegisterNode", "RemoveNode")},
    **{name: Sink((4, "reason"), fixed=IN_LOG) for name in ("CancelJob", "ReadClaims", "ReadPod")},
    "RecordEnd": Sink((5, "reason"), fixed=IN_LOG),
    "UpdateJob": Sink((5, "reason"), fixed=IN_LOG),
    "NudgeScheduler": Sink((3, "reason"), fixed=IN_LOG),
    "BindPod": Sink((7, "reason"), fixed=IN_LOG),
    "SetDeadline": Sink((5, "reason"), fixed=IN_LOG),
    "SelectVolumeNode": Sink((6, "reason"), fixed=IN_LOG),
    "PollNodes": Sink((0, "reason"), fixed=IN_LOG),
    "Reconfigure": Sink((0, "reason"), fixed=IN_LOG),
    "TaintNode": Sink((2, "reason"), fixed=IN_LOG),
    "UnmarkNode": Sink((2, "reason"), fixed=IN_LOG),
}


@dataclass(frozen=True, slots=True)
class Text:
    """A text in the code.

    template  with each value that is filled in as {words}
    whole     it is a message; else it is a part of one
    """

    template: str
    whole: bool


@dataclass(slots=True)
class Module:
    """The syntax tree of a file, with what is asked of it again and again."""

    name: str
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an expression: its module, and its function if it is in one."""

    module: str
    function: Function | None

    @property
    def key(self) -> tuple[str, int]:
        return self.module, id(self.function)


class Code:
    """All modules, and which function calls which."""

    def __init__(self, paths: Iterable[Path], root: Path) -> None:
        self.modules = {each.name: each for each in (_module(path, root) for path in paths)}
        self.calls: dict[str, list[tuple[ast.Call, Place]]] = {}
        self.methods: dict[str, list[tuple[Function, str]]] = {}
        self.appended: dict[tuple[str, str], list[tuple[ast.expr, Function | None]]] = {}  # to a list, by its name
        self.stored: dict[str, list[tuple[ast.expr, Place]]] = {}  # in a field, or in a mapping that is a field
        self.lines: dict[
            int, int
        ] = {}  # of the statement of an expression; those within f-strings differ between Pythons
        for module in self.modules.values():
            for statement in ast.walk(module.tree):
                if isinstance(statement, ast.stmt):  # inner statements come after the outer ones, and win
                    self.lines.update((id(each), statement.lineno) for each in ast.walk(statement))
            for node, function in _with_functions(module.tree):
                if isinstance(node, ast.Call):
                    self.calls.setdefault(_last(node.func), []).append((node, Place(module.name, function)))
                self._note(node, Place(module.name, function))
            for owner in module.classes.values():
                for each in owner.body:
                    if isinstance(each, Function):
                        self.methods.setdefault(each.name, []).append((each, module.name))

    def _note(self, node: ast.AST, place: Place) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                self.appended.setdefault((place.module, name), []).append((value, place.function))
            case ast.Assign(
                targets=[ast.Attribute(attr=attr) | ast.Subscript(value=ast.Attribute(attr=attr))], value=value
            ):
                self.stored.setdefault(attr, []).append((value, place))

    def called(self, call: ast.Call, place: Place) -> tuple[Function, str] | None:
        """The function of this code that is called, and its module; None: it is another one, or not known."""
        name = _last(call.func)
        module = self.modules[place.module]
        if isinstance(call.func, ast.Name):
            if name in module.functions:
                return module.functions[name], module.name
            if name in module.imported:
                where, original = module.imported[name]
                there = self.modules.get(where)
                if there is not None and original in there.functions:
                    return there.functions[original], where
            return None
        if isinstance(call.func, ast.Attribute):
            base = call.func.value
            if isinstance(base, ast.Name) and base.id in module.imported:
                where, original = module.imported[base.id]
                there = self.modules.get(f"{where}.{original}")
                if there is not None and name in there.functions:
                    return there.functions[name], there.name
            known = self.methods.get(name, [])
            here = [each for each in known if each[1] == place.module]
            if len(here) == 1 or len(known) == 1:
                return (here or known)[0]
        return None

    def constructor(self, call: ast.Call) -> tuple[ast.ClassDef, str] | None:
        """The class of this code that is made; None: it is none."""
        name = _last(call.func)
        return next(((each.classes[name], each.name) for each in self.modules.values() if name in each.classes), None)


def _module(path: Path, root: Path) -> Module:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    module = Module(name, ast.parse(path.read_text(encoding="utf-8")), values=vars(import_module(name)))
    for node in module.tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                module.functions[node.name] = node
            case ast.ClassDef():
                module.classes[node.name] = node
            case ast.Assign(targets=[ast.Name(id=target)]):
                module.constants[target] = node.value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                module.constants[target] = value
    for each in ast.walk(module.tree):
        if isinstance(each, ast.ImportFrom) and each.module:
            module.imported.update({one.asname or one.name: (each.module, one.name) for one in each.names})
    return module


def _with_functions(tree: ast.AST, function: Function | None = None) -> Iterator[tuple[ast.AST, Function | None]]:
    for node in ast.iter_child_nodes(tree):
        yield node, function
        yield from _with_functions(node, node if isinstance(node, Function) else function)


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """The expression that a call passes for the parameter; None if the call leaves the default."""
    named = next((each.value for each in call.keywords if each.arg == name), None)
    if named is not None:
        return named
    if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
        return None
    return call.args[position] if 0 <= position < len(call.args) else None


def _parameters(function: Function) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


# --- templates ----------------------------------------------------------------------------------------------------


def is_prose(text: str) -> bool:
    """True for a text that a person reads: it has a word and a blank."""
    return " " in text.strip() and any(each.isalpha() for each in text)


def template(node: ast.expr, values: Mapping[str, object]) -> str | None:
    """An expression as a text with {words} for what is filled in; None: it is no text.

    values   what the names of its module are: a constant is shown as what it is
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(each, values) or "" for each in parts)
        case ast.FormattedValue(value=value, format_spec=form):
            return _filled(value, values, template(form, values) or "" if form is not None else "")
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            said = [template(each, values) for each in (left, right)]
            if all(each is None for each in said):
                return None
            sides = zip(said, (left, right), strict=True)
            return "".join(part if part is not None else _filled(each, values) for part, each in sides)
    return None


CALLED = {
    "clock": "time",
    "exact_clock": "time",
    "span": "time span",
    "line": "",
    "len": "number",
    "listed": "list",
    "join": "list",
    "str": "",
}
CALLED |= dict.fromkeys(
    ("rstrip", "removeprefix", "removesuffix", "strip", "lower", "get", "sorted", "min", "max", "repr"), ""
)


def constant(node: ast.expr, values: Mapping[str, object], form: str = "") -> str | None:
    """A constant (a name in capitals) as a field of this format shows it; None: it is something else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        of = values.get(node.value.id)
        found = getattr(of, node.attr, None) if isinstance(of, ModuleType) else None
    else:
        found = values.get(node.id) if isinstance(node, ast.Name) else None
    is_constant = isinstance(found, str | int | float) and _last(node).strip("_").isupper()
    return format(found, form) if is_constant else None


def _filled(node: ast.expr, values: Mapping[str, object], form: str = "") -> str:
    known = constant(node, values, form)
    if known is not None:
        return known
    inner = template(node, values)
    return inner if inner is not None else "{" + _words(node).replace("_", " ").strip() + "}"


def _words(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name.strip("_").lower()
        case ast.Attribute(value=value, attr=attr):
            before = _last(value).strip("_")
            return attr if before in ("", "self", "view", "world", "names", "config", "tuning") else f"{before}.{attr}"
        case ast.Call(func=func, args=arguments):
            said = CALLED.get(_last(func), _last(func).strip("_"))
            if said:
                return said
            return _words(arguments[0]) if arguments else _words(func.value) if isinstance(func, ast.Attribute) else "…"
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.Await(value=value):
            return _words(value)
        case ast.IfExp(body=body, orelse=other):
            kinds = [each for each in (body, other) if not isinstance(each, ast.Constant | ast.JoinedStr)]
            return _words(kinds[0]) if kinds else "…"
        case ast.BoolOp(values=values):
            return _words(values[0])
        case ast.BinOp(left=left):
            return _words(left)
    return "…"


# --- the way back -------------------------------------------------------------------------------------------------


class Search:
    """Follows messages back to the texts of the code.

    found  by reason: the texts
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.found: dict[str, dict[Text, None]] = {}
        self.reached: set[int] = set()
        self._done: set[tuple[int, str, bool]] = set()
        self._asked: dict[int, list[Text]] = {}
        self._sinks: dict[tuple[str, str], Sink] = {("", name): sink for name, sink in SINKS.items()}
        self._sinks["bridge.executor", "_queue"] = Sink((4, "message"), ((3, "reason"),))
        self._wrappers()
        self._follow_logged()
        self._follow_pairs()
        for call, place, sink in self._all_calls():
            message = argument(call, *sink.message)
            reasons = self._reasons(call, place, sink)
            if message is not None:
                for reason in reasons:
                    self._follow(message, place, reason, whole=True)

    def of(self, node: ast.expr, place: Place) -> list[Text]:
        """The texts that an expression may be, or be made of."""
        if id(node) not in self._asked:
            bucket = f"expression {id(node)}"
            self._follow(node, place, bucket, whole=True)
            self._asked[id(node)] = list(self.found.pop(bucket, ()))
        return self._asked[id(node)]

    def unreached(self, package: str) -> dict[str, list[str]]:
        """Texts for people that no message has, by module; docstrings and assertions are for readers of the code."""
        found: dict[str, list[str]] = {}
        for module in self.code.modules.values():
            if not module.name.startswith(package):
                continue
            passed = set(self.reached)
            for node in ast.walk(module.tree):
                match node:
                    case ast.Expr(value=ast.Constant() as docstring):
                        passed.add(id(docstring))
                    case ast.Assert(msg=ast.expr() as message):
                        passed.update(id(each) for each in ast.walk(message))
                    case ast.JoinedStr(values=values):
                        passed.update(id(each) for value in values for each in ast.walk(value))
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in passed:
                    said = template(node, module.values)
                    if said is not None and is_prose(said):
                        found.setdefault(module.name, []).append(said)
        return found

    # --- sinks

    def _sink(self, call: ast.Call, place: Place) -> Sink | None:
        name = _last(call.func)
        known = self.code.called(call, place)
        if known is not None:
            return self._sinks.get((known[1], known[0].name))
        return self._sinks.get(("", name))

    def _follow_logged(self) -> None:
        for name, sink in LOGGED.items():
            for call, place in self.code.calls.get(name, []):
                if (message := argument(call, *sink.message)) is not None:
                    self._follow(message, place, IN_LOG, whole=True)

    def _follow_pairs(self) -> None:
        """Functions that return a reason and, right behind it, its message."""
        for module in self.code.modules.values():
            for node, function in _with_functions(module.tree):
                if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Tuple):
                    continue
                place = Place(module.name, function)
                for one, following in pairwise(node.value.elts):
                    if isinstance(one, ast.Attribute) and _last(one.value) == "names" and one.attr in REASONS:
                        self._follow(following, place, REASONS[one.attr], whole=True)
        for call, place in self.code.calls.get("replace", []):  # of a refusal, with more words
            if (message := argument(call, -1, "message")) is not None:
                self._follow(message, place, names.REFUSED, whole=True)

    def _all_calls(self) -> Iterator[tuple[ast.Call, Place, Sink]]:
        for calls in list(self.code.calls.values()):
            for call, place in calls:
                if (sink := self._sink(call, place)) is not None:
                    yield call, place, sink

    def _wrappers(self) -> None:
        """Functions that pass their own parameters on as message and as reason."""
        more = True
        while more:
            more = False
            for call, place, sink in list(self._all_calls()):
                function = place.function
                if function is None or (place.module, function.name) in self._sinks:
                    continue
                given = _parameters(function)
                message = argument(call, *sink.message)
                reasons = [argument(call, *each) for each in sink.reasons]
                passed = [name for each in reasons for name in _names_in(each) if name in given]
                if isinstance(message, ast.Name) and message.id in given and passed:
                    self._sinks[place.module, function.name] = Sink(
                        (given.index(message.id), message.id), tuple((given.index(name), name) for name in passed)
                    )
                    more = True

    def _reasons(self, call: ast.Call, place: Place, sink: Sink) -> list[str]:
        if sink.fixed:
            return [sink.fixed]
        for each in sink.reasons:
            given = argument(call, *each)
            if given is not None and (found := sorted(set(self._constants(given, place)))):
                return found
        return []

    def _constants(self, node: ast.expr, place: Place, depth: int = 3) -> Iterator[str]:
        """The reasons that an expression may be."""
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and _last(each.value) == "names" and each.attr in REASONS:
                yield REASONS[each.attr]
            elif isinstance(each, ast.Name):
                module = self.code.modules[place.module]
                if module.imported.get(each.id, ("",))[0] == "scheduler.names" and each.id in REASONS:
                    yield REASONS[each.id]
                elif depth:
                    for value in assigned(each.id, place.function):
                        yield from self._constants(value, place, depth - 1)

    # --- messages

    def _follow(self, node: ast.expr, place: Place, reason: str, *, whole: bool) -> None:
        if (id(node), reason, whole) in self._done:
            return
        self._done.add((id(node), reason, whole))
        known = self.code.modules[place.module].values
        said = template(node, known)
        if said is not None:
            self.reached.update(id(each) for each in ast.walk(node))
            if is_prose(said):
                self.found.setdefault(reason, {})[Text(said, whole)] = None
            for value in (*_values_in(node, known), *_constants_in(node)):
                self._follow(value, place, reason, whole=False)
            return
        self._follow_other(node, place, reason, whole)

    def _follow_other(self, node: ast.expr, place: Place, reason: str, whole: bool) -> None:
        match node:
            case ast.Name():
                self._follow_name(node, place, reason, whole)
            case ast.Call():
                self._follow_call(node, place, reason, whole)
            case ast.Attribute(attr=attr) if place.module.startswith("scheduler."):
                for given, where in self._carried(attr):
                    self._follow(given, where, reason, whole=whole)
        for each in _choices(node):
            self._follow(each, place, reason, whole=whole)
        for each in _pieces(node):
            self._follow(each, place, reason, whole=False)

    def _follow_name(self, use: ast.Name, place: Place, reason: str, whole: bool) -> None:
        name, (since, until) = use.id, reaching(use.id, self.code.lines.get(id(use), use.lineno), place.function)
        values = [each for each in assigned(name, place.function) if since <= each.lineno <= until]
        for value in values:
            self._follow(value, place, reason, whole=whole)
        for caught in sorted(CAUGHT.intersection(_caught(name, place.function))):
            for call, where in self.code.calls.get(caught, []):
                for given in call.args[:1]:
                    self._follow(given, where, reason, whole=False)
        for value, function in self.code.appended.get((place.module, name), []):
            if function is not place.function:
                self._follow(value, Place(place.module, function), reason, whole=False)
        function = place.function
        if function is not None and name in _parameters(function) and not since:
            sink = self._sinks.get((place.module, function.name))
            if sink is None or name != sink.message[1]:  # each call of a sink is followed with its own reason
                for passed, where in self._passed(name, place):
                    self._follow(passed, where, reason, whole=whole)
        elif not values:
            module = self.code.modules[place.module]
            source, original = module.imported.get(name, (module.name, name))
            there = self.code.modules.get(source)
            if there is not None and original in there.constants:
                self._follow(there.constants[original], Place(source, None), reason, whole=whole)

    def _passed(self, name: str, place: Place) -> Iterator[tuple[ast.expr, Place]]:
        """The expressions that callers pass for a parameter of the function of *place*."""
        function = place.function
        given = _parameters(function) if function is not None else []
        if function is None or name not in given:
            return
        position = given.index(name) - (given[0] == "self")
        for call, where in self.code.calls.get(function.name, []):
            known = self.code.called(call, where)
            if known is not None and known[0] is function and (passed := argument(call, position, name)) is not None:
                yield passed, where

    def _follow_call(self, call: ast.Call, place: Place, reason: str, whole: bool) -> None:
        if _last(call.func) in VALUES:
            return
        known = self.code.called(call, place)
        if known is not None:
            function, module = known
            for returned in answers(function):
                self._follow(returned, Place(module, function), reason, whole=whole)
            return
        if isinstance(call.func, ast.Name):  # a function that was passed as a parameter
            for given, where in self._passed(call.func.id, place):
                if (function_of := self.code.called(ast.Call(given, [], []), where)) is not None:
                    for returned in answers(function_of[0]):
                        self._follow(returned, Place(function_of[1], function_of[0]), reason, whole=whole)
        if isinstance(call.func, ast.Attribute):  # of a text or a list: join, format, rstrip, get, values
            self._follow(call.func.value, place, reason, whole=whole)
        if self.code.constructor(call) is None:
            for each in call.args:
                self._follow(each, place, reason, whole=False)

    def _carried(self, attr: str) -> Iterator[tuple[ast.expr, Place]]:
        """The expressions that a field may hold, from all places that set it."""
        for module in self.code.modules.values():
            for owner in (each for each in module.classes.values() if each.name in CARRIED.get(attr, ())):
                declared = [each.target for each in owner.body if isinstance(each, ast.AnnAssign)]
                fields = [each.id for each in declared if isinstance(each, ast.Name)]
                if attr not in fields:
                    continue
                for call, place in self.code.calls.get(owner.name, []):
                    if (given := argument(call, fields.index(attr), attr)) is not None:
                        yield given, place
        if attr in CARRIED:
            for call, place in self.code.calls.get("replace", []):
                if (given := argument(call, -1, attr)) is not None:
                    yield given, place
        if attr in STORED:
            yield from self.code.stored.get(attr, [])
        for function, name in self.code.methods.get(attr, []) if attr in PROPERTIES else ():
            yield from ((each, Place(name, function)) for each in answers(function))


def _choices(node: ast.expr) -> Sequence[ast.expr]:
    """The values that the expression may have.  Which element of a tuple or a mapping is taken is ignored."""
    match node:
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case (
            ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value) | ast.Subscript(value=value)
        ):
            return [value]
        case ast.Dict(values=values) | ast.BoolOp(values=values) | ast.Tuple(elts=values):
            return values
        case ast.DictComp(value=value):
            return [value]
        case ast.BinOp(left=left):
            return [left]
    return []


def _pieces(node: ast.expr) -> Sequence[ast.expr]:
    """The expressions that are joined to make this expression."""
    match node:
        case ast.BinOp(right=right):
            return [right]
        case ast.List(elts=values) | ast.Set(elts=values):
            return values
        case ast.GeneratorExp(elt=elt, generators=loops) | ast.ListComp(elt=elt, generators=loops):
            return [elt, *(loop.iter for loop in loops)]
    return []


def _names_in(node: ast.expr | None) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)] if node is not None else []


def _constants_in(node: ast.expr) -> Iterator[ast.expr]:
    """Constants whose texts are in the template already."""
    yield from (
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute) and _last(each).strip("_").isupper()
    )


def _values_in(node: ast.expr, values: Mapping[str, object]) -> Iterator[ast.expr]:
    """The expressions that are filled into a text."""
    match node:
        case ast.JoinedStr(values=parts):
            yield from (each.value for each in parts if isinstance(each, ast.FormattedValue))
        case ast.BinOp(left=left, right=right):
            for each in (left, right):
                if template(each, values) is None:
                    yield each
                else:
                    yield from _values_in(each, values)


@cache
def _inside(function: Function) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(function))


def assigned(name: str, function: Function | None) -> Iterator[ast.expr]:
    """The expressions that the function assigns to the name: by assignment, by a loop, or piece by piece."""
    for node in _inside(function) if function is not None else ():
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _taken(name, target, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield value
            case ast.AugAssign(target=ast.Name(id=target), value=value) if target == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                yield value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target)):
                    yield value
            case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="append" | "extend"), args=[value]) if (
                target == name
            ):
                yield value
            # As in `counts[why] += 1`.
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=target), slice=key)) if target == name:
                yield key


def reaching(name: str, line: int, function: Function | None) -> tuple[int, float]:
    """The lines, first and last, of the assignments that may reach the use of a name in the statement of that line.

    The first is that of the last assignment that is always done before; 0: there is none, and a parameter may reach the use.
    Unless a loop begins in between, no assignment behind the use reaches it then.
    """
    body, found, last = function.body if function is not None else [], 0, float("inf")
    while body:
        for each in body:
            if each.lineno <= line <= (each.end_lineno or each.lineno):
                break
            if each.lineno < line and _sets(each, name):
                found, last = each.lineno, line
        else:
            return found, last
        if isinstance(each, ast.For | ast.AsyncFor | ast.While):
            last = float("inf")
        blocks = [getattr(each, part, []) for part in ("body", "orelse", "finalbody")]
        blocks += [branch.body for part in ("handlers", "cases") for branch in getattr(each, part, [])]
        body = next((some for some in blocks if some and _spans(some, line)), [])
    return found, last


def _sets(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(each, ast.Name) and each.id == name for each in targets)


def _spans(body: Sequence[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _caught(name: str, function: Function | None) -> Iterator[str]:
    """The exceptions that the function catches under that name."""
    for node in _inside(function) if function is not None else ():
        if isinstance(node, ast.ExceptHandler) and node.name == name and node.type is not None:
            yield from (_last(each) for each in (node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]))


def _taken(name: str, target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple):
        for place, each in enumerate(target.elts):
            if isinstance(each, ast.Name) and each.id == name:
                yield (
                    value.elts[place] if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else value
                )


def answers(function: Function) -> Iterator[ast.expr]:
    """The expressions that the function returns or yields."""
    for node in _inside(function):
        match node:
            case (
                ast.Return(value=ast.expr() as value)
                | ast.Yield(value=ast.expr() as value)
                | ast.YieldFrom(value=value)
            ):
                yield value
