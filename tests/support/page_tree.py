"""HTML read with the standard library's parser: elements with their attributes and text, for tests of pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "hr", "img"}
CLOSED_BY = {
    "td": {"td", "th", "tr", "tbody", "thead", "tfoot"}, "th": {"td", "th", "tr", "tbody", "thead", "tfoot"},
    "tr": {"tr", "tbody", "thead", "tfoot"}, "li": {"li"}, "thead": {"tbody", "tfoot"}, "tbody": {"tfoot", "tbody"},
}  # fmt: skip
"""Elements whose end tag may be left out -> the elements whose beginning ends them."""


@dataclass
class Element:
    """An element; ``children`` are elements and text."""

    tag: str
    attributes: dict[str, str]
    children: list = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    @property
    def words(self) -> str:
        """Its text with single spaces."""
        return " ".join(self.text.split())

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def walk(self):
        """It and every element below it."""
        waiting = [self]  # no recursion: every element would pass through as many generators as it lies deep
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(each for each in reversed(element.children) if isinstance(each, Element))

    def all(self, tag: str = "", class_: str = "", **attributes: str) -> list[Element]:
        """The elements below it with a tag, a class and attributes."""
        return [
            each
            for each in self.walk()
            if each is not self
            and (not tag or each.tag == tag)
            and (not class_ or class_ in each.classes)
            and all(each.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, tag: str = "", class_: str = "", **attributes: str) -> Element:
        """The only such element."""
        (found,) = self.all(tag, class_, **attributes)
        return found

    def rows(self) -> list[list[str]]:
        """The cells of a table."""
        return [[cell.words for cell in row.children if isinstance(cell, Element)] for row in self.all("tr")]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self._open = [self.root]

    def handle_starttag(self, tag, attrs):
        while tag in CLOSED_BY.get(self._open[-1].tag, ()):
            self._open.pop()
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag):
        while self._open[-1].tag in CLOSED_BY and self._open[-1].tag != tag:
            self._open.pop()
        assert self._open[-1].tag == tag, f"</{tag}> ends <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data):
        self._open[-1].children.append(data)


def tree(text: str) -> Element:
    """The document of a text, in which every element that is begun is ended."""
    builder = _Builder()
    builder.feed(text)
    builder.close()
    while builder._open[-1].tag in CLOSED_BY:
        builder._open.pop()
    assert builder._open == [builder.root], [each.tag for each in builder._open]
    return builder.root
