"""Epilogues with their operands, as calls on NumPy arrays or others, and what they give in float64."""

from dataclasses import dataclass, field

import ml_dtypes  # noqa: F401
import numpy as np

import warptile as wt
from covering import ALL


@dataclass(frozen=True)
class EpilogueCase:
    """An epilogue, and the operands that it takes for a result of M x N.

    Attributes:
        function: the epilogue; evaluated with NumPy arrays it is its own reference.
        operands: shape of each operand by its name, in terms of M and N; a number is given as it is.
        slope: most by which an output changes for a change of the accumulator by one.
    """

    name: str
    function: object
    operands: dict = field(default_factory=dict)
    slope: float = 1.2

    def drawn(self, m, n, dtype, rng):
        """The operands as NumPy arrays of ``dtype``, and numbers."""
        sizes = {"M": m, "N": n}
        return {
            name: value
            if isinstance(value, float)
            else rng.standard_normal([sizes.get(each, each) for each in value]).astype(np.float32).astype(dtype)
            for name, value in self.operands.items()
        }


def mixed(acc, bias, column, full, factor):
    """One of everything: a row, a column, a matrix and a number; two outputs."""
    pre = acc + bias
    return wt.gelu(pre) * column + full * factor, wt.cast(pre, "float32")


CASES = (
    EpilogueCase("bias", lambda acc, bias: acc + bias, {"bias": ("N",)}),
    EpilogueCase("relu", lambda acc: wt.relu(acc)),
    EpilogueCase(
        "gelu and residual", lambda acc, bias, res: wt.gelu(acc + bias) + res, {"bias": ("N",), "res": ("M", "N")}
    ),
    EpilogueCase("silu", lambda acc, scale: wt.silu(acc * scale), {"scale": 0.5}),
    EpilogueCase("tanh form", lambda acc, column: wt.gelu(acc, "tanh") - column, {"column": ("M", 1)}),
    EpilogueCase("where", lambda acc: wt.where((acc > -1) & ~(acc >= 1), abs(acc), wt.clamp(acc / 3, -2.0, 2.0))),
    EpilogueCase("mixed", mixed, {"bias": ("N",), "column": ("M", 1), "full": ("M", "N"), "factor": 0.25}, slope=4.0),
)


def bound(case, accumulator, d, k):
    """Most by which elements of an output may differ: rounding to its type, and the sum's error through the slope."""
    steps = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-20, "float64": 2.0**-45}[d.dtype.name]
    sums = (k + 8) * (2.0**-22 if d.dtype.name != "float64" else 2.0**-50)
    return steps * (np.abs(d.astype(np.float64)) + 1) + case.slope * sums * (1 + np.abs(accumulator).max())


def wrong_outputs(case, outputs, accumulator, operands, k):
    """The first output that is not what the epilogue gives, and its largest error over the bound; None if all are."""
    expected = case.function(accumulator, **{name: _wide(each) for name, each in operands.items()})
    expected = expected if isinstance(expected, tuple) else (expected,)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(outputs) == len(expected)
    for number, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        found = np.asarray(found)
        assert found.shape == accumulator.shape, (found.shape, accumulator.shape)
        ratio = np.abs(found.astype(np.float64) - wanted) / bound(case, accumulator, found, k)
        if not (ratio <= 1).all():  # NaN is not
            return number, float(np.nanmax(ratio)) if not np.isnan(ratio).all() else np.nan
    return None


def _wide(value):
    return value if isinstance(value, float) else value.astype(np.float64)


_BASIC = {
    "BM": 128, "BN": 128, "BK": 64, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8,
    "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 2,
}  # fmt: skip

SCHEDULES = {
    "ping-pong": _BASIC | {"PINGPONG": 1},
    "ping-pong in clusters": _BASIC | {"PINGPONG": 1, "CM": 2},
    "overlapped": _BASIC | {"OVERLAP": 1},
    "swapped": _BASIC | {"SWAP": 1, "BN": 64},
    "swapped, overlapped": _BASIC | {"SWAP": 1, "BN": 64, "OVERLAP": 1},
    "stream-K": _BASIC | {"STREAM": 1, "SMS": 3},
    "split": _BASIC | {"SPLITS": 2, "SMS": 132},
    "shared columns": _BASIC | {"BM": 192},
    "shared columns, overlapped": _BASIC | {"BM": 192, "OVERLAP": 1},
    "shared columns, swapped, in clusters": _BASIC | {"BM": 192, "SWAP": 1, "CM": 2},
    "shared columns, split": _BASIC | {"BM": 192, "SPLITS": 2, "SMS": 132},
    "odd tile": _BASIC | {"BM": 64, "BN": 72, "CONSUMERS": 1},
}
"""Configurations of wgmma-final that store D in different ways."""


def emulated(name):
    """One of them as the emulator runs it: in an ordinary run, tiles of at most 64 columns, and of 64 rows where these
    are stored in the same way, compiled in a fraction of the time: ping-pong, and columns that two warpgroups share."""
    config = SCHEDULES[name]
    if ALL:
        return config
    rows = 64 if config["PINGPONG"] or config["BM"] == 192 else config["BM"]
    return config | {"BM": rows, "BN": min(config["BN"], 64) if name != "odd tile" else config["BN"]}
