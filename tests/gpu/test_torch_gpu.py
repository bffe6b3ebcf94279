"""warptile.torch on a GPU: bound calls that record gradients, CUDA graphs, Inductor, streams, autocast, routing."""

import importlib.util
import json
import sys
import warnings
from pathlib import Path

import pytest

import warptile as wt
from warptile import api

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)
import warptile.torch.bound_gradients  # noqa: E402
from warptile.runtime.torch_calls import TorchCalls  # noqa: E402

ops = torch.ops.warptile
EXAMPLES = Path(__file__).parents[2] / "examples"
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own compiler
        torch._dynamo.reset()
        yield
    warptile.torch.disable_override()
    torch.cuda.synchronize()


def drawn(*shape, dtype=torch.bfloat16, grad=True):
    return torch.randn(shape, dtype=dtype, device="cuda").requires_grad_(grad)


def assert_close(found, expected, dtype):
    scale = expected.abs().max().clamp(min=1e-30)
    error = (found.double() - expected.double()).abs().max() / scale
    assert error <= TOLERANCE[dtype], float(error)


def gradients_of(call, *arguments):
    """Of the sum of squares, so that gradients differ from element to element."""
    return torch.autograd.grad(call(*arguments).double().square().sum(), arguments)


# --- gradients -------------------------------------------------------------------------------------------------------

SHAPES = {
    "square": ((256, 256), (256, 256), (256,)),
    "odd": ((33, 65), (65, 31), (31,)),
    "skinny": ((1, 512), (512, 384), (384,)),
    "shared weights": ((3, 40, 64), (64, 24), (24,)),
    "batch": ((3, 40, 64), (3, 64, 24), (40, 24)),
    "vector": ((64,), (64, 24), (24,)),
    "vocabulary": ((128, 64), (64, 50257), (50257,)),
}


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", SHAPES)
def test_gradients(case, dtype):
    a, b, c = (drawn(*shape, dtype=dtype) for shape in SHAPES[case])
    exact = [each.detach().double().requires_grad_() for each in (a, b, c)]
    expected = exact[0] @ exact[1] + exact[2]
    g = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, exact, g)
    for call in (wt.matmul, ops.matmul):
        for _ in range(5):  # planned, bound, backward passes planned, bound, repeated
            d = call(a, b, c)
            assert_close(d, expected, dtype)
            for found, want in zip(torch.autograd.grad(d, (a, b, c), g.to(dtype)), wanted, strict=True):
                assert_close(found, want, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_linear(dtype):
    x, w, bias = drawn(4, 37, 96, dtype=dtype), drawn(200, 96, dtype=dtype), drawn(200, dtype=dtype)
    exact = [each.detach().double().requires_grad_() for each in (x, w, bias)]
    wanted = gradients_of(torch.nn.functional.linear, *exact)
    for call in (wt.linear, ops.linear, *[wt.linear] * 4):
        for found, want in zip(gradients_of(call, x, w, bias), wanted, strict=True):
            assert_close(found, want, dtype)


def test_repeated_training_calls_are_bound(monkeypatch):
    a, b = drawn(64, 128), drawn(128, 96)
    for _ in range(2):
        d = wt.matmul(a, b)
        d.backward(torch.ones_like(d))

    def fail(*arguments):
        raise AssertionError("a bound call went the long way")

    monkeypatch.setattr(api, "matmul_in_torch", fail)
    monkeypatch.setattr(api, "_matmul", fail)
    a.grad = b.grad = None
    d = wt.matmul(a, b)
    assert d.grad_fn is not None
    d.backward(torch.ones_like(d))
    assert_close(a.grad, torch.ones_like(d).double() @ b.double().T, torch.bfloat16)
    assert any(type(each) is TorchCalls for each in api._calls.values())


def test_repeated_linear_layers_are_bound(monkeypatch):
    x, w, bias = drawn(3, 40, 128), drawn(96, 128), drawn(96)
    g = torch.randn(3, 40, 96, dtype=torch.bfloat16, device="cuda")
    for _ in range(4):
        torch.autograd.grad(wt.linear(x, w, bias), (x, w, bias), g)

    def fail(*arguments, **options):
        raise AssertionError("a bound call went the long way")

    monkeypatch.setattr(api, "_matmul", fail)
    monkeypatch.setattr(warptile.torch.bound_gradients.BoundLinear, "long_way", fail)
    y = wt.linear(x, w, bias)
    found = torch.autograd.grad(y, (x, w, bias), g)
    exact = [each.detach().double().requires_grad_() for each in (x, w, bias)]
    expected = torch.nn.functional.linear(*exact)
    assert_close(y, expected, torch.bfloat16)
    for one, other in zip(found, torch.autograd.grad(expected, exact, g.double()), strict=True):
        assert one.shape == other.shape
        assert_close(one, other, torch.bfloat16)


@pytest.mark.parametrize("layer", [False, True])
def test_saved_operands_may_come_from_elsewhere(layer):
    a, b = drawn(40, 128), drawn(128, 96)
    call = (lambda a, b: wt.linear(a, b.T)) if layer else wt.matmul
    g = torch.randn(40, 96, dtype=torch.bfloat16, device="cuda")
    usual = None
    for _ in range(4):
        usual = torch.autograd.grad(call(a, b), (a, b), g)
    elsewhere = (
        torch.autograd.graph.save_on_cpu(),
        torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x.clone()),
        torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x.mT.contiguous().mT),
    )
    for hooks in elsewhere:
        with hooks:
            for one, other in zip(torch.autograd.grad(call(a, b), (a, b), g), usual, strict=True):
                assert_close(one, other, torch.bfloat16)
    recomputed = torch.utils.checkpoint.checkpoint(call, a, b, use_reentrant=False)
    for one, other in zip(torch.autograd.grad(recomputed, (a, b), g), usual, strict=True):
        assert torch.equal(one, other)


def test_gradients_of_gradients():
    a, b = drawn(32, 48, dtype=torch.float64), drawn(48, 24, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(wt.matmul, (a, b), fast_mode=True)


def test_checks_of_torch():
    for operator, arguments in (
        (ops.matmul, (drawn(40, 64), drawn(64, 24), drawn(24))),
        (ops.linear, (drawn(2, 40, 64), drawn(24, 64), drawn(24))),
        (ops.grouped_mm, (drawn(40, 64), drawn(2, 64, 24), torch.tensor([8, 40]))),
    ):
        found = torch.library.opcheck(operator.default, arguments)
        assert set(found.values()) == {"SUCCESS"}


# --- the GPU is not waited for ---------------------------------------------------------------------------------------


@pytest.fixture
def watched():
    """Any wait of torch's for the GPU is an error."""

    def switch(on):
        torch.cuda.set_sync_debug_mode("error" if on else "default")

    yield switch
    switch(False)


def float8(*shape):
    return torch.randn(shape, device="cuda").to(torch.float8_e4m3fn)


def test_nothing_waits_for_the_gpu(watched):
    x, w, bias = drawn(64, 128), drawn(96, 128), drawn(96)
    a, b = float8(64, 128), float8(96, 128).T
    scale = torch.tensor(0.5, device="cuda")
    rows, columns = torch.rand(64, 1, device="cuda"), torch.rand(1, 96, device="cuda")

    def step():
        (wt.linear(x, w, bias).sum() + wt.matmul(x, w.T, bias).sum()).backward()
        ops.scaled_mm(a, b, scale, scale)
        ops.scaled_mm(a, b, rows, columns, bias.detach().float(), out_dtype=torch.float32)
        ops.grouped_mm(x.detach(), w.detach().T[None], torch.tensor([64]))

    step()
    watched(True)
    step()


def test_offsets_on_the_gpu_are_waited_for_in_float32_alone(watched):
    x, experts = drawn(64, 128), drawn(2, 128, 96)
    offs = torch.tensor([40, 64], device="cuda", dtype=torch.int32)

    def step():
        d = ops.grouped_mm(x, experts, offs)
        d.backward(d.detach())
        return d

    d = step()
    assert_close(d[:40], x[:40].double() @ experts[0].double(), torch.bfloat16)
    assert_close(x.grad[40:], d[40:].double() @ experts[1].double().T, torch.bfloat16)
    assert_close(experts.grad[1], x[40:].double().T @ d[40:].double(), torch.bfloat16)
    watched(True)
    step()
    with pytest.raises(RuntimeError, match="synchroniz"):
        ops.grouped_mm(x.detach().float(), experts.detach().float(), offs)


def test_scales_on_the_gpu_and_on_the_host_agree():
    a, b = float8(64, 128), float8(96, 128).T
    on_host = ops.scaled_mm(a, b, torch.tensor(0.5), torch.tensor(3.0), out_dtype=torch.float32)
    on_gpu = ops.scaled_mm(
        a, b, torch.tensor(0.5, device="cuda"), torch.tensor(3.0, device="cuda"), out_dtype=torch.float32
    )
    assert torch.allclose(on_host, on_gpu, rtol=1e-5, atol=1e-4)
    assert_close(on_gpu, 1.5 * (a.double() @ b.double()), torch.float16)  # tensor cores keep 14 bits of such sums


# --- streams and graphs ----------------------------------------------------------------------------------------------


def test_the_current_stream_is_used_forward_and_backward():
    a, b = drawn(512, 512), drawn(512, 512)
    wt.matmul(a, b).sum().backward()
    expected = b.grad.clone()
    beside = torch.cuda.Stream()
    for _ in range(3):
        a.grad = b.grad = None
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            torch.cuda._sleep(20_000_000)
            late = (a * 1).detach().requires_grad_()
            wt.matmul(late, b).sum().backward()
        torch.cuda.current_stream().wait_stream(beside)
        assert torch.equal(b.grad, expected)


def test_a_training_step_is_captured():
    model = torch.nn.Sequential(
        warptile.torch.Linear(96, 200), torch.nn.GELU(), warptile.torch.Linear(200, 33)
    ).to("cuda", torch.bfloat16)  # fmt: skip
    x = drawn(64, 96, grad=False)

    def step():
        for parameter in model.parameters():
            parameter.grad = None
        model(x).square().mean().backward()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    for parameter in model.parameters():
        parameter.grad = None
    with torch.cuda.graph(graph):
        step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    captured = [parameter.grad.clone() for parameter in model.parameters()]
    step()
    for found, parameter in zip(captured, model.parameters(), strict=True):
        assert torch.equal(found, parameter.grad)


def test_a_graph_reads_the_offsets_of_each_replay():
    x, experts = drawn(64, 128, grad=False), drawn(2, 128, 96, grad=False)
    offs = torch.tensor([40, 64], device="cuda", dtype=torch.int32)
    ops.grouped_mm(x, experts, offs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = ops.grouped_mm(x, experts, offs)
    for ends in ([40, 64], [0, 64], [64, 64], [17, 64]):
        offs.copy_(torch.tensor(ends))
        graph.replay()
        assert torch.equal(d, ops.grouped_mm(x, experts, torch.tensor(ends)))


# --- compiled programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_compiles_training(mode):
    model = warptile.torch.GatedMLP(64, 96).to("cuda", torch.bfloat16)
    x = drawn(32, 64)
    expected = model(x)
    wanted = torch.autograd.grad(expected.square().sum(), [x, *model.parameters()])
    call = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(4):  # warmed up, recorded and replayed, where CUDA graphs are used
        torch.compiler.cudagraph_mark_step_begin()
        found = call(x)
        assert_close(found, expected, torch.bfloat16)
        for one, other in zip(torch.autograd.grad(found.square().sum(), [x, *model.parameters()]), wanted, strict=True):
            assert_close(one, other, torch.bfloat16)


def test_functions_are_compiled_with_changing_shapes():
    w, bias = drawn(96, 64), drawn(96)
    call = torch.compile(lambda x: torch.relu(wt.linear(x, w, bias)) + wt.matmul(x, w.T), fullgraph=True, dynamic=True)
    for rows in (8, 33, 128):
        x = drawn(rows, 64)
        expected = torch.relu(x.double() @ w.double().T + bias.double()) + x.double() @ w.double().T
        assert_close(call(x), expected, torch.bfloat16)


def test_inductor_may_choose_warptile(monkeypatch):
    from torch._inductor import config, select_algorithm

    seen = []
    monkeypatch.setattr(
        select_algorithm.AlgorithmSelectorCache, "log_results",
        staticmethod(lambda name, nodes, timings, *others, **more: seen.extend(each.name for each in timings)),
    )  # fmt: skip
    with config.patch(external_matmul=[], max_autotune_gemm_backends="ATEN", force_disable_caches=True):
        warptile.torch.register_inductor()
        a, b = drawn(1000, 1001, grad=False), drawn(1001, 999, grad=False)
        d = torch.compile(lambda a, b: (a @ b).relu(), mode="max-autotune-no-cudagraphs")(a, b)
    assert_close(d, (a.double() @ b.double()).relu(), torch.bfloat16)
    assert "warptile_mm" in seen


# --- autocast --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts_bound_calls_too(dtype):
    a, b = drawn(64, 96, dtype=torch.float32), drawn(96, 32, dtype=torch.float32)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                assert wt.matmul(a, b).dtype == torch.float32
                with torch.autocast("cuda", dtype=dtype):
                    d = wt.matmul(a, b)
                    assert d.dtype == wt.linear(a, b.T).dtype == dtype
                assert_close(d, a.double() @ b.double(), torch.bfloat16)
        if grad:
            d.sum().backward()
            assert a.grad.dtype == b.grad.dtype == torch.float32


def test_a_gradient_scaler():
    model = warptile.torch.MLP(64, 96).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    x = drawn(32, 64, dtype=torch.float32, grad=False)
    losses = []
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]


# --- routing ---------------------------------------------------------------------------------------------------------


def test_torchs_products_are_routed():
    x, layer = drawn(64, 96), torch.nn.Linear(96, 40).to("cuda", torch.bfloat16)
    arguments = [x, *layer.parameters()]
    expected = torch.autograd.grad(layer(x).double().square().sum(), arguments)
    with warptile.torch.override() as counts:
        found = torch.autograd.grad(layer(x).double().square().sum(), arguments)
        torch.bmm(drawn(2, 32, 48), drawn(2, 48, 16))
        torch.baddbmm(drawn(2, 32, 16), drawn(2, 32, 48), drawn(2, 48, 16))
        integers = torch.ones(64, 64, dtype=torch.int8, device="cuda")
        assert (torch._int_mm(integers, integers) == 64).all()
        torch.mm(drawn(8, 8, dtype=torch.complex64), drawn(8, 8, dtype=torch.complex64))
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, torch.bfloat16)
    assert counts.served["aten::addmm"] == 1
    assert counts.served["aten::mm"] == 2
    assert counts.served["aten::bmm"] == counts.served["aten::baddbmm"] == counts.served["aten::_int_mm"] == 1
    assert counts.refused["aten::mm"].total() == 1
    assert set(counts.refused) == {"aten::mm"}


def test_float8_and_groups_are_routed():
    a, b = float8(64, 128), float8(96, 128).T
    scale = torch.tensor(0.5, device="cuda")
    x, experts = drawn(64, 128, grad=False), drawn(2, 128, 96, grad=False)
    offs = torch.tensor([40, 64], device="cuda", dtype=torch.int32)
    expected = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16), torch._grouped_mm(x, experts, offs)
    with warptile.torch.override() as counts:
        found = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16), torch._grouped_mm(x, experts, offs)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, torch.bfloat16)
    assert counts.served == {"aten::_scaled_mm": 1, "aten::_grouped_mm": 1}


def test_compiled_programs_and_graphs_are_routed():
    x, layer = drawn(64, 96, grad=False), torch.nn.Linear(96, 40).to("cuda", torch.bfloat16)
    expected = layer(x)
    with torch.no_grad(), warptile.torch.override() as counts:
        call = torch.compile(layer)
        for _ in range(2):
            assert_close(call(x), expected, torch.bfloat16)
        assert counts.served.total() >= 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            d = layer(x)
    graph.replay()
    assert_close(d, expected, torch.bfloat16)
    assert counts.refused == {}


def test_tf32_is_used_where_torch_may(monkeypatch):
    a, b = drawn(256, 256, dtype=torch.float32, grad=False), drawn(256, 256, dtype=torch.float32, grad=False)
    exact = a.double() @ b.double()
    errors = {}
    for allowed in (False, True):
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", allowed)
        with warptile.torch.override(["mm"]):
            errors[allowed] = float((torch.mm(a, b) - exact).abs().max())
    assert errors[True] > 10 * errors[False]


# --- examples --------------------------------------------------------------------------------------------------------


def run(capsys, monkeypatch, name, *arguments):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    module.main(list(arguments))
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_gpt2_learns_the_same_by_torch_and_by_warptile(capsys, monkeypatch):
    backends = run(capsys, monkeypatch, "train_gpt2", "--compare", "--steps", "20")["backends"]
    expected, found = backends["torch"], backends["warptile"]
    assert found["losses"] == pytest.approx(expected["losses"], rel=5e-3)
    assert found["losses"][-1] < found["losses"][0]


def test_llama_decodes_the_same_by_torch_and_by_warptile(capsys, monkeypatch):
    found = run(capsys, monkeypatch, "decode_llama", "--rounds", "3", "--batch", "1", "--batch", "8")
    for each in found["batches"]:
        assert each["relative_difference"] < 0.05
        assert all(time > 0 for times in each["rounds_ms"].values() for time in times)


# --- stages that TMA fills again --------------------------------------------------------------------------------------


@pytest.mark.parametrize("extents", [(4096, 4096, 64), (6304, 3072, 768)], ids=str)
def test_stages_are_read_before_they_are_filled_again(extents):
    """Without its proxy fence, mma-specialized had wrong elements in up to 106 of 150 launches of these."""
    from warptile.rungs.mma_specialized import MMA_SPECIALIZED

    m, n, k = extents
    a, b = drawn(m, k, dtype=torch.float64, grad=False), drawn(n, k, dtype=torch.float64, grad=False).T
    expected, bound = a @ b, (a.abs() @ b.abs()) * 2.0**-53 * (k + 2)
    d = torch.empty_like(expected)
    for config in MMA_SPECIALIZED.candidates(wt.plan(a, b, out=d).plan.problem):
        for _ in range(40):
            d.fill_(float("nan"))
            wt.matmul(a, b, out=d, rung="mma-specialized", config=config)
            assert bool(((d - expected).abs() <= bound).all()), config
