"""Functions over inputs of several clouds: which cloud runs them, and what is computed near the inputs (GS-139).

A function is split where its calculator and its trigger allow it: each other cloud sends one stream with its part of
the result in place of its inputs, and the home of the function combines them. Decision record 0054 has the rules.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from chappe.status.condensation.calculators import NUMBERS, weights_of
from chappe.status.condensation.checks import check, input_rate, output_of, result_rate
from chappe.status.condensation.expressions import ExpressionError, parse_expression
from chappe.status.condensation.naming import names_of
from chappe.wire.base import Variable
from chappe.wire.management import Function, Input

SAME = ("sum", "min", "max", "any", "all", "largest")  # combined by the function that the parts are made with
GROUPED = ("sum", "min", "max", "any", "all")  # calls of an expression whose arguments may be taken in any order


@dataclass(frozen=True, slots=True)
class Split:
    """A function in pieces; the parts run where their inputs are."""

    parts: tuple[Function, ...]
    combiner: Function
    inputs: tuple[Variable, ...]  # of the combiner; what a part publishes has no number yet


def home_of(function: Function, inputs: Sequence[Variable], clouds: Sequence[str]) -> str:
    """The cloud with most inputs; of several the one that gets the fewest events from others, then by name."""
    own: dict[str, tuple[int, Fraction]] = {}
    for asked, variable, cloud in zip(function.inputs, inputs, clouds, strict=True):
        count, rate = own.get(cloud, (0, Fraction(0)))
        own[cloud] = count + 1, rate + input_rate(variable, asked.interval_ns)
    return min(own, key=lambda cloud: (-own[cloud][0], -own[cloud][1], cloud))


def split(function: Function, inputs: Sequence[Variable], clouds: Sequence[str], home: str) -> Split | None:
    """The pieces of a checked function; None if it has none, or if they would not send fewer events to its home."""
    if not _divisible(function, inputs):
        return None
    plan = _Plan(function, inputs, clouds, home)
    kind, _, rest = function.calculator.partition(":")
    combined = _builtin(plan, rest) if kind == "builtin" else _expression(plan, rest) if kind == "expression" else None
    if combined is None or not plan.parts:
        return None
    combiner = msgspec.structs.replace(
        function, calculator=combined, inputs=tuple(plan.asked), low=None, high=None,
        count=0 if function.trigger == "event" else function.count,
    )  # fmt: skip
    if check(combiner, plan.variables) is not None or not plan.saves():
        return None
    return Split(tuple(plan.parts), combiner, tuple(plan.variables))


def _divisible(function: Function, inputs: Sequence[Variable]) -> bool:
    """Whether the trigger of each part can fire by itself: by time, or when all inputs have come."""
    if any(variable.rate_num == 0 for variable in inputs):
        return False  # alerts say when to calculate
    if function.trigger == "time":
        return True
    filtered = function.low is not None or function.high is not None  # parts would come irregularly
    return function.trigger == "event" and function.count in (0, len(inputs)) and not filtered


@dataclass(slots=True)
class _Plan:
    """The inputs of a combiner as they are found."""

    function: Function
    given: Sequence[Variable]
    clouds: Sequence[str]
    home: str
    parts: list[Function] = field(default_factory=list)
    asked: list[Input] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    remote: Fraction = Fraction(0)  # events a nanosecond that come from other clouds
    _direct: dict[int, int] = field(default_factory=dict)  # position in the function -> in the combiner
    _numbers: dict[str, int] = field(default_factory=dict)  # parts of a cloud so far

    def rate(self, position: int) -> Fraction:
        return input_rate(self.given[position], self.function.inputs[position].interval_ns)

    def direct(self, position: int) -> int:
        """Take an input as it is; its position in the combiner."""
        if position not in self._direct:
            self._direct[position] = len(self.asked)
            self.asked.append(self.function.inputs[position])
            self.variables.append(self.given[position])
            if self.clouds[position] != self.home:
                self.remote += self.rate(position)
        return self._direct[position]

    def part(self, positions: Sequence[int], calculator: str, kind: str) -> int:
        """Have one computed by the cloud of these inputs; its position in the combiner."""
        function, cloud = self.function, self.clouds[positions[0]]
        number = self._numbers[cloud] = self._numbers.get(cloud, 0) + 1
        name = function.variable if number == 1 else f"{function.variable}.{number}"
        made = Function(
            publisher=f"{function.publisher}@{cloud}", variable=name, type=kind,
            inputs=tuple(function.inputs[at] for at in positions), calculator=calculator,
            trigger=function.trigger, interval_ns=function.interval_ns, low=function.low, high=function.high,
            priority=function.priority,
        )  # fmt: skip
        output = output_of(made, [self.given[at] for at in positions])
        self.parts.append(made)
        self.asked.append(Input(made.publisher, made.variable))
        self.variables.append(output)
        if cloud != self.home:
            self.remote += result_rate(made, [self.given[at] for at in positions])[0]
        return len(self.asked) - 1

    def worth(self, positions: Sequence[int]) -> bool:
        """Whether one stream of results is less than the inputs of another cloud that it is made of."""
        if self.clouds[positions[0]] == self.home:
            return False
        draft = msgspec.structs.replace(
            self.function, inputs=tuple(self.function.inputs[at] for at in positions), count=0
        )
        return result_rate(draft, [self.given[at] for at in positions])[0] < sum(map(self.rate, positions))

    def saves(self) -> bool:
        whole = sum((self.rate(at) for at, cloud in enumerate(self.clouds) if cloud != self.home), Fraction(0))
        return self.remote < whole

    def by_cloud(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for position, cloud in enumerate(self.clouds):
            found.setdefault(cloud, []).append(position)
        return found

    def kinds(self, positions: Iterable[int]) -> set[str]:
        return {self.given[at].type for at in positions}


# --- built-in calculators


def _builtin(plan: _Plan, rest: str) -> str | None:
    name, _, argument = rest.partition(":")
    everywhere = plan.function.low is not None or plan.function.high is not None or name == "count"
    weights: list[float] = []
    for positions in plan.by_cloud().values():
        if not everywhere and not plan.worth(positions):
            weights += [weights_of(argument)[at] if name == "weighted" else 1.0 for at in positions]
            for position in positions:
                plan.direct(position)
            continue
        weights.append(1.0)
        match name:
            case _ if name in SAME:
                plan.part(positions, f"builtin:{rest}", _kind(plan, positions, name))
            case "mean":
                plan.part(positions, "builtin:sum", _kind(plan, positions, "sum"))
            case "count":
                plan.part(positions, "builtin:count", "int")
            case "weighted":
                own = ",".join(repr(weights_of(argument)[at]) for at in positions)
                plan.part(positions, f"builtin:weighted:{own}", "float")
            case _:
                return None
    match name:
        case "mean":
            return f"expression:sum() / {len(plan.given)}"
        case "count":
            return "builtin:sum"
        case "weighted":
            return "builtin:weighted:" + ",".join(map(repr, weights))
    return f"builtin:{rest}"


def _kind(plan: _Plan, positions: Sequence[int], name: str) -> str:
    kinds = plan.kinds(positions)
    if name in ("any", "all"):
        return "bool"
    if not kinds <= {*NUMBERS}:
        return next(iter(kinds))  # largest:FIELD gives one of its inputs
    return "float" if "float" in kinds else "int"


# --- expressions


def _expression(plan: _Plan, text: str) -> str | None:
    """The expression, each piece that needs inputs of one other cloud alone replaced by what that cloud computes."""
    if plan.function.low is not None or plan.function.high is not None:
        return None
    pieces = _Pieces(plan)
    try:
        tree = _spelled_out(ast.parse(text.strip(), mode="eval").body, pieces.shown)
        if len(pieces.needed(tree)) < len(plan.given):
            return None  # an input that is not calculated with says when to calculate
        combined = pieces.reduced(tree)
        names = {at: name for name, at in reversed(names_of([each.variable for each in plan.variables]).items())}
        return "expression:" + ast.unparse(_renamed(combined, pieces.marks, names))
    except (ExpressionError, KeyError, RecursionError):
        return None


Join = Callable[[Sequence[ast.expr]], ast.expr]


class _Pieces:
    """Walks an expression; `marks`: position in the combiner by the name that stands for it meanwhile."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._names = names_of([each.variable for each in plan.given])
        self.shown = {at: name for name, at in reversed(self._names.items())}
        self.marks: dict[str, int] = {}

    def reduced(self, node: ast.expr) -> ast.expr:
        positions = self.needed(node)
        if len({self._plan.clouds[at] for at in positions}) == 1 and self._plan.worth(positions):
            return self._part(node, positions)
        match node:
            case ast.Name() if node.id in self._names:
                return self._mark(self._plan.direct(self._names[node.id]))
            case ast.BinOp(op=ast.Add()):
                return _sum(self._grouped(_terms(node), _sum))
            case ast.Call(func=ast.Name(id=name)) if name in GROUPED and len(node.args) > 1:
                call = node.func
                grouped = self._grouped(node.args, lambda arguments: ast.Call(call, list(arguments), []))
                return ast.Call(call, grouped, [])
            case ast.BoolOp(op=op):
                grouped = self._grouped(node.values, lambda values: ast.BoolOp(op, list(values)))
                return ast.BoolOp(op, grouped) if len(grouped) > 1 else grouped[0]
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and name != "func":
                setattr(node, name, self.reduced(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                setattr(node, name, [self.reduced(each) for each in value])
        return node

    def _grouped(self, terms: Sequence[ast.expr], join: Join) -> list[ast.expr]:
        """Terms in any order: those of one other cloud together become one part."""
        clouds = [{self._plan.clouds[at] for at in self.needed(term)} for term in terms]
        found: list[ast.expr] = []
        for cloud in dict.fromkeys(next(iter(each)) for each in clouds if len(each) == 1):
            together = [term for term, each in zip(terms, clouds, strict=True) if each == {cloud}]
            joined = join(together) if len(together) > 1 else together[0]
            positions = self.needed(joined)
            if self._plan.worth(positions):
                found.append(self._part(joined, positions))
            else:
                found += [self.reduced(term) for term in together]
        return found + [self.reduced(term) for term, each in zip(terms, clouds, strict=True) if len(each) != 1]

    def _part(self, node: ast.expr, positions: Sequence[int]) -> ast.expr:
        variables = [self._plan.given[at] for at in positions]
        names = names_of([each.variable for each in variables])
        shown = {at: name for name, at in reversed(names.items())}
        marks = {name: positions.index(at) for name, at in self._names.items() if at in positions}
        text = ast.unparse(_renamed(node, marks, shown))
        kind = parse_expression(text, names, [each.type for each in variables]).type
        return self._mark(self._plan.part(positions, f"expression:{text}", kind))

    def _mark(self, position: int) -> ast.expr:
        name = f"_input_{position}_"
        self.marks[name] = position
        return ast.Name(name)

    def needed(self, node: ast.expr) -> list[int]:
        """Positions of the inputs that it is calculated with."""
        names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return sorted({self._names[name] for name in names if name in self._names})


def _spelled_out(tree: ast.expr, names: dict[int, str]) -> ast.expr:
    """With all inputs as the arguments of an aggregate that has none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args:
            node.args = [ast.Name(names[at]) for at in range(len(names))]
    return tree


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _sum(terms: Sequence[ast.expr]) -> ast.expr:
    made = terms[0]
    for term in terms[1:]:
        made = ast.BinOp(made, ast.Add(), term)
    return made


def _renamed(node: ast.expr, marks: dict[str, int], names: dict[int, str]) -> ast.expr:
    """With the names that inputs have where it is evaluated."""
    text = ast.parse(ast.unparse(node), mode="eval").body  # a copy
    for each in ast.walk(text):
        if isinstance(each, ast.Name) and each.id in marks:
            each.id = names[marks[each.id]]
    return text
