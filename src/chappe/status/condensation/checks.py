"""What is wrong with a condensation function, and what its output is."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from fractions import Fraction

from chappe.status.condensation.calculators import AGGREGATES, BUILTINS, NUMBERS, Setup, expression_of, weights_of
from chappe.status.condensation.expressions import ExpressionError
from chappe.status.condensation.triggers import KINDS
from chappe.wire.base import Variable
from chappe.wire.management import Function

MOST_INPUTS = 10_000
LEAST_INTERVAL_NS = 100_000  # a shorter one is not kept by any clock of an event loop
BLOCKS = 255
ALERT_NS = 1_000_000_000  # between two alerts whose publisher states no interval


def check(
    function: Function,
    inputs: Sequence[Variable],
    calculators: Container[str] | None = None,
    triggers: Container[str] | None = None,
) -> str | None:
    """Everything that is wrong with a function over these inputs, in one line; None: nothing is.

    `calculators`, `triggers`: names of the entry points of the machine that is to run it; None: not known here.
    """
    found = [*_inputs(function, inputs), *_shape(function)]
    if not found:
        found = [*_trigger(function, inputs, triggers), *_calculator(function, inputs, calculators),
                 *_filters(function, inputs)]  # fmt: skip
    return f"function {function.publisher}/{function.variable}: {'; '.join(found)}" if found else None


def output_of(function: Function, inputs: Sequence[Variable], variable_id: int = 0) -> Variable:
    """The variable that a checked function publishes: periodic as its trigger is, else an alert."""
    rate, periodic = result_rate(function, inputs)
    num, den = (rate.numerator, rate.denominator) if periodic else (0, 1)
    return Variable(
        variable_id, function.publisher, function.variable, function.type, num, den, function.priority,
        function.options or _blocks(function, inputs), minimum_ns=0 if periodic else int(1 / rate),
    )  # fmt: skip


def result_rate(function: Function, inputs: Sequence[Variable]) -> tuple[Fraction, bool]:
    """Results a nanosecond, at most; and whether they are periodic: by time or by all inputs, thinned by nothing."""
    thinned_out = function.out_low is not None or function.out_high is not None
    thinned = thinned_out or function.low is not None or function.high is not None
    if function.trigger == "time":
        return Fraction(1, function.interval_ns), not thinned_out
    alerts = Setup(function, inputs[0], tuple(inputs)).alerts
    rates = [input_rate(variable, asked.interval_ns) for variable, asked in zip(inputs, function.inputs, strict=True)]
    counted = [rates[at] for at in alerts] if function.trigger == "alert" else rates
    needed = function.count or len(counted)
    rate = min(counted) if needed == len(counted) else sum(counted, Fraction(0)) / needed
    if function.interval_ns:
        rate = min(rate, Fraction(1, function.interval_ns))
    return rate, function.trigger == "event" and needed == len(inputs) and not thinned and not alerts


def input_rate(variable: Variable, interval_ns: int) -> Fraction:
    """At which an input arrives: the interval asked for, rounded down to a multiple of the publishing one."""
    if variable.rate_num == 0:
        return Fraction(1, variable.minimum_ns or ALERT_NS)
    rate = Fraction(variable.rate_num, variable.rate_den)
    every = int(interval_ns * rate)
    return rate / every if every > 1 else rate


def _blocks(function: Function, inputs: Sequence[Variable]) -> int:
    """Option blocks: a user type that holds an input needs room for it and for its name."""
    if function.type in NUMBERS:
        return 0
    widest = max((variable.options for variable in inputs), default=0)
    same = all(variable.type == function.type for variable in inputs)
    return min(BLOCKS, widest + (0 if same else 1))


def _inputs(function: Function, inputs: Sequence[Variable]) -> Iterator[str]:
    if not function.inputs:
        yield "it has no inputs; name at least one variable"
    if len(function.inputs) > MOST_INPUTS:
        yield f"it has {len(function.inputs)} inputs, the most allowed is {MOST_INPUTS}"
    if len(inputs) != len(function.inputs):
        yield f"{len(inputs)} of its {len(function.inputs)} inputs are known"
    names = [(each.publisher, each.variable) for each in function.inputs]
    if (function.publisher, function.variable) in names:
        yield "its output is one of its inputs; give the output another name"
    again = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if again:
        yield f"input {'/'.join(sorted(again)[0])} is there twice"
    if any(each.interval_ns < 0 for each in function.inputs):
        yield "the interval of an input is negative"


def _shape(function: Function) -> Iterator[str]:
    if not function.publisher or not function.variable:
        yield "its output has no name; write PUBLISHER/VARIABLE"
    if not _known_type(function.type):
        yield f"type {function.type[:40]!r} is unknown; use int, float, bool, bytes or struct:NAME:HASH"
    if not 0 <= function.priority <= 6:
        yield f"priority {function.priority} is not in 0 .. 6"
    if not 0 <= function.options <= BLOCKS:
        yield f"{function.options} option blocks are not in 0 .. {BLOCKS}"
    for low, high, what in ((function.low, function.high, "input"), (function.out_low, function.out_high, "output")):
        if low != low or high != high:
            yield f"a bound of the {what} filter is not a number"
        elif low is not None and high is not None and low > high:
            yield f"the {what} filter drops everything: low {low:g} is above high {high:g}"


def _trigger(function: Function, inputs: Sequence[Variable], known: Container[str] | None) -> Iterator[str]:
    kind, _, name = function.trigger.partition(":")
    if kind == "entry" and name:
        if known is not None and name not in known:
            package = "install one with that entry point of chappe.triggers"
            yield f"no package on this router has a trigger {name!r}; {package}"
        return
    if function.trigger not in KINDS:
        yield f"trigger {function.trigger[:40]!r} is unknown; use time, event, alert or entry:NAME"
        return
    alerts = len(Setup(function, inputs[0], tuple(inputs)).alerts)
    if function.interval_ns < 0:
        yield "its interval is negative"
    if function.trigger == "time":
        if function.interval_ns <= 0:
            yield "a time trigger needs an interval"
        elif function.interval_ns < LEAST_INTERVAL_NS:
            yield f"an interval of {function.interval_ns} ns is below the shortest, {LEAST_INTERVAL_NS} ns"
        if function.count:
            yield "a time trigger does not count inputs; leave count away"
    elif function.count < 0:
        yield f"a trigger cannot wait for {function.count} inputs"
    elif function.trigger == "event" and function.count > len(inputs):
        yield f"an event trigger cannot wait for {function.count} of {len(inputs)} inputs"
    elif function.trigger == "alert" and not alerts:
        yield "an alert trigger needs an input that is an alert; all inputs have a rate"
    elif function.trigger == "alert" and function.count > alerts:
        yield f"an alert trigger cannot wait for {function.count} of {alerts} alerts"


def _calculator(function: Function, inputs: Sequence[Variable], known: Container[str] | None) -> Iterator[str]:
    kind, _, rest = function.calculator.partition(":")
    if kind == "entry" and rest:
        if known is not None and rest not in known:
            package = "install one with that entry point of chappe.calculators"
            yield f"no package on this router has a calculator {rest!r}; {package}"
    elif kind == "expression":
        try:
            gives = expression_of(function, inputs).type
        except ExpressionError as error:
            yield f"expression: {error}"
        else:
            yield from _gives(function, "the expression", gives)
    elif kind == "builtin" and rest.partition(":")[0] in BUILTINS:
        yield from _builtin(function, inputs, *rest.partition(":")[::2])
    else:
        names = ", ".join(f"builtin:{name}" for name in BUILTINS)
        yield f"calculator {function.calculator[:60]!r} is unknown; use {names}, expression:… or entry:NAME"


def _builtin(function: Function, inputs: Sequence[Variable], name: str, argument: str) -> Iterator[str]:
    over = [inputs[at] for at in Setup(function, inputs[0], tuple(inputs)).counted]
    kinds = {variable.type for variable in over}
    if argument and name not in ("weighted", "largest"):
        yield f"builtin:{name} takes nothing after its name, not {argument[:40]!r}"
        return
    if name == "largest" and argument:
        yield from _largest(function, over, kinds)
        return
    allowed = {"bool"} if name in ("any", "all") else set(NUMBERS)
    odd = next((variable for variable in over if variable.type not in allowed), None)
    if odd is not None and name != "count":
        instead = "builtin:largest:FIELD" if name == "largest" else "an expression or entry:NAME"
        yield f"builtin:{name} cannot take {odd.publisher}/{odd.variable} of type {odd.type}; use {instead}"
        return
    if name == "weighted":
        try:
            weights = weights_of(argument)
        except ValueError:
            yield f"builtin:weighted needs numbers with commas between them, not {argument[:40]!r}"
            return
        if len(weights) != len(over):
            yield f"builtin:weighted has {len(weights)} weights for {len(over)} inputs"
        yield from _gives(function, "builtin:weighted", "float")
        return
    gives = "same" if name == "largest" else AGGREGATES[name][1]
    if gives == "same":
        gives = "float" if "float" in kinds else "int"
    yield from _gives(function, f"builtin:{name}", gives)


def _largest(function: Function, over: Sequence[Variable], kinds: set[str]) -> Iterator[str]:
    plain = [variable for variable in over if not variable.type.startswith("struct:")]
    if plain:
        odd = plain[0]
        yield f"builtin:largest:FIELD is for user types; {odd.publisher}/{odd.variable} is of type {odd.type}"
    elif len(kinds) > 1:
        yield f"builtin:largest:FIELD compares values of one type, not of {' and '.join(sorted(kinds)[:2])}"
    elif not function.type.startswith("struct:"):
        yield f"builtin:largest:FIELD gives a whole value; its output is of a user type, not {function.type}"


def _gives(function: Function, what: str, kind: str) -> Iterator[str]:
    if kind != function.type and not (kind == "int" and function.type == "float"):
        article = "an" if kind == "int" else "a"
        yield f"{what} gives {article} {kind}, the output is of type {function.type}"


def _filters(function: Function, inputs: Sequence[Variable]) -> Iterator[str]:
    """Filters of user types are the calculator's own, so only a registered one has them (GS-132)."""
    if function.calculator.startswith("entry:"):
        return
    if function.low is not None or function.high is not None:
        odd = next((variable for variable in inputs if variable.type not in NUMBERS), None)
        if odd is not None:
            yield f"the input filter cannot compare {odd.publisher}/{odd.variable} of type {odd.type} with a number"
    if (function.out_low is not None or function.out_high is not None) and function.type not in NUMBERS:
        yield f"the output filter cannot compare a result of type {function.type} with a number"


def _known_type(kind: str) -> bool:
    parts = kind.split(":")
    return kind in (*NUMBERS, "bytes") or (parts[0] == "struct" and len(parts) == 3 and all(parts))
