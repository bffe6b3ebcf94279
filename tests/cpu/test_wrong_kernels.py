"""Kernels with one planted mistake each: caught and named; their corrected twins pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warptile.compile import compile_source
from warptile.emulator import emulate
from warptile.errors import UnwrittenOutput
from warptile.launch import Access, LaunchSpec, Pointer, Rows, Scalar
from warptile.ptx import parse
from warptile.source import Source

WRONG_KERNELS = Path(__file__).parent.parent / "wrong_kernels"


def run_tiled(fragments_n: int, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    text = (WRONG_KERNELS / "half_of_c_unwritten.cu").read_text()
    kernel = compile_source(Source(text, f"tiled<{fragments_n}>"), "sm_90a", cache=None)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, dtype=np.float32)
    spec = LaunchSpec(
        kernel.entry,
        grid=(n // 128, m // 128, 1),
        block=(256, 1, 1),
        arguments=(Pointer("C"), Pointer("A"), Pointer("B"), Scalar("s32", n), Scalar("s32", k)),
    )
    access = Access(writes=True, complete=Rows(m, n, 4, 4 * n))
    emulate(parse(kernel.ptx), spec, {"A": a, "B": b, "C": c}, accesses={"C": access}, arch="sm_90a")
    return c, a.astype(np.float64) @ b.astype(np.float64)


def test_a_tiling_that_leaves_half_of_c_unwritten_is_refused_by_name() -> None:
    # Warps 0 and 1 own columns 0..63 of the block's 128: the first element that nobody owns is C[0, 64], and of the
    # 128 x 256 elements of two blocks half are missing.
    with pytest.raises(UnwrittenOutput, match=r"C\[0, 64\] was never written: 16384 of 32768 .*tiled"):
        run_tiled(2, 128, 256, 64)


def test_its_corrected_twin_writes_everything() -> None:
    c, exact = run_tiled(4, 128, 256, 64)
    assert np.abs(c - exact).max() <= 64 * 2.0**-22 * np.abs(exact).max() * 8
