"""Conversions, arithmetic and approximations on the emulator, bit for bit what an H200 answered."""

import numpy as np
import pytest

import captured
import random_words
from probes import Probe
from scalar_probes import SCALAR_PROBES


@pytest.mark.parametrize("scalar", SCALAR_PROBES, ids=lambda scalar: scalar.name)
def test_equals_the_gpu(scalar):
    answers = captured.scalar_answers(scalar, Probe.emulated)
    found, expected = captured.kept_of_scalar(scalar, answers), captured.vectors()[scalar.name]
    wrong = np.flatnonzero((found != expected).reshape(len(expected), -1).any(axis=1))
    rows = len(answers) // captured.CHECKSUMS if scalar.by_checksum else 1
    assert not len(wrong), (
        f"{scalar.name}: {len(wrong)} of {len(expected)} parts differ, first in rows {wrong[0] * rows} to "
        f"{(wrong[0] + 1) * rows - 1}"
    )


def test_inputs_are_the_same_everywhere():
    """SplitMix64's first words from the state 0, and one word of a stream."""
    state = np.uint64(0x9E3779B97F4A7C15) * np.arange(1, 4, dtype=np.uint64)
    assert [hex(word) for word in random_words.mix(state)] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]  # fmt: skip
    assert random_words.stream(1, "a", 2, shape=3)[2] == random_words.stream(1, "a", 2, shape=(1, 9))[0, 2]
    assert random_words.stream(1, "a", 2, shape=3)[2] != random_words.stream(2, "a", 2, shape=3)[2]
