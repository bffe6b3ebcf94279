"""Conversions, arithmetic and approximations on the emulator, bit for bit what an H200 answered."""

import numpy as np
import pytest

import captured
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
