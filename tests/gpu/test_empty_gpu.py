"""Empty and tiny GEMMs on a GPU: no null pointer is touched, the caller's stream and its captures are kept."""

import numpy as np
import pytest

import warptile as wt
from empty_operands import BETAS, EMPTY, LAYOUTS, TYPES, Case, as_numpy, as_torch, run, tiny_cases
from warptile.planning.addend import Addend, Nothing


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_every_combination_of_zeros_on_the_device(torch, dtype):
    for i, extents in enumerate(EMPTY):
        for batch in ((), (2, 3), (0,)):
            for beta in BETAS:
                case = Case(*extents, dtype, LAYOUTS[i % 3], LAYOUTS[(i + 1) % 3], beta, batch)
                run(case, "gpu", torch, "cuda", planned=False)
                plan = run(case, "gpu", torch, "cuda")
                assert isinstance(plan.plan, Nothing if 0 in (*batch, *extents[:2]) else Addend)
    # A read of a null pointer would have ended the context: it still answers, and what it answers is right.
    torch.cuda.synchronize()
    run(Case(65, 33, 17, dtype), "gpu", torch, "cuda")


@pytest.mark.parametrize("case", tiny_cases())
def test_tiny_extents_on_the_device(torch, case):
    run(case, "gpu", torch, "cuda", planned=case.m % 2 == 0)
    torch.cuda.synchronize()


@pytest.mark.parametrize("case", tiny_cases()[::3])
def test_tiny_extents_in_host_memory(case):
    run(case, "gpu", planned=case.m % 2 == 0)


def test_an_empty_tensor_has_a_null_pointer_here(torch):
    """Otherwise the tests above show less than they say."""
    assert torch.empty(5, 0, device="cuda", dtype=torch.bfloat16).data_ptr() == 0


def test_without_products_the_callers_stream_is_used(torch):
    a, b = torch.empty(512, 0, device="cuda"), torch.empty(0, 256, device="cuda")
    c = torch.zeros(512, 256, device="cuda")
    wt.matmul(a, b, c, beta=2)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        c.fill_(3.0)
        d = wt.matmul(a, b, c, beta=2)
        assert not stream.query()
    stream.synchronize()
    assert bool((d == 6.0).all())


@pytest.mark.parametrize("alpha", [1, 0])
def test_without_products_a_call_can_be_captured(torch, alpha):
    k = 0 if alpha else 64
    a = torch.full((96, k), float("nan"), device="cuda", dtype=torch.bfloat16)
    b = torch.full((k, 80), float("inf"), device="cuda", dtype=torch.bfloat16)
    c = torch.randn(96, 80, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(c)
    wt.matmul(a, b, c, alpha=alpha, beta=0.5, out=out)
    wt.matmul(a, b, alpha=alpha)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        wt.matmul(a, b, c, alpha=alpha, beta=0.5, out=out)
        fresh = wt.matmul(a, b, alpha=alpha)
        wt.matmul(a[:0], b)
    c.copy_(torch.randn_like(c))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, (0.5 * c.float()).to(torch.bfloat16))
    assert not fresh.any()


def test_a_large_result_without_products(torch):
    """More elements than the launch has threads, rows with gaps, a batch with one C for all."""
    frame = torch.full((3, 1001, 2050), 7.0, device="cuda", dtype=torch.float16)
    out = frame[..., 1:2048]
    a = torch.empty(3, 1001, 0, device="cuda", dtype=torch.float16)
    b = torch.empty(0, 2047, device="cuda", dtype=torch.float16)
    c = torch.randn(1001, 2047, device="cuda", dtype=torch.float16)
    assert wt.matmul(a, b, c, beta=3, out=out) is out
    assert torch.equal(out, (3 * c.float()).half().expand_as(out))
    out.fill_(7.0)
    assert bool((frame == 7.0).all())


@pytest.mark.parametrize("rung", ["mma-final", "wgmma-final"])
def test_saturating_integers_saturate_with_c(torch, rung):
    a, b = np.full((64, 32), 127, np.int8), np.full((32, 64), 127, np.int8)
    total, ends = 32 * 127 * 127, np.iinfo(np.int32)
    c = np.full((64, 64), ends.max, np.int32)
    c[1], c[2] = ends.min, 5
    there = [as_torch(torch, x, "cuda") for x in (a, b, c)]
    for alpha, beta in ((1, 1), (-1, 1), (-(2**31), -(2**31)), (2**31 - 1, 2)):
        want = np.clip([[alpha * total + beta * int(value) for value in row] for row in c], ends.min, ends.max)
        d = wt.matmul(*there, alpha=alpha, beta=beta, accumulate="int32_saturating", rung=rung)
        assert np.array_equal(as_numpy(torch, d), want)


def test_a_negated_tensor_is_read_and_written(torch):
    a, b = torch.randn(65, 40, device="cuda"), torch.randn(40, 33, device="cuda")
    want = wt.matmul(a, b)
    assert torch.equal(wt.matmul(torch._neg_view(a), b), -want)
    out = torch._neg_view(torch.zeros(65, 33, device="cuda"))
    assert wt.matmul(a, b, out=out) is out
    assert torch.equal(out, want)


def test_cupy_without_products():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    a, b, c = cupy.ones((5, 0), "float32"), cupy.ones((0, 7), "float32"), cupy.ones((5, 7), "float32")
    assert cupy.asnumpy(wt.matmul(a, b, c, beta=2)).tolist() == [[2.0] * 7] * 5
    assert wt.matmul(a[:0], b).shape == (0, 7)
