"""Pages of copies and synchronization."""

from __future__ import annotations

from warptile.bench.instruction_pages import box_examples
from warptile.bench.instruction_pages.described import Described, Section
from warptile.isa.forms import ARCHITECTURES, Form, table


def described(form: Form) -> Described:
    """One form."""
    outcomes = [(arch, table().found[arch][form.name]) for arch in ARCHITECTURES]
    machine = tuple((arch, "refused" if each.reason else "taken", str(each)) for arch, each in outcomes)
    facts = (("first architecture", form.since), ("family", form.family), ("requirements", form.limits or "none"))
    return Described(
        form.name, form.family, form.does, form.since, form.example, facts, machine, table().compiler, _sections(form),
    )  # fmt: skip


def _sections(form: Form) -> tuple[Section, ...]:
    """Boxes, of copies of tiles of tensors."""
    if ".tensor." not in form.name or "im2col" in form.name or "prefetch" in form.name:
        return ()
    stores = form.name.endswith("global.shared::cta")
    return (Section("Where the chunks of a box go", (box_examples.figure(stores=stores),)),)
