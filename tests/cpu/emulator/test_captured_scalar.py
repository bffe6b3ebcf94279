"""Conversions, arithmetic and approximations on the emulator, bit for bit what an H200 answered."""

from functools import cache

import numpy as np
import pytest

import captured
import random_words
from covering import ALL
from probes import Probe
from scalar_probes import SCALAR_PROBES

ORDINARY = 4
"""An ordinary run takes every fourth part of an instruction's rows, of the next instruction the parts after them; with
WARPTILE_TESTS=all it takes every part."""


BY_TYPES = {scalar.types: scalar for scalar in SCALAR_PROBES}


@cache
def rows_of(types):
    """Inputs of the instructions with these operand types, which all get the same."""
    return BY_TYPES[types].rows(captured.SEED)


@pytest.mark.parametrize(
    ("number", "scalar"), list(enumerate(SCALAR_PROBES)), ids=lambda value: getattr(value, "name", "")
)
def test_equals_the_gpu(number, scalar):
    rows, expected = rows_of(scalar.types), captured.vectors()[scalar.name]
    parts = captured.CHECKSUMS if scalar.by_checksum else captured.APPROXIMATE_ROWS
    size = len(rows) // parts if scalar.by_checksum else 1
    taken = np.arange(parts) if ALL else np.arange(number % ORDINARY, parts, ORDINARY)
    chosen = rows[: parts * size].reshape(parts, size, -1)[taken]
    answers = Probe.emulated(scalar.probe, np.ascontiguousarray(chosen.reshape(-1, rows.shape[1])))
    found = captured.checksums(answers, size) if scalar.by_checksum else answers
    wrong = taken[(found != expected[taken]).reshape(len(taken), -1).any(axis=1)]
    assert not len(wrong), (
        f"{scalar.name}: {len(wrong)} of {len(taken)} parts differ, first in rows {wrong[0] * size} to "
        f"{(wrong[0] + 1) * size - 1}"
    )


def test_inputs_are_the_same_everywhere():
    """SplitMix64's first words from the state 0, and one word of a stream."""
    state = np.uint64(0x9E3779B97F4A7C15) * np.arange(1, 4, dtype=np.uint64)
    assert [hex(word) for word in random_words.mix(state)] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]  # fmt: skip
    assert random_words.stream(1, "a", 2, shape=3)[2] == random_words.stream(1, "a", 2, shape=(1, 9))[0, 2]
    assert random_words.stream(1, "a", 2, shape=3)[2] != random_words.stream(2, "a", 2, shape=3)[2]
