"""Names, their order, and how far they are from destinations."""

from __future__ import annotations

import pytest

from chappe.cells.names import cell_id, check_destination, check_name, distance, gap, least_gap, nearest


@pytest.mark.spec("BF-01", "BF-05")
@pytest.mark.parametrize("name", ["a", "fr.paris.louvre", "org.example.host-7", "é" * 127, "x" * 255, " "])
def test_what_can_be_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.spec("BF-02")
@pytest.mark.parametrize("name", ["*", "fr.*", "*.fr", "f*r"])
def test_no_name_contains_an_asterisk(name: str) -> None:
    with pytest.raises(ValueError, match="contains '\\*'"):
        check_name(name)


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800"])
def test_what_cannot_be_a_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"bytes|UTF-8"):
        check_name(name)


@pytest.mark.spec("BF-25")
@pytest.mark.parametrize("destination", ["fr.paris", "fr.*", "*"])
def test_what_can_be_a_destination(destination: str) -> None:
    assert check_destination(destination) == destination


@pytest.mark.parametrize("destination", ["", "f*r", "f*r*", "**", "x" * 255 + "*"])
def test_what_cannot_be_a_destination(destination: str) -> None:
    with pytest.raises(ValueError):
        check_destination(destination)


@pytest.mark.spec("BF-03")
def test_distance_is_exact_to_base_257() -> None:
    assert distance("a", "a") == 0
    assert distance("a", "b") == 257**254
    assert distance("a", "a\0") == 257**253
    assert distance("ab", "b") == 257**254 - (ord("b") + 1) * 257**253
    assert distance("x" * 254 + "a", "x" * 254 + "b") == 1


@pytest.mark.spec("BF-03", "BF-25")
def test_names_with_a_prefix_are_no_way_off_and_those_beside_it_are_nearest() -> None:
    assert gap("B.1", "B*") == gap("B", "B*") == gap("anything", "*") == 0
    assert 0 < gap("Azzz", "B*") < gap("Aaaa", "B*")
    assert 0 < gap("C", "B*") < gap("Caaa", "B*")
    outside = "A\U0010ffff"  # without the interval it would look nearer to "B" than a name that begins with it
    assert distance(outside, "B") < distance("Bzzz", "B")
    assert gap("Bzzz", "B*") < gap(outside, "B*")


@pytest.mark.spec("BF-05")
def test_names_of_one_place_are_nearer_to_each_other_than_to_other_places() -> None:
    names = ["ch.cern.a", "fr.lyon.b", "fr.paris.louvre", "fr.paris.orsay", "ro.bucharest.x"]
    assert nearest(names, "fr.paris.gare") == "fr.paris.louvre"
    assert nearest(names, "fr.lyon.zoo") == "fr.lyon.b"


@pytest.mark.spec("BF-01")
def test_a_cell_without_names_is_nowhere() -> None:
    assert least_gap([], "a") is None
    assert nearest([], "a") is None
    assert least_gap(["c", "b"], "a") == distance("a", "b")


def test_the_id_of_a_cell_depends_on_its_address_alone() -> None:
    assert cell_id("east/n1") == bytes.fromhex("a87cd9f400f3ef8e")
    assert cell_id("east/n1") != cell_id("east/n2")
