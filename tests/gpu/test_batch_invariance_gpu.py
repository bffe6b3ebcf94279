"""``batch_invariant=True`` on a GPU: the bits of a row are the same for every M, and those of the emulator."""

import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

MOST_ROWS = 1025
TYPES = {
    "bf16": (torch.bfloat16, {}),
    "bf16 to float32": (torch.bfloat16, {"out_dtype": torch.float32}),
    "f16": (torch.float16, {"out_dtype": torch.float32}),
    "e4m3": (torch.float8_e4m3fn, {"out_dtype": torch.float32}),
    "float32": (torch.float32, {}),
    "tf32": (torch.float32, {"precision": "tf32"}),
    "float64": (torch.float64, {}),
    "s8": (torch.int8, {}),
}
SOME_ROWS = (1, 8, 17, 33, 64, 96, 129, 200, 300, 500, 777, 1025)
"""Numbers of rows for which plans take different kernels."""


def drawn(rows, columns, dtype, seed=0):
    generator = torch.Generator("cuda").manual_seed(rows + 3 * columns + seed)
    if dtype is torch.int8:
        return torch.randint(-100, 100, (rows, columns), generator=generator, device="cuda").to(dtype)
    values = torch.randn(rows, columns, generator=generator, device="cuda", dtype=torch.float64)
    if dtype is torch.float8_e4m3fn:  # else the sums of 128 products that are added are of few bits
        blocks = torch.randint(-6, 7, (-(-columns // 128),), generator=generator, device="cuda")
        values *= torch.exp2(blocks.double()).repeat_interleave(128)[:columns]
    return values.to(dtype)


def invariant(a, w, **options):
    return wt.matmul(a, w.T, batch_invariant=True, **options)


def compiled(a, w, rows, **options):
    """Compile the kernels of all those numbers of rows, in parallel."""
    wt.warm([wt.plan(a[:m], w.T, batch_invariant=True, **options) for m in rows])


def bits(d):
    """As integers, in which NaNs and zeros are compared as they are."""
    return d.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[d.element_size()])


@pytest.mark.parametrize("weights", [(1280, 8192), (4096, 4096)], ids=str)
def test_every_number_of_rows(weights):
    n, k = weights
    a, w = drawn(MOST_ROWS, k, torch.bfloat16), drawn(n, k, torch.bfloat16, 1)
    compiled(a, w, range(1, MOST_ROWS + 1), out_dtype=torch.float32)
    whole = invariant(a, w, out_dtype=torch.float32)
    exact = a.double() @ w.double().T
    assert ((whole.double() - exact).abs() <= 1e-3 * (a.double().abs() @ w.double().abs().T)).all()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for m in range(1, MOST_ROWS + 1):
        first = (m * 37) % (MOST_ROWS - m + 1)
        d = invariant(a[first : first + m], w, out_dtype=torch.float32)
        wrong += (bits(d) != bits(whole[first : first + m])).sum()
    assert wrong.item() == 0


@pytest.mark.parametrize("name", TYPES)
def test_every_type(name):
    dtype, options = TYPES[name]
    for n, k in ((512, 7168), (1031, 1030))[: 2 if name == "bf16" else 1]:
        a, w = drawn(MOST_ROWS, k, dtype), drawn(n, k, dtype, 1)
        compiled(a, w, SOME_ROWS, **options)
        whole = invariant(a, w, **options)
        for m in SOME_ROWS:
            for first in {0, MOST_ROWS - m}:
                d = invariant(a[first : first + m], w, **options)
                assert torch.equal(bits(d), bits(whole[first : first + m])), (n, k, m, first)


def test_what_serves_while_a_kernel_is_compiled(monkeypatch):
    monkeypatch.setenv("WARPTILE_COMPILE", "background")
    a, w = drawn(300, 4104, torch.bfloat16), drawn(136, 4104, torch.bfloat16, 1)
    whole = invariant(a, w, out_dtype=torch.float16)
    for _ in range(3):
        for m in (20, 40, 150):
            assert torch.equal(bits(invariant(a[:m], w, out_dtype=torch.float16)), bits(whole[:m])), m


def test_rows_beside_one_that_cannot_be_split():
    a, w = drawn(300, 2048, torch.float32), drawn(512, 2048, torch.float32, 1)
    assert wt.plan(a, w.T, batch_invariant=True).plan.rung.name == "wgmma-split"
    whole = invariant(a, w)
    a[17, 3] = 1e25
    spoilt = invariant(a, w)
    assert torch.equal(bits(spoilt[18:]), bits(whole[18:]))
    assert torch.equal(bits(invariant(a[17:18], w)), bits(spoilt[17:18]))
    assert torch.equal(bits(spoilt[17:18]), bits(invariant(a[17:18], w, precision="ieee", rung="simt-warptile")))


def test_other_plans_have_other_bits():
    a, w = drawn(520, 16384, torch.bfloat16), drawn(64, 16384, torch.bfloat16, 1)
    whole = invariant(a, w, out_dtype=torch.float32)
    assert torch.equal(bits(invariant(a[:16], w, out_dtype=torch.float32)), bits(whole[:16]))
    assert wt.plan(a[:16], w.T, out_dtype=torch.float32).plan.config["SPLITS"] > 1
    assert not torch.equal(bits(wt.matmul(a[:16], w.T, out_dtype=torch.float32)), bits(whole[:16]))


def test_layouts_graphs_plans_and_other_streams():
    a, w = drawn(300, 4096, torch.bfloat16), drawn(264, 4096, torch.bfloat16, 1)
    whole = invariant(a, w)
    gaps = torch.full((300, 4099), float("nan"), dtype=torch.bfloat16, device="cuda")
    gaps[:, 1:4097] = a
    assert torch.equal(bits(invariant(gaps[:, 1:4097], w)), bits(whole))
    assert torch.equal(bits(invariant(a.T.contiguous().T, w)), bits(whole))
    assert torch.equal(bits(invariant(a, w.T.contiguous().T)), bits(whole))
    assert torch.equal(bits(invariant(a[:33], w, max_sms=7)), bits(whole[:33]))
    assert torch.equal(bits(wt.plan(a[:5], w.T, batch_invariant=True)(a[:5], w.T)), bits(whole[:5]))
    assert torch.equal(bits(wt.linear(a[100:117], w, batch_invariant=True)), bits(whole[100:117]))
    graph, guarded = torch.cuda.CUDAGraph(), torch.full((33, 280), 7.0, dtype=torch.bfloat16, device="cuda")
    invariant(a[:33], w, out=guarded[:, 8:272])
    with torch.cuda.graph(graph):
        invariant(a[:33], w, out=guarded[:, 8:272])
    guarded[:, 8:272] = float("nan")
    graph.replay()
    assert torch.equal(bits(guarded[:, 8:272]), bits(whole[:33]))
    assert (guarded[:, :8] == 7).all()
    assert (guarded[:, 272:] == 7).all()
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    results = []
    for number in range(40):  # kernels that share the GPU
        with torch.cuda.stream(streams[number % 4]):
            results.append((number, invariant(a[number : number + 64], w)))
    torch.cuda.synchronize()
    assert all(torch.equal(bits(d), bits(whole[first : first + 64])) for first, d in results)


def gated(acc, bias, scale, res):
    found = wt.silu(acc * scale + bias) + res * acc
    return found, found * scale + acc * bias, (acc * bias + acc).max(axis=-1)


def test_factors_and_epilogues():
    a, w = drawn(513, 2048, torch.bfloat16), drawn(520, 2048, torch.bfloat16, 1)
    res, bias, scale = (
        drawn(513, 520, torch.float32),
        drawn(1, 520, torch.float32)[0],
        drawn(1, 520, torch.float32, 5)[0],
    )
    whole = invariant(a, w, out_dtype=torch.float32, epilogue=gated, bias=bias, scale=scale, res=res)
    added = wt.matmul(a, w.T, res, alpha=1.3, beta=-0.7, out_dtype=torch.float32, batch_invariant=True)
    for m in (1, 5, 16, 40, 64, 100, 200, 300):
        some = slice(213 - m // 2, 213 - m // 2 + m)
        found = invariant(a[some], w, out_dtype=torch.float32, epilogue=gated, bias=bias, scale=scale, res=res[some])
        assert all(torch.equal(bits(each), bits(every[some])) for each, every in zip(found, whole, strict=True)), m
        d = wt.matmul(a[some], w.T, res[some], alpha=1.3, beta=-0.7, out_dtype=torch.float32, batch_invariant=True)
        assert torch.equal(bits(d), bits(added[some])), m


@pytest.mark.parametrize("name", ["bf16", "e4m3", "float32", "tf32"])
def test_the_same_bits_as_on_the_emulator(name):
    """Which knows nothing of a GPU's model: so an H100 and an H200 agree."""
    import ml_dtypes

    dtype, options = TYPES[name]
    storage = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
    options = {each: "float32" if each == "out_dtype" else value for each, value in options.items()}
    a, w = drawn(140, 520, dtype), drawn(72, 520, dtype, 1)
    on_host = [each.float().cpu().numpy().astype(storage.get(dtype, np.float32)) for each in (a, w)]
    for m in (1, 20, 140):
        expected = wt.matmul(on_host[0][:m], on_host[1].T, batch_invariant=True, backend="emulator", **options)
        found = invariant(a[:m], w, **options)
        assert found.float().cpu().numpy().tobytes() == expected.astype(np.float32).tobytes()
