"""vmap, torch.func, derivatives in forward mode, autocast."""

import pytest

import quick_products
import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402

ops = torch.ops.warptile
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch.func itself


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    return quick_products.install(monkeypatch)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


VMAPS = {
    "both": ((6, 3, 4), (6, 4, 5), None, (0, 0, None)),
    "a": ((6, 3, 4), (4, 5), None, (0, None, None)),
    "b": ((3, 4), (6, 4, 5), None, (None, 0, None)),
    "last-axis": ((3, 4, 6), (4, 6, 5), None, (2, 1, None)),
    "vector-a": ((6, 4), (4, 5), (5,), (0, None, None)),
    "vector-b": ((3, 4), (4, 6), (3,), (None, 1, None)),
    "two-vectors": ((6, 4), (6, 4), None, (0, 0, None)),
    "vector-and-batch": ((6, 4), (2, 4, 5), (2, 5), (0, None, None)),
    "ranks": ((6, 2, 3, 4), (6, 4, 5), (6, 5), (0, 0, 0)),
    "addend": ((3, 4), (4, 5), (6, 5), (None, None, 0)),
    "addend-column": ((6, 3, 4), (4, 5), (3, 1, 6), (0, None, 2)),
}


@pytest.mark.parametrize("case", VMAPS)
def test_vmap_is_one_call(quick, case):
    a, b, c, dims = VMAPS[case]
    arguments = [drawn(*a), drawn(*b), None if c is None else drawn(*c)]

    def call(a, b, c=None):
        return wt.matmul(a, b, c, alpha=2)

    def by_torch(a, b, c=None):
        return 2 * (a @ b) + (0 if c is None else c)

    given = 2 if c is None else 3
    found = torch.vmap(call, dims[:given])(*arguments[:given])
    assert torch.allclose(found, torch.vmap(by_torch, dims[:given])(*arguments[:given]))
    assert len(quick) == 1


@pytest.mark.parametrize("dims", [(0, None, None), (0, 0, None), (None, 0, 0), (1, None, 0)])
def test_vmap_of_linear(dims):
    shapes = [(3, 4), (5, 4), (5,)]
    arguments = [
        drawn(*(shape if dim is None else (*shape[:dim], 6, *shape[dim:])))
        for shape, dim in zip(shapes, dims, strict=True)
    ]
    expected = torch.vmap(torch.nn.functional.linear, dims)(*arguments)
    assert torch.allclose(torch.vmap(wt.linear, dims)(*arguments), expected)


@pytest.mark.parametrize("case", VMAPS)
def test_vmap_of_an_epilogue_is_one_call(quick, case):
    a, b, c, dims = VMAPS[case]
    arguments = [drawn(*a), drawn(*b), drawn(1)[0] if c is None else drawn(*c), drawn(6)]

    def call(a, b, x, s):
        return wt.matmul(a, b, epilogue=lambda acc, x, s: (wt.silu(acc + x) * s, wt.cast(acc, "float32")), x=x, s=s)

    def by_torch(a, b, x, s):
        return torch.nn.functional.silu(a @ b + x) * s, (a @ b).float()

    for mapped in ((*dims, 0), (*dims, None)):
        given = arguments[:3] + ([arguments[3]] if mapped[3] == 0 else [arguments[3][0]])
        found, expected = torch.vmap(call, mapped)(*given), torch.vmap(by_torch, mapped)(*given)
        assert all(map(torch.allclose, found, expected))
    assert len(quick) == 2


def test_vmap_of_scales_of_blocks():
    a, b, scale = drawn(6, 3, 4), drawn(4, 5), drawn(6, 2, 2)
    found = torch.vmap(lambda a, s: wt.matmul(a, b, epilogue=lambda acc, s: acc * wt.per_block(s, 2, 4), s=s))(a, scale)
    full = scale.repeat_interleave(2, 1)[:, :3].repeat_interleave(4, 2)[..., :5]
    assert torch.allclose(found, a @ b * full)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_vmap_of_reductions(quick, shape):
    a, b = drawn(6, *shape), drawn(4, 5)

    def call(a):
        return wt.matmul(
            a, b, epilogue=lambda acc: (acc, acc.sum(axis=-1), abs(acc).max(axis=-2), acc.min(), acc.max(keepdims=True))
        )[1:]

    y = a @ b
    every = tuple(range(1, y.dim()))
    expected = y.sum(-1), y.abs().amax(-2), y.amin(every), y.amax(every, keepdim=True)
    for found, wanted in zip(torch.vmap(call)(a), expected, strict=True):
        assert torch.allclose(found, wanted.float() if found.dtype == torch.float32 else wanted)
    assert len(quick) == 1
    gradient = torch.vmap(torch.func.grad(lambda a: call(a)[2]))(a)
    assert torch.equal(gradient != 0, (torch.func.grad(lambda a: (a @ b).amin(every).sum())(a) != 0))
    with pytest.raises(wt.EpilogueError, match="is 1-D"):
        torch.vmap(call)(a.flatten(0, -2))


def test_transforms_of_an_epilogue():
    a, b, x, batch = drawn(3, 4), drawn(4, 5), drawn(5), drawn(6, 3, 4)

    def ours(a, x):
        return wt.matmul(a, b, epilogue=lambda acc, x: wt.gelu(acc) * x, x=x).square().sum()

    def theirs(a, x):
        return (torch.nn.functional.gelu(a @ b) * x).square().sum()

    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd):
        for argument in (0, 1):
            assert torch.allclose(transform(ours, argument)(a, x), transform(theirs, argument)(a, x))
    per_sample = torch.vmap(torch.func.grad(ours, 1), (0, None))(batch, x)
    assert torch.allclose(per_sample, torch.vmap(torch.func.grad(theirs, 1), (0, None))(batch, x))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        found, expected = (torch.autograd.forward_ad.unpack_dual(call(dual, x)).tangent for call in (ours, theirs))
        assert torch.allclose(found, expected)


def test_nested_vmap(quick):
    a, b = drawn(2, 6, 3, 4), drawn(6, 4, 5)
    found = torch.vmap(torch.vmap(wt.matmul), in_dims=(0, None))(a, b)
    assert torch.allclose(found, a @ b)


def test_transforms_of_torch_func():
    a, b = drawn(3, 4), drawn(4, 5)

    def loss(a, multiply):
        return multiply(a, b).square().sum()

    for transform in (
        torch.func.grad,
        torch.func.hessian,
        lambda call, **_: torch.func.jacrev(torch.func.jacrev(call)),
    ):
        found = transform(lambda a: loss(a, wt.matmul))(a)
        assert torch.allclose(found, transform(lambda a: loss(a, torch.matmul))(a))
    per_sample = torch.vmap(torch.func.grad(lambda a: loss(a, wt.matmul)))
    batch = drawn(6, 3, 4)
    assert torch.allclose(per_sample(batch), torch.vmap(torch.func.grad(lambda a: loss(a, torch.matmul)))(batch))
    found = torch.func.jacrev(lambda a: ops.linear(a, b.mT))(a)
    assert torch.allclose(found, torch.func.jacrev(lambda a: a @ b)(a))


@pytest.mark.parametrize("call", [wt.matmul, lambda a, b, c: wt.linear(a, b.mT, c)])
def test_derivatives_in_forward_mode(call):
    arguments = drawn(3, 4), drawn(4, 5), drawn(5)
    tangents = drawn(3, 4), drawn(4, 5), drawn(5)
    expected = torch.func.jvp(lambda a, b, c: a @ b + c, arguments, tangents)
    for one, other in zip(torch.func.jvp(call, arguments, tangents), expected, strict=True):
        assert torch.allclose(one, other)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(arguments[0], tangents[0])
        d = torch.autograd.forward_ad.unpack_dual(call(dual, *arguments[1:]))
        assert torch.allclose(d.tangent, tangents[0] @ arguments[1])


# --- autocast --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_autocast_casts_float32(grad):
    a, b, c = drawn(3, 4, dtype=torch.float32), drawn(4, 5, dtype=torch.bfloat16), drawn(5, dtype=torch.float32)
    a.requires_grad_(grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        d = wt.matmul(a, b, c)
        assert d.dtype == torch.bfloat16
        assert wt.linear(a, b.mT, c).dtype == torch.bfloat16
        assert ops.matmul(a, b, c).dtype == torch.bfloat16
        assert wt.matmul(a, b, c, out_dtype=torch.float32).dtype == torch.float32
        assert wt.matmul(a, b, epilogue=wt.relu).dtype == torch.bfloat16
        assert ops.grouped_mm(a, b[None], torch.tensor([3])).dtype == torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert wt.matmul(a, b.float(), c).dtype == torch.float32
    expected = a.to(torch.bfloat16).float() @ b.float() + c.to(torch.bfloat16).float()
    assert torch.allclose(d.float(), expected, rtol=1e-2, atol=1e-2)
    if grad:
        d.sum().backward()
        assert a.grad.dtype == torch.float32


def test_autocast_leaves_other_types():
    double, half = drawn(3, 3), drawn(3, 3, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wt.matmul(double, double).dtype == torch.float64
        assert wt.matmul(half, half).dtype == ops.matmul(half, half).dtype == torch.float16
        out = torch.empty(3, 3)
        assert wt.matmul(double.float(), double.float(), out=out) is out
