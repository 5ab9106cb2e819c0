"""Reads a report as a browser would: elements, texts, and what it could load."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

EMPTY = {"meta", "wbr"}


@dataclass
class ReadPage(HTMLParser):
    """The elements of a page with their attributes, its text, and the text of data and of pictures apart."""

    text: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()
        assert self.inside == [], f"never closed: {self.inside}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] == [("wbr", {})] and self.said:
            self.said[-1] += data  # the same word goes on
        elif self.inside[-1:] != ["style"]:
            self.said.append(data)

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.elements)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.said).split())


def check_harmless(page: ReadPage) -> None:
    """Nothing is loaded, nothing runs, and names change nothing of the page."""
    known = {
        *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section"),
        *("h1", "h2", "p", "ul", "li", "strong", "div", "wbr", "table", "thead", "tbody", "tr", "th", "td"),
        *("span", "b", "i", "u"),
    }
    for tag, attributes in page.elements:
        assert tag in known, tag
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    policies = [one["content"] for tag, one in page.elements if "http-equiv" in one and tag == "meta"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in page.text
    assert "@import" not in page.text
    assert not re.findall(r"https?://", page.text)
