"""The emulator's approximations err no more than an H200's, for operands of every sign and exponent.

The hardware's largest errors are known over all 2**32 operands (``tests/gpu/measure_approximations.py``); the
emulator's are taken here over a sample of each bin: 512 bins, by sign and exponent.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from one_instruction import execute
from random_words import stream

DATA = Path(__file__).parents[2] / "data"
PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"
SUMMARY = json.loads((DATA / "approximations_h200.json").read_text())["instructions"]
SAMPLES = 64
REFERENCES = {
    "rcp": lambda x: 1 / x, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos,
    "lg2": np.log2, "ex2": np.exp2, "tanh": np.tanh,
}  # fmt: skip
SINGLE = [name for name in SUMMARY if name.endswith("f32")]
DOUBLE = [name for name in SUMMARY if name.endswith("f64")]


def words(name):
    """A sample of each bin: its first word, its last, and some between."""
    low = (stream(1, name, shape=(512, SAMPLES)) >> np.uint64(41)).astype(np.uint32)
    low[:, 0], low[:, 1] = 0, (1 << 23) - 1
    return (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)) | low


def hardware(name):
    with np.load(DATA / "approximations_h200.npz") as stored:
        return stored[name].astype(np.float64)


@pytest.mark.parametrize("name", SINGLE)
def test_single_precision_is_within_the_error_of_the_gpu(name):
    operands = words(name)
    got = execute(f"{name} d, a;", "b32 d a", a=operands.ravel()).view(np.float32).reshape(operands.shape)
    x = operands.view(np.float32)
    smallest = np.float32(2.0**-126)
    with np.errstate(all="ignore"):
        if ".ftz" in name:
            x = np.where(np.abs(x) < smallest, np.copysign(np.float32(0), x), x)
        exact = REFERENCES[name.split(".")[0]](x.astype(np.float64))
        if ".ftz" in name:
            exact = np.where((np.abs(exact) < smallest) & (got == 0), 0.0, exact)
        nearest = exact.astype(np.float32)
        number = np.isfinite(nearest)
        assert np.array_equal(nearest[~number], got[~number], equal_nan=True)
        error = np.where(number, np.abs(got.astype(np.float64) - exact), 0.0)
        place = np.ldexp(1.0, np.maximum(np.frexp(nearest)[1] - 1, -126) - 23)
    of_angles = name.startswith(("sin", "cos"))  # whose errors do not shrink with the result
    scaled, limits = (error, hardware(name)[:, 2]) if of_angles else (error / place, hardware(name)[:, 0])
    largest = scaled.max(axis=1, initial=0.0, where=number)
    beyond = largest > limits * 1.0001 + 1e-9
    assert not beyond.any(), (int(np.argmax(beyond)), largest[beyond][:3], limits[beyond][:3])


@pytest.mark.parametrize("name", DOUBLE)
def test_upper_halves_are_within_the_error_of_the_gpu(name):
    operands = words(name)
    wide = operands.astype(np.uint64) << np.uint64(32)
    got = execute(f"{name} d, a;", "b64 d a", a=wide.ravel()).view(np.float64).reshape(wide.shape)
    with np.errstate(all="ignore"):
        x = wide.view(np.float64)
        tiny = np.finfo(np.float64).smallest_normal
        x = np.where(np.abs(x) < tiny, np.copysign(0.0, x), x)
        exact = REFERENCES[name.split(".")[0]](x)
        number = np.isfinite(exact) & (np.abs(exact) >= tiny)
        relative = np.where(number, np.abs(got - exact) / np.abs(exact), 0.0).max(axis=1)
    assert (relative <= hardware(name)[:, 1] * 1.0001).all()


@pytest.mark.parametrize("name", SUMMARY)
def test_the_summary_is_that_of_the_bins(name):
    for i, metric in enumerate(("ulp", "relative", "absolute")):
        assert hardware(name)[:, i].max() == pytest.approx(SUMMARY[name]["largest"][metric]["error"], rel=1e-6)


def test_the_page_says_what_was_measured():
    """Its table: results that are not the nearest, and errors in units of the last place or as powers of 2."""
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\| ([^|]*) \| ([\d.]+)% \|", PAGE.read_text(), re.M)
    assert len(rows) == 14
    for name, said, share in rows:
        assert f"{SUMMARY[name]['not_nearest'] / 2**32:.1%}" == f"{share}%", name
        bins, largest = hardware(name), SUMMARY[name]["largest"]
        angles = [bins[np.r_[:top, 256 : 256 + top], 2].max() for top in (129, 130)]
        errors = [*angles, bins[126:128, 2].max(), np.delete(bins[:255, 1], [126, 127]).max()]
        errors.append(largest["relative"]["error"])
        four, eight, near, far, relative = (f"2^{np.log2(error):.2f}" if error else "0" for error in errors)
        wanted = {
            "sin": f"absolute {four} below 4, {eight} below 8",
            "lg2": f"absolute {near} there, else relative {far}",
            "tanh": f"relative {relative}",
        }
        wanted["cos"] = wanted["sin"]
        kind = "tanh" if name.endswith("f64") else name.split(".")[0]
        assert said == wanted.get(kind, f"{largest['ulp']['error']:.3f} ulp"), name
