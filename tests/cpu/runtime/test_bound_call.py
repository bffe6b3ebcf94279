"""Calls that are bound: what reaches the driver is what the long way hands over, whatever changes between calls."""

import sys
import threading
import timeit
import types

import numpy as np
import pytest

import warptile as wt
from stubbed_gpu import CONTEXT, OTHER_CONTEXT, StubbedGpu, stubbed_torch
from warptile import api
from warptile.calls import chosen_kernel
from warptile.gpu import driver, workspaces
from warptile.planning import tuned_table
from warptile.runtime import torch_calls


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    return stubbed_torch(monkeypatch)


@pytest.fixture
def gpu(monkeypatch, torch):
    return StubbedGpu().install(monkeypatch)


def pointers_of(a, b, c, d, stream):
    found = {"A": a.data_ptr(), "B": b.data_ptr(), "D": d.data_ptr()}
    if c is not None:
        found["C"] = c.data_ptr()
    return found


def check(gpu, launched, pointers, stream):
    """A launch is what its spec says, with these operands."""
    spec = gpu.specs[launched.entry]
    assert (launched.grid, launched.block, launched.cluster) == (spec.grid, spec.block, spec.cluster)
    assert (launched.shared, launched.overlaps) == (spec.dynamic_shared_bytes, spec.overlaps_previous)
    assert (launched.stream, launched.context) == (stream, CONTEXT)
    beside = {}
    shared = workspaces.of_stream(0, stream)
    wanted = [name for name in spec.operands if name not in pointers]
    if wanted:
        assert shared._unknown.newest or shared._zeros.newest
        beside = dict.fromkeys(wanted, 0)
    expected = gpu.expect(spec, {**pointers, **beside})
    assert len(expected) == len(launched.parameters)
    for want, got in zip(expected, launched.parameters, strict=True):
        if not wanted:
            assert got == want
        assert len(got) == len(want)


CASES = {
    "square": ((64, 64), (64, 64), "bfloat16", {}),
    "odd": ((33, 65), (65, 31), "float16", {}),
    "float32": ((40, 72), (72, 24), "float32", {}),
    "float64": ((40, 72), (72, 24), "float64", {}),
    "integers": ((48, 64), (64, 80), "int8", {}),
    "batch": ((3, 40, 64), (3, 64, 24), "bfloat16", {}),
    "shared operand": ((3, 40, 64), (64, 24), "bfloat16", {}),
    "vector": ((64,), (64, 24), "float16", {}),
    "no product": ((5, 0), (0, 7), "bfloat16", {}),
    "split": ((16, 16384), (16384, 64), "bfloat16", {}),
    "tf32": ((64, 64), (64, 64), "float32", {"precision": "tf32"}),
    "scaled": ((64, 64), (64, 64), "bfloat16", {"alpha": 0.5, "out_dtype": "float32"}),
    "few SMs": ((512, 512), (512, 512), "bfloat16", {"max_sms": 7}),
    "a rung": ((64, 64), (64, 64), "bfloat16", {"rung": "mma-final"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_repeated_call_hands_over_what_the_first_one_would(gpu, torch, name):
    a_shape, b_shape, kind, options = CASES[name]
    kind = getattr(torch, kind)
    compiled = []
    for number in range(3):
        a, b = torch.empty(a_shape, kind), torch.empty(b_shape, kind)
        torch.stream = 0x100 + number
        before = len(gpu.launches)
        d = wt.matmul(a, b, **options)
        assert len(gpu.launches) > before
        assert d.shape == np.matmul(np.empty(a_shape, np.int8), np.empty(b_shape, np.int8)).shape
        check(gpu, gpu.launches[-1], pointers_of(a, b, None, d, torch.stream), torch.stream)
        compiled.append(gpu.compiled)
    assert gpu.prepared == [], "nothing takes the long way"
    assert compiled[1] == compiled[2] == compiled[0], "nothing is planned anew"


@pytest.mark.parametrize(("m", "k"), [(5, 256), (16, 8192), (3, 129)])
def test_calls_with_quantized_weights_repeat_without_planning(gpu, torch, m, k):
    for number in range(3):
        made = wt.quantize(np.ones((64, k), np.float32))
        packed = torch.empty(made.packed.shape, torch.uint8)
        weights, x = wt.QuantizedWeights(**{**made.state(), "packed": packed}), torch.empty((m, k), torch.bfloat16)
        torch.stream = 0x100 + number
        d = wt.matmul(x, weights)
        assert d.shape == (m, 64)
        check(gpu, gpu.launches[-1], pointers_of(x, packed, None, d, torch.stream), torch.stream)
    assert gpu.prepared == []
    launches = 3 if k % 8 == 0 else 6  # of misaligned rows repacked ones are multiplied
    assert len(gpu.launches) == launches
    compiled = gpu.compiled
    wt.matmul(x, wt.QuantizedWeights(**{**weights.state(), "dtype": "bfloat16", "group_size": 256}))
    assert gpu.compiled == compiled, "a longer group is the same kernel"
    other = wt.quantize(np.ones((64, k), np.float32), zero_point=True)
    packed = torch.empty(other.packed.shape, torch.uint8)
    wt.matmul(x, wt.QuantizedWeights(**{**other.state(), "packed": packed}))
    assert gpu.compiled == compiled + 1, "zero points are another one"


@pytest.mark.parametrize("side", ["a", "b"])
def test_calls_with_split_matrices_repeat_without_planning(gpu, torch, side):
    m, n, k = 96, 160, 256
    axis, shape = (1, (m, k)) if side == "a" else (0, (k, n))
    made, other = wt.split(np.ones(shape, np.float32), axis), (m, k) if side == "b" else (k, n)
    for number in range(3):
        packed, plain = torch.empty(made.packed.shape, torch.uint8), torch.empty(other, torch.float32)
        matrix = wt.SplitMatrix(packed, shape, axis)
        torch.stream = 0x100 + number
        before = len(gpu.launches)
        d = wt.matmul(*((matrix, plain) if side == "a" else (plain, matrix)), rung="wgmma-split")
        assert d.shape == (m, n)
        copying, launched = gpu.launches[before:]
        assert gpu.specs[copying.entry].operands[0] == ("B" if side == "a" else "A"), "one operand is split"
        arrays = (packed, plain) if side == "a" else (plain, packed)
        check(gpu, launched, pointers_of(*arrays, None, d, torch.stream), torch.stream)
    assert gpu.prepared == []
    before, turned = len(gpu.launches), torch.empty(other[::-1], torch.float32)
    wt.matmul(*((turned, matrix.T) if side == "a" else (matrix.T, turned)), rung="wgmma-split")
    assert gpu.specs[gpu.launches[before].entry].operands[0] == ("A" if side == "a" else "B"), "now the other one is"


def test_operands_that_are_repacked_take_two_launches(gpu, torch):
    a, b = torch.empty((200, 1093), torch.bfloat16), torch.empty((1093, 136), torch.bfloat16)
    for _ in range(2):
        gpu.launches.clear()
        d = wt.matmul(a, b, rung="wgmma-tma")
        first, second = gpu.launches
        assert "A" in gpu.specs[first.entry].operands
        assert "repacked A" in gpu.specs[second.entry].operands
        assert second.parameters[0].count(d.data_ptr().to_bytes(8, "little")) >= 1
        copied = gpu.specs[first.entry].operands.index("repacked A")
        target = first.parameters[1][:8]
        assert copied == 1
        assert target in second.parameters[0]


def test_matrices_of_a_batch_that_are_misaligned_differently_are_not_bound(gpu, torch):
    """Tensor maps are bound with how far an operand is behind a multiple of 16 bytes: 10 bytes from one matrix to the
    next would give the second launch a misaligned map, a fault that loses the context."""
    backwards = np.zeros((2, 1, 5), np.float16)[::-1]  # no batch for one launch
    a, b = torch.Tensor(backwards, torch.float16), torch.empty((2, 5, 1), torch.float16)
    for calls in (1, 2):
        wt.matmul(a, b)
        assert len(gpu.prepared) == 2 * calls, "each launch of each call has tensor maps of its own"


def test_addresses_of_workspaces_are_kept_but_for_captured_and_shared_ones(gpu, torch, monkeypatch):
    def call():
        a, b = torch.empty((200, 1093), torch.bfloat16), torch.empty((1093, 136), torch.bfloat16)
        gpu.launches.clear()
        wt.matmul(a, b, rung="wgmma-tma")
        return gpu.launches[0].parameters[1][:8]

    asked = []
    real = workspaces.of_stream
    monkeypatch.setattr(workspaces, "of_stream", lambda *given: (asked.append(given[1]), real(*given))[1])
    kept = call()
    assert [call(), call()] == [kept, kept]
    assert asked == [torch.stream]
    gpu.capturing = True
    graphs = call()
    assert call() == graphs != kept
    assert len(asked) == 3
    gpu.capturing = False
    assert call() == kept
    assert sorted(each.captured for each in workspaces._OF_STREAM.values()) == [False, True]
    monkeypatch.setattr(driver, "synchronize", lambda: None)
    workspaces.free()
    call()
    assert len(asked) == 4, "addresses from before mean nothing"


@pytest.mark.parametrize("beta", [1, 0.5])
def test_c_and_out_are_those_of_each_call(gpu, torch, beta):
    for _ in range(3):
        a, b = torch.empty((64, 96), torch.float32), torch.empty((96, 40), torch.float32)
        c, out = torch.empty((64, 40), torch.float32), torch.empty((64, 40), torch.float32)
        assert wt.matmul(a, b, c, beta=beta, out=out) is out
        check(gpu, gpu.launches[-1], pointers_of(a, b, c, out, 0), torch.stream)
        assert wt.matmul(a, b, c, beta=beta, out=c) is c
        check(gpu, gpu.launches[-1], pointers_of(a, b, c, c, 0), torch.stream)
    assert gpu.prepared == []


@pytest.mark.parametrize("shape", [(40,), (1, 40)])
def test_a_bias_is_read_where_it_lies(gpu, torch, shape):
    for _ in range(3):
        a, b = torch.empty((64, 96), torch.bfloat16), torch.empty((96, 40), torch.bfloat16)
        c = torch.empty(shape, torch.bfloat16)
        d = wt.matmul(a, b, c)
        check(gpu, gpu.launches[-1], pointers_of(a, b, c, d, 0), torch.stream)
    assert gpu.prepared == []
    assert gpu.copies == []


def test_an_out_that_shares_memory_with_an_operand_takes_the_long_way(gpu, torch):
    memory = torch.empty((128, 64), torch.float32)

    def rows(start):
        return torch.Tensor(memory.array[start : start + 64], torch.float32)

    b, copied = torch.empty((64, 64), torch.float32), []
    torch.Tensor.copy_ = lambda self, other: copied.append((self, other))
    out = rows(64)
    assert wt.matmul(rows(0), b, out=out) is out
    assert wt.matmul(rows(0), b, out=out) is out
    assert (len(gpu.launches), copied, gpu.prepared) == (2, [], [])
    out = rows(32)  # as aligned, and as strided; half of it is half of A
    assert wt.matmul(rows(0), b, out=out) is out
    assert [target for target, _ in copied] == [out]
    assert len(gpu.launches) == 2, "not the bound launch, which would write over A"
    assert len(gpu.prepared) == 1


def test_alignment_is_a_part_of_what_arrays_say(gpu, torch):
    wide = torch.empty((64, 136), torch.bfloat16)
    b = torch.empty((128, 64), torch.bfloat16)
    entries = set()
    for start in (0, 8, 1, 0, 8, 1):
        a = torch.Tensor(wide.array[:, start : start + 128], torch.bfloat16)
        d = wt.matmul(a, b)
        last = gpu.launches[-1]
        entries.add((start, last.entry))
        if start != 1:
            check(gpu, last, pointers_of(a, b, None, d, 0), torch.stream)
    assert len(entries) == 3
    assert dict(entries)[0] == dict(entries)[8] != dict(entries)[1]


def test_a_bound_call_whose_gradient_is_recorded_is_launched_by_what_records_it(gpu, torch, monkeypatch):
    memory = torch.empty((64, 64), torch.bfloat16)
    weights = torch.nn.Parameter(memory.array, torch.bfloat16, grad=True)
    torch.grad_enabled = False
    for _ in range(2):
        wt.matmul(memory, weights)
    assert len(gpu.launches) == 2
    torch.grad_enabled = True
    monkeypatch.delitem(sys.modules, torch_calls.RECORDER, raising=False)
    long_way = []
    monkeypatch.setattr(api, "matmul_in_torch", lambda *arguments: long_way.append(arguments))
    wt.matmul(memory, weights)
    assert len(long_way) == 1, "warptile.torch is not imported yet"

    def record(calls, found, a, b, c, options):
        assert (a, b, c, options[0]) == (memory, weights, None, 1)
        return "recorded", calls.launched(found, a.data_ptr(), b.data_ptr(), 0, 0, None)

    asked = []

    def no_recorder(calls, found, *arguments):
        asked.append(arguments)

    room = types.SimpleNamespace(recorded_call=record, recorder_of=no_recorder)
    monkeypatch.setitem(sys.modules, torch_calls.RECORDER, room)
    said, d = wt.matmul(memory, weights)
    assert said == "recorded"
    assert (len(gpu.launches), len(long_way), len(asked)) == (3, 1, 1)
    check(gpu, gpu.launches[-1], pointers_of(memory, weights, None, d, 0), torch.stream)

    room.recorder_of = lambda calls, found, *arguments: lambda a, b, c: ("kept", a, b, c)
    for _ in range(2):
        assert wt.matmul(memory, weights) == ("kept", memory, weights, None)
        room.recorder_of = no_recorder
    assert len(asked) == 1, "the second call asks for no recorder"


def test_gradients_are_refused_where_nothing_records_them(gpu, torch):
    memory = torch.empty((64, 64), torch.bfloat16)
    weights = torch.nn.Parameter(memory.array, torch.bfloat16, grad=True)
    torch.grad_enabled = False
    out = wt.matmul(memory, weights)
    held = wt.plan(memory, weights)
    for _ in range(2):
        wt.matmul(memory, weights, out=out)
        held(memory, weights)
    torch.grad_enabled = True
    launched = len(gpu.launches)
    with pytest.raises(wt.UnsupportedError, match="requires a gradient"):
        wt.matmul(memory, weights, out=out)
    with pytest.raises(wt.UnsupportedError, match="requires a gradient"):
        held(memory, weights)
    assert len(gpu.launches) == launched


@pytest.mark.parametrize(("kind", "cast"), [("float32", True), ("bfloat16", False)])
def test_autocast_sees_bound_calls_of_float32_alone(gpu, torch, monkeypatch, kind, cast):
    a = torch.empty((64, 64), getattr(torch, kind))
    out = wt.matmul(a, a)
    long_way = []
    monkeypatch.setattr(api, "matmul_in_torch", lambda *arguments: long_way.append(arguments))
    torch.autocasts = True
    wt.matmul(a, a)
    assert len(long_way) == cast
    wt.matmul(a, a, out=out)
    assert len(long_way) == cast, "as in torch, a call with out= is not cast"


def test_a_bound_call_has_no_derivative_forwards(gpu, torch, monkeypatch):
    a = torch.empty((64, 64), torch.bfloat16)
    wt.matmul(a, a)
    monkeypatch.setattr(api, "torch_sees", lambda *arrays: True)
    monkeypatch.setattr(api, "matmul_in_torch", lambda *arguments: "seen")
    torch.autograd.forward_ad._current_level = 0
    assert wt.matmul(a, a) == "seen"


def test_options_that_are_objects_are_looked_at_every_time(gpu, torch):
    a = torch.empty((64, 64), torch.float32)
    for factor in (np.ones(1), np.full(1, 2.0), np.full(1, 3.0)):
        wt.matmul(a, a, alpha=factor)
    parameters = [gpu.expect(spec, dict.fromkeys(spec.operands, 0)) for spec in gpu.prepared]
    assert len(set(parameters)) == 3, "a changed element gives another launch"


def test_unknown_keywords_and_wrong_arrays_are_refused_after_a_bound_call_as_before(gpu, torch):
    a = torch.empty((64, 64), torch.float32)
    wt.matmul(a, a)
    with pytest.raises(wt.ArgumentTypeError, match="Did you mean 'alpha'"):
        wt.matmul(a, a, alpa=2)
    with pytest.raises(wt.ShapeError):
        wt.matmul(a, torch.empty((32, 64), torch.float32))
    with pytest.raises(wt.LayoutError, match="one place"):
        wt.matmul(a, np.ones((64, 64), np.float32))
    with pytest.raises(wt.ArgumentError):
        wt.matmul(a, a, max_sms=0)


def test_the_environment_counts_from_call_to_call(gpu, torch, monkeypatch):
    a = torch.empty((64, 64), torch.float32)
    wt.matmul(a, a)
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    with pytest.raises(wt.LayoutError, match="the emulator takes arrays in host memory"):
        wt.matmul(a, a)
    monkeypatch.delenv("WARPTILE_BACKEND")
    wt.matmul(a, a)
    assert len(gpu.launches) == 2


def test_what_tuning_finds_replaces_what_is_bound(gpu, torch, monkeypatch):
    digest = [""]
    monkeypatch.setattr(tuned_table, "outcomes", lambda name, where=None: digest[0])
    planned = []
    real = chosen_kernel.planned
    monkeypatch.setattr(chosen_kernel, "planned", lambda *given, **named: (planned.append(1), real(*given, **named))[1])
    a = torch.empty((64, 64), torch.float32)
    for _ in range(3):
        wt.matmul(a, a)
    assert len(planned) == 1
    digest[0] = "another outcome"
    for listener in tuned_table._listeners:
        listener()
    for _ in range(3):
        wt.matmul(a, a)
    assert len(planned) == 2


def test_a_refused_launch_is_an_error_that_names_kernel_and_reason(gpu, torch):
    a = torch.empty((64, 64), torch.float32)
    wt.matmul(a, a)
    gpu.status = 701
    with pytest.raises(wt.DeviceError, match=r"launching kernel_\d+ with grid.*LAUNCH_OUT_OF_RESOURCES"):
        wt.matmul(a, a)


def test_the_context_of_the_device_is_entered_and_left(gpu, torch):
    a = torch.empty((64, 64), torch.float32)
    wt.matmul(a, a)
    for others in ([], [OTHER_CONTEXT]):
        gpu.contexts[:] = others
        wt.matmul(a, a)
        assert gpu.launches[-1].context == CONTEXT
        assert gpu.contexts == others


def test_threads_hand_over_their_own_operands(gpu, torch):
    kept, errors = [], []

    def work(count):
        try:
            for _ in range(count):
                a = torch.empty((64, 64), torch.float32)
                kept.append((a, wt.matmul(a, a)))
        except Exception as error:
            errors.append(error)

    work(1)
    threads = [threading.Thread(target=work, args=(50,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    [entry] = {each.entry for each in gpu.launches}
    expected = {gpu.expect(gpu.specs[entry], pointers_of(a, a, None, d, 0)) for a, d in kept}
    assert {each.parameters for each in gpu.launches} == expected


@pytest.mark.parametrize("guards", [True, False])
def test_a_held_plan_is_bound_too(gpu, torch, guards):
    if not guards:
        del torch._C._dynamo
    a, b, out = (torch.empty((64, 64), torch.bfloat16) for _ in range(3))
    plan = wt.plan(a, b)
    for _ in range(3):
        a, b, out = (torch.empty((64, 64), torch.bfloat16) for _ in range(3))
        d = plan(a, b)
        check(gpu, gpu.launches[-1], pointers_of(a, b, None, d, 0), torch.stream)
        assert plan(a, b, out=out) is out
        check(gpu, gpu.launches[-1], pointers_of(a, b, None, out, 0), torch.stream)
    assert gpu.prepared == []
    assert torch.guarded == (6 if guards else 0)
    with pytest.raises(wt.ShapeError, match="this plan is for m, n, k = 64, 64, 64"):
        plan(a, torch.empty((64, 32), torch.bfloat16))
    with pytest.raises(wt.LayoutError, match="one place"):
        plan(a, np.ones((64, 64), np.float32))
    wide = torch.empty((64, 65), torch.bfloat16)
    with pytest.raises(wt.LayoutError, match="a: this plan is for"):
        plan(torch.Tensor(wide.array[:, 1:], torch.bfloat16), b)
    assert len(gpu.launches) == 6


def test_a_held_plan_looks_at_addresses_that_its_guard_does_not_know(gpu, torch):
    memory = torch.empty((4097,), torch.bfloat16)

    def matrix(start):
        return torch.Tensor(memory.array[start : start + 4096].reshape(64, 64), torch.bfloat16)

    a, b = torch.empty((64, 64), torch.bfloat16), torch.empty((64, 64), torch.bfloat16)
    plan = wt.plan(a, b)
    plan(a, b)
    plan(a, b)
    with pytest.raises(wt.LayoutError, match="a: this plan is for"):
        plan(matrix(1), b)
    torch.Tensor.copy_ = lambda self, other: None
    plan(a, b, out=b)
    assert len(gpu.launches) == 2, "b is an operand: the result is made apart"


@pytest.mark.parametrize(("start", "apart"), [(0, True), (8, False), (4088, False), (8184, False), (8192, True)])
def test_a_held_plan_writes_at_once_into_memory_that_no_operand_shares(gpu, torch, start, apart):
    memory = torch.empty((3 * 4096,), torch.bfloat16)

    def matrix(start):
        return torch.Tensor(memory.array[start : start + 4096].reshape(64, 64), torch.bfloat16)

    a, b, out = matrix(4096), torch.empty((64, 64), torch.bfloat16), torch.empty((64, 64), torch.bfloat16)
    torch.Tensor.copy_ = lambda self, other: None
    plan = wt.plan(a, b)
    for first, second in ((a, b), (b, a)):
        plan(first, second, out=out)
        plan(first, second, out=out)
        launched = len(gpu.launches)
        plan(first, second, out=matrix(start))
        assert (len(gpu.launches) > launched) == apart


def test_calls_take_the_long_way_where_no_machine_code_can_be_made(gpu, torch, monkeypatch, caplog):
    def refuse(*given):
        raise RuntimeError("no executable memory")

    monkeypatch.setattr("warptile.gpu.loader.native_launch", refuse)
    a = torch.empty((64, 64), torch.float32)
    for _ in range(2):
        assert wt.matmul(a, a).shape == (64, 64)
    assert (len(gpu.prepared), gpu.launches) == (2, [])
    assert [each.message for each in caplog.records].count(
        "launches cannot be bound (no executable memory): every call packs its parameters, which costs the host more"
    ) == 1


@pytest.mark.parametrize("keeps", ["elsewhere", "mapped addresses alone"])
def test_maps_that_cannot_be_rewritten_in_place_are_encoded_for_every_call(gpu, torch, monkeypatch, keeps):
    real = gpu.encode

    def encode(tensor, pointers):
        raw = real(tensor, pointers)
        if keeps == "elsewhere":
            return raw[8:] + raw[:8]
        if min(pointers.values()) in (2**40, 3 * 2**40 + 2**20 + 16):
            raise wt.DeviceError("CUDA_ERROR_INVALID_VALUE")
        return raw

    monkeypatch.setattr("warptile.gpu.tensor_map.encode", encode)
    a = torch.empty((64, 64), torch.bfloat16)
    for _ in range(2):
        assert wt.matmul(a, a).shape == (64, 64)
    assert (len(gpu.prepared), gpu.launches) == (2, [])


def test_no_more_calls_are_kept_than_said(gpu, torch, monkeypatch):
    monkeypatch.setenv("WARPTILE_COMPILE", "wait")  # a call whose kernel stands in for another one may be forgotten
    monkeypatch.setattr("warptile.runtime.call_cache.MOST_CALLS", 3)
    a = torch.empty((8, 64), torch.float32)
    for columns in (8, 16, 24, 32, 40):
        wt.matmul(a, torch.empty((64, columns), torch.float32))
    [calls] = set(api._calls.values())
    assert len(calls._bound) == 3


def work():
    """Work of plain Python in the order of a call: attributes, a tuple, a dictionary."""
    known = {}
    for number in range(100):
        said = tuple(str(number + place) for place in range(10))
        known[said] = known.get(said, 0) + len(said)
    return known


@pytest.mark.parametrize(
    ("name", "most"),
    [("matmul", 0.03), ("matmul, out", 0.05), ("plan, out", 0.035)],
)
def test_a_repeated_call_costs_little_python(gpu, torch, monkeypatch, name, most):
    """As a share of `work`, in the same run: a look at how many times more a call does than it needs to."""
    gpu.record_nothing(monkeypatch)
    a, b, out = (torch.empty((64, 64), torch.bfloat16) for _ in range(3))
    plan = wt.plan(a, b)
    call = {
        "matmul": lambda: wt.matmul(a, b),
        "matmul, out": lambda: wt.matmul(a, b, out=out),
        "plan, out": lambda: plan(a, b, out=out),
    }[name]
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, device: out)
    api._calls.clear()
    call()
    call()
    rounds = [(timeit.timeit(call, number=200) / 200, timeit.timeit(work, number=4) / 4) for _ in range(25)]
    ratio = min(mine for mine, _ in rounds) / min(unit for _, unit in rounds)
    assert ratio <= most, f"{ratio:.4f} of a unit of work; rounds of call and unit in seconds: {rounds}"
