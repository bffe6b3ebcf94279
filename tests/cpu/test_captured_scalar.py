"""Conversions and arithmetic on the emulator, bit for bit what an H200 answered."""

import numpy as np
import pytest

import captured
from probes import Probe
from scalar_probes import SCALAR_PROBES


@pytest.mark.parametrize(
    "scalar", [s for s in SCALAR_PROBES if s.group != "approximation"], ids=lambda scalar: scalar.name
)
def test_equals_the_gpu(scalar):
    answers = captured.scalar_answers(scalar, Probe.emulated)
    wrong = np.flatnonzero(captured.scalar_checksums(answers) != captured.vectors()[scalar.name])
    rows = len(answers) // captured.CHECKSUMS
    assert not len(wrong), (
        f"{scalar.name}: rows {wrong[0] * rows} to {wrong[0] * rows + rows - 1} are the first to differ"
    )
