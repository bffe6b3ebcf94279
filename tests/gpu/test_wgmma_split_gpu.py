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
