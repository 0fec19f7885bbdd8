"""Records as XML at the boundary: export, import, XPath, XSLT and schema; what comes in is hostile (MR-076)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from lxml import etree

from chappe.aggregation._xml_rows import row_of, text_of
from chappe.errors import ChappeError
from chappe.measure.record import Record, RecordError, Refused, problem

MAX_BYTES = 64 << 20
DEPTH = 3  # P_Metrics, performancedata, its elements
EXPRESSION = 2000  # characters of an XPath
ROOT, ROW = "P_Metrics", "performancedata"
HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n<P_Metrics>\n'
TAIL = b"</P_Metrics>\n"
SCHEMA, STYLE = "performance-record.xsd", "performance-record.xsl"

Tree = etree._ElementTree
Found = Record | str | float | bool


class XmlError(ChappeError):
    """The document cannot be used at all; says why, and where if that is known."""


def export(records: Iterable[Record]) -> bytes:
    """A document of all records, of which nothing is lost."""
    return b"".join((HEAD, "".join(map(text_of, records)).encode(), TAIL))


def parse(document: bytes) -> Tree:
    """The tree of a document without DTD, entities and anything from outside; XmlError says what is wrong."""
    if len(document) > MAX_BYTES:
        raise XmlError(f"the document has {len(document)} bytes, at most {MAX_BYTES} are read; divide it")
    # The parser below reads UTF-8 whatever the document claims, so that these bytes cannot hide in another encoding.
    for forbidden in (b"<!DOCTYPE", b"<!ENTITY"):
        place = document.find(forbidden)
        if place >= 0:
            line = document.count(b"\n", 0, place) + 1
            raise XmlError(f"line {line}: {forbidden.decode()} is not allowed: no DTD and no entities; remove it")
    try:
        tree = etree.ElementTree(etree.fromstring(document, _parser()))
    except etree.XMLSyntaxError as error:
        raise XmlError(f"is not well-formed UTF-8 XML: {error.msg}") from None
    deep: Any = _TOO_DEEP(tree)
    if deep:
        raise XmlError(f"line {deep[0].sourceline}: elements are nested deeper than {DEPTH}")
    if tree.getroot().tag not in (ROOT, ROW):
        raise XmlError(f"the root is {tree.getroot().tag}; it must be {ROOT} or {ROW}")
    return tree


def read(document: bytes | Tree, now_ns: int) -> tuple[list[Record], list[Refused]]:
    """The good records of a document, and for each other one its line and the reason (MR-080)."""
    tree = parse(document) if isinstance(document, bytes) else document
    taken: list[Record] = []
    refused: list[Refused] = []
    root = tree.getroot()
    for row in [root] if root.tag == ROW else list(root):
        line = row.sourceline or 0
        try:
            record = row_of(row)
        except RecordError as error:
            refused.append(Refused(line, str(error)))
            continue
        reason = problem(record, now_ns)
        if reason:
            refused.append(Refused(line, reason))
        else:
            taken.append(record)
    return taken, refused


def violations(tree: Tree) -> list[str]:
    """Where a document breaks the schema; empty if nowhere."""
    schema = _schema()
    if schema.validate(tree):
        return []
    return [f"line {error.line}: {error.message}" for error in schema.error_log]


def compiled(expression: str) -> etree.XPath:
    """A query to be used more than once; XmlError says what is wrong with it."""
    if len(expression) > EXPRESSION:
        raise XmlError(f"the XPath has {len(expression)} characters, at most {EXPRESSION} are read")
    try:
        return etree.XPath(expression, regexp=False)
    except etree.XPathError as error:
        raise XmlError(f"XPath {expression!r}: {error}") from None


def query(tree: Tree, expression: str | etree.XPath) -> list[Found]:
    """What an XPath finds: records for `performancedata`, texts of other nodes, or one number, text or truth."""
    path = compiled(expression) if isinstance(expression, str) else expression
    try:
        found: Any = path(tree)
    except etree.XPathError as error:
        raise XmlError(f"XPath {path.path!r}: {error}") from None
    if not isinstance(found, list):
        return [found]
    return [_found(each) for each in found]


def html(tree: Tree, stylesheet: Path | None = None, **parameters: str) -> bytes:
    """The document as a page, through the shipped stylesheet or another one (MR-103).

    The shipped one takes `title` and `sort`, the name of an element. No stylesheet may read or write anything.
    """
    transform = _shipped() if stylesheet is None else _transform(stylesheet)
    try:
        given: dict[str, Any] = {name: etree.XSLT.strparam(text) for name, text in parameters.items()}
        result: Any = transform(tree, **given)
        return bytes(result)
    except etree.XSLTError as error:
        raise XmlError(f"the stylesheet {stylesheet or STYLE} failed: {error}") from None


def resource(name: str) -> bytes:
    """A file that is shipped with this package."""
    return Path(__file__).with_name(name).read_bytes()


def _found(each: Any) -> Found:
    if isinstance(each, etree._Element):
        return row_of(each) if each.tag == ROW else "".join(map(str, each.itertext()))
    return str(each)


def _parser() -> etree.XMLParser[Any]:
    return etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False,
        huge_tree=False, remove_comments=True, remove_pis=True, remove_blank_text=True,
    )  # fmt: skip


@cache
def _schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.fromstring(resource(SCHEMA), _parser()))


@cache
def _shipped() -> etree.XSLT:
    return _transform(None)


def _transform(stylesheet: Path | None) -> etree.XSLT:
    try:
        text = resource(STYLE) if stylesheet is None else stylesheet.read_bytes()
    except OSError as error:
        raise XmlError(f"{stylesheet}: cannot be read: {error.strerror}") from None
    if b"<!DOCTYPE" in text:
        raise XmlError(f"{stylesheet}: a DTD is not allowed; remove it")
    try:
        return etree.XSLT(etree.fromstring(text, _parser()), access_control=etree.XSLTAccessControl.DENY_ALL)
    except (etree.XMLSyntaxError, etree.XSLTError) as error:
        raise XmlError(f"{stylesheet}: is no stylesheet: {error}") from None


_TOO_DEEP = etree.XPath("(" + "/*" * (DEPTH + 1) + ")[1]")
