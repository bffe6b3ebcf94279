"""The counting rules give what Nsight Compute read on an H200 (tests/data/access_counts_h200.json)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from access_patterns import PATTERNS, Pattern
from warptile.emulator.counters import SHARED_KINDS, Counters
from warptile.emulator.lanes import Active
from warptile.errors import SourceLocation
from warptile.ptx.instruction import Instruction

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "access_counts_h200.json").read_text())["counts"]

UNMODELLED = {
    (
        "cp.async",
        16,
        "half of each sector",
    ): "a copy that leaves half of every sector unused takes twice the wavefronts",
    ("ld", 16, "lane / 2 in one half"): "the ideal joins the passes of one half, the hardware's wavefronts do not",
    ("ld", 16, "alike in one half"): "the same",
    ("ld", 16, "lane / 2 and lane ^ 2"): "the same: each half agrees in another way",
}
"""Patterns whose counts differ from the rules, and how; none occurs in a rung."""


def count(pattern: Pattern) -> dict[str, int]:
    lanes = np.flatnonzero(pattern.source >= 0)
    active = Active.of(lanes)
    instruction = Instruction("x", (), (), SourceLocation(1), "x")
    counters = Counters(1)
    counters.place([instruction], 0)
    source, target = pattern.source[lanes], pattern.target[lanes]
    if pattern.kind == "cp.async":
        reads = np.ones(len(lanes), dtype=np.bool_)
        counters.copy_async(
            instruction, active, source, target, pattern.size, reads=reads, bypasses_l1=pattern.size == 16
        )
    else:
        counters.access_shared(instruction, active, target, pattern.size, write=pattern.kind == "st")
    total = counters.total()
    kind = {"ld": "load", "st": "store", "cp.async": "async_copy"}[pattern.kind]
    others = set(SHARED_KINDS) - {kind}
    assert not any(total[f"shared_{other}_{what}"] for other in others for what in ("requests", "wavefronts"))
    found = {
        "wavefronts": int(total[f"shared_{kind}_wavefronts"]),
        "ideal": int(total[f"shared_{kind}_wavefronts_ideal"]),
    }
    return found | ({"sectors": int(total["global_load_sectors"])} if pattern.kind == "cp.async" else {})


def test_every_pattern_is_recorded() -> None:
    assert [(r["kind"], r["size"], r["name"]) for r in RECORDED] == [(p.kind, p.size, p.name) for p in PATTERNS]


@pytest.mark.parametrize(
    ("pattern", "recorded"),
    list(zip(PATTERNS, RECORDED, strict=True)),
    ids=[f"{p.kind}{p.size} {p.name}" for p in PATTERNS],
)
def test_counts_of(pattern: Pattern, recorded: dict[str, int]) -> None:
    wanted = {key: recorded[key] for key in ("wavefronts", "ideal", "sectors") if key in recorded}
    if (pattern.kind, pattern.size, pattern.name) in UNMODELLED:
        assert count(pattern) != wanted, "the rules now give this: take it off the list"
    else:
        assert count(pattern) == wanted
