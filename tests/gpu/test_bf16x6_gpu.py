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
    config = {"BM": bm, "BN": bn, "BK": 32, "STAGES": stages, "MIN_BLOCKS": least, "SPLITS": 2}
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
def test_planned_products_are_no_less_accurate_than_cublas(majors, draw):
    random = np.random.default_rng(7)
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        for _ in range(12):
            m = int(random.integers(9, 257))
            n, k = (int(2 ** random.uniform(6, 12)) for _ in range(2))
            torch.manual_seed(m)
            make = {
                "normal": lambda *shape: torch.randn(*shape, device="cuda"),
                "uniform": lambda *shape: torch.rand(*shape, device="cuda"),
                "lognormal": lambda *shape: torch.exp(3 * torch.randn(*shape, device="cuda")),
            }[draw]
            a = make(m, k) if majors[0] == "row" else make(k, m).T
            b = make(k, n) if majors[1] == "row" else make(n, k).T
            guarded = torch.full((m + 2, n + 3), 7.0, device="cuda")
            d = guarded[1:-1, 1:-2]
            wt.matmul(a, b, out=d, rung=RUNG)
            exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
            ours, theirs = ((((x.double() - exact) / magnitude) ** 2).mean().sqrt().item() * 2**24 for x in (d, a @ b))
            # cuBLAS splits K too, and is no chain; and below 1/2 an error is that of rounding D.
            assert ours <= max(1.05 * theirs, 0.5), (m, n, k, ours, theirs)
            d.fill_(7.0)
            assert bool((guarded == 7.0).all())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
