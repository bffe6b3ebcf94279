"""Matrices of an epilogue that are laid out as D is go through shared memory as D does: TMA loads and stores them."""

from __future__ import annotations

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering, few

BASE = {
    "BM": 128, "BN": 64 if ALL else 32, "BK": 64, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 1, "CM": 1, "CN": 1,
    "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 2,
}  # fmt: skip
"""An ordinary run has tiles of half the columns: kernels of half the code."""

EPILOGUES = {
    "operand": lambda acc, x, bias: acc + x + bias,
    "two operands": lambda acc, x, y: acc * x + y,
    "output": lambda acc, bias: (acc * 2, acc + bias),
    "operand and output": lambda acc, x: (acc * x, acc - x),
    "three operands and output": lambda acc, x, y, z: (acc * x + y, acc - z),
}

SCHEDULES = {
    "ping-pong": {},
    "ping-pong, swapped": {"SWAP": 1},
    "cooperative": {"PINGPONG": 0},
    "one consumer": {"PINGPONG": 0, "CONSUMERS": 1, "BM": 64},
    "wide subtiles": {"PINGPONG": 0, "CONSUMERS": 1, "BM": 64, "BN": 88},
    "odd subtiles, swapped": {"BN": 72, "SWAP": 1},
    "clusters": {"CM": 2, "SMS": 4},
    "stream-K": {"PINGPONG": 0, "STREAM": 1, "SMS": 3},
    "K split in clusters": {"PINGPONG": 0, "CONSUMERS": 1, "BM": 64, "SPLITS": 2, "SMS": 132},
}


def drawn(seed, *shape, dtype="float16"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(names, m, n, batch=()):
    found = {name: drawn(seed, *batch, m, n) for seed, name in enumerate("xyz") if name in names}
    return found | ({"bias": drawn(9, n)} if "bias" in names else {})


def check(a, b, epilogue, given, **options):
    """Every output within the rounding of float16 of the same expression in float64."""
    found = wt.matmul(a, b, epilogue=epilogue, **options, **given)
    wide = {name: each.astype(np.float64) for name, each in given.items()}
    expected = epilogue(a.astype(np.float64) @ b.astype(np.float64), **wide)
    found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
    assert len(found) == len(expected)
    for d, exact in zip(found, expected, strict=True):
        assert d.dtype == np.float16
        assert np.all(np.abs(d - exact) <= 2e-3 * (np.abs(exact) + 16))


def maps_of(plan):
    """Operands of the launch's tensor maps beside those of A, B and D."""
    return [name for name, _ in plan.plan.kernel.params.members if name.startswith("of_epilogue")]


@pytest.mark.parametrize(
    ("epilogue", "schedule"), covering(list(EPILOGUES), ["ping-pong", "ping-pong, swapped"], pairs=())
)
def test_epilogues(epilogue, schedule):
    function, config = EPILOGUES[epilogue], BASE | SCHEDULES[schedule]
    m, n, k = (200, 136, 96) if ALL else (144, 72, 96)
    a, b = drawn(1, m, k), drawn(2, k, n)
    given = operands(function.__code__.co_varnames, m, n)
    staged = maps_of(wt.plan(a, b, epilogue=function, rung="wgmma-final", config=config, **given))
    assert len(staged) == min(2, sum(name in "xyz" for name in given)) + ("output" in epilogue)
    check(a, b, function, given, rung="wgmma-final", config=config)


@pytest.mark.parametrize("schedule", list(SCHEDULES) if ALL else list(SCHEDULES)[2::2])  # test_epilogues has the first
def test_schedules(schedule):
    function, config = EPILOGUES["operand and output"], BASE | SCHEDULES[schedule]
    n = 184 if ALL else 88
    a, b = drawn(1, 144, 200), drawn(2, 200, n)
    check(a, b, function, operands("x", 144, n), rung="wgmma-final", config=config)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(shared):
    """An operand for each matrix of the batch, or one for all."""
    a, b = drawn(1, 3, 72, 64), drawn(2, 3, 64, 80)
    given = operands("x", 72, 80, () if shared else (3,))
    check(a, b, EPILOGUES["operand and output"], given, rung="wgmma-final", config=BASE)


def test_c_beside_a_staged_operand():
    a, b, c, x = drawn(1, 72, 64), drawn(2, 64, 80), drawn(3, 72, 80), drawn(4, 72, 80)
    d = wt.matmul(a, b, c, beta=0.5, epilogue=lambda acc, x: acc * x, x=x, rung="wgmma-final", config=BASE)
    exact = (a.astype(np.float64) @ b + 0.5 * c) * x
    assert np.all(np.abs(d - exact) <= 2e-3 * (np.abs(exact) + 16))


@pytest.mark.parametrize(
    ("layout", "staged"),
    [
        ("as D", 1),
        ("rows of another pitch", 1),
        ("column-major", 0),
        ("misaligned rows", 0),
        ("float32", 0),
        ("sliding windows", 0),
    ],
)
def test_what_is_staged(layout, staged):
    """Operands with rows as D has them, and elements of as many bits."""
    a, b, x = drawn(1, 72, 64), drawn(2, 64, 80), drawn(3, 72, 80)
    pitched = np.zeros((72, 96 if layout == "rows of another pitch" else 81), np.float16)
    pitched[:, :80] = x
    windows = np.lib.stride_tricks.as_strided(drawn(4, 72 * 8 + 80), (72, 80), (16, 2))
    given = {
        "as D": x,
        "sliding windows": windows,
        "column-major": np.asfortranarray(x),
        "float32": x.astype(np.float32),
    }.get(layout, pitched[:, :80])
    plan = wt.plan(a, b, epilogue=lambda acc, x: acc + x, x=given, rung="wgmma-final", config=BASE)
    assert len(maps_of(plan)) == staged
    check(a, b, lambda acc, x: acc + x, {"x": given}, rung="wgmma-final", config=BASE)


def test_nothing_is_staged_where_stores_overlap_or_tma_cannot_store():
    a, x = drawn(1, 72, 256), drawn(3, 72, 80)
    overlapped = BASE | {"PINGPONG": 0, "OVERLAP": 1}
    options = {"epilogue": lambda acc, x: acc + x, "rung": "wgmma-final"}
    b = drawn(2, 256, 81)
    assert not maps_of(wt.plan(a, b[:, :80].copy(), x=x, config=overlapped, **options))
    assert not maps_of(wt.plan(a, b, x=drawn(3, 72, 81), config=BASE, **options))


@pytest.mark.parametrize("bits", few([4, 8], 1))
def test_quantized_weights(bits):
    x, w = drawn(1, 40, 256), wt.quantize(drawn(2, 136, 256), bits=bits, group_size=128)
    res = drawn(3, 40, 136)
    function = EPILOGUES["operand and output"]
    plan = wt.plan(x, w, epilogue=function, x=res, rung="wgmma-quantized")
    assert len(maps_of(plan)) == 2
    found = wt.matmul(x, w, epilogue=function, x=res, rung="wgmma-quantized")
    acc = x.astype(np.float64) @ w.dequantize().astype(np.float64).T
    for d, exact in zip(found, (acc * res, acc - res), strict=True):
        assert np.all(np.abs(d - exact) <= 2e-3 * (np.abs(exact) + 16))


def test_sparse_operands():
    a = drawn(1, 136, 64, 4)
    a[..., 1::2] = 0
    a, b, res = a.reshape(136, 256), drawn(2, 256, 72), drawn(3, 136, 72)
    function = EPILOGUES["operand and output"]
    packed = wt.sparsify(a)
    assert len(maps_of(wt.plan(packed, b, epilogue=function, x=res, rung="wgmma-sparse"))) == 2
    found = wt.matmul(packed, b, epilogue=function, x=res, rung="wgmma-sparse")
    acc = a.astype(np.float64) @ b.astype(np.float64)
    for d, exact in zip(found, (acc * res, acc - res), strict=True):
        assert np.all(np.abs(d - exact) <= 2e-3 * (np.abs(exact) + 16))
