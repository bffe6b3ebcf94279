"""wt.linear on NumPy arrays and on tensors: as torch.nn.functional.linear, for every shape that it takes."""

import numpy as np
import pytest

import warptile as wt

SHAPES = [
    ((5, 7), (3, 7)),
    ((7,), (3, 7)),
    ((2, 5, 7), (3, 7)),
    ((2, 1, 5, 7), (3, 7)),
    ((5, 7), (7,)),
    ((2, 5, 7), (7,)),
    ((7,), (7,)),
    ((0, 7), (3, 7)),
    ((2, 0, 7), (3, 7)),
    ((5, 0), (3, 0)),
    ((2, 5, 0), (3, 0)),
    ((5, 7), (0, 7)),
    ((1, 1), (1, 1)),
    ((2, 3, 7), (1, 7)),
]


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_numpy_arrays(shapes, bias):
    x, w = drawn(*shapes[0]), drawn(*shapes[1])
    b = drawn(*shapes[1][:-1]) if bias else None
    d = wt.linear(x, w, b, backend="emulator")
    expected = x @ (w.T if w.ndim == 2 else w) + (0 if b is None else b)
    assert isinstance(d, np.ndarray | np.float32)
    assert d.shape == expected.shape
    assert np.allclose(d, expected, atol=1e-5)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_tensors(shapes):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, w = (torch.from_numpy(drawn(*shape)) for shape in shapes)
    b = torch.from_numpy(np.asarray(drawn(*shapes[1][:-1]), np.float32))
    expected = x @ (w.T if w.dim() == 2 else w) + b
    for bias in (None, b):
        d = wt.linear(x, w, bias, backend="emulator")
        assert d.shape == expected.shape
        assert torch.allclose(d, expected if bias is not None else expected - b, atol=1e-5)


def test_any_strides():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    wide = torch.from_numpy(drawn(4, 5, 14))
    for x in (
        wide[:, :, ::2],
        wide.transpose(0, 1)[..., :7],
        wide[..., 7:].expand(4, 5, 7),
        wide[:1, :, :7].expand(3, 5, 7),
    ):
        for w in (torch.from_numpy(drawn(3, 7)), torch.from_numpy(drawn(7, 3)).T, torch.from_numpy(drawn(6, 7))[::2]):
            d = wt.linear(x, w, backend="emulator")
            assert torch.allclose(d, torch.nn.functional.linear(x, w), atol=1e-5)


def test_options_are_those_of_matmul():
    x, w = drawn(5, 7, dtype=np.float16), drawn(3, 7, dtype=np.float16)
    d = wt.linear(x, w, drawn(3), out_dtype="float32", backend="emulator")
    assert d.dtype == np.float32
    assert wt.linear(x, w, accumulate="float16", max_sms=4, backend="emulator").dtype == np.float16


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((drawn(5, 7), drawn(7, 3)), wt.ShapeError, r"linear\(x, w\.T\)"),
        ((drawn(5, 7), drawn(3, 6)), wt.ShapeError, r"w of shape \(N, 7\)"),
        ((drawn(5, 7), drawn(2, 3, 7)), wt.ShapeError, "as torch.nn.Linear"),
        ((np.float32(1), drawn(3, 7)), wt.ShapeError, r"x\.reshape\(1\)"),
        ((drawn(5, 7), drawn(3, 7), drawn(5)), wt.ShapeError, r"bias: got shape \(5,\)"),
        ((drawn(5, 7), drawn(3, 7), drawn(1, 3)), wt.ShapeError, r"bias: got shape \(1, 3\)"),
        ((drawn(5, 7), drawn(3, 7, dtype=np.float16)), wt.DTypeError, r"w\.astype\(x\.dtype\)"),
        ((drawn(5, 7), [[1.0] * 7]), wt.DTypeError, "w: got list"),
        ((drawn(5, 7), drawn(3, 7), 2.0), wt.DTypeError, "bias: got float"),
        ((drawn(5, 7), drawn(3, 7), np.ones(3)), wt.DTypeError, r"^bias is float64 .*: bias.astype\('float32'\)$"),
    ],
)
def test_what_does_not_fit(arguments, error, words):
    with pytest.raises(error, match=words):
        wt.linear(*arguments, backend="emulator")


@pytest.mark.parametrize("options", [{}, {"epilogue": wt.relu}, {"alpha": 2.0}], ids=["plain", "fused", "scaled"])
def test_an_array_that_is_no_operand_has_the_name_that_linear_gives_it(options):
    x, w = drawn(5, 7), drawn(3, 7)
    with pytest.raises(wt.DTypeError, match=r"^x: got element type int64"):
        wt.linear(x.astype(int), w.astype(int), backend="emulator", **options)
    with pytest.raises(wt.DTypeError, match=r"^x: got byte order .*: x\.astype\('float32'\)$"):
        wt.linear(x.astype(">f4"), w.astype(">f4"), backend="emulator", **options)
    with pytest.raises(wt.LayoutError, match=r"^w: got a masked array, .*: w\.filled\(0\)$"):
        wt.linear(x, np.ma.masked_array(w), backend="emulator", **options)


def test_packed_weights_that_lie_the_other_way_are_told_how_to_be_made():
    x, w = drawn(5, 64), drawn(6, 64)
    with pytest.raises(wt.LayoutError, match=r"^w: .*along axis 0.* linear\(x, split\(w, axis=1\)\)$"):
        wt.linear(x, wt.split(w), backend="emulator")
    assert np.allclose(wt.linear(x, wt.split(w, axis=1), backend="emulator"), x @ w.T, atol=1e-4)
    with pytest.raises(wt.ShapeError, match=r"weights quantized as quantize\(w\.T\)$"):
        wt.linear(drawn(4, 64), wt.quantize(drawn(64, 128), group_size=64), backend="emulator")


def test_an_unknown_keyword():
    with pytest.raises(TypeError, match="unexpected keyword"):
        wt.linear(drawn(5, 7), drawn(3, 7), scale=2)


@pytest.mark.parametrize("leading", [(), (5,), (2, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("given", [{"alpha": 2.0}, {"rung": "simt-naive"}, {"out": "rows"}, {"out": "apart"}], ids=str)
def test_options_of_matmul_leave_the_bias_where_it_is(leading, given):
    x, w, bias = drawn(*leading, 7), drawn(3, 7), drawn(3)
    if "out" in given:
        memory = np.full((*leading[::-1], 3), np.nan, np.float32)
        rows = memory.reshape((*leading, 3))
        given = {"out": rows if given["out"] == "rows" else memory.transpose(*range(len(leading))[::-1], len(leading))}
    d = wt.linear(x, w, bias, backend="emulator", **given)
    assert np.allclose(d, given.get("alpha", 1) * (x @ w.T) + bias, atol=1e-5)
    assert "out" not in given or d is given["out"]


def test_scales_and_a_bias():
    rng = np.random.default_rng(3)
    x, w = rng.integers(-9, 9, (2, 5, 7)).astype(np.int8), rng.integers(-9, 9, (3, 7)).astype(np.int8)
    rows, bias = rng.random((2, 5, 1), np.float32), drawn(3)
    d = wt.linear(x, w, bias, scale_a=rows, scale_b=0.5, backend="emulator")
    assert np.allclose(d, rows * 0.5 * (x.astype(np.float32) @ w.T) + bias, atol=1e-4)


@pytest.mark.parametrize("name", ["biass", "beta", "c", "outt"])
def test_an_unknown_keyword_is_one_of_linear(name):
    with pytest.raises(wt.ArgumentTypeError, match=rf"^linear\(\) got an unexpected keyword argument '{name}'"):
        wt.linear(drawn(5, 7), drawn(3, 7), drawn(3), backend="emulator", **{name: 1})


def plus(acc, res):
    return acc + res


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"bais": "bias", "epilogue": wt.relu}, "linear(x, w, epilogue=epilogue, bias=bias)"),
        ({"ress": "res", "epilogue": plus}, "linear(x, w, epilogue=epilogue, res=res)"),
        ({"ress": "res", "bias": "bias", "epilogue": plus}, "linear(x, w, bias=bias, epilogue=epilogue, res=res)"),
        ({"res": "res", "bais": "bias", "epilogue": plus}, "linear(x, w, epilogue=epilogue, res=res, bias=bias)"),
        ({"outt": "out", "alpha": 2.0, "epilogue": wt.relu}, "linear(x, w, epilogue=epilogue, out=out, alpha=alpha)"),
        ({"bais": "bias"}, "linear(x, w, bias=bias)"),
    ],
)
def test_a_misspelt_operand_is_refused_with_a_call_that_runs(given, written):
    there = {"x": drawn(5, 7), "w": drawn(3, 7), "bias": drawn(3), "res": drawn(5, 3), "out": drawn(5, 3), "alpha": 2.0}
    said = {name: there[each] if isinstance(each, str) else each for name, each in given.items()}
    (wrong,) = set(given) - {"epilogue", "bias", "res", "alpha"}
    with pytest.raises(wt.ArgumentTypeError) as refused:
        wt.linear(there["x"], there["w"], backend="emulator", **said)
    words = str(refused.value)
    assert words.startswith(f"linear() got an unexpected keyword argument {wrong!r}. Did you mean {given[wrong]!r}? ")
    assert words.endswith(f" Write {written}")
    d = eval(written, {"linear": wt.linear} | there | {"epilogue": given.get("epilogue")})
    assert d.shape == (5, 3)


@pytest.mark.parametrize(
    ("epilogue", "function"),
    [
        (lambda acc, bias: acc + bias, "linear"), (lambda acc, w: acc + w, "linear"),
        (lambda acc, alpha: acc * alpha, "linear"), (lambda acc, c: acc + c, "matmul"),
    ],
)  # fmt: skip
def test_an_operand_with_the_name_of_an_argument(epilogue, function):
    (name,) = epilogue.__code__.co_varnames[1:]
    given = {} if name == "w" else {name: drawn(3)}
    with pytest.raises(wt.EpilogueError, match=f"its operand '{name}' has the name of an argument of {function}"):
        wt.linear(drawn(5, 7), drawn(3, 7), epilogue=epilogue, backend="emulator", **given)


def test_sparse_weights_are_on_the_left():
    weights = wt.sparsify(drawn(4, 8, dtype=np.float16))
    with pytest.raises(wt.UnsupportedError, match=r"matmul\(w, x.T\).T is x @ w.T"):
        wt.linear(drawn(5, 8, dtype=np.float16), weights, backend="emulator")
