"""What operators' commands make of rows and of what they are given, before and after a broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chappe.cli._operator import mask, split_name
from chappe.cli._picture import Picture, draw
from chappe.cli._tables import by_mode, modes
from chappe.cli.condense import function
from chappe.cli.paths import lines, whole
from chappe.errors import ConfigError
from chappe.wire.management import Input


@pytest.mark.parametrize(
    ("text", "bits"), [("all", 0xFFFF), ("3", 0b1000), ("0-2,5", 0b100111), ("15", 1 << 15), ("0-15", 0xFFFF)]
)
def test_modes_as_words(text: str, bits: int) -> None:
    assert mask(text) == bits
    assert mask(modes(bits).replace(" ", ",")) == bits


@pytest.mark.parametrize("text", ["", "16", "-1", "3-2", "x", "1,,2", "0-16", "²"])
def test_modes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="write modes from 0 to 15"):
        mask(text)


@pytest.mark.parametrize("text", ["a", "/a", "a/", ""])
def test_a_variable_has_a_publisher_and_a_name(text: str) -> None:
    with pytest.raises(ConfigError, match="PUBLISHER/VARIABLE"):
        split_name(text)


def test_values_by_mode_are_grouped() -> None:
    assert by_mode([100.0] * 16, " ms") == "100 ms"
    assert by_mode([100.0] * 4 + [50.0] + [None] * 11, " ms") == "0-3: 100 ms, 4: 50 ms"
    assert by_mode([1, None, 1, *[None] * 13]) == "0 2: 1"


def path(key: str, routers: str, redundant: int = 0, broker: str = "root", **more: Any) -> dict[str, Any]:
    return {"broker": broker, "key": key, "subscriber": key.partition("/")[0], "redundant": redundant,
            "routers": routers.split(), "before": "", "after": "", "modes": 0xFFFF, "intervals_ms": [100.0] * 16,
            **more}  # fmt: skip


def test_paths_between_clouds_are_shown_whole() -> None:
    rows = [
        path("ada/7", "n1 n2", broker="north", after="s1"),
        path("ada/7", "s1 s2", broker="south", before="n2"),
        path("ada/7", "n1 n2 s1 s2"),
        path("ada/7", "n1 n3 s3 s2", redundant=1, modes=0b11, intervals_ms=[100.0, 50.0, *[None] * 14]),
        path("bob/9", "n1 n2", broker="north", after="w1"),
    ]
    assert lines("pmu/x", whole(rows)) == [
        "pmu/x",
        "  to ada, every 100 ms",
        "    1: n1 -> n2 -> s1 -> s2",
        "    2: n1 -> n3 -> s3 -> s2   in modes 0-1",
        "  to bob, every 100 ms",
        "    1: n1 -> n2 -> (w1)",
    ]


def test_a_function_from_options_and_keys() -> None:
    made = function(
        "area/load",
        {"inputs": ["a/p", "b/p@500"], "calculator": "builtin:sum", "trigger": "time", "interval_ms": 250, "high": 3},
    )
    assert (made.publisher, made.variable, made.trigger, made.interval_ns) == ("area", "load", "time", 250_000_000)
    assert made.inputs == (Input("a", "p"), Input("b", "p", 500_000_000))
    assert (made.high, made.low, made.priority) == (3.0, None, 3)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "--input is required"),
        ({"inputs": ["a/p"]}, "--calculator is required"),
        ({"inputs": ["a"], "calculator": "builtin:sum"}, "'a' is no variable"),
        ({"inputs": ["a/p@x"], "calculator": "builtin:sum"}, "'x' is no number of milliseconds"),
        ({"inputs": ["a/p"], "calculator": "builtin:sum", "count": "x"}, r"\$.count"),
        ({"inputs": ["a/p"], "calculator": "builtin:sum", "interval_ms": "x"}, "Expected `float`"),
    ],
)
def test_a_function_that_is_none(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        function("area/load", given)


def router(name: str, x: float, y: float, up: bool = True, share: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "cloud": "north", "x": x, "y": y, "up": up, "share": share, **more}


def channel(a: str, b: str, share: float, up: bool = True, **more: Any) -> dict[str, Any]:
    return {"a": a, "b": b, "level": 1, "up": up, "share": share, "load": share * 1e6, "latency_ms": 1.0, **more}


def printed(picture: Picture, width: int = 90, channels: int = 12) -> list[str]:
    console = Console(width=width, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    with console.file:
        console.print(draw(picture, width, channels))
        return console.export_text().splitlines()


@pytest.mark.spec("GS-172")
def test_the_map_shows_where_routers_are_and_how_they_do() -> None:
    picture = Picture(
        modes=[{"broker": "north", "mode": 3, "next": 4}],
        routers=[
            router("left", 0, 5), router("right", 10, 5, share=0.3), router("low", 0, 0, share=0.6),
            router("full", 10, 0, share=0.95), router("dead", 5, 0, up=False), router("s1", 5, 5, cloud="south"),
        ],
        channels=[channel("left", "right", 0.1), channel("low", "full", 0.5), channel("left", "low", 0.2, up=False)],
    )  # fmt: skip
    text = printed(picture)
    assert "routers 5 of 6 up" in text[0]
    assert "channels 2 of 3 up" in text[0]
    assert "north 3 -> 4" in text[0]
    assert "north (4/5)" in text[1]
    assert "south (1/1)" in text[1]
    top, bottom = (next(line for line in text if name in line) for name in ("left", "low"))
    assert text.index(top) < text.index(bottom)
    assert top.index(".left") < top.index(".s1") < top.index("oright")
    assert bottom.index("Olow") < bottom.index("Xdead") < bottom.index("!full")
    listed = [line for line in text if " - " in line]
    assert [line.split()[1:4] for line in listed] == [
        ["left", "-", "low"],
        ["low", "-", "full"],
        ["left", "-", "right"],
    ]
    assert "down" in listed[0]
    assert listed[1].count("█") == 10
    assert "2 more channels, none of them fuller" in "\n".join(printed(picture, channels=1))


def test_the_map_takes_a_router_from_its_own_broker() -> None:
    picture = Picture(
        routers=[router("n1", 0, 0, share=0.6, broker="north"), router("n1", 0, 0, share=0.0, broker="root")],
        channels=[channel("n1", "s1", 0.0, broker="north", owner="root"),
                  channel("s1", "n1", 0.7, broker="root", owner="root")],
    )  # fmt: skip
    text = "\n".join(printed(picture))
    assert "On1" in text
    assert "70.0%" in text


def test_the_map_has_room_for_many_at_one_place() -> None:
    names = [f"router-{number}" for number in range(500)]
    text = "\n".join(printed(Picture(routers=[router(name, 100, 100) for name in names]), channels=0))
    assert text.count(".…") == 500  # all idle, all names too long for a cell
