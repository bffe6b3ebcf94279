"""Reductions and column pairs in epilogues on a GPU: values, calls that are bound, and the same bits each time."""

import numpy as np
import pytest

import warptile as wt
from epilogue_cases import SCHEDULES
from warptile.rungs import RUNGS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

BOUND = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}


def every_reduction(acc, bias):
    y = wt.relu(acc + bias)
    return (
        y, y.sum(axis=-1), abs(acc).max(axis=-2), abs(y).max(), (acc * acc).sum(axis=-1, keepdims=True),
        acc.min(axis=-2), acc.sum(axis=(-2, -1)),
    )  # fmt: skip


def drawn(*shape, dtype=torch.float16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def expected_of(a, b, bias):
    acc = a.double() @ b.double()
    y = torch.relu(acc + bias.double())
    return (
        y, y.sum(-1), acc.abs().amax(-2), y.abs().amax(), (acc * acc).sum(-1, keepdim=True), acc.amin(-2),
        acc.sum((-2, -1)),
    )  # fmt: skip


def check(found, expected, bound):
    for number, (one, exact) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == exact.shape, number
        error = (one.double() - exact).abs().max().item()
        largest = max(exact.abs().max().item(), 1)
        # Sums over a result of both signs cancel: their error is relative to the sum of magnitudes, not to the sum.
        cancelled = expected[4].sum().sqrt().item() * expected[0].shape[-1] ** 0.5 if number == 6 else 0
        assert error <= (bound if number == 0 else max(bound * 1e-2, 2e-6)) * (largest + cancelled), number


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("extents", [(200, 264, 128), (333, 517, 65), (64, 1024, 512), (1, 130, 64)], ids=str)
def test_values_and_the_same_bits_each_time(dtype, extents):
    m, n, k = extents
    a, b, bias = drawn(m, k, dtype=dtype), drawn(n, k, dtype=dtype).T, drawn(n, dtype=dtype)
    outputs = [wt.matmul(a, b, epilogue=every_reduction, bias=bias) for _ in range(3)]  # planned; bound; found again
    for each in outputs:
        check(each, expected_of(a, b, bias), BOUND[dtype])
        assert all(torch.equal(one, first) for one, first in zip(each, outputs[0], strict=True))


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_the_last_rung(name):
    a, b, bias = drawn(1032, 512), drawn(776, 512).T, drawn(776)
    outputs = wt.matmul(a, b, epilogue=every_reduction, bias=bias, rung="wgmma-final", config=SCHEDULES[name])
    check(outputs, expected_of(a, b, bias), BOUND[torch.float16])


@pytest.mark.parametrize("rung", [name for name, each in RUNGS.items() if not each.sparse and "half2" not in name])
def test_every_rung(rung):
    if rung == "wgmma-two-level":
        pytest.skip("takes float8 alone, which torch does not multiply in float64 here")
    dtype = torch.float32 if rung == "wgmma-split" else torch.float16
    a, b, bias = drawn(200, 128, dtype=dtype), drawn(264, 128, dtype=dtype).T, drawn(264, dtype=dtype)
    check(wt.matmul(a, b, epilogue=every_reduction, bias=bias, rung=rung), expected_of(a, b, bias), 2e-3)


def test_a_batch():
    a, b, bias = drawn(3, 72, 64), drawn(3, 64, 136), drawn(136)
    for _ in range(2):
        check(wt.matmul(a, b, epilogue=every_reduction, bias=bias), expected_of(a, b, bias), 2e-3)


@pytest.mark.parametrize("columns", [wt.halves, wt.pairs], ids=["halves", "pairs"])
@pytest.mark.parametrize("extents", [(200, 264, 128), (1024, 2048, 512), (7, 514, 72)], ids=str)
def test_gates(columns, extents):
    m, n, k = extents
    a, b = drawn(m, k, dtype=torch.bfloat16), drawn(k, n, dtype=torch.bfloat16)
    product = a.double() @ b.double()
    gate, up = product.chunk(2, -1) if columns is wt.halves else (product[:, 0::2], product[:, 1::2])
    exact = torch.nn.functional.silu(gate) * up

    def swiglu(acc):
        gate, up = columns(acc)
        y = wt.silu(gate) * up
        return y, abs(y).max(axis=-1)

    for _ in range(3):
        d, largest = wt.matmul(a, b, epilogue=swiglu)
        assert (d.double() - exact).abs().max() <= 1e-2 * exact.abs().max()
        assert (largest.double() - exact.abs().amax(-1)).abs().max() <= 1e-3 * exact.abs().max()


def test_in_a_graph():
    a, b = drawn(512, 256), drawn(256, 384)

    def scaled(acc):
        return acc, abs(acc).max(axis=-1)

    wt.matmul(a, b, epilogue=scaled)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, largest = wt.matmul(a, b, epilogue=scaled)
    a.mul_(2)
    graph.replay()
    assert (largest.double() - (a.double() @ b.double()).abs().amax(-1)).abs().max() <= 1e-3 * np.sqrt(256)
