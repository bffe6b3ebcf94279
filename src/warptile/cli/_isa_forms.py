"""Copies and synchronisation in ``warptile isa``: what each form does, asks for and becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from warptile.cli import _tables
from warptile.cli._tables import Column
from warptile.isa.catalogue import FORMS
from warptile.isa.forms import ARCHITECTURES, Form, table

SHOWN = "sm_90a"
"""The architecture whose machine code a list shows."""

MACHINE_WIDTH = 31
"""The longest name of a machine instruction, and a blank."""

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
    found = [escape(str(table().found[SHOWN][form.name]).replace(" + ", " +\n")) for form in forms]
    columns = [
        Column("instruction", [form.name for form in forms], left=True, least=24),
        Column("what it does", [escape(form.does) for form in forms], left=True, least=20),
        Column("since", [form.since for form in forms], rank=1, left=True),
        Column(SHOWN, found, left=True, least=MACHINE_WIDTH),
    ]
    _tables.show(console, "", columns)
    console.print()
    console.print(f"As assembled by {table().compiler}.", markup=False, highlight=False)


def show(console: Console, form: Form) -> None:
    """One form in full."""
    console.print(Text(form.name, style="bold"), Text(form.example), sep="\n", highlight=False)
    for label, text in (("what it does", form.does), ("asks for", form.limits), ("since", form.since)):
        console.print(Text(f"  {label:13} {text}"), highlight=False)
    for arch in ARCHITECTURES:
        found = table().found[arch][form.name]
        console.print(Text(f"  {arch:13} {found}", style="dim" if found.reason else "green"))
