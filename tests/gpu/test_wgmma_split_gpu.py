"""wgmma-split on a GPU: the same bits as on the emulator, and errors no larger than those of float32 chains."""

import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

UNIT = 2.0**-24


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def errors(d, a, b):
    """In units of 2^-24 |A| |B|."""
    exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    return (d.double() - exact).abs() / magnitude.clamp_min(1e-300) / UNIT


@pytest.mark.parametrize("extents", [(130, 136, 200), (5, 257, 129), (257, 129, 1000)], ids=str)
@pytest.mark.parametrize("outlier", [1.0, 1e25])
def test_the_same_bits_as_on_the_emulator(extents, outlier):
    m, n, k = extents
    a, b = drawn(m, k), drawn(n, k).T
    a[3, 7] *= np.float32(outlier)
    left, right = torch.from_numpy(a).cuda(), torch.from_numpy(np.ascontiguousarray(b.T)).cuda().T
    expected = wt.matmul(a, b, rung="wgmma-split", backend="emulator")
    for _ in range(3):  # planned; bound; found again
        assert np.array_equal(wt.matmul(left, right, rung="wgmma-split").cpu().numpy(), expected)


@pytest.mark.parametrize(
    "extents", [(1024, 1024, 1024), (4096, 512, 4096), (1000, 3001, 777), (64, 64, 65536)], ids=str
)
@pytest.mark.parametrize("layout", range(4))
@pytest.mark.parametrize("draw", ["normal", "uniform", "lognormal"])
def test_no_less_accurate_than_float32(extents, layout, draw):
    m, n, k = extents
    generator = torch.Generator("cuda").manual_seed(sum(extents))

    def operand(*shape):
        normal = torch.randn(shape, generator=generator, device="cuda")
        return {"normal": normal, "uniform": torch.rand_like(normal), "lognormal": (2 * normal).exp()}[draw]

    a = operand(m, k) if layout % 2 else operand(k, m).T
    b = operand(k, n) if layout // 2 else operand(n, k).T
    found = errors(wt.matmul(a, b, rung="wgmma-split"), a, b)
    chain = errors(wt.matmul(a, b, precision="ieee", rung="simt-warptile"), a, b)
    assert found.max() <= k
    assert found.square().mean() <= 1.02 * chain.square().mean()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_special_values(value):
    a, b = (torch.from_numpy(drawn(300, 256)).cuda() for _ in range(2))
    a[17, 5] = value
    found, expected = wt.matmul(a, b.T, rung="wgmma-split"), (a.double() @ b.T.double()).float()
    special = ~expected.isfinite()
    assert torch.equal(found[special].nan_to_num(1, 2, 3), expected[special].nan_to_num(1, 2, 3))
    bound = 256 * UNIT * (a.double().abs() @ b.T.double().abs())
    assert ((found - expected).abs() <= bound)[~special].all()


def test_in_a_graph_and_in_place():
    a, b, c = (torch.from_numpy(drawn(384, 384, seed=seed)).cuda() for seed in range(3))
    before = c.clone()
    wt.matmul(a, b, c, out=c, rung="wgmma-split")
    assert errors(c - before, a, b).max() <= 64
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = wt.matmul(a, b, rung="wgmma-split")
    a.mul_(2)
    graph.replay()
    assert errors(d, a, b).max() <= 8


@pytest.mark.parametrize("extents", [(130, 136, 200), (5, 257, 129), (257, 129, 4100)], ids=str)
def test_kept_slices_give_the_same_bits(extents):
    m, n, k = extents
    a, b = drawn(m, k), drawn(n, k).T
    a[3, 7], b[k // 2, 5], b[1, 3] = 1e25, np.inf, -1e30
    left, right = torch.from_numpy(a).cuda(), torch.from_numpy(np.ascontiguousarray(b)).cuda()
    here, there = wt.split(b), wt.split(right)
    assert np.array_equal(there.packed.cpu().numpy(), here.packed)
    assert there.unsplit_lines() == here.unsplit_lines() == 2
    assert torch.equal(here_on_gpu(here).matrix, right)
    expected = wt.matmul(left, right, rung="wgmma-split")
    split_a = wt.split(left, axis=1)
    for operands in ((left, there), (left, here_on_gpu(here)), (split_a, right), (split_a, there)):
        guarded = torch.full((m + 2, n + 16), 7.0, device="cuda")
        for _ in range(3):  # planned; bound; found again
            found = wt.matmul(*operands, rung="wgmma-split")
            assert torch.equal(found.view(torch.int32), expected.view(torch.int32))
            wt.matmul(*operands, out=guarded[1:-1, 8:-8], rung="wgmma-split")
            assert torch.equal(guarded[1:-1, 8:-8].view(torch.int32), expected.view(torch.int32))
            guarded[1:-1, 8:-8] = 7
            assert bool((guarded == 7).all())


def here_on_gpu(matrix):
    return wt.SplitMatrix(torch.from_numpy(matrix.packed), matrix.shape, matrix.axis).to("cuda")


@pytest.mark.parametrize("m", [1, 16, 300, 4096])
def test_plans_with_split_weights(m):
    a, w = torch.randn(m, 1024, device="cuda"), torch.randn(2048, 1024, device="cuda")
    made = wt.split(w, axis=1)
    for _ in range(2):
        assert errors(wt.linear(a, made), a, w.T).max() <= 1024
        assert errors(wt.plan(a, made.T)(a, made.T), a, w.T).max() <= 1024


def test_split_weights_in_a_graph():
    a, w = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 768, device="cuda")
    made = wt.split(w)
    wt.matmul(a, made, rung="wgmma-split")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = wt.matmul(a, made, rung="wgmma-split")
    for _ in range(3):
        a.normal_()
        graph.replay()
        assert torch.equal(d, wt.matmul(a, w, rung="wgmma-split"))


def test_numpy_arrays_through_the_gpu():
    a, b = drawn(150, 300), drawn(300, 140)
    made = wt.split(b)
    expected = wt.matmul(a, b, rung="wgmma-split")
    for _ in range(3):
        assert np.array_equal(wt.matmul(a, made, rung="wgmma-split"), expected)
