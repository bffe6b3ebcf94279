"""Corrections of the source texts name files that exist, and agree with the table of machine instructions."""

from pathlib import Path

import pytest

from warptile.bench.report.text_corrections import CORRECTIONS
from warptile.isa import machine_code

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda correction: correction.source)
def test_the_evidence_is_there(correction):
    assert (ROOT / correction.evidence).is_file()


def test_hopper_multiplies_bits_itself_and_emulates_four_bit_integers():
    table = machine_code.table()
    for name, outcome in table.outcomes["sm_90a"].items():
        if name.startswith("mma.m16n8k256.s32.b1"):
            assert outcome.status == ("native" if name.endswith(".and") else "emulated"), name
            assert any(instruction.startswith("BMMA") for instruction in outcome.tensor)
        if name.startswith("mma.") and name.endswith(".s4"):
            assert outcome.status == "emulated", name
            assert any("S8" in instruction for instruction in outcome.tensor)
