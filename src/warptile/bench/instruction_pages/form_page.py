"""Pages of copies and synchronization."""

from __future__ import annotations

from warptile.bench.instruction_pages.described import Described
from warptile.isa.forms import ARCHITECTURES, Form, table


def described(form: Form) -> Described:
    """One form."""
    outcomes = [(arch, table().found[arch][form.name]) for arch in ARCHITECTURES]
    machine = tuple((arch, "refused" if each.reason else "taken", str(each)) for arch, each in outcomes)
    facts = (("first architecture", form.since), ("family", form.family), ("requirements", form.limits or "none"))
    return Described(
        form.name, form.family, form.does, form.since, form.example, facts, machine, table().compiler, (),
    )  # fmt: skip
