"""How an expression names its inputs."""

from __future__ import annotations

import keyword
import re
import string
from collections.abc import Sequence

_ODD = re.compile(r"\W")


def names_of(variables: Sequence[str]) -> dict[str, int]:
    """Position by name: the variable's own (other signs than letters and digits are _), x1, x2 … and a, b, c …

    A name that two inputs would have means neither of them; the own name of a variable comes before the others.
    """
    names: dict[str, int] = {}
    twice: set[str] = set()
    for at, variable in enumerate(variables):
        name = _ODD.sub("_", variable)
        if name.isidentifier() and not keyword.iskeyword(name):
            if name in names:
                twice.add(name)
            names.setdefault(name, at)
    for name in twice:
        del names[name]
    for at in range(len(variables)):
        names.setdefault(f"x{at + 1}", at)
    for at, letter in enumerate(string.ascii_lowercase[: len(variables)]):
        names.setdefault(letter, at)
    return names
