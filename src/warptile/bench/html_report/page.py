"""The report as one HTML document.

`SECTIONS` says what it consists of: each entry makes the views of one part from the data, or none where the data has
nothing for it. A further part, such as a roofline or the timeline of a CTA, is one more entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup

from warptile.bench.html_report import (
    environment_section,
    glossary_section,
    instruction_section,
    overview_section,
    problems_section,
    rung_views,
    suites_section,
)
from warptile.bench.html_report.kernel_source import listing, shared_files, source_name
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.views import PageView, asset, filled
from warptile.figures.assets import POLICY, script, stylesheet
from warptile.rungs import families

SectionMaker = Callable[[PageData], tuple[PageView, ...]]


def _shared_source(data: PageData) -> tuple[PageView, ...]:
    """Files that several of the rungs include, each once."""
    files = shared_files(data.rungs)
    if not files:
        return ()
    body = filled("source.html", files=[(file, source_name(file), listing(file)) for file in files])
    return (PageView("source", "Shared CUDA sources", body, label="Shared sources"),)


SECTIONS: tuple[SectionMaker, ...] = (
    overview_section.views,
    suites_section.views,
    problems_section.views,
    rung_views.views,
    instruction_section.views,
    _shared_source,
    glossary_section.views,
    environment_section.views,
)
"""The parts of the page, in order."""


def html(data: PageData) -> str:
    """The whole document."""
    views = [view for section in SECTIONS for view in section(data)]
    groups = {family: [view for view in views if view.group == family] for family in families()}
    return with_plain_quotes(
        filled(
            "page.html", data=data, title=_title(data), views=views, policy=POLICY,
            listed=[view for view in views if not view.group], groups={k: v for k, v in groups.items() if v},
            styles=Markup("\n").join((stylesheet(), asset("page.css"))),
            scripts=Markup("\n").join((script(), asset("page.js"))), early=asset("early.js"),
        )
    )  # fmt: skip


def with_plain_quotes(document: str) -> str:
    """The document with the quotes of its texts as they are: HTML wants them escaped in attributes alone, and sources
    have thousands. Tags must not have a ``>`` in an attribute, which escaping sees to."""
    return re.sub(r">[^<]*", lambda found: found[0].replace("&#34;", '"').replace("&#39;", "'"), document)


def _title(data: PageData) -> str:
    on = f" on {' and '.join(data.gpus)}" if data.gpus else ""
    return f"warptile: {'saved runs' if data.basis == 'runs' else 'measurements'}{on}"
