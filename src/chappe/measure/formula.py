"""A user's cost formula as text: arithmetic over the metrics of a link, and nothing else.

The text is parsed by Python and translated node by node into NumPy operations; what is not listed here does not exist.
There is no attribute, no loop, no string and no other call: a formula from a configuration file can only compute.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NAMES = ("latency_ms", "jitter", "loss", "bandwidth")
LENGTH = 500  # characters
NODES = 100
EXAMPLE = "latency_ms + 20 * jitter"

Run = Callable[[Mapping[str, Any]], Any]

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.true_divide, ast.Pow: np.float_power,
    ast.UAdd: np.positive, ast.USub: np.negative, ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}  # fmt: skip
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "min": (2, np.minimum), "max": (2, np.maximum), "abs": (1, np.abs), "sqrt": (1, np.sqrt), "log": (1, np.log),
}  # fmt: skip


def parse(text: str) -> Callable[[Any, Any, Any, Any], Any]:
    """The formula in a text, over latency_ms, jitter, loss and bandwidth; ValueError says what is wrong, and where."""
    if len(text) > LENGTH:
        raise ValueError(f"the formula has {len(text)} characters, the most allowed is {LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r} is no formula ({error}); write one like {EXAMPLE}") from error
    if sum(1 for _ in ast.walk(tree)) > NODES:
        raise ValueError(f"the formula has more than {NODES} parts; write a shorter one")
    run = _translate(tree.body)

    def formula(latency_ms: Any, jitter: Any, loss: Any, bandwidth: Any) -> Any:
        return run({"latency_ms": latency_ms, "jitter": jitter, "loss": loss, "bandwidth": bandwidth})

    return formula


def _translate(node: ast.expr) -> Run:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            number = float(value)
            return lambda values: number
        case ast.Name(id=name) if name in NAMES:
            return lambda values: values[name]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _apply(_OPERATORS[type(operator)], left, right)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _OPERATORS:
            return _apply(_OPERATORS[type(sign)], operand)
        case ast.IfExp(test=ast.Compare(left=left, ops=[relation], comparators=[right]), body=body, orelse=other) if (
            type(relation) in _OPERATORS
        ):
            test, yes, no = _apply(_OPERATORS[type(relation)], left, right), _translate(body), _translate(other)
            return lambda values: np.where(test(values), yes(values), no(values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            wanted, function = _FUNCTIONS[name]
            if len(arguments) != wanted:
                raise ValueError(f"column {node.col_offset + 1}: {name} takes {wanted}, not {len(arguments)}")
            return _apply(function, *arguments)
    raise ValueError(
        f"column {node.col_offset + 1}: {ast.unparse(node)!r} is not allowed; formulas are numbers, "
        f"{', '.join(NAMES)}, + - * / **, {', '.join(sorted(_FUNCTIONS))} and `a if b < c else d`, like {EXAMPLE}"
    )


def _apply(function: Callable[..., Any], *operands: ast.expr) -> Run:
    parts = [_translate(operand) for operand in operands]
    return lambda values: function(*(part(values) for part in parts))
