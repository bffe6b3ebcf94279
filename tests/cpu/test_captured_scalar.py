"""Conversions, arithmetic and 16-bit approximations on the emulator, bit for bit what an H200 answered."""

import numpy as np
import pytest

import captured
from probes import Probe
from scalar_probes import SCALAR_PROBES


@pytest.mark.parametrize("scalar", [s for s in SCALAR_PROBES if s.exact], ids=lambda scalar: scalar.name)
def test_equals_the_gpu(scalar):
    answers = captured.scalar_answers(scalar, Probe.emulated)
    wrong = np.flatnonzero(captured.kept_of_scalar(scalar, answers) != captured.vectors()[scalar.name])
    rows = len(answers) // captured.CHECKSUMS
    assert not len(wrong), (
        f"{scalar.name}: rows {wrong[0] * rows} to {wrong[0] * rows + rows - 1} are the first to differ"
    )


ULP = {"rcp": 1, "sqrt": 1, "rsqrt": 1, "ex2": 1, "div": 2}
ABSOLUTE = {"sin": 2.0**-22, "cos": 2.0**-22, "lg2": 2.0**-22, "tanh": 2.0**-16}


@pytest.mark.parametrize("scalar", [s for s in SCALAR_PROBES if not s.exact], ids=lambda scalar: scalar.name)
def test_is_near_the_gpu(scalar):
    """Special values are equal; numbers differ by no more than docs/numerics.md says."""
    expected = captured.vectors()[scalar.name]
    found = Probe.emulated(scalar.probe, scalar.rows(captured.SEED)[: captured.APPROXIMATE_ROWS])
    kind, word = (np.float64, np.uint64) if scalar.types[0] == "f64" else (np.float32, np.uint32)
    gpu, emulator = (np.ascontiguousarray(words).view(word).ravel() for words in (expected, found))
    a, b = gpu.view(kind), emulator.view(kind)
    special = ~np.isfinite(a) | ~np.isfinite(b) | (a == 0) | (b == 0)
    assert np.array_equal(gpu[special], emulator[special])
    opcode = scalar.name.split(".")[0]
    if opcode in ULP:
        upper = np.uint64(32 if scalar.name.endswith(".ftz.f64") else 0)  # a last place is one of the upper half
        places = (gpu >> upper).astype(np.int64) - (emulator >> upper).astype(np.int64)
        assert np.abs(places).max() <= ULP[opcode]
    else:
        with np.errstate(invalid="ignore"):
            apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
            allowed = ABSOLUTE[opcode] + 2.0**-23 * np.abs(a.astype(np.float64))
        assert (apart <= allowed)[~special].all()
