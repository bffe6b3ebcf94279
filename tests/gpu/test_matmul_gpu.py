"""matmul and the ladder on a GPU: types, shapes and layouts against float64, torch's memory and streams."""

import json

import numpy as np
import pytest

import warptile as wt
from warptile.arrays.operands import OUTPUTS, arrange
from warptile.cli.main import run
from warptile.dtypes import DTYPES
from warptile.rungs import BESIDE_THE_LADDER, RUNGS
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference

TYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8"]
EIGHTHS = ["float8_e4m3", "float8_e5m2"]
DENSE = [name for name, rung in RUNGS.items() if not rung.sparse]


def drawn(*shape, dtype="float32", seed=0):
    return random_operand(shape, DTYPES[dtype], np.random.default_rng(seed))


def assert_product(d, a, b, c=None, *, alpha=1, beta=0, **options):
    expected = reference(arrange(a, b, c, beta=beta, **options).problem, a, b, c, alpha=alpha, beta=beta)
    ratio = error_ratio(d, expected)
    assert is_correct(ratio), ratio


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


@pytest.mark.parametrize("dtype", [*TYPES, *EIGHTHS])
@pytest.mark.parametrize("size", [(1, 1, 1), (193, 161, 97), (512, 256, 128), (331, 257, 509)])
def test_numpy_arrays_go_there_and_back(dtype, size):
    m, n, k = size
    a, b = drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype, seed=1)
    assert_product(wt.matmul(a, b, backend="gpu"), a, b)


@pytest.mark.parametrize("majors", ["row row", "row col", "col row", "col col"])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "float8_e4m3"])
def test_every_combination_of_majors_stays_where_it_is(torch, dtype, majors):
    a, b = drawn(67, 45, dtype=dtype), drawn(45, 83, dtype=dtype, seed=1)

    def there(x, major):
        stored = x if major == "row" else np.ascontiguousarray(x.T)
        memory = torch.from_numpy(np.ascontiguousarray(stored).view(np.uint8)).cuda()
        tensor = memory.view(getattr(torch, DTYPES[dtype].torch)).reshape(stored.shape)
        return tensor if major == "row" else tensor.T

    a_major, b_major = majors.split()
    plan = wt.plan(there(a, a_major), there(b, b_major), out_dtype=None)
    # Odd rows: no tensor copy takes them as they lie; nothing is copied on the way to the plan.
    assert not plan.copies
    assert (plan.plan.problem.a.major, plan.plan.problem.b.major) == (a_major, b_major)
    d = plan(there(a, a_major), there(b, b_major)).cpu()
    assert_product(d.view(torch.int16).numpy().view("bfloat16") if dtype in EIGHTHS else d.numpy(), a, b)


def test_float8_with_scales_in_either_memory(torch):
    a = torch.randn(64, 48, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(32, 48, device="cuda").to(torch.float8_e4m3fn).T
    d = wt.matmul(a, b, scale_a=0.5, scale_b=torch.tensor(4.0))
    # The sum of 48 products keeps 13 bits of fraction of its largest number; then D is rounded to bfloat16.
    lost = 2 * (a.float().abs() @ b.float().abs()) * 2**-12
    expected = 2 * (a.float() @ b.float())
    assert ((d.float() - expected).abs() <= lost + expected.abs() * 2**-8).all()
    on_gpu = wt.matmul(a, b, scale_a=torch.tensor(0.5, device="cuda"), scale_b=torch.tensor([4.0], device="cuda"))
    assert ((on_gpu.float() - expected).abs() <= lost + expected.abs() * 2**-8).all()


@pytest.mark.parametrize("name", DENSE)
def test_every_rung_with_alpha_beta_and_c(name):
    dtype = RUNGS[name].dtypes[0]
    options = {"accumulate": "float16"} if name == "simt-half2" else {}
    a, b = drawn(131, 67, dtype=dtype), drawn(67, 151, dtype=dtype, seed=1)
    c = drawn(131, 151, dtype=OUTPUTS[dtype][0], seed=2)
    d = wt.matmul(a, b, c, alpha=0.5, beta=-1.5, rung=name, backend="gpu", **options)
    assert_product(d, a, b, c, alpha=0.5, beta=-1.5, **options)


def test_out_with_gaps_keeps_them():
    a, b = drawn(70, 33), drawn(33, 50, seed=1)
    frame = np.full((72, 60), 7.0, np.float32)
    out = frame[1:71, 4:54]
    assert wt.matmul(a, b, out=out, backend="gpu") is out
    assert_product(np.ascontiguousarray(out), a, b)
    out[...] = 7.0
    assert np.array_equal(frame, np.full_like(frame, 7.0))


def test_without_products_the_result_is_zero():
    assert np.array_equal(wt.matmul(drawn(4, 0), drawn(0, 5), backend="gpu"), np.zeros((4, 5)))


def test_the_same_call_gives_the_same_bits():
    a, b = drawn(300, 200, dtype="float16"), drawn(200, 100, dtype="float16", seed=1)
    first = wt.matmul(a, b, backend="gpu")
    assert np.array_equal(wt.matmul(a, b, backend="gpu"), first)


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_tensors_stay_where_they_are(torch, dtype):
    a, b = drawn(65, 48, dtype=dtype), drawn(48, 39, dtype=dtype, seed=1)

    def there(x):
        if dtype == "bfloat16":
            return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(x).cuda()

    d = wt.matmul(there(a), there(b))
    assert d.is_cuda
    back = d.cpu().view(torch.int16).numpy().view(a.dtype) if dtype == "bfloat16" else d.cpu().numpy()
    assert_product(back, a, b)


def test_torch_layouts_and_batches(torch):
    x = torch.randn(3, 2, 40, 24, device="cuda", dtype=torch.float16)
    w = torch.randn(56, 24, device="cuda", dtype=torch.float16)
    want = (x.double() @ w.double().T).half()
    for operand in (x, x.transpose(2, 3).contiguous().transpose(2, 3), x.flip(0).flip(0)):
        assert torch.allclose(wt.matmul(operand, w.T), want, atol=2e-2)
    frame = torch.full((3, 2, 40, 60), 7.0, device="cuda", dtype=torch.float16)
    out = frame[..., 1:57]
    assert wt.matmul(x, w.T, out=out) is out
    assert torch.allclose(out, want, atol=2e-2)
    out.fill_(7.0)
    assert bool((frame == 7.0).all())


def test_torchs_current_stream_is_used(torch):
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    wt.matmul(a, a)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        filled = torch.full_like(a, 2.0)
        d = wt.matmul(filled, a)
        assert not stream.query()
    stream.synchronize()
    assert torch.allclose(d.float(), 2.0 * a.float().sum(0).expand_as(d), atol=0.5)


def test_a_call_can_be_captured_in_a_graph(torch):
    a = torch.randn(256, 128, device="cuda", dtype=torch.float16)
    b = torch.randn(128, 64, device="cuda", dtype=torch.float16)
    out = torch.empty(256, 64, device="cuda", dtype=torch.float16)
    wt.matmul(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        wt.matmul(a, b, out=out)
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(out, (a.double() @ b.double()).half(), rtol=2e-3, atol=2e-3)


def test_device_memory_and_the_emulator_do_not_go_together(torch):
    a = torch.zeros(4, 4, device="cuda")
    with pytest.raises(wt.LayoutError, match=r"a.cpu\(\)"):
        wt.matmul(a, a, backend="emulator")
    with pytest.raises(wt.LayoutError, match="host memory"):
        wt.matmul(a, np.zeros((4, 4), np.float32))


def test_gpu_and_emulator_agree_where_arithmetic_is_exact():
    a, b = drawn(45, 70, dtype="int8"), drawn(70, 33, dtype="int8", seed=1)
    assert np.array_equal(wt.matmul(a, b, backend="gpu"), wt.matmul(a, b, backend="emulator"))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "bit1", *EIGHTHS])
def test_every_type_of_the_mma_family_is_timed(capsys, dtype):
    command = ["ladder", "--rung", "mma-final", "--dtype", dtype, "--backend", "gpu", "-m", "512", "-n", "384"]
    assert run([*command, "-k", "1024", "--json"]) == 0
    (rung,) = json.loads(capsys.readouterr().out)["rungs"]
    assert (rung["dtype"], rung["correct"]) == (dtype, True)
    assert rung["time_ms"] > 0


def test_the_ladder_is_timed(capsys):
    names = ["simt-warptile", "wmma-final"]
    chosen = [word for name in names for word in ("--rung", name)]
    assert run(["ladder", *chosen, "--backend", "gpu", "-m", "1024", "-n", "768", "-k", "512", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["backend"] == "gpu"
    assert document["environment"]["gpu"]
    for rung in document["rungs"]:
        assert rung["correct"]
        assert rung["time_ms"] > 0
        assert rung["tflops"] == pytest.approx(2 * 1024 * 768 * 512 / rung["time_ms"] / 1e9)


@pytest.mark.parametrize("dtype", BESIDE_THE_LADDER["simt-gemv"].dtypes)
@pytest.mark.parametrize("layout", ["row", "col"])
def test_few_rows_in_any_alignment(dtype, layout):
    """By simt-gemv, and by what a plan takes."""
    rng = np.random.default_rng(len(dtype))
    for _ in range(8):
        m, n, k, offset = (int(each) for each in rng.integers((1, 1, 1, 0), (10, 3000, 5000, 4)))
        a = drawn(m, k, dtype=dtype, seed=n)
        memory = drawn(offset + k * n, dtype=dtype, seed=k)[offset:]
        b = memory.reshape(k, n) if layout == "row" else memory.reshape(n, k).T
        for rung in ("simt-gemv", None):
            assert_product(wt.matmul(a, b, rung=rung, backend="gpu"), a, b)
            # The same with few columns: of the transposes.
            assert_product(wt.matmul(b.T, a.T, rung=rung, backend="gpu"), b.T, a.T)


@pytest.mark.parametrize(
    ("rung", "dtype"),
    [
        ("simt-split-k", "float32"),
        ("simt-split-k", "float64"),
        ("mma-split-k", "float64"),
        ("mma-specialized", "float64"),
        ("mma-unaligned", "float16"),
    ],
)
@pytest.mark.parametrize("layout", ["row row", "row col", "col row", "col col"])
def test_few_tiles_have_the_same_bits_as_on_the_emulator(rung, dtype, layout):
    rng = np.random.default_rng(len(layout))
    for case in range(6):
        m, n, k = (int(each) for each in rng.integers((1, 1, 16), (150, 150, 400)))
        a, b = drawn(m, k, dtype=dtype, seed=n), drawn(k, n, dtype=dtype, seed=m)
        a, b = (np.asarray(x, order="C" if w == "row" else "F") for x, w in zip((a, b), layout.split(), strict=True))
        config = dict(wt.plan(a, b, rung=rung, backend="gpu").plan.config)
        if "SWAP" in config:
            config["SWAP"] = case % 2
        expected = wt.matmul(a, b, rung=rung, config=config, backend="emulator")
        for _ in range(2):
            assert np.array_equal(wt.matmul(a, b, rung=rung, config=config, backend="gpu"), expected)
            assert_product(wt.matmul(a, b, backend="gpu"), a, b)
