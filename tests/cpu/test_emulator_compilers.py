"""PTX that other compilers wrote: the emulator runs it as it is. The files' sources lie beside them in tests/data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warptile.emulator import emulate
from warptile.launch import Access, LaunchSpec, Pointer, Rows, Scalar
from warptile.ptx import parse

DATA = Path(__file__).parent.parent / "data"


def test_a_softmax_compiled_by_triton() -> None:
    module = parse((DATA / "triton_softmax.ptx").read_text())
    columns, pitch, rows = 777, 800, 5
    x = np.random.default_rng(3).standard_normal((rows, pitch)).astype(np.float16)
    x[:, columns:] = np.nan  # behind the row: must not be read
    out = np.zeros((rows, pitch), np.float16)
    spec = LaunchSpec(
        "softmax",
        (rows, 1, 1),
        (128, 1, 1),
        (Pointer("out"), Pointer("x"), Scalar("s32", columns), Scalar("s32", pitch), Pointer(None), Pointer(None)),
        dynamic_shared_bytes=16,
    )
    access = Access(writes=True, complete=Rows(rows, columns, 2, 2 * pitch))
    report = emulate(module, spec, {"out": out, "x": x}, accesses={"out": access}, arch="sm_90a")
    e = np.exp(x[:, :columns].astype(np.float64) - x[:, :columns].max(axis=1, keepdims=True))
    exact = e / e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out[:, :columns], exact, rtol=2.0**-10, atol=2.0**-25)
    assert (out[:, columns:] == 0).all()
    assert report.counters["barriers"] > 0
    assert any(line.location.file and line.location.file.endswith(".py") for line in report.lines)


def test_a_wmma_kernel_compiled_by_nvcc_without_optimisation_calls_its_functions() -> None:
    module = parse((DATA / "nvcc_debug.ptx").read_text())
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((64, 16)).astype(np.float16)
    c = np.full((16, 16), np.nan, np.float32)
    arguments = (Pointer("A"), Pointer("B"), Pointer("C"), Scalar("s32", 16), Scalar("s32", 64), Scalar("f32", 2.0))
    spec = LaunchSpec("scaled_product", (1, 1, 1), (32, 1, 1), arguments)
    access = Access(writes=True, complete=Rows(16, 16, 4, 64))
    emulate(module, spec, {"A": a, "B": b, "C": c}, accesses={"C": access}, arch="sm_80")
    exact = 2 * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-4)
