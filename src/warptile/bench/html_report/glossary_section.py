"""The glossary of the documents, which rung pages link to."""

from __future__ import annotations

import re

from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import glossary_anchor, rendered, rung_view, without_generated
from warptile.bench.html_report.views import PageView

_HEADING = re.compile(r"^#{2,} (.+)$", re.MULTILINE)


def _text(data: PageData) -> str | None:
    file = data.documents / "glossary.md" if data.documents is not None else None
    return without_generated(file.read_text("utf-8")) if file is not None and file.is_file() else None


def places(data: PageData) -> frozenset[str]:
    """The names of the terms' places; none without a checkout."""
    return frozenset(glossary_anchor(heading) for heading in _HEADING.findall(_text(data) or ""))


def views(data: PageData) -> tuple[PageView, ...]:
    """The glossary, where there is a checkout."""
    text = _text(data)
    if text is None:
        return ()
    known = places(data) | frozenset(map(rung_view, data.rungs))
    return (PageView("glossary", "Glossary", rendered(text, "glossary: table", known, lower=1, terms=True)),)
