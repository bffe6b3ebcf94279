"""matmul_grouped on a GPU: the emulator's bits, large groups, guard bands, CUDA graphs that read new offsets."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def drawn(*shape, dtype=None, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype or torch.bfloat16)


def ends(offsets, kind=None):
    return torch.tensor(offsets, device="cuda", dtype=kind or torch.int32)


def parts(offsets):
    return [slice(begin, end) for begin, end in zip([0, *offsets[:-1]], offsets, strict=True)]


def wrong_elements(found, a, b, offsets):
    """Of groups, further off than float32 sums that truncate, and the result's rounding, allow."""
    unit, wrong = torch.finfo(found.dtype).eps / 2, 0
    for group, part in enumerate(parts(offsets)):
        left, right = (a[part], b[group]) if b.dim() == 3 else (a[:, part], b[part])
        left, right = left.double(), right.double()
        exact, magnitude = left @ right, left.abs() @ right.abs()
        given = found[part] if b.dim() == 3 else found[group]
        bound = unit * exact.abs() + (left.shape[1] + 2) * 2.0**-23 * magnitude * (1 + unit) + 2.0**-25
        wrong += int((~((given.double() - exact).abs() <= bound)).sum())
    return wrong


@pytest.mark.parametrize("rows", [40, 250, 700])
@pytest.mark.parametrize("shape", [(200, 264), (71, 137)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_same_bits_as_on_the_emulator(rows, shape, transposed):
    k, n = shape
    offsets = [rows // 3, rows // 3, rows - 9]
    a, b = drawn(rows, k, dtype=torch.float16), drawn(3, *((n, k) if transposed else (k, n)), dtype=torch.float16)
    b = b.mT if transposed else b
    on_host = a.cpu().numpy(), b.cpu().numpy()
    expected = wt.matmul_grouped(*on_host, np.array(offsets, np.int32), backend="emulator")[: rows - 9]
    for _ in range(3):
        found = wt.matmul_grouped(a, b, ends(offsets)).cpu().numpy()[: rows - 9]
        assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))
    along_k = np.swapaxes(on_host[0], 0, 1), drawn(rows, n, dtype=torch.float16).cpu().numpy()
    expected = wt.matmul_grouped(*along_k, np.array(offsets, np.int32), backend="emulator")
    found = wt.matmul_grouped(a.mT, torch.from_numpy(along_k[1]).cuda(), ends(offsets)).cpu().numpy()
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(
    "offsets",
    [
        [512 * group for group in range(1, 9)],
        [0, 3, 1030, 1030, 1031, 1500, 4000, 4096],
        [7 * group for group in range(1, 129)],
        [min(group * group, 3000) for group in range(1, 65)],
    ],
    ids=["even", "ragged", "many", "rising"],
)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
def test_large_groups(offsets, kind, out_dtype):
    a, w = drawn(offsets[-1] + 5, 1000), drawn(len(offsets), 1304, 1000)
    d = wt.matmul_grouped(a, w.mT, ends(offsets, kind), out_dtype=out_dtype)
    assert wrong_elements(d, a, w.mT, offsets) == 0
    g = drawn(offsets[-1] + 5, 1304)
    assert wrong_elements(wt.matmul_grouped(g, w, ends(offsets, kind)), g, w, offsets) == 0  # gradient of a
    assert wrong_elements(wt.matmul_grouped(a.mT, g, ends(offsets, kind), out_dtype=out_dtype), a.mT, g, offsets) == 0


@pytest.mark.parametrize("columns", [1304, 1301])
def test_nothing_else_is_written(columns):
    offsets = [100, 100, 777, 1000]
    whole = torch.full((1100, columns + 32), 7.0, device="cuda", dtype=torch.bfloat16)
    out = whole[8:1050, 16 : 16 + columns]
    a, w = drawn(1042, 520), drawn(4, columns, 520)
    a[1000:] = float("nan")
    for _ in range(3):
        assert wt.matmul_grouped(a, w.mT, ends(offsets), out=out) is out
        assert wrong_elements(out, a, w.mT, offsets) == 0
    out[:1000] = 7
    assert (whole == 7).all()


def test_infinities_stay_in_their_group_along_k():
    offsets = [100, 333, 900]
    a, b = drawn(1000, 520), drawn(1000, 392)
    alone = wt.matmul_grouped(a.mT, b, ends(offsets))
    a[:100], b[333:] = float("inf"), float("nan")
    assert torch.equal(wt.matmul_grouped(a.mT, b, ends(offsets))[1], alone[1])


def test_a_graph_reads_offsets_when_it_runs():
    a, w, held = drawn(900, 520), drawn(4, 392, 520), ends([100, 200, 300, 400])
    wt.matmul_grouped(a, w.mT, held), wt.matmul_grouped(a.mT, a, held)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = wt.matmul_grouped(a, w.mT, held)
        along_k = wt.matmul_grouped(a.mT, a, held)
    for offsets in ([0, 0, 899, 900], [1, 300, 300, 600]):
        held.copy_(ends(offsets))
        graph.replay()
        assert wrong_elements(d, a, w.mT, offsets) == 0
        assert wrong_elements(along_k, a.mT, a, offsets) == 0


def test_nothing_waits_for_the_gpu():
    a, w, held = drawn(900, 520), drawn(4, 392, 520), ends([100, 200, 300, 400])
    odd = drawn(4, 391, 519)
    wt.matmul_grouped(a, w.mT, held), wt.matmul_grouped(a[:, :519], odd.mT, held)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10**9)
        done = torch.cuda.Event()
        wt.matmul_grouped(a, w.mT, held), wt.matmul_grouped(a[:, :519], odd.mT, held)
        done.record()
        assert not done.query()
    torch.cuda.synchronize()


# --- 8-bit floats ----------------------------------------------------------------------------------------------------

E4M3 = torch.float8_e4m3fn


def eights(*shape, seed=0):
    return drawn(*shape, dtype=E4M3, seed=seed)


def scales(*shape):
    return torch.rand(shape, device="cuda") + 0.5


def scales_of(kind, rows, k, n, groups):
    """Scales of a kind, and what they are for each element of the operands."""
    blocks = -(-k // 128)
    if kind == "none":
        return None, None, 1, 1
    if kind == "rows":
        of_a, of_b = scales(rows, 1), scales(groups, 1, n)
        return of_a, of_b, of_a, of_b
    of_a, of_b = scales(rows, blocks), scales(groups, blocks, -(-n // 128))
    whole_b = of_b.repeat_interleave(128, 1)[:, :k].repeat_interleave(128, 2)[:, :, :n]
    return of_a, of_b, of_a.repeat_interleave(128, 1)[:, :k], whole_b


def wrong_eights(found, a, b, offsets):
    """Of groups, further off than two-level accumulation and the result's rounding allow."""
    wrong = 0
    for group, part in enumerate(parts(offsets)):
        left, right = a[part], b[group]
        exact, magnitude = left @ right, left.abs() @ right.abs()
        bound = torch.finfo(found.dtype).eps * exact.abs() + 4 * 33 * 2.0**-13 * magnitude + 2.0**-24
        wrong += int((~((found[part].double() - exact).abs() <= bound)).sum())
    return wrong


@pytest.mark.parametrize("kind", ["none", "rows", "blocks"])
@pytest.mark.parametrize("extents", [(40, 200, 264), (250, 300, 137)], ids=str)
def test_groups_of_8_bits_have_the_bits_of_the_emulator(kind, extents):
    rows, k, n = extents
    offsets = [rows // 3, rows // 3, rows - 9]
    a, w = eights(rows, k), eights(3, n, k)
    of_a, of_b, *_ = scales_of(kind, rows, k, n, 3)
    on_host = [each.view(torch.uint8).cpu().numpy().view(ml_dtypes.float8_e4m3fn) for each in (a, w)]
    of_host = [None if each is None else each.cpu().numpy() for each in (of_a, of_b)]
    expected = wt.matmul_grouped(
        on_host[0], on_host[1].transpose(0, 2, 1), np.array(offsets, np.int32), scale_a=of_host[0], scale_b=of_host[1],
        out_dtype="float32", backend="emulator",
    )[: rows - 9]  # fmt: skip
    for _ in range(3):
        d = wt.matmul_grouped(a, w.mT, ends(offsets), scale_a=of_a, scale_b=of_b, out_dtype=torch.float32)
        assert np.array_equal(d[: rows - 9].cpu().numpy().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    "offsets",
    [[512 * group for group in range(1, 9)], [0, 3, 1030, 1030, 1031, 2500], [7 * group for group in range(1, 129)]],
    ids=["even", "ragged", "many"],
)
@pytest.mark.parametrize("kind", ["none", "rows", "blocks"])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
def test_large_groups_of_8_bits(offsets, kind, out_dtype):
    rows, k, n, groups = offsets[-1] + 5, 1040, 1304, len(offsets)
    a, w = eights(rows, k), eights(groups, n, k)
    of_a, of_b, whole_a, whole_b = scales_of(kind, rows, k, n, groups)
    guarded = torch.full((rows + 2, n + 16), 7, device="cuda", dtype=out_dtype)
    d = guarded[1:-1, 8:-8]
    wt.matmul_grouped(a, w.mT, ends(offsets), out=d, scale_a=of_a, scale_b=of_b)
    assert wrong_eights(d, a.double() * whole_a, w.mT.double() * whole_b, offsets) == 0
    d[: offsets[-1]] = 7
    assert bool((guarded == 7).all())


def test_groups_of_8_bits_in_a_graph():
    a, w, where, of_a = eights(300, 512), eights(4, 256, 512), ends([0, 0, 0, 0]), scales(300)
    of_b = scales(4, 256)
    wt.matmul_grouped(a, w.mT, where, scale_a=of_a, scale_b=of_b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = wt.matmul_grouped(a, w.mT, where, scale_a=of_a, scale_b=of_b)
    for offsets in ([10, 100, 100, 290], [300, 300, 300, 300]):
        where.copy_(ends(offsets))
        of_a.uniform_(0.5, 2)
        graph.replay()
        whole = a.double() * of_a[:, None].double(), w.mT.double() * of_b[:, None].double()
        assert wrong_eights(d, *whole, offsets) == 0
