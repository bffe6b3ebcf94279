"""The operators of torch.ops.warptile on the emulator: what torch's own checks of operators say, and their values."""

import subprocess
import sys
import warnings

import pytest

import quick_products
import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402
from warptile.epilogue.program_text import text_of  # noqa: E402
from warptile.epilogue.tracing import trace  # noqa: E402
from warptile.torch.library import SCHEMAS  # noqa: E402

ops = torch.ops.warptile
F8 = torch.float8_e4m3fn


def drawn(*shape, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


REDUCED = text_of(trace(lambda acc: (acc * acc, acc.sum(axis=-2, keepdims=True), abs(acc).max()), {}))
SQUARED = text_of(trace(lambda acc: acc * acc, {}))
SCALED = text_of(
    trace(lambda acc, x, y, s: (wt.gelu(acc * x) + s * y, wt.cast(acc, "float32")), dict.fromkeys(["x", "y", "s"]))
)
OFFS = torch.tensor([3, 8], dtype=torch.int32)
SAMPLES = {
    "matmul": lambda: (ops.matmul, (drawn(3, 4), drawn(4, 5)), {}),
    "matmul-addend": lambda: (ops.matmul, (drawn(3, 4), drawn(4, 5), drawn(5)), {"alpha": 2.0, "beta": 0.5}),
    "matmul-batch": lambda: (ops.matmul, (drawn(2, 3, 4), drawn(4, 5)), {}),
    "matmul-vector": lambda: (ops.matmul, (drawn(4), drawn(4, 5)), {}),
    "matmul-transposed": lambda: (ops.matmul, (drawn(4, 3).mT, drawn(5, 4).mT), {}),
    "matmul-strided": lambda: (ops.matmul, (drawn(3, 8)[:, ::2], drawn(4, 5)), {}),
    "matmul-wider": lambda: (
        ops.matmul, (drawn(3, 4, dtype=torch.float16), drawn(4, 5, dtype=torch.float16)), {"out_dtype": torch.float32}
    ),
    "matmul-integers": lambda: (
        ops.matmul, (torch.ones(3, 4, dtype=torch.int8), torch.ones(4, 5, dtype=torch.int8)), {}
    ),
    "matmul-empty": lambda: (ops.matmul, (drawn(0, 4), drawn(4, 5)), {}),
    "matmul_out": lambda: (
        ops.matmul_out, (drawn(3, 4, grad=False), drawn(4, 5, grad=False)),
        {"out": torch.empty(3, 5, dtype=torch.float64)},
    ),
    "matmul_out-strided": lambda: (
        ops.matmul_out, (drawn(3, 4, grad=False), drawn(4, 5, grad=False), drawn(5, grad=False)),
        {"out": torch.zeros(5, 3, dtype=torch.float64).T, "alpha": 2},
    ),
    "fused_matmul": lambda: (
        ops.fused_matmul, (drawn(3, 4), drawn(4, 5), drawn(5), [drawn(5), drawn(3, 1)]),
        {"program": SCALED, "names": ["x", "y", "s"], "numbers": [2.0], "alpha": 0.5},
    ),
    "fused_matmul-reductions": lambda: (
        ops.fused_matmul, (drawn(2, 3, 4), drawn(4, 5), None, []), {"program": REDUCED, "names": [], "numbers": []}
    ),
    "fused_matmul-vector": lambda: (
        ops.fused_matmul, (drawn(2, 3, 4), drawn(4), None, []), {"program": SQUARED, "names": [], "numbers": []}
    ),
    "linear": lambda: (ops.linear, (drawn(2, 3, 4), drawn(5, 4), drawn(5)), {}),
    "linear-vector": lambda: (ops.linear, (drawn(4), drawn(5, 4)), {}),
    "linear-one-output": lambda: (ops.linear, (drawn(2, 4), drawn(4)), {}),
    "grouped-rows": lambda: (ops.grouped_mm, (drawn(8, 4), drawn(2, 4, 5), OFFS), {}),
    "grouped-columns": lambda: (ops.grouped_mm, (drawn(2, 3, 4), drawn(4, 8), OFFS), {}),
    "grouped-k": lambda: (ops.grouped_mm, (drawn(3, 8), drawn(8, 5), OFFS), {}),
    "grouped-batch": lambda: (ops.grouped_mm, (drawn(2, 3, 4), drawn(2, 4, 5)), {}),
}  # fmt: skip
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.fixture
def quick(monkeypatch):
    return quick_products.install(monkeypatch)


@pytest.mark.parametrize("sample", SAMPLES)
def test_torch_finds_nothing_wrong_with_an_operator(quick, sample):
    operator, arguments, options = SAMPLES[sample]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own tools
        found = torch.library.opcheck(operator.default, arguments, options, test_utils=CHECKS)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("rows", [False, True])
def test_torch_finds_nothing_wrong_with_scaled_mm(quick, rows):
    a, b = torch.ones(3, 16).to(F8), torch.ones(16, 5).to(F8)
    scales = (torch.rand(3, 1), torch.rand(1, 5), torch.rand(5)) if rows else (torch.tensor(2.0), torch.tensor(0.5))
    # The check of the schema compares operands by torch.allclose, which torch does not have for 8-bit floats.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.library.opcheck(ops.scaled_mm.default, (a, b, *scales), test_utils=CHECKS[1:])
    assert set(found.values()) == {"SUCCESS"}


def test_every_operator_has_a_sample():
    assert {sample.partition("-")[0].replace("grouped", "grouped_mm") for sample in SAMPLES} | {"scaled_mm"} == set(
        SCHEMAS
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_values_and_gradients_on_the_emulator(monkeypatch, dtype):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b, c = drawn(5, 7, dtype=dtype), drawn(7, 3, dtype=dtype), drawn(3, dtype=dtype)
    d = wt.matmul(a, b, c)
    assert d.dtype == dtype
    d.sum().backward()
    expected = (a.double() @ b.double() + c.double()).sum()
    wanted = torch.autograd.grad(expected, (a, b, c))
    assert torch.allclose(d.double().sum(), expected, rtol=1e-2, atol=1e-1)
    for each, want in zip((a, b, c), wanted, strict=True):
        assert torch.allclose(each.grad, want, rtol=1e-2, atol=1e-2)


# --- tensors without memory ------------------------------------------------------------------------------------------


def test_meta_tensors_give_meta_tensors():
    a, b = torch.empty(2, 3, 4, device="meta"), torch.empty(4, 5, device="meta")
    d = wt.matmul(a, b, out_dtype="float32")
    assert (d.device.type, d.shape, d.dtype) == ("meta", (2, 3, 5), torch.float32)
    assert wt.matmul(a.to(torch.int8), b.to(torch.int8)).dtype == torch.int32
    assert wt.linear(a, b.mT, b[0]).shape == (2, 3, 5)
    out = torch.empty(2, 3, 5, device="meta")
    assert wt.matmul(a, b, out=out) is out


@pytest.mark.parametrize("shapes", [((3, 4), (5, 2)), ((2, 3, 4), (3, 4, 5)), ((), (4,)), ((3, 4), (4, 5), (4, 5))])
def test_errors_are_the_same_with_and_without_memory(shapes):
    for device in ("cpu", "meta"):
        with pytest.raises(wt.ShapeError):
            wt.matmul(*(torch.empty(shape, device=device) for shape in shapes))
        with pytest.raises(wt.ShapeError, match="out: got shape"):
            wt.matmul(
                torch.empty(3, 4, device=device), torch.empty(4, 5, device=device), out=torch.empty(5, 3, device=device)
            )
        with pytest.raises(wt.DTypeError, match="one type"):
            wt.matmul(torch.empty(3, 4, device=device), torch.empty(4, 5, device=device, dtype=torch.float16))
        with pytest.raises(wt.DTypeError, match="complex64"):
            wt.matmul(*[torch.empty(4, 4, device=device, dtype=torch.complex64)] * 2)


def test_a_subclass_of_tensors_is_multiplied_as_torch_would(quick):
    class Named(torch.Tensor):
        pass

    a, b = drawn(3, 4, grad=False).as_subclass(Named), drawn(4, 5)
    d = wt.matmul(a, b)
    assert torch.allclose(d, a @ b)
    assert wt.matmul(a, b.detach()).shape == (3, 5)


# --- scaled_mm -------------------------------------------------------------------------------------------------------


@pytest.fixture
def eights():
    return drawn(3, 16, grad=False).to(F8), drawn(16, 5, grad=False).to(F8)


def test_scales_of_whole_operands(quick, eights):
    a, b = eights
    d = ops.scaled_mm(a, b, torch.tensor(2.0), torch.tensor([[0.25]]))
    assert d.dtype == torch.bfloat16
    assert torch.allclose(d.float(), 0.5 * (a.float() @ b.float()), rtol=1e-2)
    bias = torch.arange(5.0)
    d = ops.scaled_mm(a, b, torch.tensor(2.0), torch.tensor(0.25), bias, out_dtype=torch.float32)
    assert torch.allclose(d, 0.5 * (a.float() @ b.float()) + bias, rtol=1e-5)


def test_scales_of_rows_and_columns(quick, eights):
    a, b = eights
    rows, columns, bias = torch.rand(3, 1), torch.rand(1, 5), torch.rand(5)
    d = ops.scaled_mm(a, b, rows, columns, bias, out_dtype=torch.float32)
    assert torch.allclose(d, (a.float() @ b.float()) * rows * columns + bias, rtol=1e-5)
    assert ops.scaled_mm(a, b, rows, columns, out_dtype=torch.float16).dtype == torch.float16
    assert len(quick) == 2
    d = ops.scaled_mm(a, b, rows, torch.tensor(0.25), bias, out_dtype=torch.float32)
    assert torch.allclose(d, (a.float() @ b.float()) * rows * 0.25 + bias, rtol=1e-5)


def test_scales_of_rows_and_columns_on_the_emulator(monkeypatch, eights):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = eights
    rows, columns, bias = torch.rand(3, 1), torch.rand(1, 5), torch.rand(5).to(torch.bfloat16)
    d = ops.scaled_mm(a, b, rows, columns, bias)
    exact = (a.double() @ b.double()) * rows * columns + bias
    assert d.dtype == torch.bfloat16
    assert ((d.double() - exact).abs() <= 2.0**-8 * exact.abs() + 1e-6).all()


def test_scales_of_blocks_on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = drawn(5, 300, grad=False).to(F8), drawn(300, 140, grad=False).to(F8)
    of_a, of_b = torch.rand(5, 3) + 0.5, torch.rand(3, 2) + 0.5
    bias = torch.rand(140)
    d = ops.scaled_mm(a, b, of_a, of_b, bias, out_dtype=torch.float32, use_fast_accum=True)
    left = a.double() * of_a.double().repeat_interleave(128, 1)[:, :300]
    right = b.double() * of_b.double().repeat_interleave(128, 0)[:300].repeat_interleave(128, 1)[:, :140]
    bound = 4 * 33 * 2.0**-13 * (left.abs() @ right.abs()) + 1e-5
    assert ((d - bias - left @ right).abs() <= bound).all()


@pytest.mark.parametrize("out_dtype", [F8, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [False, True])
def test_results_of_8_bits_on_the_emulator(monkeypatch, eights, rows, out_dtype):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = eights
    of_a, of_b = (torch.rand(3, 1), torch.rand(1, 5)) if rows else (torch.tensor(2.0), torch.tensor(0.25))
    bias, scale = torch.rand(5), torch.tensor([8.0])
    d = ops.scaled_mm(a, b, of_a, of_b, bias, scale, out_dtype)
    exact = 8 * ((a.double() @ b.double()) * of_a * of_b + bias)
    assert d.dtype == out_dtype
    step = 2.0 ** -(3 if out_dtype == F8 else 2)
    assert ((d.double() - exact).abs() <= step / 2 * exact.abs() + 2.0**-9).all()
    plain = ops.scaled_mm(a, b, of_a, of_b, bias, out_dtype=out_dtype)
    assert ((plain.double() - exact / 8).abs() <= step / 2 * exact.abs() / 8 + 2.0**-9).all()


@pytest.mark.parametrize("traced", [False, True])
def test_scales_and_largest_values_of_results(monkeypatch, eights, traced):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = eights

    def call(a, b, rows, scale):
        return wt.matmul(a, b, scale_a=rows, scale_d=scale, amax=True, out_dtype=F8)

    rows, scale = torch.rand(3, 1), torch.tensor([4.0])
    function = torch.compile(call, fullgraph=True, backend="aot_eager") if traced else call
    d, amax = function(a, b, rows, scale)
    before = wt.matmul(a, b, scale_a=rows, out_dtype=torch.float32)
    assert torch.equal(d.view(torch.uint8), (before * 4).clamp(-448, 448).to(F8).view(torch.uint8))
    assert amax == before.abs().max()
    assert (amax.shape, amax.dtype) == ((), torch.float32)


def test_gradients_go_through_amax_and_scales_of_results(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = drawn(4, 8), drawn(8, 6)
    d, _ = wt.matmul(a, b, scale_d=3.0, amax=True)
    d.sum().backward()
    assert torch.allclose(a.grad, 3 * b.detach().sum(1).expand(4, 8), rtol=1e-5)


@pytest.mark.parametrize("kind", ["element", "rows", "blocks"])
def test_programs_have_scales_in_tensors(quick, kind):
    a, b, c = drawn(6, 300, grad=False).to(F8), drawn(300, 140, grad=False).to(F8), torch.rand(140)
    of_a, of_b = {
        "element": (torch.rand(1, 1), torch.rand(1, 140)),
        "rows": (torch.rand(6), torch.rand(140)),
        "blocks": (torch.rand(6, 3), torch.rand(3, 2)),
    }[kind]

    def layer(a, b, c, of_a, of_b, bias):
        return wt.matmul(
            a, b, c, scale_a=of_a, scale_b=of_b, out_dtype="float32", epilogue=lambda acc, bias: wt.relu(acc + bias),
            bias=bias,
        )  # fmt: skip

    expected = layer(a, b, c, of_a, of_b, c)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b, c, of_a, of_b, c), expected)
    assert expected.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"scale_a": torch.rand(3, 2)}, wt.ShapeError, r"scale_a: got shape \(3, 2\).*numpy.ones\(\(3, 1\)"),
        ({"scale_a": torch.tensor(1)}, wt.DTypeError, r"scale_a\.float\(\)"),
        ({"scale_result": torch.tensor(1.0)}, wt.UnsupportedError, "scale_result: .* torch.bfloat16; .* out_dtype="),
        ({"scale_result": torch.ones(2), "out_dtype": F8}, wt.ShapeError, "scale_result: .* one element"),
        ({"out_dtype": torch.int8}, wt.UnsupportedError, "8-bit floats"),
        ({"bias": torch.rand(3)}, wt.ShapeError, "each column"),
        ({"a": torch.zeros(3, 16)}, wt.DTypeError, "alpha=scale_a"),
        ({"b": torch.zeros(5, 16).to(F8)}, wt.ShapeError, r"\(K, N\)"),
    ],
)
def test_what_scaled_mm_refuses(quick, eights, change, error, words):
    arguments = {"a": eights[0], "b": eights[1], "scale_a": torch.tensor(1.0), "scale_b": torch.tensor(1.0)}
    with pytest.raises(error, match=words):
        ops.scaled_mm(**arguments | change)


def test_scaled_mm_has_no_gradient(quick, eights):
    scale = torch.tensor(1.0, requires_grad=True)
    with pytest.raises(wt.UnsupportedError, match=r"autograd\.Function"):
        ops.scaled_mm(*eights, scale, torch.tensor(1.0))
    with torch.no_grad():
        ops.scaled_mm(*eights, scale, torch.tensor(1.0))


IMPORT = """
import sys
import warptile.torch

print(*[name for name in sys.modules if name.startswith(("warptile.gpu", "warptile.bench", "torch._dynamo"))])
"""


def test_importing_the_room_loads_nothing_of_the_gpu():
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
