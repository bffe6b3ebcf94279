"""Epilogues on a GPU: values of every case, type and rung; bound calls whose operands change; graphs and streams."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from epilogue_cases import CASES, wrong_outputs
from warptile.rungs import RUNGS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

MIXED = CASES[-1]
TYPES = ("float16", "bfloat16", "float32", "float64")


def drawn(rng, *shape, dtype="float16"):
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def on_gpu(array):
    if isinstance(array, float):
        return array
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def on_host(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16)
    return tensor.cpu().numpy()


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("extents", [(200, 264, 128), (333, 517, 65), (64, 1024, 512), (1024, 768, 256)], ids=str)
def test_values(case, dtype, extents):
    rng = np.random.default_rng(1)
    m, n, k = extents
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype)
    operands = case.drawn(m, n, dtype, rng)
    given = {name: on_gpu(each) for name, each in operands.items()}
    exact, left, right = product(a, b.T), on_gpu(a), on_gpu(b).T
    for _ in range(3):  # planned; bound; found again
        outputs = wt.matmul(left, right, epilogue=case.function, **given)
        outputs = tuple(map(on_host, outputs)) if isinstance(outputs, tuple) else on_host(outputs)
        assert wrong_outputs(case, outputs, exact, operands, k) is None


@pytest.mark.parametrize("rung", [name for name, each in RUNGS.items() if not each.sparse])
def test_every_rung(rung):
    rng = np.random.default_rng(2)
    m, n, k = 200, 264, 128
    dtype = {"wgmma-two-level": ml_dtypes.float8_e4m3fn, "wgmma-split": np.float32}.get(rung, np.float16)
    output = "float32" if dtype == np.float32 else "float16"
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype)
    operands = MIXED.drawn(m, n, output, rng)
    options = {"accumulate": "float16"} if rung == "simt-half2" else {}
    d, pre = wt.matmul(a, b.T, epilogue=MIXED.function, rung=rung, out_dtype=output, **options, **operands)
    exact = product(a, b.T) + operands["bias"]
    assert np.abs(pre - exact).max() < (0.5 if options or rung == "wgmma-two-level" else 0.01)
    expected = wt.gelu(exact) * operands["column"] + operands["full"] * 0.25
    assert np.abs(d - expected).max() < (1.0 if options or rung == "wgmma-two-level" else 0.1)


def test_bound_calls_take_other_operands_numbers_and_layouts():
    rng = np.random.default_rng(3)
    m, n, k = 96, 160, 64
    a, b = drawn(rng, m, k), drawn(rng, k, n)
    exact, left, right = product(a, b), on_gpu(a), on_gpu(b)

    def scaled(acc, x, s):
        return acc * s + x

    for step in range(12):
        x = (drawn(rng, n), drawn(rng, m, n), drawn(rng, m, 1), drawn(rng, n, m).T)[step % 4]
        factor = 0.25 * (step + 1)
        d = wt.matmul(left, right, epilogue=scaled, x=on_gpu(np.ascontiguousarray(x)), s=factor)
        assert np.abs(on_host(d) - (exact * factor + x)).max() < 0.1 * factor + 0.05, step
    for seed in (1, 2, 2**63 + 1, 1):
        d = wt.matmul(left, right, epilogue=lambda acc, seed: wt.dropout(acc * 0 + 1, 0.5, seed), seed=seed)
        assert np.array_equal(on_host(d) != 0, wt.dropout_mask(seed, (m, n), 0.5))


def test_an_epilogue_in_a_loop_is_bound_once_and_closures_count():
    rng = np.random.default_rng(4)
    a, b = on_gpu(drawn(rng, 64, 64)), on_gpu(drawn(rng, 64, 64))
    exact = (a.double() @ b.double()).cpu().numpy()
    for factor in (1.0, 2.0, 1.0, 3.0):
        d = wt.matmul(a, b, epilogue=lambda acc: acc * factor)  # noqa: B023
        assert np.abs(on_host(d) - exact * factor).max() < 0.1


def test_graphs_and_streams():
    rng = np.random.default_rng(5)
    a, b, bias, res = (on_gpu(each) for each in (drawn(rng, 128, 256), drawn(rng, 256, 192), drawn(rng, 192),
                                                  drawn(rng, 128, 192)))  # fmt: skip

    def call():
        return wt.matmul(a, b, epilogue=lambda acc, bias, res: wt.gelu(acc + bias) + res, bias=bias, res=res)

    eager = call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        again = call()
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(eager, again)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    res.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, call())


def test_in_place_and_out():
    rng = np.random.default_rng(6)
    a, b, res = on_gpu(drawn(rng, 136, 64)), on_gpu(drawn(rng, 64, 200)), on_gpu(drawn(rng, 136, 200))
    for _ in range(3):
        before = res.clone()
        expected = a.double() @ b.double() + before.double()
        assert wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=res, out=res) is res
        assert (res.double() - expected).abs().max() < 0.1
    tall = on_gpu(drawn(rng, 137, 200))
    for _ in range(3):  # shares memory, shifted by a row
        expected = a.double() @ b.double() + tall[:136].double()
        wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=tall[:136], out=tall[1:])
        assert (tall[1:].double() - expected).abs().max() < 0.1


@pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
def test_batches(batch):
    rng = np.random.default_rng(7)
    a, b, x = drawn(rng, *batch, 72, 64), drawn(rng, *batch, 64, 136), drawn(rng, *batch, 1, 136)
    for _ in range(2):
        d, pre = wt.matmul(on_gpu(a), on_gpu(b), epilogue=lambda acc, x: (wt.relu(acc + x), acc), x=on_gpu(x))
        assert np.abs(on_host(pre) - product(a, b)).max() < 0.1
        assert np.abs(on_host(d) - np.maximum(product(a, b) + x, 0)).max() < 0.1
