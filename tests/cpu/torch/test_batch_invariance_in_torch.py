"""``batch_invariant=True`` through torch's operators, gradients and graphs."""

import pytest

torch = pytest.importorskip("torch")

import warptile as wt  # noqa: E402
import warptile.torch  # noqa: E402
from warptile.errors import ArgumentTypeError  # noqa: E402

ROWS, N, K = 40, 64, 4096


@pytest.fixture(scope="module")
def operands():
    generator = torch.Generator().manual_seed(5)
    a, w = (torch.randn(rows, K, generator=generator).to(torch.bfloat16) for rows in (300, N))
    return a, w


@pytest.fixture(scope="module")
def whole(operands):
    a, w = operands
    return wt.matmul(a, w.T, out_dtype=torch.float32, batch_invariant=True, backend="emulator")[:ROWS]


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")


def bits(tensor):
    return tensor.detach().view(torch.int32)


def relu_of(a, w, **options):
    return wt.matmul(a, w.T, out_dtype=torch.float32, epilogue=lambda acc: wt.relu(acc), **options)


def test_operators_say_it_to_the_kernel(operands, whole):
    a, w = operands[0][:ROWS], operands[1]
    usual = torch.ops.warptile.matmul(a, w.T, out_dtype=torch.float32)
    assert not torch.equal(bits(usual), bits(whole)), "K is split otherwise"
    options = {"out_dtype": torch.float32, "batch_invariant": True}
    assert torch.equal(bits(torch.ops.warptile.matmul(a, w.T, **options)), bits(whole))
    assert torch.equal(bits(torch.ops.warptile.linear(a, w, **options)), bits(whole))
    out = torch.empty(ROWS, N)
    torch.ops.warptile.matmul_out(a, w.T, batch_invariant=True, out=out)
    assert torch.equal(bits(out), bits(whole))
    assert torch.equal(bits(relu_of(a, w, batch_invariant=True)), bits(whole.relu()))


def test_recorded_calls_and_their_gradients(operands, whole):
    a, w = operands[0][:ROWS].clone().requires_grad_(), operands[1]
    for call in (
        lambda: wt.matmul(a, w.T, out_dtype=torch.float32, batch_invariant=True),
        lambda: wt.linear(a, w, out_dtype=torch.float32, batch_invariant=True),
    ):
        d = call()
        assert torch.equal(bits(d), bits(whole))
        (gradient,) = torch.autograd.grad(d.sum(), a)
        assert torch.allclose(gradient.float(), w.float().sum(0).expand_as(gradient), atol=0.1)
    (gradient,) = torch.autograd.grad(relu_of(a, w, batch_invariant=True).sum(), a)
    expected = (whole > 0).float() @ w.float()
    assert (gradient.float() - expected).abs().max() < 0.2


def test_graphs_keep_the_option(operands, whole):
    a, w = operands[0][:ROWS], operands[1]

    def product(a, w):
        return wt.matmul(a, w.T, out_dtype=torch.float32, batch_invariant=True) + 0

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    assert torch.equal(bits(compiled(a, w)), bits(whole))
    fused = torch.compile(lambda a, w: relu_of(a, w, batch_invariant=True), backend="aot_eager", fullgraph=True)
    assert torch.equal(bits(fused(a, w)), bits(whole.relu()))


def test_what_is_no_flag_is_refused(operands):
    with pytest.raises(ArgumentTypeError, match="batch_invariant: got 'on'"):
        wt.linear(operands[0], operands[1], batch_invariant="on")
