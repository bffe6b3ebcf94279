"""torch.compile: calls are traced without graph breaks, whatever the shapes, gradients and first use."""

import io
import operator
import subprocess
import sys
import warnings

import numpy as np
import pytest

import quick_products
import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402
from warptile.torch import inductor_choices  # noqa: E402


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    made = quick_products.install(monkeypatch)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own compiler
        yield made


def drawn(*shape, grad=True, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=grad)


def compiled(function, backend="aot_eager", **options):
    return torch.compile(function, fullgraph=True, backend=backend, **options)


CALLS = {
    "matmul": lambda a, b, c: wt.matmul(a, b, c, alpha=2.0, beta=0.5).relu(),
    "linear": lambda a, b, c: wt.linear(a, b.mT, c).sin(),
    "operator": lambda a, b, c: torch.ops.warptile.matmul(a, b, c).exp(),
    "type": lambda a, b, c: wt.matmul(a.half(), b.half(), out_dtype="float32") + c,
    "scales": lambda a, b, c: wt.matmul(a, b, precision="ieee", alpha=3) * c,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("call", CALLS)
def test_calls_are_traced_with_their_gradients(call, backend):
    arguments = drawn(3, 4), drawn(4, 5), drawn(5)
    d = CALLS[call](*arguments)
    found = compiled(CALLS[call], backend)(*arguments)
    assert torch.allclose(found, d)
    wanted = torch.autograd.grad(d.sum(), arguments, allow_unused=True)
    for one, other in zip(torch.autograd.grad(found.sum(), arguments, allow_unused=True), wanted, strict=True):
        assert torch.allclose(one, other)


def test_shapes_may_change():
    b = drawn(4, 5)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = torch.compile(lambda a: wt.matmul(a, b).relu(), fullgraph=True, dynamic=True, backend=counter)
    for rows in (3, 7, 9, 2):
        a = drawn(rows, 4)
        assert torch.allclose(call(a), (a @ b).relu())
    assert counter.frame_count == 1


def test_out_is_written_in_a_graph():
    a, b, out = drawn(3, 4, grad=False), drawn(4, 5, grad=False), torch.empty(3, 5, dtype=torch.float64)

    def call(a, b, out):
        return wt.matmul(a, b, out=out) * 2

    assert torch.allclose(compiled(call)(a, b, out), 2 * (a @ b))
    assert torch.allclose(out, a @ b)


def test_inductor_compiles_a_block():
    block = warptile.torch.GatedMLP(6, 8)
    x = drawn(2, 3, 6, dtype=torch.float32)
    found = torch.compile(block, fullgraph=True)(x)
    expected = block(x)
    assert torch.allclose(found, expected, atol=1e-6)
    found.square().sum().backward()
    gradient, x.grad = x.grad, None
    expected.square().sum().backward()
    assert torch.allclose(gradient, x.grad, atol=1e-6)


def test_a_model_is_exported():
    block = warptile.torch.MLP(6, 8)
    program = torch.export.export(block, (drawn(2, 6, dtype=torch.float32),))
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert called.count(torch.ops.warptile.linear.default) == 1
    assert called.count(torch.ops.warptile.fused_matmul.default) == 1


def test_an_exported_program_with_numbers_and_seeds_is_saved():
    class Call(torch.nn.Module):
        def forward(self, a, b):
            found = wt.matmul(a, b, epilogue=lambda acc, s, t: acc * s + t, s=0.5, t=2)
            return wt.matmul(a, b, epilogue=lambda acc, seed: wt.dropout(acc, 0.5, seed), seed=2**63 + 5) + found

    arguments = drawn(3, 4, grad=False), drawn(4, 5, grad=False)
    file = io.BytesIO()
    torch.export.save(torch.export.export(Call(), arguments), file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(*arguments), Call()(*arguments))


def test_unknown_keywords_are_refused_while_tracing():
    with pytest.raises(Exception, match="alpa"):
        compiled(lambda a, b: wt.matmul(a, b, alpa=2))(drawn(3, 4), drawn(4, 5))


def test_a_held_plan_is_traced():
    a, b = drawn(3, 4, grad=False), drawn(4, 5, grad=False)
    held = wt.plan(a, b, alpha=2)
    assert torch.allclose(compiled(lambda a, b: held(a, b).relu())(a, b), (2 * a @ b).relu())


def test_autocast_is_traced():
    a, b = drawn(3, 4, dtype=torch.float32), drawn(4, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        d = compiled(lambda a, b: wt.matmul(a, b))(a, b)
    assert d.dtype == torch.bfloat16


def test_numpy_arrays_are_tensors_to_dynamo():
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    found = compiled(lambda a, b: wt.matmul(a, b) * 2 + wt.linear(a, b.T))(a, b)
    assert isinstance(found, np.ndarray)
    assert (found == 12).all()


SHARE = 1.5


def gated(acc, x):
    gate, up = wt.halves(acc + x)
    return wt.silu(gate) * up, up.sum(axis=-1)


EPILOGUES = {
    "operands": lambda a, b, c, x, s: wt.matmul(
        a, b, c, beta=0.5, epilogue=lambda acc, x, s: wt.gelu(acc) * s * SHARE + x, x=x, s=s
    ).sin(),
    "outputs": lambda a, b, c, x, s: wt.linear(a, b.mT, c, epilogue=lambda acc, r: (wt.silu(acc) * r, acc), r=x)[0] * s,
    "closure": lambda a, b, c, x, s: wt.matmul(a, b, epilogue=lambda acc: abs(acc) ** 3 * s),
    "named function": lambda a, b, c, x, s: wt.linear(a, b.mT, epilogue=wt.relu) + c,
    "dropout": lambda a, b, c, x, s: wt.matmul(
        a, b, epilogue=lambda acc, seed: wt.dropout(acc, 0.5, seed), seed=2**64 - int(8 * s)
    ),
    "reductions": lambda a, b, c, x, s: (
        wt.linear(
            a[None], b.mT, c, epilogue=lambda acc: (acc, (acc * s).sum(axis=-1), abs(acc).max(axis=-1, keepdims=True))
        )[1]
        * x.sum()
    ),
    "halves": lambda a, b, c, x, s: wt.matmul(a, b.repeat(1, 2), epilogue=gated, x=c.repeat(2) * s)[1] + x.sum(),
    "pairs": lambda a, b, c, x, s: wt.linear(
        a, b.mT.repeat(2, 1), epilogue=lambda acc, r: wt.pairs(acc)[0] * wt.pairs(acc * s)[1] + r, r=x
    ),
    "rows": lambda a, b, c, x, s: wt.linear(a[None], b.mT, c, epilogue=lambda acc, r: acc * r, r=x[None]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_are_traced_with_their_gradients(name):
    call = compiled(EPILOGUES[name])
    for rows, scale in ((3, 0.5), (4, 0.25), (5, 0.125)):  # the second and third calls have symbols for them
        arguments = drawn(rows, 4), drawn(4, 5), drawn(5), drawn(rows, 5)
        d, found = EPILOGUES[name](*arguments, scale), call(*arguments, scale)
        assert torch.allclose(found, d)
        wanted = torch.autograd.grad(d.sum(), arguments, allow_unused=True, materialize_grads=True)
        got = torch.autograd.grad(found.sum(), arguments, allow_unused=True, materialize_grads=True)
        assert all(map(torch.allclose, got, wanted))


def test_a_number_that_an_epilogue_reads_is_guarded(monkeypatch):
    call = compiled(lambda a, b: wt.matmul(a, b, epilogue=lambda acc: acc * SHARE))
    a, b = drawn(3, 4, grad=False), drawn(4, 5, grad=False)
    assert torch.allclose(call(a, b), 1.5 * (a @ b))
    monkeypatch.setitem(globals(), "SHARE", 2.5)
    assert torch.allclose(call(a, b), 2.5 * (a @ b))


def test_an_epilogue_is_one_operator_of_the_graph():
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    a, b, x = drawn(3, 4, grad=False), drawn(4, 5, grad=False), drawn(5, grad=False)
    call = compiled(lambda a, b, x: wt.matmul(a, b, epilogue=lambda acc, x: wt.gelu(acc + x), x=x), backend=keep)
    call(a, b, x)
    called = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.warptile.fused_matmul.default, operator.getitem]


def test_out_of_an_epilogue_is_written_in_a_graph():
    a, b, out = drawn(3, 4, grad=False), drawn(4, 5, grad=False), torch.empty(3, 5, dtype=torch.float64)
    call = compiled(lambda a, b, out: wt.matmul(a, b, epilogue=wt.relu, out=out) * 2)
    assert torch.allclose(call(a, b, out), 2 * (a @ b).relu())
    assert torch.allclose(out, (a @ b).relu())


def test_a_held_plan_with_an_epilogue_is_traced():
    a, b, x = drawn(3, 4, grad=False), drawn(4, 5, grad=False), drawn(5, grad=False)
    held = wt.plan(a, b, epilogue=lambda acc, x, s: acc * x + s, x=x, s=1.0)
    assert torch.allclose(compiled(lambda a, b: held(a, b, x=x, s=3.0))(a, b), a @ b * x + 3)


def test_a_held_plan_of_a_gate_is_traced():
    a, b, x, c = (drawn(*shape, grad=False) for shape in ((3, 4), (4, 6), (6,), (3, 6)))

    def gate(acc, x):
        first, second = wt.halves(acc + x)
        return first * second

    plain, added = wt.plan(a, b, epilogue=gate, x=x), wt.plan(a, b, c, epilogue=gate, x=x)
    sums = a @ b + x
    assert torch.allclose(compiled(lambda a, b: plain(a, b, x=x))(a, b), sums[:, :3] * sums[:, 3:])
    sums = sums + c
    assert torch.allclose(compiled(lambda a, b: added(a, b, c, x=x))(a, b), sums[:, :3] * sums[:, 3:])


def test_a_held_plan_with_scales_is_traced():
    a, b = (torch.randint(-3, 4, shape, dtype=torch.int8) for shape in ((3, 4), (4, 5)))
    rows, x = torch.full((3, 1), 0.5), torch.randn(5)
    held = wt.plan(a, b, scale_a=rows, epilogue=lambda acc, x: acc + x, x=x)
    found = compiled(lambda a, b: held(a, b, scale_a=rows, x=x))(a, b)
    assert torch.allclose(found, a.float() @ b.float() / 2 + x)


@pytest.mark.parametrize(
    ("epilogue", "message"),
    [
        (lambda acc: acc if acc > 0 else 0, "a symbolic value has no truth value"),
        (lambda acc: acc > 0, "returns a truth value"),
        (lambda acc, x: acc, "does not use its operand 'x'"),
    ],
)
def test_what_cannot_be_fused_is_refused_while_tracing(epilogue, message):
    a, b = drawn(3, 4), drawn(4, 5)
    with pytest.raises(Exception, match=message):
        compiled(lambda a, b: wt.matmul(a, b, epilogue=epilogue, **({"x": b[0]} if "x" in message else {})))(a, b)


def test_what_override_serves_of_a_compiled_program_is_counted_call_by_call(quick):
    model, x = torch.nn.Linear(8, 5), torch.randn(3, 8)
    call = compiled(lambda x: model(x).relu() @ model.weight)
    with warptile.torch.override(device_types="cpu") as counts:
        for _ in range(2):
            call(x).sum().backward()
    assert counts.served.total() == 2 * 5, "two products forwards, three gradients"
    assert counts.refused == {}


FIRST_USE = """
import warnings
warnings.simplefilter("ignore")
import torch
import warptile as wt

call = torch.compile(lambda x, w: wt.linear(x, w).relu() + wt.matmul(x, w.T), fullgraph=True, backend="aot_eager")
x, w = torch.empty(3, 4, device="meta"), torch.empty(5, 4, device="meta")
print(tuple(call(x, w).shape))
"""


def test_the_first_use_of_all_may_be_while_tracing():
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "(3, 5)"


def test_inductor_times_warptile_beside_its_own_candidates(quick, monkeypatch):
    from torch._inductor import config, select_algorithm

    seen = []
    monkeypatch.setattr(
        select_algorithm.AlgorithmSelectorCache, "log_results",
        staticmethod(lambda name, nodes, timings, *others, **more: seen.extend(each.name for each in timings)),
    )  # fmt: skip
    with config.patch(external_matmul=[], max_autotune_gemm_backends="ATEN", force_disable_caches=True):
        warptile.torch.register_inductor()
        warptile.torch.register_inductor()
        assert config.external_matmul == [inductor_choices.warptile_mm]
        a, b = drawn(16, 24, grad=False, dtype=torch.float32), drawn(24, 8, grad=False, dtype=torch.float32)
        d = torch.compile(lambda a, b: (a @ b).relu(), mode="max-autotune-no-cudagraphs")(a, b)
        assert torch.allclose(d, (a @ b).relu(), atol=1e-5)
        assert sorted(seen) == ["mm", "warptile_mm"]
        assert quick, "it was timed"
        warptile.torch.unregister_inductor()
        assert config.external_matmul == []


def test_programs_of_inductor_call_functions_without_the_dispatcher():
    from torch._inductor.utils import run_and_get_code

    def call(x, w, bias, b):
        h = wt.linear(x, w, bias)
        return wt.matmul(h, b, h @ b, beta=0.5) + wt.matmul(h, b, epilogue=wt.silu)

    x, w, bias, b = (drawn(*shape, dtype=torch.float32) for shape in ((6, 4), (5, 4), (5,), (5, 3)))
    d, codes = run_and_get_code(torch.compile(call, fullgraph=True), x, w, bias, b)
    with torch.no_grad():
        h = torch.nn.functional.linear(x, w, bias)
        assert torch.allclose(d, 1.5 * (h @ b) + torch.nn.functional.silu(h @ b), atol=1e-5)
    (forward,) = (code for code in codes if "warptile.linear" in code)
    for name in ("linear", "matmul", "fused_matmul"):
        assert f"= torch.ops.warptile.{name}.default.function(" in forward
        assert f"= torch.ops.warptile.{name}.default(" not in forward
    expected = torch.autograd.grad(call(x, w, bias, b).square().sum(), (x, w, bias, b))
    for found, exact in zip(torch.autograd.grad(d.square().sum(), (x, w, bias, b)), expected, strict=True):
        assert torch.allclose(found, exact, atol=1e-4)


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_the_gradient_of_an_addend_is_summed_behind_the_gemms(name):
    """Inductor stores what an operator is given. Before one it would compute the gradient for the sum alone, and again
    for the GEMMs."""
    from torch._dynamo.backends.common import aot_autograd

    backward = []

    def keep(graph, _inputs):
        backward[:] = [str(node.target) for node in graph.graph.nodes]
        return graph.forward

    def call(x, w, bias):
        product = wt.linear(x, w, bias) if name == "linear" else wt.matmul(x, w.mT, bias)
        return torch.tanh(product).sum()

    arguments = drawn(6, 4), drawn(5, 4), drawn(5)
    torch.compile(call, fullgraph=True, backend=aot_autograd(fw_compiler=lambda g, _: g.forward, bw_compiler=keep))(
        *arguments
    ).backward()
    gemms = [index for index, each in enumerate(backward) if each == "warptile.matmul.default"]
    (summed,) = (index for index, each in enumerate(backward) if each.startswith("aten.sum"))
    assert len(gemms) == 2
    assert max(gemms) < summed
