"""Quantized weights on a GPU: the bits of the emulator, any extents and layouts, calls that are bound, graphs."""

import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

UNIT = 2.0**-24


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def normal(*shape, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def check(d, x, w):
    """Within what float32 accumulation allows, and the rounding of D."""
    wide = x.double(), w.dequantize().double().T
    expected, magnitude = wide[0] @ wide[1], wide[0].abs() @ wide[1].abs()
    rounding = {torch.float32: 0.0, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[d.dtype]
    bound = (x.shape[-1] / 8 + 4) * UNIT * magnitude + rounding * expected.abs() * 1.01 + 2.0**-24
    assert bool(((d.double() - expected).abs() <= bound).all())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("bits", "group_size", "zero_point"), [(4, 128, False), (4, 32, True), (8, 64, True), (8, 128, False)]
)
@pytest.mark.parametrize("extents", [(1, 70, 300), (20, 300, 1100), (100, 520, 260)], ids=str)
def test_the_same_bits_as_on_the_emulator(extents, bits, group_size, zero_point, dtype):
    m, n, k = extents
    x, w = drawn(m, k), drawn(n, k)
    there = torch.from_numpy(x).cuda().to(getattr(torch, dtype)), torch.from_numpy(w).cuda()
    here, there_w = (wt.quantize(each, bits, group_size, zero_point, dtype=dtype) for each in (w, there[1]))
    assert np.array_equal(there_w.packed.cpu().numpy(), here.packed)
    assert torch.equal(there_w.dequantize().float().cpu(), torch.from_numpy(here.dequantize().astype(np.float32)))
    found = wt.matmul(there[0], there_w, out_dtype="float32")
    config = dict(wt.plan(there[0], there_w, out_dtype="float32").plan.config)
    options = {"rung": "wgmma-quantized", "config": config, "out_dtype": "float32", "backend": "emulator"}
    expected = wt.matmul(there[0].cpu(), here_on_cpu(here), **options)
    for _ in range(3):  # planned; bound; found again
        assert torch.equal(found.cpu(), expected)
        found = wt.matmul(there[0], there_w, out_dtype="float32")


def here_on_cpu(w):
    return wt.QuantizedWeights(**{**w.state(), "packed": torch.from_numpy(w.packed)})


EXTENTS = [
    (m, n, k)
    for n, k in ((8192, 8192), (28672, 1024), (1000, 3000), (4099, 1031))
    for m in (1, 8, 17, 33, 64, 100, 128, 200, 300, 1025)
]


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
def test_extents_inside_guard_bands(extents, bits):
    m, n, k = extents
    x, w = normal(m, k), wt.quantize(normal(n, k, dtype=torch.float32), bits, zero_point=m % 2 == 1)
    guarded = torch.full((m + 2, n + 16), 7.0, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        wt.matmul(x, w, out=guarded[1:-1, 8:-8])
        check(guarded[1:-1, 8:-8], x, w)
        guarded[1:-1, 8:-8] = 7
        assert bool((guarded == 7).all())
        guarded[1:-1, 8:-8] = float("nan")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("extents", [(2048, 8192, 1024), (300, 1000, 1032), (1030, 777, 520)], ids=str)
def test_dequantized_by_a_pass(extents, bits):
    m, n, k = extents
    x, w = normal(m, k), wt.quantize(normal(n, k, dtype=torch.float32), bits, zero_point=bits == 8)
    for _ in range(3):
        check(wt.matmul(x, w, rung="wgmma-dequantized", out_dtype="float32"), x, w)


@pytest.mark.parametrize("layout", ["columns", "gaps", "misaligned"])
@pytest.mark.parametrize("m", [5, 150])
def test_layouts(layout, m):
    x = {
        "columns": lambda: normal(1000, m).T,
        "gaps": lambda: normal(m, 2000)[:, ::2],
        "misaligned": lambda: normal(m, 1001)[:, 1:],
    }[layout]()
    w = wt.quantize(normal(777, 1000, dtype=torch.float32))
    for _ in range(2):
        check(wt.matmul(x, w, out_dtype="float32"), x, w)


def test_linear_with_bias_and_epilogue():
    x, w, bias = normal(3, 7, 512), wt.quantize(normal(640, 512, dtype=torch.float32)), normal(640)
    exact = x.double() @ w.dequantize().double().T + bias.double()
    for _ in range(2):
        assert torch.allclose(wt.linear(x, w, bias).double(), exact, rtol=2**-7, atol=2e-2)
        fused = wt.linear(x, w, bias, epilogue=wt.relu)
        assert torch.allclose(fused.double(), exact.clamp_min(0), rtol=2**-7, atol=2e-2)


def test_a_graph_replays_it():
    x, w = normal(16, 4096), wt.quantize(normal(4096, 4096, dtype=torch.float32))
    d = torch.empty(16, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        wt.matmul(x, w, out=d)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            wt.matmul(x, w, out=d)
    for seed in range(3):
        x.copy_(normal(16 + seed, 4096)[:16])
        d.fill_(float("nan"))
        graph.replay()
        check(d, x, w)


@pytest.mark.parametrize("m", [8, 64])
@pytest.mark.parametrize("change", [{}, {"STREAM": 1, "SPLIT_K": 1}], ids=str)
def test_many_launches_in_a_row_are_bit_equal(change, m):
    """Each launch leaves its counters and flags at zero, also where the next one overlaps with it."""
    x, w = normal(m, 8192), wt.quantize(normal(8192, 8192, dtype=torch.float32))
    planned = wt.plan(x, w, rung="wgmma-quantized").plan.config
    options = {"rung": "wgmma-quantized", "config": {**planned, "STAGES": 4, **change}}
    first = wt.matmul(x, w, **options)
    check(first, x, w)
    found = [wt.matmul(x, w, **options) for _ in range(200)]
    assert all(torch.equal(each, first) for each in found)


@pytest.mark.parametrize("extents", [(17, 28672, 1024), (60, 1000, 3000), (130, 4099, 1031)], ids=str)
def test_stream_k(extents):
    m, n, k = extents
    x, w = normal(m, k), wt.quantize(normal(n, k, dtype=torch.float32), zero_point=True)
    config = {**wt.plan(x, w, rung="wgmma-quantized").plan.config, "BN": 32, "SPLIT_K": 1, "STREAM": 1}
    for _ in range(3):
        check(wt.matmul(x, w, rung="wgmma-quantized", config=config, out_dtype="float32"), x, w)


def test_gradients_are_refused():
    x, w = normal(4, 128).requires_grad_(), wt.quantize(normal(64, 128, dtype=torch.float32))
    with pytest.raises(wt.UnsupportedError, match="requires a gradient"):
        wt.matmul(x, w)
    with torch.no_grad():
        check(wt.matmul(x, w), x, w)


@pytest.mark.parametrize("size", [0.0005, 0.02, 0.5, 40.0])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_weight_is_the_dequantized_one(dtype, bits, size):
    """Of rows with a single one every result is a weight; with one instruction or several for each, and both."""
    n, k, group = 384, 512, 32
    generator = torch.Generator("cuda").manual_seed(bits)
    codes = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (n, k), generator=generator, device="cuda")
    scales = (size * torch.randn((n, k // group), generator=generator, device="cuda")).to(dtype)
    scales[7], scales[200] = 0, torch.finfo(dtype).smallest_normal / 8
    w = wt.QuantizedWeights.from_codes(codes, scales, bits=bits, group_size=group)
    x = torch.eye(k, dtype=dtype, device="cuda")
    expected = w.dequantize().T
    assert bool((expected.float() == (codes * scales.repeat_interleave(group, 1)).to(dtype).float().T).all())
    for rows in (7, 16, 32, 60, 128, 512):
        assert torch.equal(wt.matmul(x[:rows], w), expected[:rows] + 0.0)
