"""Calculators written as text: arithmetic and conditions over named inputs, bounded before they run (GS-130).

The text is parsed by Python and translated node by node into closures; what is not listed here does not exist. There is
no loop, no attribute, no string and no call but of the functions below, integers stay within 64 bits, and the number of
steps is known before the first of them is taken: an expression cannot run long or grow large.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from chappe.status.condensation.expression_functions import FUNCTIONS, NO_RESULT, Number, Signature, bounded, power

LENGTH = 4096  # characters
NODES = 512
DEPTH = 48
STEPS = 100_000
LARGEST = (1 << 63) - 1

Values = Sequence[Number | None]
Run = Callable[[Values], Number]

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Number, Number], Number]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", power),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_CONSTANTS: dict[str, float] = {"pi": math.pi}


class ExpressionError(ValueError):
    """The text is no expression of this language: says where and what to write instead."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A calculation that ends; called with the value of each input, None where it has none yet."""

    text: str
    type: str  # of its result: int, float or bool
    steps: int  # at most so many in one calculation
    used: frozenset[int]  # positions of the inputs it needs
    run: Run

    def __call__(self, values: Values) -> Number | None:
        """The result; None where there is none, as after a division by zero."""
        try:
            result = self.run(values)
        except NO_RESULT:
            return None
        return None if result.__class__ is float and not math.isfinite(result) else result


def parse_expression(
    text: str, names: Mapping[str, int], types: Sequence[str], over: Sequence[int] | None = None
) -> Expression:
    """The expression in a text; ExpressionError says what is wrong with it, and where.

    `names`: position of the input that a name means. `types`: of each input. `over`: positions that an aggregate
    without arguments runs over, all if None.
    """
    if len(text) > LENGTH:
        raise ExpressionError(f"it has {len(text)} characters, the most allowed is {LENGTH}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(
            f"column {error.offset or len(text.strip()) + 1}: {error.msg}; write one expression, like a + b"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"it cannot be read: {error or 'it is nested too deeply'}") from None
    builder = _Builder(names, types, range(len(types)) if over is None else over)
    built = builder.build(tree, 0)
    return Expression(text, built.type, builder.steps, frozenset(builder.used), built.run)


@dataclass(frozen=True, slots=True)
class _Built:
    run: Run
    type: str
    constant: bool = False


class _Builder:
    """Translates one tree."""

    def __init__(self, names: Mapping[str, int], types: Sequence[str], over: Sequence[int]) -> None:
        self.steps = 0
        self.used: set[int] = set()
        self._nodes = 0
        self._names = names
        self._types = types
        self._over = tuple(over)

    def build(self, node: ast.expr, depth: int) -> _Built:
        self._nodes += 1
        self._spend(1, node)
        if self._nodes > NODES:
            _refuse(node, f"it has more than {NODES} parts; split it into several functions")
        if depth > DEPTH:
            _refuse(node, f"it is nested deeper than {DEPTH}; split it into several functions")
        match node:
            case ast.Constant():
                return _constant(node)
            case ast.Name():
                return self._name(node)
            case ast.UnaryOp():
                built = self._unary(node, depth)
            case ast.BinOp():
                built = self._binary(node, depth)
            case ast.BoolOp():
                built = self._logic(node, depth)
            case ast.Compare():
                built = self._compare(node, depth)
            case ast.IfExp():
                built = self._choice(node, depth)
            case ast.Call():
                built = self._call(node, depth)
            case _:
                _refuse(node, f"{_form(node)} is not part of an expression; use numbers, inputs, operators, functions")
        return _folded(node, built) if built.constant else built

    def _spend(self, steps: int, node: ast.expr) -> None:
        self.steps += steps
        if self.steps > STEPS:
            _refuse(node, f"it needs more than {STEPS} steps over {len(self._types)} inputs")

    def _name(self, node: ast.Name) -> _Built:
        position = self._names.get(node.id)
        if position is None:
            if node.id in _CONSTANTS:
                number = _CONSTANTS[node.id]
                return _Built(lambda values: number, "float", constant=True)
            known = ", ".join(list(self._names)[:12])
            _refuse(node, f"there is no input {node.id!r}; the inputs are {known}")
        kind = self._types[position]
        if kind not in ("int", "float", "bool"):
            _refuse(node, f"{node.id} is of type {kind}; an expression takes int, float and bool")
        self.used.add(position)
        none: Number = False if kind == "bool" else 0

        def run(values: Values) -> Number:
            value = values[position]
            return none if value is None else bounded(value)

        return _Built(run, kind)

    def _unary(self, node: ast.UnaryOp, depth: int) -> _Built:
        if isinstance(node.op, ast.Invert):
            _refuse(node, "~ is not an operator here; use not, + or -")
        of = self.build(node.operand, depth + 1)
        inner = of.run
        if isinstance(node.op, ast.Not):
            _condition(node.operand, of, "not")
            return _Built(lambda values: not inner(values), "bool", of.constant)
        if isinstance(node.op, ast.USub):
            return _Built(lambda values: bounded(-inner(values)), _arithmetic(of), of.constant)
        return _Built(lambda values: +inner(values), _arithmetic(of), of.constant)

    def _binary(self, node: ast.BinOp, depth: int) -> _Built:
        found = _ARITHMETIC.get(type(node.op))
        if found is None:
            signs = " ".join(sign for sign, _ in _ARITHMETIC.values())
            _refuse(node, f"this operator is not part of an expression; use {signs}")
        left, right = self.build(node.left, depth + 1), self.build(node.right, depth + 1)
        one, other, apply = left.run, right.run, found[1]
        whole = {_arithmetic(left), _arithmetic(right)} == {"int"} and not isinstance(node.op, ast.Div)
        if isinstance(node.op, ast.Pow) and whole:
            whole = right.constant and right.run(()) >= 0
        return _Built(
            lambda values: bounded(apply(one(values), other(values))), "int" if whole else "float",
            left.constant and right.constant,
        )  # fmt: skip

    def _logic(self, node: ast.BoolOp, depth: int) -> _Built:
        word = "and" if isinstance(node.op, ast.And) else "or"
        parts = [self.build(part, depth + 1) for part in node.values]
        for part, built in zip(node.values, parts, strict=True):
            _condition(part, built, word)
        runs, constant = [part.run for part in parts], all(part.constant for part in parts)
        if word == "and":
            return _Built(lambda values: all(run(values) for run in runs), "bool", constant)
        return _Built(lambda values: any(run(values) for run in runs), "bool", constant)

    def _compare(self, node: ast.Compare, depth: int) -> _Built:
        parts = [self.build(part, depth + 1) for part in (node.left, *node.comparators)]
        tests: list[tuple[Callable[[Number, Number], bool], Run]] = []
        for op, part in zip(node.ops, parts[1:], strict=True):
            test = _COMPARISONS.get(type(op))
            if test is None:
                _refuse(node, "use < <= > >= == or != to compare")
            tests.append((test, part.run))
        first = parts[0].run

        def run(values: Values) -> Number:
            left = first(values)
            for test, right_run in tests:
                right = right_run(values)
                if not test(left, right):
                    return False
                left = right
            return True

        return _Built(run, "bool", all(part.constant for part in parts))

    def _choice(self, node: ast.IfExp, depth: int) -> _Built:
        test = self.build(node.test, depth + 1)
        _condition(node.test, test, "if")
        yes, no = self.build(node.body, depth + 1), self.build(node.orelse, depth + 1)
        if (yes.type == "bool") != (no.type == "bool"):
            _refuse(node, "one side of `if … else …` is a condition and the other a number")
        kind = yes.type if yes.type == no.type else "float"
        when, then, otherwise = test.run, yes.run, no.run
        return _Built(
            lambda values: then(values) if when(values) else otherwise(values), kind,
            test.constant and yes.constant and no.constant,
        )  # fmt: skip

    def _call(self, node: ast.Call, depth: int) -> _Built:
        signature = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if signature is None:
            _refuse(node, f"there is no function {_shown(node.func)!r}; use {', '.join(FUNCTIONS)}")
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            _refuse(node, f"{signature.name} takes plain arguments only")
        if not node.args and signature.aggregate:
            return self._over_all(node, signature)
        if not signature.takes(len(node.args)):
            _refuse(node, f"{signature.name} takes {signature.counts()}, not {len(node.args)} arguments")
        parts = [self.build(argument, depth + 1) for argument in node.args]
        if signature.conditions:
            for argument, part in zip(node.args, parts, strict=True):
                _condition(argument, part, signature.name)
        runs, apply = [part.run for part in parts], signature.apply
        if signature.aggregate:

            def run(values: Values) -> Number:
                return bounded(apply([run(values) for run in runs]))
        else:

            def run(values: Values) -> Number:
                return bounded(apply(*[run(values) for run in runs]))

        return _Built(run, signature.gives([part.type for part in parts]), all(part.constant for part in parts))

    def _over_all(self, node: ast.Call, signature: Signature) -> _Built:
        over, apply = self._over, signature.apply
        kinds = [self._types[position] for position in over]
        allowed = {"bool"} if signature.conditions else {"int", "float", "bool"}
        wrong = next((kind for kind in kinds if kind not in allowed), None)
        if wrong is not None and signature.name != "count":
            _refuse(node, f"{signature.name}() runs over all inputs, and one of them is of type {wrong}")
        self._spend(len(over), node)
        self.used.update(over)
        whole = signature.name == "count"

        def run(values: Values) -> Number:
            known = [value if whole else bounded(value) for at in over if (value := values[at]) is not None]
            return bounded(apply(known))

        return _Built(run, signature.gives(kinds))


def _constant(node: ast.Constant) -> _Built:
    value = node.value
    if isinstance(value, bool):
        return _Built(lambda values: value, "bool", constant=True)
    if not isinstance(value, (int, float)):
        _refuse(node, f"{_shown(node)} is neither a number nor True or False")
    if isinstance(value, int) and value > LARGEST:
        _refuse(node, "a whole number has at most 63 bits; write it with a point")
    if not math.isfinite(value):
        _refuse(node, "the number is too large")
    return _Built(lambda values: value, "int" if isinstance(value, int) else "float", constant=True)


def _folded(node: ast.expr, built: _Built) -> _Built:
    """A part without inputs is calculated now: one that has no result would never have one."""
    try:
        value = built.run(())
    except NO_RESULT as error:
        _refuse(node, f"{_shown(node)} has no result: {error}")
    return _Built(lambda values: value, built.type, constant=True)


def _condition(node: ast.expr, built: _Built, word: str) -> None:
    if built.type != "bool":
        _refuse(node, f"`{word}` takes conditions, this is a number; compare it with something")


def _arithmetic(built: _Built) -> str:
    return "float" if built.type == "float" else "int"


def _form(node: ast.expr) -> str:
    return {"Attribute": "a dot", "Subscript": "an index", "Lambda": "a lambda", "NamedExpr": "an assignment"}.get(
        type(node).__name__, f"{_shown(node)!r}"
    )


def _shown(node: ast.expr) -> str:
    """The beginning of a part, for a message; it may be nested deeper than can be written down."""
    try:
        return ast.unparse(node)[:40]
    except RecursionError:
        return "…"


def _refuse(node: ast.expr, reason: str) -> NoReturn:
    raise ExpressionError(f"column {node.col_offset + 1}: {reason}")
