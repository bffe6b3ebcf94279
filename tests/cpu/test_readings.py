"""What is said about the source texts holds: masks by counting, instructions by the table of what they become."""

from pathlib import Path

import pytest

from warptile.bench.readings import READINGS
from warptile.isa import native

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.source)
def test_the_evidence_is_there(reading):
    assert (ROOT / reading.evidence).is_file()


def most_in_one_bank_group(mask, row_bytes=128, rows=8):
    """How many of the eight 16-byte rows of an ldmatrix meet in one group of four banks, their columns XORed."""
    groups = [(row * row_bytes // 16 + (0 ^ mask(row))) % 8 for row in range(rows)]
    return max(groups.count(group) for group in groups)


def test_the_published_mask_leaves_a_four_way_conflict():
    assert most_in_one_bank_group(lambda row: 0) == 8
    assert most_in_one_bank_group(lambda row: (row & 0b1100) >> 2) == 4
    assert most_in_one_bank_group(lambda row: row & 7) == 1


def test_hopper_multiplies_bits_itself_and_emulates_four_bit_integers():
    table = native.table()
    for name, outcome in table.outcomes["sm_90a"].items():
        if name.startswith("mma.m16n8k256.s32.b1"):
            assert outcome.status == ("native" if name.endswith(".and") else "emulated"), name
            assert any(instruction.startswith("BMMA") for instruction in outcome.tensor)
        if name.startswith("mma.") and name.endswith(".s4"):
            assert outcome.status == "emulated", name
            assert any("S8" in instruction for instruction in outcome.tensor)
