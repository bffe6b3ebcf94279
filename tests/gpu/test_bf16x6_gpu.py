"""wgmma-bf16x6 on a GPU: the same bits as on the emulator, errors no larger than those of cuBLAS, any values."""

import numpy as np
import pytest

import warptile as wt
from warptile.rungs.wgmma.bf16x6 import SIZES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

RUNG = "wgmma-bf16x6"


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def on_gpu(array, major):
    """The matrix, with rows (``"row"``) or columns contiguous."""
    if major == "row":
        return torch.from_numpy(np.ascontiguousarray(array)).cuda()
    return torch.from_numpy(np.ascontiguousarray(array.T)).cuda().T


@pytest.mark.parametrize("majors", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")], ids=str)
@pytest.mark.parametrize(
    ("extents", "size"),
    [((9, 130, 300), SIZES[0]), ((33, 65, 257), SIZES[3]), ((64, 140, 96), SIZES[4]), ((100, 66, 200), SIZES[6])],
    ids=str,
)
@pytest.mark.parametrize("outlier", [1.0, 1e-38, np.inf])
def test_the_same_bits_as_on_the_emulator(extents, size, majors, outlier):
    m, n, k = extents
    a, b = drawn(m, k), drawn(k, n)
    a[3, 7] *= np.float32(outlier)
    bm, bn, stages, least = size
    config = {"BM": bm, "BN": bn, "BK": 32, "STAGES": stages, "MIN_BLOCKS": least, "SPLITS": 2, "SWAP": k % 2}
    left, right = on_gpu(a, majors[0]), on_gpu(b, majors[1])
    expected = wt.matmul(
        np.asarray(a, order="C" if majors[0] == "row" else "F"),
        np.asarray(b, order="C" if majors[1] == "row" else "F"),
        rung=RUNG, config=config, backend="emulator",
    )  # fmt: skip
    for _ in range(3):  # planned; bound; found again
        found = wt.matmul(left, right, rung=RUNG, config=config).cpu().numpy()
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("majors", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")], ids=str)
@pytest.mark.parametrize("draw", ["normal", "uniform", "lognormal"])
def test_planned_products_are_no_less_accurate_than_a_chain(majors, draw):
    random = np.random.default_rng(7)
    generator = torch.Generator("cuda").manual_seed(11)

    def operand(*shape):
        normal = torch.randn(shape, generator=generator, device="cuda")
        return {"normal": normal, "uniform": torch.rand_like(normal), "lognormal": (2 * normal).exp()}[draw]

    for _ in range(12):
        m = int(random.integers(9, 257))
        n, k = int(2 ** random.uniform(6, 12)), int(2 ** random.uniform(8, 12))
        a = operand(m, k) if majors[0] == "row" else operand(k, m).T
        b = operand(k, n) if majors[1] == "row" else operand(n, k).T
        guarded = torch.full((m + 2, n + 3), 7.0, device="cuda")
        d = guarded[1:-1, 1:-2]
        wt.matmul(a, b, out=d, rung=RUNG)
        exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        chain = wt.matmul(a.contiguous(), b, precision="ieee", rung="simt-warptile")
        ours, theirs = ((((x.double() - exact) / magnitude) ** 2).mean().sqrt().item() * 2**24 for x in (d, chain))
        assert ours <= 1.02 * theirs, (m, n, k, ours, theirs)
        d.fill_(7.0)
        assert bool((guarded == 7.0).all())
