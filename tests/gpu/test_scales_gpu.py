"""Scales on the GPU: the same bits as on the emulator, nothing is waited for, and calls can be captured."""

import numpy as np
import pytest

import scaled_products as sp
import warptile as wt

torch = pytest.importorskip("torch")
pytest.importorskip("warptile.torch")  # registers the operators
pytestmark = pytest.mark.gpu

BLOCKS = [(1, 128), (1, 1), (128, 128), (128, 1)]
E4M3 = torch.float8_e4m3fn


@pytest.fixture
def rng():
    return np.random.default_rng(20261123)


def on_gpu(array):
    """A NumPy array with the same strides in a GPU's memory."""
    by_rows = array if array.strides[-1] <= array.strides[-2] else np.swapaxes(array, -1, -2)
    stored = np.ascontiguousarray(by_rows)
    if stored.dtype.itemsize == 1:
        found = torch.from_numpy(stored.view(np.uint8)).cuda().view(E4M3)
    else:
        found = torch.from_numpy(stored).cuda()
    return found if by_rows is array else found.transpose(-1, -2)


def drawn(m, n, k, seed=0):
    """A and B of e4m3 on the GPU, B's columns contiguous."""
    generator = torch.Generator("cuda").manual_seed(seed + m + n + k)
    a, b = (torch.randn(rows, k, device="cuda", generator=generator).to(E4M3) for rows in (m, n))
    return a, b.T


def scales(*shape):
    return torch.rand(shape, device="cuda") * 4 + 0.25


def block_scales(m, n, k, lines):
    blocks = -(-k // 128)
    return scales(-(-m // lines[0]), blocks), scales(-(-n // lines[1]), blocks).T


def dequantized(a, b, of_a, of_b, lines):
    k = a.shape[-1]
    wide_a = of_a.double().repeat_interleave(lines[0], 0).repeat_interleave(128, 1)[: a.shape[0], :k]
    wide_b = of_b.double().repeat_interleave(128, 0).repeat_interleave(lines[1], 1)[:k, : b.shape[1]]
    return a.double() * wide_a, b.double() * wide_b


def assert_close(d, left, right, bits):
    exact, sizes = left @ right, left.abs() @ right.abs()
    bound = 4 * 33 * 2.0**-13 * sizes + 2.0**-bits * exact.abs()
    assert not torch.isnan(d).any()
    assert ((d.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("lines", BLOCKS, ids=str)
@pytest.mark.parametrize("extents", [(70, 150, 500), (257, 129, 1000)], ids=str)
def test_the_same_bits_as_on_the_emulator(rng, lines, extents):
    m, n, k = extents
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, lines)
    expected = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", backend="emulator")
    given = [on_gpu(each) for each in (a, b, of_a, of_b)]
    for _ in range(3):  # planned; bound; found again
        d = wt.matmul(given[0], given[1], scale_a=given[2], scale_b=given[3], out_dtype="float32")
        assert np.array_equal(d.cpu().numpy(), expected)


@pytest.mark.parametrize("lines", BLOCKS, ids=str)
@pytest.mark.parametrize(
    "extents", [(4096, 2048, 2048), (16, 4096, 7168), (130, 4096, 7168), (1000, 3001, 777)], ids=str
)
def test_blocks_in_models_shapes(lines, extents):
    a, b = drawn(*extents)
    of_a, of_b = block_scales(*extents, lines)
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b)
    assert d.dtype == torch.bfloat16
    assert_close(d, *dequantized(a, b, of_a, of_b, lines), bits=8)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("extents", [(1024, 768, 2048), (16, 4096, 4096), (257, 1001, 333)], ids=str)
def test_whole_operands_and_rows(fast, extents):
    m, n, _ = extents
    a, b = drawn(*extents)
    accumulate = "float32_fast" if fast else None
    for of_a, of_b in (
        (scales(), scales(1)),
        (scales(m), scales(n)),
        (scales(m, 1), scales(1, n)),
        (scales(m, 1), 0.5),
    ):
        d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, accumulate=accumulate, out_dtype="float32")
        rows, columns = (torch.as_tensor(each, device="cuda").double() for each in (of_a, of_b))
        rows = rows.reshape(-1, 1)
        exact, sizes = (f(a) @ f(b) * rows * columns for f in (torch.Tensor.double, lambda x: x.double().abs()))
        bound = (33 * 2.0**-13 * (extents[2] / 32 if fast else 4)) * sizes
        assert ((d.double() - exact).abs() <= bound).all()


def test_nothing_is_waited_for_and_graphs_see_new_scales():
    m, n, k = 512, 768, 1024
    a, b = drawn(m, n, k)
    of_a, of_b = block_scales(m, n, k, (1, 128))
    one, rows = scales(), scales(m, 1)
    d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

    def calls():
        wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out=d)
        return wt.matmul(a, b, scale_a=one, scale_b=one), wt.matmul(a, b, scale_a=rows, scale_b=one)

    calls()
    calls()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        calls()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole, by_rows = calls()
    of_a.mul_(3)
    rows.mul_(0.25)
    graph.replay()
    torch.cuda.synchronize()
    assert_close(d, *dequantized(a, b, of_a, of_b, (1, 128)), bits=8)
    assert_close(whole, a.double() * one, b.double() * one, bits=8)
    assert_close(by_rows, a.double() * rows, b.double() * one, bits=8)


def test_nothing_beside_out_is_written():
    m, n, k = 300, 501, 700
    a, b = drawn(m, n, k)
    of_a, of_b = block_scales(m, n, k, (1, 128))
    band = torch.full((m + 2, n + 6), float("nan"), device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out=band[1:-1, 3:-3])
    assert_close(band[1:-1, 3:-3], *dequantized(a, b, of_a, of_b, (1, 128)), bits=8)
    band[1:-1, 3:-3] = float("nan")
    assert band.isnan().all()


def test_integers_by_rows_and_columns():
    a = torch.randint(-128, 128, (300, 640), device="cuda", dtype=torch.int8)
    b = torch.randint(-128, 128, (200, 640), device="cuda", dtype=torch.int8).T
    rows, columns = scales(300), scales(200)
    d = wt.matmul(a, b, scale_a=rows, scale_b=columns)
    exact = (a.double() @ b.double()).float() * rows[:, None] * columns
    assert torch.equal(d, exact)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_quantized_copy_comes_with_the_result(dtype):
    m, n, k = 300, 520, 640
    a, b = drawn(m, n, k)
    rows = scales(m)

    def quantized(acc, factor):
        return acc, wt.cast(acc * factor, dtype), abs(acc).max()

    for _ in range(2):
        d, copy, most = wt.matmul(a, b, scale_a=rows, out_dtype="float32", epilogue=quantized, factor=100.0)
        largest = torch.finfo(dtype).max
        assert torch.equal(copy.float(), (d * 100).clamp(-largest, largest).to(dtype).float())
        assert most == d.abs().max()


def test_the_operator_of_torch_takes_blocks():
    import warptile.torch  # noqa: F401

    m, n, k = 256, 384, 512
    a, b = drawn(m, n, k)
    of_a, of_b = block_scales(m, n, k, (1, 128))
    d = torch.ops.warptile.scaled_mm(a, b, of_a, of_b, use_fast_accum=True)
    assert torch.equal(d, wt.matmul(a, b, scale_a=of_a, scale_b=of_b))
    compiled = torch.compile(lambda *x: wt.matmul(x[0], x[1], scale_a=x[2], scale_b=x[3]), fullgraph=True)
    assert torch.equal(compiled(a, b, of_a, of_b), d)


# --- results of 8 bits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extents", [(37, 45, 70), (130, 256, 300), (257, 1000, 1040)], ids=str)
@pytest.mark.parametrize("out_dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_results_of_8_bits_are_those_of_the_emulator(rng, extents, out_dtype):
    m, n, k = extents
    a, b = sp.operands(rng, m, n, k)
    rows, columns, scale = sp.scales(rng, m, 1), sp.scales(rng, n), np.array([0.5], np.float32)
    there = [on_gpu(each) for each in (a, b)]
    options = {"scale_a": torch.from_numpy(rows).cuda(), "scale_b": torch.from_numpy(columns).cuda(), "amax": True}
    options |= {"scale_d": torch.from_numpy(scale).cuda(), "out_dtype": out_dtype}
    plan = wt.plan(*there, **options).plan
    expected, largest = wt.matmul(
        a, b, scale_a=rows, scale_b=columns, scale_d=scale, amax=True, out_dtype=str(out_dtype).removeprefix("torch."),
        rung=plan.rung.name, config=dict(plan.config), backend="emulator",
    )  # fmt: skip
    for _ in range(3):  # planned; bound; found again
        d, amax = wt.matmul(*there, **options)
        assert np.array_equal(d.view(torch.uint8).cpu().numpy(), expected.view(np.uint8))
        assert amax.item() == largest


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
@pytest.mark.parametrize("extents", [(4096, 4096, 1024), (300, 4095, 520), (16, 8192, 4096), (8192, 256, 128)], ids=str)
def test_results_of_8_bits_inside_guard_bands(extents, dtype):
    m, n, k = extents
    a, b = drawn(m, n, k)
    a, b = a.to(dtype), b.to(dtype)
    guarded = torch.full((m + 2, n + 32), 99, device="cuda", dtype=torch.uint8)
    inside = guarded[1:-1, 16:-16]
    expected = (wt.matmul(a, b, out_dtype=torch.float32) / 4).clamp(-448, 448)
    for _ in range(2):
        wt.matmul(a, b, alpha=0.25, out=inside.view(E4M3))
        found = inside.view(E4M3).float()
        assert ((found - expected).abs() <= expected.abs() / 16 + 2.0**-10).all()
        inside[:] = 99
        assert bool((guarded == 99).all())
    assert (wt.matmul(a, b, alpha=1e6, out_dtype=E4M3).float().abs() <= 448).all()


def test_results_of_8_bits_are_those_of_torch():
    a, b = drawn(512, 768, 1024)
    of_a, of_b, scale = (torch.tensor([each], device="cuda") for each in (0.5, 0.25, 2.0))
    ours = torch.ops.warptile.scaled_mm(a, b, of_a, of_b, None, scale, E4M3, True)
    theirs = torch._scaled_mm(a, b, of_a * scale, of_b, None, None, E4M3, True)  # it does not apply scale_result
    difference = (ours.float() - theirs.float()).abs()
    assert (difference <= theirs.float().abs() / 7 + 2.0**-9).all()
    assert (difference > 0).float().mean() < 0.02  # sums next to the middle of two numbers


def test_scales_of_results_in_a_graph():
    a, b = drawn(256, 512, 512)
    scale = torch.ones(1, device="cuda")
    options = {"scale_d": scale, "amax": True, "out_dtype": E4M3}
    wt.matmul(a, b, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d, amax = wt.matmul(a, b, **options)
    for value in (0.5, 4.0):
        scale.fill_(value)
        graph.replay()
        expected, largest = wt.matmul(a, b, **options)
        assert torch.equal(d.view(torch.uint8), expected.view(torch.uint8))
        assert amax == largest
