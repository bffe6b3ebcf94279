"""Copies and synchronisation in ``warptile isa``: what each form does, asks for and becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from warptile.isa.catalogue import FORMS
from warptile.isa.forms import ARCHITECTURES, Form, table

SHOWN = "sm_90a"
"""The architecture whose machine code a list shows."""

FAMILIES = tuple(dict.fromkeys(form.family for form in FORMS))


def named(name: str) -> tuple[Form, ...]:
    """The forms of a family (``tensor-copy``), or those whose names are ``name`` or go on behind it."""
    family = tuple(form for form in FORMS if form.family.replace(" ", "-") == name)
    return family or tuple(form for form in FORMS if f"{form.name}.".startswith(f"{name}."))


def facts(form: Form) -> dict[str, Any]:
    """One form as plain data."""
    outcomes = {arch: table().found[arch][form.name] for arch in ARCHITECTURES}
    return {
        "name": form.name, "family": form.family, "does": form.does, "limits": form.limits, "since": form.since,
        "example": form.example,
        "outcomes": {arch: {"machine": each.machine, "reason": each.reason or None} for arch, each in outcomes.items()},
    }  # fmt: skip


def show_list(console: Console, forms: Sequence[Form]) -> None:
    """Forms in short."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, width in (("instruction", 46), ("what it does", 29), ("since", 6), (SHOWN, 32)):
        made.add_column(heading, overflow="fold", width=width)
    for form in forms:
        found = table().found[SHOWN][form.name]
        made.add_row(form.name, form.does, form.since, Text(str(found).replace(" + ", " +\n")))
    console.print(made)
    console.print(f"As assembled by {table().compiler}.", markup=False, highlight=False)


def show(console: Console, form: Form) -> None:
    """One form in full."""
    console.print(Text(form.name, style="bold"), Text(form.example), sep="\n", highlight=False)
    for label, text in (("what it does", form.does), ("asks for", form.limits), ("since", form.since)):
        console.print(Text(f"  {label:13} {text}"), highlight=False)
    for arch in ARCHITECTURES:
        found = table().found[arch][form.name]
        console.print(Text(f"  {arch:13} {found}", style="dim" if found.reason else "green"))
