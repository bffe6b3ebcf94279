"""wgmma-two-level: FP8 GEMMs as accurate as float32 accumulation makes them."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import few
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import CompileError
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from wgmma_product import product, small

RUNG = RUNGS["wgmma-two-level"]
PAGE = Path(__file__).parents[3] / "docs" / "rungs" / "wgmma-two-level.md"
SMALL = {"BM": 128, "BN": 64, "BK": 128, "STAGES": 3, "GROUP": 8, "SMS": 1}
E4M3 = ml_dtypes.float8_e4m3fn


def problem(dtype: str = "float8_e4m3", accumulator: str = "float32", out: str = "bfloat16") -> Problem:
    return Problem.dense(
        4096, 4096, 4096, DTYPES[dtype], out=DTYPES[out], accumulator=DTYPES[accumulator], b_major="col"
    )


def gemm(rung: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B^T in FP8, with float32 results: every sum left to the tensor cores, or promoted."""
    accumulate = "float32" if rung == RUNG.name else "float32_fast"
    config = {**SMALL, "BN": -(-b.shape[0] // 8) * 8}
    d = wt.matmul(
        a.astype(E4M3), b.astype(E4M3).T, out_dtype="float32", accumulate=accumulate, rung=rung, config=config,
        backend="emulator",
    )  # fmt: skip
    return np.asarray(d, np.float64)


@pytest.mark.parametrize(
    ("size", "dtype", "out", "change", "options"),
    few(
        [
            # Several tiles of a CTA; ragged and prime extents; K shorter than a stage, and none.
            ((300, 200, 392), "float8_e4m3", "float16", {"SMS": 2}, {"schedule": "earliest"}),
            ((193, 97, 331), "float8_e5m2", "float32", {"SMS": 3}, {"beta": 2, "schedule": "random:1", "offset": 3}),
            ((67, 41, 75), "float8_e4m3", "bfloat16", {"BN": 24}, {"a_major": "col", "b_major": "row", "gap": 1}),
            ((131, 70, 520), "float8_e5m2", "bfloat16", {"BK": 256, "STAGES": 2}, {"gap": 2, "beta": -1}),
            ((130, 9, 0), "float8_e4m3", "float32", {}, {"beta": 3}),
        ],
        2,
    ),
)
def test_right_in_both_types(
    size: tuple[int, int, int], dtype: str, out: str, change: Config, options: dict[str, object]
) -> None:
    config = {**small(RUNG.name, dtype), **change}
    result = product(RUNG.name, *size, dtype=dtype, out=out, config=config, **{"b_major": "col", **options})  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.guards_kept
    assert result.report.unfinished_copies == 0


def test_what_the_tensor_cores_truncate_is_kept() -> None:
    """Next to a sum of 2^14 a product of 1 is below the 13 fraction bits. Promotion starts again from zero after each
    128 of K, so only the ones of the first interval are lost."""
    a, b = np.ones((128, 256)), np.ones((8, 256))
    a[:, :32], b[:, :32] = 32, 16
    assert (gemm("wgmma-store", a, b) == 2**14).all()
    assert (gemm(RUNG.name, a, b) == 2**14 + 128).all()


def test_the_errors_that_its_page_shows() -> None:
    draw = np.random.default_rng(1)
    a, b = draw.standard_normal((128, 4096)), draw.standard_normal((64, 4096))
    exact = a.astype(E4M3).astype(np.float64) @ b.astype(E4M3).astype(np.float64).T
    rows = dict(re.findall(r"^\| `(wgmma-\w[\w-]*)`[^|]* \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    bf16 = ml_dtypes.bfloat16
    for rung in ("wgmma-store", RUNG.name):
        d = gemm(rung, a, b)
        error = np.abs(d - exact)
        rounded = (d.astype(bf16) == exact.astype(bf16)).sum()
        found = f"{error.max():.4f} | {np.sqrt((error**2).mean()):.5f} | {rounded:,} of {exact.size:,}"
        assert rows[rung] == found


REASONS = [
    (problem(accumulator="float32_fast"), {}, "the accumulator is float32_fast; for float8_e4m3 it has float32"),
    (problem("bfloat16"), {}, "operands are bfloat16; it takes float8_e4m3, float8_e5m2"),
    (problem(), {"BM": 256, "BN": 128}, "registers and has 240"),
    (problem(), {"BK": 256, "BN": 192}, "registers and has 240"),
    (problem(), {"BM": 192}, "multiple of 128"),
    (problem(), {"STAGES": 1}, "at least 2"),
    (problem(), {"STAGES": 16}, "bytes of shared memory"),
]


@pytest.mark.parametrize(("of", "change", "reason"), REASONS)
def test_what_cannot_be_taken_is_said(of: Problem, change: Config, reason: str) -> None:
    assert reason in (RUNG.illegal(of, {**SMALL, **change}) or "legal")


def test_other_rungs_name_this_one() -> None:
    store = RUNGS["wgmma-store"]
    assert "rung='wgmma-two-level'" in (store.illegal(problem(), store.default_config(problem())) or "")


def test_the_kernel_takes_no_other_accumulators() -> None:
    of = problem(accumulator="float32_fast")
    with pytest.raises(CompileError, match=r"static assert[^\n]*FP8 operands and float32 accumulators"):
        compile_source(translation_unit(RUNG.resolve(of, SMALL, REFERENCE)), "sm_90a")


@pytest.mark.parametrize("number", few(range(4), 1))
def test_candidates_compile_without_spills(number: int) -> None:
    of = problem(RUNG.dtypes[number % 2], out=("bfloat16", "float32")[number // 2])
    config = RUNG.candidates(of)[number]
    assert RUNG.illegal(of, config) is None
    compile_source(translation_unit(RUNG.resolve(of, config)), "sm_90a")
