"""Calls with more operands than four, repeated on a GPU whose driver is stubbed: a bound one hands over what the long
way does, and is never one that was made for other arrays."""

import re
from dataclasses import replace

import pytest

import warptile.api as api
from stubbed_gpu import StubbedGpu
from warptile import grouped_call
from warptile.arrays import array_view
from warptile.epilogue.fused_epilogue import OUTPUT
from warptile.gpu import loader
from warptile.planning import tuned_table

torch = pytest.importorskip("torch")
import warptile as wt  # noqa: E402
import warptile.torch  # noqa: E402
from warptile.runtime import torch_calls  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's forward mode

M, N, K = 128, 160, 256
FLOAT8 = torch.float8_e4m3fn

OVERLAP = {"BM": 128, "BN": 64, "BK": 64, "STAGES": 4, "GROUP": 8, "SMS": 132}
FINAL = {
    "BM": 128, "BN": 64, "BK": 64, "STAGES": 4, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8,
    "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 132,
}  # fmt: skip
"""Configurations of wgmma-overlap and wgmma-final."""


class Recorded(StubbedGpu):
    """A stubbed GPU that tells launches of the long way, which packs parameters, from those of bound calls.

    Attributes:
        packed: spec and addresses of each launch of the long way.
        made: tensors that bound calls allocated.
        stream: the current one.
    """

    def __init__(self):
        super().__init__()
        self.packed, self.made, self.stream = [], [], 0x5EED

    def install(self, monkeypatch):
        super().install(monkeypatch)
        launch, allocator = loader.LoadedKernel.launch, torch_calls.allocator

        def packing(kernel, spec, pointers, stream=0):
            self.packed.append((spec, dict(pointers)))
            launch(kernel, spec, pointers, stream)

        def noted(module):
            new = allocator(module)

            def make(*arguments):
                self.made.append(new(*arguments))
                return self.made[-1]

            return make

        monkeypatch.setattr(loader.LoadedKernel, "launch", packing)
        monkeypatch.setattr(torch_calls, "allocator", noted)
        return self

    def launched(self, call):
        """What a call launches and returns, which takes no long way."""
        del self.launches[:], self.packed[:], self.made[:]
        returned = call()
        assert self.packed == [], "it is planned and packed"
        return list(self.launches), returned

    def check(self, call, out=None, held=None, each=lambda index: {}):
        """A bound call hands over what the long way does, with the memory that it returns; ``each``: how far into it
        the launch of that number writes."""
        found, returned = self.launched(call)
        written = [*(() if out is None else outputs(out)), *self.made]
        where = {f"{OUTPUT} {index}" if index else "D": array.data_ptr() for index, array in enumerate(written)}
        assert outputs(returned)[0].data_ptr() == written[0].data_ptr()
        forget(held)
        del self.packed[:]
        again = call()
        assert type(again) is type(returned)
        pairs = zip(outputs(returned), outputs(again), strict=True)
        assert all((one.shape, one.dtype) == (other.shape, other.dtype) for one, other in pairs)
        assert len(self.packed) == len(found) > 0
        for index, (launched, (spec, pointers)) in enumerate(zip(found, self.packed, strict=True)):
            assert (launched.entry, launched.grid, launched.cluster) == (spec.entry, spec.grid, spec.cluster)
            assert launched.stream == self.stream
            moved = {name: address + each(index).get(name, 0) for name, address in where.items()}
            assert launched.parameters == self.expect(spec, pointers | moved)


def forget(held=None):
    """Forget all bound calls."""
    api._calls.clear()
    grouped_call._bound.clear()
    for gemm in () if held is None else held.gemms:
        gemm.calls.clear()


@pytest.fixture
def gpu(monkeypatch):
    """Tensors in host memory that warptile takes for tensors on the stubbed GPU."""
    made = Recorded().install(monkeypatch)
    viewed = array_view._view_torch
    monkeypatch.setattr(
        array_view, "_view_torch", lambda x, name: replace(viewed(x, name), device=0, stream=made.stream)
    )
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: made.stream, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.setattr(grouped_call, "_bound", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    return made


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype)


def scales(*shape):
    return torch.rand(*shape) + 0.5


def outputs(returned):
    return returned if isinstance(returned, tuple) else (returned,)


def weights(dtype=FLOAT8):
    return drawn(N, K, dtype=dtype).T


def activated(acc, bias, factor):
    return wt.gelu(acc + bias) * factor


# Operands by name, and how they are given. Operands are drawn anew for each call.

DRAWN = {
    "a": lambda: drawn(M, K), "b": lambda: drawn(K, N), "c": lambda: drawn(M, N), "bias": lambda: drawn(N),
    "sparse": lambda: wt.sparsify(drawn(M, K)), "sparse8": lambda: wt.sparsify(drawn(M, K, dtype=FLOAT8)),
    "sparse32": lambda: wt.sparsify(torch.randn(M, K)), "b32": lambda: torch.randn(K, N),
    "a8": lambda: drawn(M, K, dtype=FLOAT8), "b8": weights,
    "ai": lambda: torch.randint(-9, 9, (M, K), dtype=torch.int8), "bi": lambda: weights(torch.int8),
    "rows": lambda: scales(M, 1), "columns": lambda: scales(N), "of_a": lambda: scales(M, K // 128),
    "of_b": lambda: scales(K // 128, -(-N // 128)), "quantized": lambda: wt.quantize(drawn(N, K)),
    "split": lambda: wt.split(torch.randn(K, N)), "a32": lambda: torch.randn(M, K), "w": lambda: drawn(N, K),
    "w8": lambda: drawn(N, K, dtype=FLOAT8), "x8": lambda: drawn(2, M // 2, K, dtype=FLOAT8),
    "x_rows": lambda: scales(2, M // 2, 1), "out": lambda: drawn(M, N), "other": lambda: drawn(M, N),
    "out8": lambda: drawn(M, N, dtype=FLOAT8), "groups8": lambda: drawn(3, N, K, dtype=FLOAT8).mT,
    "of_groups": lambda: scales(3), "ends": lambda: torch.tensor([32, 96, M], dtype=torch.int32),
}  # fmt: skip

CALLS = {
    "sparse": lambda sparse, b: wt.matmul(sparse, b),
    "sparse into out": lambda sparse, b, out: wt.matmul(sparse, b, out=out),
    "sparse and c": lambda sparse, b, c: wt.matmul(sparse, b, c, beta=0.5),
    "sparse and a bias": lambda sparse, b, bias: wt.matmul(sparse, b, bias),
    "sparse, tf32": lambda sparse32, b32: wt.matmul(sparse32, b32, precision="tf32"),
    "sparse float8, scaled": lambda sparse8, b8, rows: wt.matmul(sparse8, b8, scale_a=rows, scale_b=0.5),
    "sparse with an epilogue": lambda sparse, b, bias: wt.matmul(
        sparse, b, epilogue=activated, bias=bias, factor=2.0
    ),
    "rows and columns": lambda a8, b8, rows, columns: wt.matmul(a8, b8, scale_a=rows, scale_b=columns),
    "one axis": lambda a8, b8, rows, columns: wt.matmul(a8, b8, scale_a=rows[:, 0], scale_b=columns),
    "blocks": lambda a8, b8, of_a, of_b: wt.matmul(a8, b8, scale_a=of_a, scale_b=of_b),
    "rows and a number": lambda a8, b8, rows: wt.matmul(a8, b8, scale_a=rows, scale_b=0.5),
    "rows and c": lambda a8, b8, rows, c: wt.matmul(a8, b8, c, scale_a=rows, beta=0.5),
    "rows and an unread c": lambda a8, b8, rows, c: wt.matmul(a8, b8, c, scale_a=rows, beta=0),
    "rows, into out": lambda a8, b8, rows, out: wt.matmul(a8, b8, scale_a=rows, out=out),
    "rows and an epilogue": lambda a8, b8, rows, bias: wt.matmul(
        a8, b8, scale_a=rows, epilogue=activated, bias=bias, factor=2
    ),
    "integers": lambda ai, bi, rows, columns: wt.matmul(ai, bi, scale_a=rows, scale_b=columns),
    "integers and numbers": lambda ai, bi: wt.matmul(ai, bi, scale_a=2, scale_b=0.5),
    "integers, a number and columns": lambda ai, bi, columns: wt.matmul(ai, bi, scale_a=0.25, scale_b=columns),
    "scaled result": lambda a8, b8: wt.matmul(a8, b8, scale_d=2.0, out_dtype="float8_e4m3"),
    "scaled columns": lambda a8, b8, columns, out8: wt.matmul(a8, b8, scale_d=columns, out=out8),
    "amax": lambda a, b: wt.matmul(a, b, amax=True),
    "amax and all": lambda a8, b8, rows, bias: wt.matmul(
        a8, b8, bias, scale_a=rows, scale_d=0.25, amax=True, out_dtype="float8_e4m3"
    ),
    "amax of an epilogue": lambda a, b, bias: wt.matmul(a, b, epilogue=activated, bias=bias, factor=3.0, amax=True),
    "quantized with an epilogue": lambda a, quantized, bias: wt.matmul(
        a, quantized, epilogue=activated, bias=bias, factor=2.0
    ),
    "split with an epilogue": lambda a32, split, columns: wt.matmul(
        a32, split, epilogue=lambda acc, columns: acc + columns, columns=columns
    ),
    "configuration and epilogue": lambda a, b, bias: wt.matmul(
        a, b, epilogue=activated, bias=bias, factor=2.0, rung="wgmma-final", config=dict(FINAL)
    ),
    "two outs": lambda a, b, out, other: wt.matmul(a, b, epilogue=lambda acc: (wt.relu(acc), acc), out=(out, other)),
    "linear, scaled": lambda x8, w8, x_rows, columns: wt.linear(x8, w8, scale_a=x_rows, scale_b=columns),
    "scaled_mm": lambda a8, b8, rows, columns, bias: torch.ops.warptile.scaled_mm(
        a8, b8, rows, columns[None], bias, None, torch.bfloat16
    ),
    "groups": lambda a8, groups8, ends, rows, of_groups: wt.matmul_grouped(
        a8, groups8, ends, scale_a=rows, scale_b=of_groups
    ),
    "groups and a number": lambda a8, groups8, ends, rows: wt.matmul_grouped(
        a8, groups8, ends, scale_a=rows, scale_b=0.5
    ),
    "groups and numbers": lambda a8, groups8, ends: wt.matmul_grouped(a8, groups8, ends, scale_a=0.25, scale_b=0.5),
}  # fmt: skip


def names_of(call):
    return call.__code__.co_varnames[: call.__code__.co_argcount]


def made(call):
    return {name: DRAWN[name]() for name in names_of(call)}


def out_of(given):
    outs = tuple(given[name] for name in ("out", "out8", "other") if name in given)
    return (outs if len(outs) > 1 else outs[0]) if outs else None


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_hands_over_what_the_long_way_does(gpu, name):
    call, kept = CALLS[name], []
    for number in range(4):
        given = made(call)
        kept.append(given)  # so that later ones lie elsewhere
        gpu.stream = 0x100 + number
        if number == 0:
            call(**given)
            assert len(gpu.packed) > 0, "the first one is planned"
        elif number < 3:
            gpu.launched(lambda given=given: call(**given))
    compiled = gpu.compiled
    gpu.check(lambda: call(**given), out_of(given))
    assert gpu.compiled == compiled
    assert gpu.copies == []


@pytest.mark.parametrize("name", CALLS)
def test_operands_of_another_layout_alignment_or_type_are_other_calls(gpu, name):
    """In the place of each tensor one that begins two elements further on, or whose rows lie apart: what is handed over
    is what the long way does, whatever was bound before."""
    call = CALLS[name]
    given = made(call)
    for _ in range(2):
        call(**given)
    for each, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        for moved in (displaced(tensor), spread(tensor)):
            changed = given | {each: moved}
            for _ in range(3):
                call(**changed)
            del gpu.launches[:], gpu.packed[:]
            call(**changed)
            if gpu.packed:
                continue  # planned every time, as it is copied
            gpu.check(lambda changed=changed: call(**changed), out_of(changed))
        for _ in range(2):
            call(**given)
    gpu.check(lambda: call(**given), out_of(given))


def displaced(tensor):
    """The same two elements further on in memory, with the same strides."""
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = torch.empty(reach + 2, dtype=tensor.dtype)
    return memory[2:].as_strided(tensor.shape, tensor.stride(), 2).copy_(tensor)


def spread(tensor):
    """The same with gaps between rows, or between elements of a vector."""
    if tensor.dim() == 1:
        return torch.stack([tensor, tensor], 1)[:, 0]
    axis = -1 if tensor.stride(-1) == 1 else -2
    return torch.cat([tensor, tensor], axis).narrow(axis, 0, tensor.shape[axis])


# --- held plans ------------------------------------------------------------------------------------------------------

HELD = {
    "sparse": (("sparse", "b", "c"), lambda sparse, b, c: wt.plan(sparse, b, c), lambda held, a, b, c: held(a, b, c)),
    "epilogue": (
        ("a", "b", "bias"),
        lambda a, b, bias: wt.plan(a, b, epilogue=activated, bias=bias, factor=1.0),
        lambda held, a, b, bias: held(a, b, bias=bias, factor=2.0),
    ),
    "epilogue into out": (
        ("a", "b", "bias", "out"),
        lambda a, b, bias, out: wt.plan(a, b, epilogue=activated, bias=bias, factor=1.0, out=out),
        lambda held, a, b, bias, out: held(a, b, bias=bias, factor=2.0, out=out),
    ),
    "epilogue alone": (("a", "b"), lambda a, b: wt.plan(a, b, epilogue=wt.gelu), lambda held, a, b: held(a, b)),
    "sparse with an epilogue": (
        ("sparse", "b"), lambda sparse, b: wt.plan(sparse, b, epilogue=wt.gelu), lambda held, a, b: held(a, b),
    ),
    "scales": (
        ("a8", "b8", "rows", "columns"),
        lambda a, b, rows, columns: wt.plan(a, b, scale_a=rows, scale_b=columns),
        lambda held, a, b, rows, columns: held(a, b, scale_a=rows, scale_b=columns),
    ),
    "scales and c": (
        ("a8", "b8", "rows", "c"),
        lambda a, b, rows, c: wt.plan(a, b, c, scale_a=rows, beta=0.5, scale_d=3.0),
        lambda held, a, b, rows, c: held(a, b, c, scale_a=rows, scale_d=2.0),
    ),
    "amax": (("a", "b"), lambda a, b: wt.plan(a, b, amax=True), lambda held, a, b: held(a, b)),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_a_held_plan_hands_over_what_the_long_way_does(gpu, name):
    names, plan, call = HELD[name]
    kept = [[DRAWN[each]() for each in names] for _ in range(4)]
    held = plan(*kept[0])
    call(held, *kept[0])
    assert len(gpu.packed) > 0
    for given in kept[1:3]:
        gpu.launched(lambda given=given: call(held, *given))
    out = kept[3][names.index("out")] if "out" in names else None
    gpu.check(lambda: call(held, *kept[3]), out, held)


def test_a_held_plan_on_quantized_weights_is_bound_and_takes_no_others(gpu):
    x, made = drawn(M, K), [wt.quantize(drawn(N, K)) for _ in range(3)]
    held = wt.plan(x, made[0])
    for each in made:
        found, d = gpu.launched(lambda each=each: held(x, each))
        assert len(found) == 1
        addresses = [address.to_bytes(8, "little") for address in (each.packed.data_ptr(), d.data_ptr())]
        assert all(any(one in given for given in found[0].parameters) for one in addresses)
    with pytest.raises(wt.DTypeError, match="quantized weights for float16"):
        held(x, wt.QuantizedWeights(**{**made[0].state(), "dtype": "float16"}))


def test_a_held_plan_still_says_what_does_not_fit_it(gpu):
    a, b, bias = drawn(M, K), drawn(K, N), drawn(N)
    held = wt.plan(a, b, epilogue=lambda acc, bias: acc + bias, bias=bias)
    for _ in range(2):
        held(a, b, bias=bias)
    with pytest.raises(wt.EpilogueError, match="'bias', which was not given"):
        held(a, b)
    with pytest.raises(wt.ArgumentTypeError, match="unexpected keyword argument 'bais'"):
        held(a, b, bais=bias)
    with pytest.raises(wt.WarptileError):
        held(a, b, bias=bias[:-1])
    scaled = wt.plan(*(DRAWN[each]() for each in ("a8", "b8")), scale_a=scales(M, 1))
    a8, b8 = DRAWN["a8"](), DRAWN["b8"]()
    for _ in range(2):
        scaled(a8, b8, scale_a=scales(M, 1))
    with pytest.raises(wt.ShapeError, match="not of the shapes that the plan was made for"):
        scaled(a8, b8, scale_a=scales(M, K // 128))


# --- what must not be served by a bound call -------------------------------------------------------------------------


def metadata_in(gpu, call, matrix):
    """Whether a call launches with the packed metadata of this matrix."""
    found, _ = gpu.launched(call)
    return any(matrix.packed().data_ptr().to_bytes(8, "little") in each for each in found[-1].parameters)


def test_sparse_operands_are_read_with_their_own_metadata(gpu):
    first, second, b = wt.sparsify(drawn(M, K)), wt.sparsify(drawn(M, K)), drawn(K, N)
    for _ in range(2):
        wt.matmul(first, b)
    assert metadata_in(gpu, lambda: wt.matmul(second, b), second)
    mixed = wt.SparseMatrix(first.values, second.metadata)
    assert metadata_in(gpu, lambda: wt.matmul(mixed, b), mixed)
    assert metadata_in(gpu, lambda: wt.matmul(first, b), first)


@pytest.mark.parametrize("how", ["written", "another tensor's memory"])
def test_metadata_that_were_changed_are_packed_again(gpu, how):
    matrix, other, b = wt.sparsify(drawn(M, K)), wt.sparsify(drawn(M, K)), drawn(K, N)
    for _ in range(2):
        wt.matmul(matrix, b)
    address = matrix.packed().data_ptr()
    if how == "written":
        matrix.metadata.copy_(other.metadata)
    else:
        matrix.metadata.data = other.metadata
    call = lambda: wt.matmul(matrix, b)  # noqa: E731
    assert metadata_in(gpu, call, matrix)
    assert torch.equal(matrix.packed(), other.packed())
    assert matrix.packed().data_ptr() == address, "captured graphs read it"


def test_dense_values_of_a_sparse_matrix_are_another_operand(gpu):
    matrix, b, half = wt.sparsify(drawn(M, K)), drawn(K, N), drawn(K // 2, N)
    for _ in range(2):
        wt.matmul(matrix, b)
        wt.matmul(matrix.values, half)
    sparse, _ = gpu.launched(lambda: wt.matmul(matrix, b))
    dense, _ = gpu.launched(lambda: wt.matmul(matrix.values, half))
    assert sparse[-1].entry != dense[-1].entry


@pytest.mark.parametrize("said", [{"alpha": 0}, {"alpha": 2.0}])
def test_a_sparse_product_that_is_not_read_is_no_other_call(gpu, said):
    matrix, b, c = wt.sparsify(drawn(M, K)), drawn(K, N), drawn(M, N)
    for _ in range(3):
        d = wt.matmul(matrix, b, c, **said)
        assert d.shape == (M, N)
        wt.matmul(matrix, b, c)
    nothing = wt.SparseMatrix(drawn(M, 0), torch.empty((M, 0), dtype=torch.uint8))
    for _ in range(3):
        assert wt.matmul(nothing, drawn(0, N), c).shape == (M, N)


@pytest.mark.parametrize("shape", [(3, K, N), (2, 3, K, N)])
def test_a_batch_beside_a_sparse_matrix_takes_a_launch_for_each(gpu, shape):
    for _ in range(3):
        matrix, b = wt.sparsify(drawn(M, K)), drawn(*shape)
        wt.matmul(matrix, b)
    found, d = gpu.launched(lambda: wt.matmul(matrix, b))
    assert d.shape == (*shape[:-2], M, N)
    assert len(found) == shape[0] * (shape[1] if len(shape) == 4 else 1)
    gpu.check(lambda: wt.matmul(matrix, b), each=lambda index: {"D": 2 * M * N * index})


def test_an_epilogue_of_two_columns_is_two_bound_calls(gpu, monkeypatch):
    def gate(a, b, **given):
        return wt.matmul(a, b, epilogue=lambda acc: wt.silu(wt.halves(acc)[0]) * wt.halves(acc)[1], **given)

    for _ in range(2):
        gate(drawn(M, K), drawn(K, N))
    with monkeypatch.context() as within:
        within.setattr(api, "check_names", None)
        found, d = gpu.launched(lambda: gate(drawn(M, K), drawn(K, N)))
    assert (len(found), d.shape) == (2, (M, N // 2))
    with pytest.raises(wt.ArgumentTypeError, match="unexpected keyword argument 'bais'"):
        gate(drawn(M, K), drawn(K, N), bais=drawn(N))


def test_memory_that_is_used_again_is_what_its_tensors_say(gpu):
    memory, a8, b8 = scales(4 * M * K), DRAWN["a8"](), DRAWN["b8"]()
    as_rows, as_columns = memory[:M].reshape(M, 1), memory[:N]
    as_blocks = memory[: M * K // 128].reshape(M, K // 128)
    turns = [
        lambda: wt.matmul(a8, b8, scale_a=as_rows),
        lambda: wt.matmul(a8, b8, scale_b=as_columns),
        lambda: wt.matmul(a8, b8, scale_a=as_blocks),
        lambda: wt.matmul(a8, b8, scale_a=as_rows.half()),
        lambda: wt.matmul(a8, b8, scale_a=as_rows, out_dtype="float16"),
        lambda: wt.matmul(a8, b8, scale_a=as_rows, accumulate="float32_fast"),
    ]
    for _ in range(3):
        for call in turns:
            call()
    entries = [gpu.launched(call)[0][-1].entry for call in turns]
    assert len(set(entries)) == len(turns)
    sparse = wt.sparsify(drawn(M, K))
    for _ in range(2):
        wt.matmul(sparse, drawn(K, N))
    as_float8 = sparse.values.view(FLOAT8)
    assert as_float8.data_ptr() == sparse.values.data_ptr()
    found, _ = gpu.launched(lambda: wt.matmul(as_float8, b8, scale_a=as_rows))
    assert found[-1].entry == entries[0]


def test_an_out_that_shares_memory_with_a_further_operand_takes_the_long_way(gpu):
    memory, a8, b8 = torch.zeros(2 * M * N), DRAWN["a8"](), DRAWN["b8"]()
    rows, apart = memory[:M].reshape(M, 1), memory[M * N :].reshape(M, N)
    for _ in range(2):
        wt.matmul(a8, b8, scale_a=rows, out=apart)
    gpu.launched(lambda: wt.matmul(a8, b8, scale_a=rows, out=apart))
    over = memory[: M * N].reshape(M, N)
    wt.matmul(a8, b8, scale_a=rows, out=over)
    assert gpu.packed, "rows are read for the elements of all columns"
    sparse, b32 = wt.sparsify(torch.randn(M, K)), torch.randn(K, N)
    out = torch.empty(M, N)
    for _ in range(2):
        wt.matmul(sparse, b32, precision="tf32", out=out)
    packed = sparse.packed()
    assert packed.numel() < M * N
    whole = torch.empty(M * N + packed.numel(), dtype=torch.int32)
    whole[: packed.numel()] = packed.reshape(-1)
    sparse.__dict__["_made"] = sparse.__dict__["_made"][0], whole[: packed.numel()].reshape(packed.shape)
    wt.matmul(sparse, b32, precision="tf32", out=whole[: M * N].view(torch.float32).reshape(M, N))
    del gpu.packed[:]
    wt.matmul(sparse, b32, precision="tf32", out=whole[: M * N].view(torch.float32).reshape(M, N))
    assert gpu.packed, "metadata are read for the elements of all columns"


def test_further_outs_that_share_memory_are_refused_after_a_bound_call_as_before(gpu):
    a, b, out, other = drawn(M, K), drawn(K, N), drawn(M, N), drawn(M, N)

    def call(*outs):
        return wt.matmul(a, b, epilogue=lambda acc: (wt.relu(acc), acc), out=outs)

    for _ in range(2):
        assert call(out, other)[1] is other
    gpu.launched(lambda: call(out, other))
    with pytest.raises(wt.LayoutError, match=r"out\[1\]: it shares memory with out"):
        call(out, out)
    shared = a.reshape(-1)[: M * N].reshape(M, N)
    with pytest.raises(wt.LayoutError, match=r"out\[1\]: it shares memory with a"):
        call(out, shared)
    assert wt.matmul(a, b, epilogue=lambda acc: (wt.relu(acc), acc), out=[out, other])[0] is out


@pytest.mark.parametrize("name", ["sparse", "rows and columns", "amax", "rows and c", "groups"])
def test_gradients_are_seen_after_a_bound_call(gpu, name):
    call = CALLS[name]
    given = made(call)
    for each, tensor in given.items():
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        asked = given | {each: tensor.detach().requires_grad_()}
        with torch.no_grad():
            for _ in range(2):
                call(**asked)
            gpu.launched(lambda asked=asked: call(**asked))
        refused, found = "", []
        try:
            found = outputs(call(**asked))
        except wt.UnsupportedError as error:
            refused = str(error)
        assert re.search("gradient|that torch records", refused) if refused else found[0].requires_grad


def test_numbers_of_a_call_are_its_own(gpu):
    a8, b8 = DRAWN["a8"](), DRAWN["b8"]()
    found = []
    for factor in (2.0, 3.0, 2.0, 4):
        wt.matmul(a8, b8, scale_d=factor, out_dtype="float8_e4m3")
        if gpu.launches:
            found.append(gpu.launches[-1])
    assert len({each.entry for each in found}) == 1
    assert len({each.parameters for each in found}) == 3


def test_numbers_outside_of_their_type_are_what_the_long_way_says(gpu):
    a, b = drawn(M, K), drawn(K, N)

    def call(factor, seed):
        return wt.matmul(a, b, epilogue=lambda acc, s, seed: wt.dropout(acc * s, 0.5, seed), s=factor, seed=seed)

    for _ in range(2):
        call(2.0, 7)
    gpu.launched(lambda: call(3.0, 8))
    call(1e300, 8)
    (spec, pointers), = gpu.packed  # fmt: skip
    assert b"\0\0\x80\x7f" in gpu.expect(spec, pointers)[0], "float32's infinity"
    with pytest.raises(wt.EpilogueError, match="seed: got -1"):
        call(2.0, -1)


def test_scales_of_one_element_are_read_from_host_memory_in_every_call(gpu):
    a8, b8, scale, out = DRAWN["a8"](), DRAWN["b8"](), torch.tensor(0.5), drawn(M, N)
    call = lambda a, b: wt.matmul(a8, b8, scale_a=a, scale_b=b, out=out)  # noqa: E731
    for value in (0.5, 2.0, 0.5):
        scale.fill_(value)
        for _ in range(2):
            call(scale, scale)
        by_element, _ = gpu.launched(lambda: call(scale, scale))
        call(value, value)
        by_number, _ = gpu.launched(lambda value=value: call(value, value))
        assert by_element == by_number


@pytest.mark.parametrize("name", ["rows and columns", "sparse", "amax", "two outs", "groups"])
def test_tensors_of_another_device_are_another_call(gpu, monkeypatch, name):
    call, elsewhere = CALLS[name], []
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", None)  # it would see where these tensors really are
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: int(any(self is each for each in elsewhere)))
    given = made(call)
    for _ in range(2):
        call(**given)
    gpu.launched(lambda: call(**given))
    for each in given.values():
        moved = (each.packed(), each.values) if isinstance(each, wt.SparseMatrix) else (each,)
        for tensor in moved:
            elsewhere[:] = [tensor]
            del gpu.packed[:]
            call(**given)
            assert gpu.packed, "it is planned"
            elsewhere.clear()
            gpu.launched(lambda: call(**given))


def test_what_tuning_finds_replaces_bound_calls_with_further_operands(gpu, monkeypatch):
    digest = [""]
    monkeypatch.setattr(tuned_table, "outcomes", lambda name, where=None: digest[0])
    a8, b8, rows, sparse, b = (DRAWN[each]() for each in ("a8", "b8", "rows", "sparse", "b"))
    calls = [lambda: wt.matmul(a8, b8, scale_a=rows), lambda: wt.matmul(sparse, b)]
    for call in calls:
        call()
        gpu.launched(call)
    digest[0] = "another outcome"
    for listener in tuned_table._listeners:
        listener()
    del gpu.packed[:]
    for call in calls:
        call()
    assert len(gpu.packed) == 2


def test_misspelt_names_are_refused_after_a_bound_call_as_before(gpu):
    a8, b8, rows = DRAWN["a8"](), DRAWN["b8"](), DRAWN["rows"]()
    sparse, b = DRAWN["sparse"](), DRAWN["b"]()
    for _ in range(2):
        wt.matmul(a8, b8, scale_a=rows)
        wt.matmul(sparse, b)
    for call in (lambda: wt.matmul(a8, b8, scale_a=rows, bais=rows), lambda: wt.matmul(sparse, b, bais=rows)):
        with pytest.raises(TypeError, match="bais"):
            call()
    with pytest.raises(wt.ShapeError, match="scale_a: got shape"):
        wt.matmul(a8, b8, scale_a=rows[:-1])
    with pytest.raises(wt.WarptileError):
        wt.matmul(sparse, b[:-1])


def test_forward_derivatives_and_transforms_see_calls_that_were_bound(gpu, monkeypatch):
    a, b, bias = torch.randn(M, K), torch.randn(K, N), torch.randn(N)

    def call(bias):
        return wt.matmul(a, b, epilogue=lambda acc, bias: acc + bias, bias=bias)

    for _ in range(2):
        call(bias)
    gpu.launched(lambda: call(bias))
    seen = []
    monkeypatch.setattr(api, "fused_in_torch", lambda a, b, c, *given: seen.append(given) or a @ b)
    torch.func.vmap(call)(torch.stack([bias, bias]))
    with torch.enable_grad():
        torch.func.grad(lambda bias: call(bias).sum() + bias.sum())(bias)
    with torch.autograd.forward_ad.dual_level():
        call(torch.autograd.forward_ad.make_dual(bias, bias))
    assert len(seen) == 3


def test_autocast_sees_calls_of_float32_that_were_bound(gpu, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: autocasts)
    autocasts = False
    for kind, cast in ((torch.float32, 1), (torch.bfloat16, 0)):
        forget()
        autocasts = False
        a, b = drawn(M, K, dtype=kind), drawn(K, N, dtype=kind)
        for _ in range(2):
            wt.matmul(a, b, epilogue=wt.gelu)
        seen = []
        with monkeypatch.context() as within:
            within.setattr(api, "fused_in_torch", lambda *given, seen=seen: seen.append(given))
            autocasts = True
            wt.matmul(a, b, epilogue=wt.gelu)
        assert len(seen) == cast


def test_a_configuration_that_has_changed_since_is_another_call(gpu):
    a, b, config = drawn(M, K), drawn(K, N), dict(OVERLAP)
    for bn in (64, 128, 64):
        config["BN"] = bn
        wt.matmul(a, b, rung="wgmma-overlap", config=config)
        turned = dict(reversed(config.items()))
        found, _ = gpu.launched(lambda turned=turned: wt.matmul(a, b, rung="wgmma-overlap", config=turned))
        assert found[0].grid[0] == -(-N // bn)
