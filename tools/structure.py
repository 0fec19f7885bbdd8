"""`make structure`: how large the packages are, and where the code leaves the rules of its architecture.

make structure                    # tables
make structure ARGS=--json        # one object
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grimp
from rich.console import Console
from rich.table import Table

SOURCES = {"chappe": Path("src/chappe"), "bench": Path("bench")}  # the benches are not part of what is installed
LEFT_OUT = ("pipeline",)  # from what is counted as repeated: it has an issue of its own
IMPORTS = 15  # own modules that one module may import; builders have more
WINDOW = 6  # lines of code that are the same
CLASS = re.compile(r"^(?:cdef )?class (\w+)\(([^)]*)\)", re.M)
OWN_IMPORT = re.compile(r"^\s*from ((?:chappe|bench)[\w.]*) c?import (\([^)]*\)|[^\n]*)", re.M)
NAME = re.compile(r"\w+")
IGNORED = re.compile(r"#\s*type:\s*ignore")


@dataclass
class Package:
    """A package below `chappe`, or the benches."""

    files: int = 0
    lines: int = 0
    median: float = 0.0
    largest: int = 0
    largest_file: str = ""


@dataclass
class Structure:
    """Everything that is printed."""

    packages: dict[str, Package] = field(default_factory=dict)
    deep: list[str] = field(default_factory=list)  # classes with an own base that has an own base
    many_imports: dict[str, int] = field(default_factory=dict)
    cycles: list[list[str]] = field(default_factory=list)
    ignores: int = 0
    repeated: int = 0  # lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="make structure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of tables")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(asdict(found)))
    else:
        show(found)


def measure() -> Structure:
    files = [path for source in SOURCES.values() for path in sorted(source.rglob("*.py*")) if _is_code(path)]
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    found = Structure(packages=packages(sources))
    python = {path: text for path, text in sources.items() if path.suffix == ".py"}
    found.deep = deep_classes(sources)
    found.many_imports, found.cycles = imports()
    found.ignores = sum(len(IGNORED.findall(text)) for text in sources.values())
    found.repeated = repeated_lines(
        {path: text for path, text in python.items() if not set(LEFT_OUT) & set(path.parts[2:3])}
    )
    return found


def packages(sources: dict[Path, str]) -> dict[str, Package]:
    """Sizes by package; modules that lie beside the packages are one of their own, and so are the benches."""
    sizes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for path, text in sources.items():
        top = _top(path)
        inside = path.relative_to(SOURCES[top])
        name = "bench" if top == "bench" else inside.parts[0] if len(inside.parts) > 1 else "(modules)"
        sizes[name].append((text.count("\n"), str(inside)))
    return {
        name: Package(len(files), sum(_sizes(files)), statistics.median(_sizes(files)), *max(files))
        for name, files in sorted(sizes.items(), key=lambda item: (item[0] == "bench", item[0]))
    }


def deep_classes(sources: dict[Path, str]) -> list[str]:
    """Classes whose own base class has an own base class, compiled ones included; errors are a tree by their nature."""
    bases: dict[str, list[str]] = {}
    for path, text in sources.items():
        module = _module(path)
        known = {name: f"{home}.{name}" for home, names in OWN_IMPORT.findall(text) for name in NAME.findall(names)}
        declared = {name: NAME.findall(given) for name, given in CLASS.findall(text)}
        known.update({name: f"{module}.{name}" for name in declared})
        for name, given in declared.items():
            bases[f"{module}.{name}"] = [known[base] for base in given if base in known]
    return sorted(
        f"{name} ({base.rpartition('.')[2]})"
        for name, found in bases.items()
        for base in found
        if bases.get(base) and not name.endswith("Error")
    )


def imports() -> tuple[dict[str, int], list[list[str]]]:
    """Modules with many own imports, and modules that import each other, packages' `__init__` left out."""
    graph = grimp.build_graph(*SOURCES, exclude_type_checking_imports=False)
    own = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    many = {module: len(found) for module, found in own.items() if len(found) > IMPORTS}
    return dict(sorted(many.items(), key=lambda item: -item[1])), [sorted(each) for each in _cycles(own)]


def _cycles(own: dict[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected modules (Tarjan, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for start in sorted(own):
        ahead = [(start, iter(sorted(own[start])))] if start not in number else []
        while ahead:
            module, rest = ahead[-1]
            if module not in number:
                number[module] = low[module] = len(number)
                stack.append(module)
            following = next((each for each in rest if each not in number or each in stack), None)
            if following is None:
                ahead.pop()
                if ahead:
                    low[ahead[-1][0]] = min(low[ahead[-1][0]], low[module])
                if low[module] == number[module]:
                    at = stack.index(module)
                    group = set(stack[at:])
                    del stack[at:]
                    if len(group) > 1:
                        yield group
            elif following not in number:
                ahead.append((following, iter(sorted(own[following]))))
            else:
                low[module] = min(low[module], number[following])


def repeated_lines(sources: dict[Path, str]) -> int:
    """Lines of code that stand somewhere else, too, with those around them; imports and brackets do not count."""
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, text in sources.items():
        lines = [line.strip() for line in text.split("\n")]
        code = [line for line in lines if line and not line.startswith(("#", "from ", "import ", '"""', ")", "]", "}"))]
        for at in range(len(code) - WINDOW + 1):
            places[tuple(code[at : at + WINDOW])].append((path, at))
    covered: dict[Path, set[int]] = defaultdict(set)
    for found in places.values():
        if len(found) > 1:
            for path, at in found[1:]:
                covered[path].update(range(at, at + WINDOW))
    return sum(map(len, covered.values()))


def show(found: Structure) -> None:
    console = Console()
    table = Table("package", "files", "lines", "median", "largest", "", title="packages of chappe")
    for column in table.columns[1:5]:
        column.justify = "right"
    for name, each in found.packages.items():
        if name == "bench":
            table.add_section()
        table.add_row(
            name, str(each.files), f"{each.lines:,}", f"{each.median:g}", str(each.largest), each.largest_file
        )
    table.add_section()
    installed = [each for name, each in found.packages.items() if name != "bench"]
    table.add_row("all but bench", str(sum(each.files for each in installed)),
                  f"{sum(each.lines for each in installed):,}")  # fmt: skip
    console.print(table)
    console.print(f"classes deeper than one level of own inheritance: {len(found.deep)}", *found.deep, sep="\n  ")
    console.print(f"modules with more than {IMPORTS} own imports: {len(found.many_imports)}",
                  *(f"{name} {count}" for name, count in found.many_imports.items()), sep="\n  ")  # fmt: skip
    console.print(f"cycles of own imports, those for types included: {len(found.cycles)}",
                  *(" - ".join(cycle) for cycle in found.cycles), sep="\n  ")  # fmt: skip
    console.print(f"type: ignore: {found.ignores}")
    console.print(f"lines that stand twice, {WINDOW} or more together, without {', '.join(LEFT_OUT)}: {found.repeated}")


def _sizes(files: list[tuple[int, str]]) -> list[int]:
    return [size for size, _ in files]


def _module(path: Path) -> str:
    top = _top(path)
    return ".".join((top, *path.relative_to(SOURCES[top]).with_suffix("").parts))


def _top(path: Path) -> str:
    return "bench" if path.parts[0] == "bench" else "chappe"


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".pyx", ".pxd")


if __name__ == "__main__":
    main()
