"""Whether a page is whole: what a browser forgives is not forgiven here."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Every tag that is open must be closed; `seen` counts them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
