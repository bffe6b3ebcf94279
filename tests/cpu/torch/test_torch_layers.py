"""Modules, the conversion of models, and torch's own products routed through warptile."""

import copy
import threading

import pytest

import quick_products
import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402
from warptile.torch import overriding  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    yield quick_products.install(monkeypatch)
    warptile.torch.disable_override()


# --- modules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_a_drop_in(quick, bias):
    torch.manual_seed(3)
    theirs = nn.Linear(6, 4, bias=bias, dtype=torch.float64)
    torch.manual_seed(3)
    ours = warptile.torch.Linear(6, 4, bias=bias, dtype=torch.float64)
    assert isinstance(ours, nn.Linear)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    assert torch.allclose(ours(x), theirs(x))
    assert quick == [(6, 4, 6)]
    ours(x).sum().backward()
    theirs(x).sum().backward()
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_feed_forward_blocks(activation):
    function = {
        "gelu": nn.functional.gelu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
        "relu": torch.relu, "silu": nn.functional.silu,
    }[activation]  # fmt: skip
    x = torch.randn(2, 6, dtype=torch.float64)
    mlp = warptile.torch.MLP(6, activation=activation, dtype=torch.float64)
    assert mlp.up.weight.shape == (24, 6)
    assert torch.allclose(mlp(x), function(x @ mlp.up.weight.T + mlp.up.bias) @ mlp.down.weight.T + mlp.down.bias)
    gated = warptile.torch.GatedMLP(6, 9, activation=activation, dtype=torch.float64)
    expected = (function(x @ gated.gate.weight.T) * (x @ gated.up.weight.T)) @ gated.down.weight.T
    assert torch.allclose(gated(x), expected)
    assert activation in repr(mlp)
    assert activation in repr(gated)


def test_an_activation_that_there_is_not():
    for kind in (warptile.torch.MLP, warptile.torch.GatedMLP):
        with pytest.raises(wt.ArgumentError, match="'gelu'"):
            kind(6, 9, activation="tanhh")


# --- convert ---------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(2))
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def test_a_model_is_converted_in_place(quick):
    model = Tied().double()
    other = copy.deepcopy(model)
    before = dict(model.named_parameters())
    hooked = []
    model.head.register_forward_hook(lambda *_: hooked.append(1))
    done = warptile.torch.convert(model)
    assert done.converted == ("blocks.0.0", "blocks.0.2", "blocks.1.0", "blocks.1.2", "head")
    assert done.left == {}
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert model.head.weight is model.embed.weight
    tokens = torch.arange(7)
    assert torch.allclose(model(tokens), other(tokens))
    assert len(quick) == 5
    assert hooked == [1]
    assert warptile.torch.convert(model) == warptile.torch.Conversion((), {}), (
        "what is converted is not mentioned again"
    )


def test_what_is_left_and_why():
    class Special(nn.Linear):
        pass

    replaced = nn.Linear(3, 3)
    replaced.forward = lambda x: x
    model = nn.ModuleDict({
        "special": Special(3, 3),
        "complex": nn.Linear(3, 3, dtype=torch.complex64),
        "kept": nn.Linear(3, 3),
        "replaced": replaced,
        "taken": nn.Linear(3, 3),
    })  # fmt: skip
    done = warptile.torch.convert(model, filter=lambda name, module: name != "kept")
    assert done.converted == ("taken",)
    assert set(done.left) == {"special", "complex", "kept", "replaced"}
    assert "subclass" in done.left["special"]
    assert "complex64" in done.left["complex"]
    assert done.left["kept"] == "the filter says no"
    assert "left special: it is a Special" in str(done)
    alone = nn.Linear(3, 3)
    assert warptile.torch.convert(alone).converted == ("",)
    assert type(alone) is warptile.torch.Linear
    with pytest.raises(wt.ArgumentTypeError, match="it takes a torch"):
        warptile.torch.convert(torch.zeros(3))


# --- override --------------------------------------------------------------------------------------------------------


def override(*arguments):
    return warptile.torch.override(*arguments, device_types=["cpu"])


def test_products_and_their_gradients_are_routed(quick):
    model = Tied()
    tokens = torch.arange(7)
    expected = torch.autograd.grad(model(tokens).square().sum(), list(model.parameters()))
    assert quick == []
    with override() as counts:
        found = torch.autograd.grad(model(tokens).square().sum(), list(model.parameters()))
    assert all(torch.allclose(*pair, atol=1e-4) for pair in zip(found, expected, strict=True))
    assert counts.served == {"aten::addmm": 4, "aten::mm": 11}
    assert counts.refused == {}
    assert len(quick) == 15
    model(tokens)
    assert len(quick) == 15, "torch has its own kernels again"


def test_every_form_of_torchs_products_is_routed(quick):
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    batch_a, batch_b, batch_c = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(2, 3, 5)
    eight = torch.ones(16, 16, dtype=torch.int8)
    float8, scale = eight.to(torch.float8_e4m3fn), torch.tensor(0.5)
    narrow = torch.bfloat16
    groups, ends = torch.ones(2, 16, 16, dtype=narrow), torch.tensor([3, 16], dtype=torch.int32)

    def calls():
        yield torch.mm(a, b)
        yield torch.mm(a, b, out=torch.empty(3, 5))
        yield torch.addmm(c[0], a, b, alpha=2, beta=3)
        yield torch.addmm(c, a, b, beta=0)
        yield torch.addmm(c, a, b, out=torch.empty(3, 5))
        yield c.clone().addmm_(a, b, alpha=2, beta=0.5)
        yield torch.bmm(batch_a, batch_b)
        yield torch.bmm(batch_a, batch_b, out=torch.empty(2, 3, 5))
        yield torch.baddbmm(batch_c, batch_a, batch_b, alpha=0.5)
        yield torch.baddbmm(batch_c, batch_a, batch_b, out=torch.empty(2, 3, 5))
        yield batch_c.clone().baddbmm_(batch_a, batch_b)
        yield torch._int_mm(eight, eight)
        yield torch._int_mm(eight, eight, out=torch.empty(16, 16, dtype=torch.int32))
        yield torch._scaled_mm(float8, float8.T, scale, scale, out_dtype=narrow)
        yield torch._scaled_mm(float8, float8.T, scale, scale, out_dtype=narrow, bias=torch.ones(16, dtype=narrow))
        yield torch._scaled_mm(float8, float8.T, scale, scale, out_dtype=narrow, out=torch.empty(16, 16, dtype=narrow))
        yield torch._grouped_mm(eight.to(narrow), groups, ends)

    expected = list(calls())
    with override() as counts:
        found = list(calls())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-2 if one.dtype == narrow else 1e-5)
    assert counts.served.total() == len(expected)
    assert counts.served.keys() == {f"aten::{name}" for forms in overriding.ROUTES.values() for name in forms}
    assert counts.refused == {}
    assert len(quick) == len(expected), "groups are one launch"


def test_float8_and_groups_are_routed(quick):
    eight = torch.ones(16, 16).to(torch.float8_e4m3fn)
    half = torch.ones(8, 16, dtype=torch.bfloat16)
    with override(["_scaled_mm", "_grouped_mm"]) as counts:
        scale = torch.tensor(2.0)
        d = torch._scaled_mm(eight, eight.T, scale, scale, out_dtype=torch.bfloat16)
        assert (d == 64).all()
        rows, columns = torch.rand(16, 1), torch.rand(1, 16)
        d = torch._scaled_mm(eight, eight.T, rows, columns, out_dtype=torch.bfloat16)
        assert torch.allclose(d.float(), 16 * rows * columns, rtol=1e-2)
        offs = torch.tensor([3, 8], dtype=torch.int32)
        assert (torch._grouped_mm(half, torch.ones(2, 16, 16, dtype=torch.bfloat16), offs) == 16).all()
    assert counts.served == {"aten::_scaled_mm": 2, "aten::_grouped_mm": 1}
    assert len(quick) == 3


def test_factors_of_results_are_left_to_torch(quick):
    eight, one = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.tensor(1.0)
    said = {"scale_result": torch.tensor(0.5), "out_dtype": torch.float8_e4m3fn}
    expected = torch._scaled_mm(eight, eight.T, one, one, **said)
    with override(["_scaled_mm"]) as counts:
        found = torch._scaled_mm(eight, eight.T, one, one, **said)
    assert torch.equal(found.float(), expected.float())
    assert counts.refused.keys() == {"aten::_scaled_mm"}
    assert not quick


def test_what_warptile_refuses_is_computed_by_torch_and_counted(quick):
    a = torch.randn(3, 3, dtype=torch.complex64)
    with override(["mm", "addmm"]) as counts:
        assert torch.allclose(torch.mm(a, a), a @ a)
        integers = torch.ones(3, 3, dtype=torch.int64)
        assert (torch.mm(integers, integers) == 3).all()
        resized = torch.mm(torch.ones(3, 4), torch.ones(4, 5), out=torch.empty(0))
        assert resized.shape == (3, 5)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(torch.ones(3, 4), torch.ones(3, 4))
    assert counts.served.total() == 0
    assert quick == []
    assert set(counts.refused) >= {"aten::mm", "aten::mm.out"}
    assert "complex64" in str(counts)
    assert "left to torch" in str(counts)


def test_reasons_are_kept_within_bounds():
    counts = overriding.Counts()
    for number in range(1000):
        counts.refuse("aten::mm", wt.ShapeError(f"shape {number}; more"))
    assert len(counts.refused["aten::mm"]) == overriding.MOST_REASONS + 1
    assert counts.refused["aten::mm"].total() == 1000
    assert str(overriding.Counts()) == "no calls"


def test_errors_that_are_no_refusals_are_raised(monkeypatch):
    def fail(*arguments, **options):
        raise wt.DeviceError("the GPU is gone")

    monkeypatch.setattr(overriding, "matmul", fail)
    with override(["mm"]), pytest.raises(wt.DeviceError, match="gone"):
        torch.mm(torch.ones(3, 4), torch.ones(4, 5))
    assert torch.mm(torch.ones(3, 4), torch.ones(4, 5)).shape == (3, 5)


def test_other_threads_are_routed_too(quick):
    with override(["mm"]) as counts:
        thread = threading.Thread(target=lambda: torch.mm(torch.ones(3, 4), torch.ones(4, 5)))
        thread.start()
        thread.join()
    assert counts.served == {"aten::mm": 1}


def test_autocast_stays_above(quick):
    with override(["mm"]) as counts, torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(torch.ones(3, 4), torch.ones(4, 5)).dtype == torch.bfloat16
    assert counts.served == {"aten::mm": 1}


def test_enabling_and_what_is_refused():
    counts = warptile.torch.enable_override("bmm", device_types="cpu")
    with pytest.raises(wt.ArgumentError, match="on already"):
        warptile.torch.enable_override()
    torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
    warptile.torch.disable_override()
    warptile.torch.disable_override()
    torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
    assert counts.served == {"aten::bmm": 1}
    with pytest.raises(wt.ArgumentError, match="'mm'"):
        warptile.torch.enable_override(["matmul"])
    with pytest.raises(wt.ArgumentError, match="'cuda'"):
        warptile.torch.enable_override(device_types=["xpu"])
