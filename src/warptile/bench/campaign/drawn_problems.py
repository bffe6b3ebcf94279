"""Problems drawn at random, as surveys time them and kernels are chosen for them: log-uniform over extents, of several
types and layouts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warptile.bench.protocol.workloads import BF16, E4M3, E4M3_FAST, F16_F16, S8, TF32, TypeGroup
from warptile.dtypes import DTYPES
from warptile.problem import Problem
from warptile.rungs.wgmma.cost import LINE_BYTES
from warptile.rungs.wgmma.launches import pitch_bytes
from warptile.rungs.wgmma.tiles import is_aligned

BF16_F32 = TypeGroup("bf16 -> f32", "bfloat16", "float32", "float32")
KINDS: tuple[tuple[TypeGroup, str, str, float], ...] = (
    (BF16, "row", "col", 0.42), (BF16, "row", "row", 0.10), (BF16, "col", "col", 0.04), (BF16, "col", "row", 0.06),
    (BF16_F32, "row", "col", 0.05), (TF32, "row", "col", 0.08), (E4M3_FAST, "row", "col", 0.07),
    (E4M3, "row", "col", 0.07), (S8, "row", "col", 0.06), (F16_F16, "row", "col", 0.05),
)  # fmt: skip
"""Types, majors of A and of B, and how often they are drawn."""

RAGGED, FEW_ROWS, MODEL_LIKE = 0.18, 0.35, 0.4
"""Shares of problems with an extent that is no multiple of 16 bytes, with at most 256 rows, and whose N and K are
multiples of 128, as those of networks are."""

FEW_COLUMNS, SHORT_K, BATCHED = SHAPES = ("few-columns", "short-k", "batched")
"""Shapes that a survey can be of instead: at most `MOST_FEW_COLUMNS` columns of D, K of at most `MOST_SHORT_K`, and
batches of 2 to `MOST_BATCH` matrices."""

MOST_FEW_COLUMNS, MOST_SHORT_K, MOST_BATCH = 96, 128, 96
WHOLE = 0.6
"""Of these, the share whose rows of D, or few columns, are a multiple of eight or more."""

MOST_FLOPS, FEWEST_FLOPS = 2.0**41, 2.0**22
MOST_BYTES = 3 * 2**30
"""Of A, B and D together."""


@dataclass(frozen=True)
class Selection:
    """Which of the problems that are drawn a survey takes.

    Attributes:
        straddling: only aligned ones with more than 96 rows of A and operands whose rows lie in two lines of L2.
        weight_gradients: only such as gradients of weights are, with operands stored along M and along N, and K longer
            than both.
        misaligned: only those that the kernel cannot take as they are.
        dtype: of A and B, or None.
        shape: one of `SHAPES`, or None for those of most problems.
    """

    straddling: bool = False
    weight_gradients: bool = False
    misaligned: bool = False
    dtype: str | None = None
    shape: str | None = None

    def takes(self, problem: Problem) -> bool:
        """Whether this is one."""
        return (
            (not self.straddling or rows_straddle(problem))
            and (not self.weight_gradients or _is_weight_gradient(problem))
            and (not self.misaligned or not is_aligned(problem))
            and self.dtype in (None, problem.a.dtype.name)
        )

    @property
    def options(self) -> list[str]:
        """As the command takes them."""
        flags = ("straddling", "weight_gradients", "misaligned")
        found = [f"--{name.replace('_', '-')}" for name in flags if getattr(self, name)]
        found += ["--dtype", self.dtype] if self.dtype else []
        return [*found, "--shape", self.shape] if self.shape else found


ALL = Selection()


def drawn(count: int, seed: int, selection: Selection = ALL) -> tuple[Problem, ...]:
    """Problems drawn at random, each once; the same for the same seed."""
    random = np.random.default_rng(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        problem = _draw(random, selection.shape)
        if problem is not None and selection.takes(problem):
            found[problem] = None
    return tuple(found)


def _is_weight_gradient(problem: Problem) -> bool:
    along_rows = (problem.a.major, problem.b.major) == ("col", "row")
    return (
        along_rows
        and is_aligned(problem)
        and min(problem.m, problem.n) >= 256
        and problem.k > max(problem.m, problem.n)
    )


def rows_straddle(problem: Problem) -> bool:
    """Whether an aligned problem with more than a few rows has operands whose rows lie in two lines of L2."""
    pitches = [pitch_bytes(each) for each in (problem.a, problem.b)]
    return problem.m > 96 and is_aligned(problem) and any(pitch % LINE_BYTES for pitch in pitches)


def _log_uniform(random: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(random.uniform(math.log(low), math.log(high))))


def _multiple(extent: float, unit: int) -> int:
    return max(unit, round(extent / unit) * unit)


def _draw(random: np.random.Generator, shape: str | None) -> Problem | None:
    place = random.choice(len(KINDS), p=np.array([share for *_, share in KINDS]) / sum(share for *_, share in KINDS))
    group, a_major, b_major, _ = KINDS[int(place)]
    element, out = DTYPES[group.dtype], DTYPES[group.out]
    unit = max(16 * 8 // element.bits, 16 * 8 // out.bits)
    few, model_like, ragged = (random.random() < share for share in (FEW_ROWS, MODEL_LIKE, RAGGED))
    if shape is None:
        unit = 128 if model_like else unit
        (m, n, k), batch = _usual(random, few, unit), 1
    else:
        (m, n, k), batch = _of_shape(shape, random, unit)
    if a_major == "col":
        m = _multiple(m, unit)
    if ragged:
        n, k = (n - int(random.integers(1, 16)), k) if random.random() < 0.6 else (n, k - int(random.integers(1, 16)))
    if min(n, k) < 1 or not FEWEST_FLOPS <= 2.0 * m * n * k * batch <= MOST_FLOPS:
        return None
    if batch * ((m + n) * k * element.bits + m * n * out.bits) / 8 > MOST_BYTES:
        return None
    return Problem.dense(
        m, n, k, element, out=out, accumulator=DTYPES[group.accumulator], a_major=a_major, b_major=b_major, batch=batch
    )


def _usual(random: np.random.Generator, few_rows: bool, unit: int) -> tuple[int, int, int]:
    """M, N and K of most problems; N and K are multiples of ``unit``."""
    m = _log_uniform(random, 1, 256) if few_rows else _log_uniform(random, 256, 16384)
    n, k = (_multiple(_log_uniform(random, 96, 32768), unit) for _ in range(2))
    return round(m) if few_rows or random.random() < 0.4 else _multiple(m, 64), n, k


def _of_shape(shape: str, random: np.random.Generator, unit: int) -> tuple[tuple[int, int, int], int]:
    """M, N and K of one of `SHAPES`, and the matrices of the batch."""
    ranges = {
        FEW_COLUMNS: ((256, 32768), (1, MOST_FEW_COLUMNS), (96, 32768)),
        SHORT_K: ((16, 16384), (64, 16384), (4, MOST_SHORT_K)),
        BATCHED: ((8, 2048), (16, 2048), (16, 2048)),
    }
    m, n, k = (_log_uniform(random, *each) for each in ranges[shape])
    if shape == FEW_COLUMNS:
        n = _multiple(n, 8) if random.random() < WHOLE else max(round(n), 1)
    else:
        n = _multiple(n, unit)
    m = _multiple(m, unit) if random.random() < WHOLE else round(m)
    batch = round(_log_uniform(random, 2, MOST_BATCH)) if shape == BATCHED else 1
    return (m, n, _multiple(k, unit)), batch
