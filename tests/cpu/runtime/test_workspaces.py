"""Workspaces and copies on the way to a GPU: where they lie, what is launched before what, what is noticed."""

import ctypes
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pretended_gpu import PretendedGpu
from toy_rung import Asking, toy_view
from warptile.arrays import array_view
from warptile.dtypes import DTYPES
from warptile.errors import DeviceError
from warptile.gpu import driver, stream_state, workspaces
from warptile.gpu.workspaces import Workspaces
from warptile.launch.workspace import Workspace
from warptile.planning.plan import Plan
from warptile.problem import Problem
from warptile.runtime import execute
from warptile.runtime.device_product import DeviceProduct
from warptile.runtime.execute import GpuBackend

SMALL = (Workspace("sums", 1000), Workspace("flags", 64, zero=True))
LARGE = (Workspace("sums", 100_000), Workspace("more", 77), Workspace("flags", 4096, zero=True))

REPACKING = Asking(view=toy_view, kernel_workspaces=(Workspace("flags", 64, zero=True),))
GIVEN = Problem.dense(9, 13, 29, DTYPES["float16"], out=DTYPES["float32"], accumulator=DTYPES["float32"])


@pytest.fixture
def gpu(monkeypatch):
    return PretendedGpu().install(monkeypatch)


def planned(given=GIVEN):
    config = REPACKING.default_config(given)
    return Plan(given, REPACKING, config)


def test_memory_is_kept_until_more_is_needed(gpu):
    kept = Workspaces()
    first = kept.pointers(SMALL)
    assert kept.pointers(SMALL) == first
    assert len(kept._unknown._pieces) == len(kept._zeros._pieces) == 1
    grown = kept.pointers(LARGE)
    assert grown["more"] - grown["sums"] == 100_096
    assert kept.pointers(SMALL) == {name: grown[name] for name in first}
    assert kept._unknown._pieces[0].memory is not None  # a graph may still use it
    assert not any(kept.pointers(()))
    kept.close()


def test_memory_doubles_at_least_when_it_grows(gpu):
    kept = Workspaces()
    kept.pointers((Workspace("sums", 1024),))
    kept.pointers((Workspace("sums", 1025),))
    assert [each.size_bytes for each in kept._unknown._pieces] == [1024, 2048]


def test_what_may_hold_anything_is_spoilt_and_zeros_are_not(gpu):
    kept = Workspaces()
    kept.spoil()
    kept.pointers(SMALL)
    kept.spoil()
    (unknown,), (zeros,) = kept._unknown._pieces, kept._zeros._pieces
    assert np.all(unknown.to_host(np.empty(1024, np.uint8)) == 0xFF)
    assert kept.leftovers() == 0
    zeros.from_host(np.ones(3, np.uint8), offset_bytes=8)
    assert kept.leftovers() == 3
    assert kept.leftovers() == 0


@pytest.fixture
def states(monkeypatch):
    """States of streams by their handles: the identifier is the handle unless a test says otherwise."""
    known = {}
    monkeypatch.setattr(
        stream_state, "state_function", lambda: lambda stream: known.get(stream, 2 * stream if stream else -2)
    )
    monkeypatch.setattr(workspaces, "_OF_STREAM", {})
    monkeypatch.setattr(workspaces, "_SHARED", {})
    return known


def test_each_stream_has_its_own(states):
    assert workspaces.of_stream(0, 7) is workspaces.of_stream(0, 7)
    assert len({id(workspaces.of_stream(*each)) for each in ((0, 7), (0, 8), (1, 7))}) == 3


def test_a_handle_that_is_used_again_means_another_stream(states):
    states[7] = 2 * 100
    first = workspaces.of_stream(0, 7)
    states[7] = 2 * 101
    assert workspaces.of_stream(0, 7) is not first


def test_streams_beyond_the_bound_share_memory_in_the_order_of_their_uses(gpu, states, monkeypatch):
    calls = []

    class Event:
        record = lambda self, stream: calls.append(("record", stream))  # noqa: E731
        synchronize = lambda self: calls.append("wait on the host")  # noqa: E731
        close = lambda self: calls.append("close")  # noqa: E731

    monkeypatch.setattr(driver, "Event", Event)
    monkeypatch.setattr(driver, "wait_for_event", lambda stream, event: calls.append(("wait", stream)))
    monkeypatch.setattr(workspaces, "MOST_STREAMS", 2)
    own = [workspaces.of_stream(0, stream) for stream in (7, 8)]
    shared = workspaces.of_stream(0, 9)
    assert shared is workspaces.of_stream(0, 10) is not workspaces.of_stream(1, 10)
    assert own == [workspaces.of_stream(0, stream) for stream in (7, 8)]
    with shared.used_on(9):
        first = shared.pointers(SMALL)
    with shared.used_on(10):
        assert shared.pointers(SMALL) == first
    assert calls == [("record", 9), ("wait", 10), ("record", 10)]
    calls.clear()
    with shared.used_on(9):
        shared.pointers(LARGE)
    assert calls == [("wait", 9), "wait on the host", ("record", 9)]
    assert len(shared._unknown._pieces) == len(shared._zeros._pieces) == 1, "what was too small is given back"
    states[11] = 2 * 11 + 1
    captured = workspaces.of_stream(0, 11)
    assert captured not in (shared, *own), "a graph's memory is of its own, and not counted"
    assert workspaces.of_stream(0, 11) is captured
    states[11] = 2 * 11
    assert workspaces.of_stream(0, 11) is shared, "what is not captured does not use a graph's memory"


def test_what_a_graph_may_use_is_never_freed(gpu, states, monkeypatch):
    waits = []
    monkeypatch.setattr(driver, "on_device", lambda ordinal: nullcontext())
    monkeypatch.setattr(driver, "synchronize", lambda: waits.append(1))
    plain, before = workspaces.of_stream(0, 7), workspaces.of_stream(0, 8)
    states[8] = 2 * 8 + 1
    graphs = workspaces.of_stream(0, 8)
    assert graphs is not before
    for each in (plain, graphs):
        each.pointers(SMALL)
    workspaces.free()
    assert (plain.closed, before.closed, graphs.closed, waits) == (True, True, False, [1, 1])
    assert workspaces.of_stream(0, 8) is graphs
    assert workspaces.of_stream(0, 7) is not plain
    workspaces.of_stream(0, 7).pointers(SMALL)
    last = workspaces.of_stream(0, 7)
    workspaces.forget(0, 7)
    assert last.closed


def test_a_stream_that_the_driver_does_not_know_is_an_error(states, monkeypatch):
    def refuse(stream):
        raise DeviceError("no such stream")

    states[7] = stream_state.UNKNOWN
    monkeypatch.setattr(driver, "is_capturing", refuse)
    with pytest.raises(DeviceError, match="no such stream"):
        workspaces.of_stream(0, 7)


def test_the_native_state_is_what_the_driver_says(monkeypatch):
    said, asked = {0x50: (5, 0, 0), 0x60: (2**62, 0, 0), 0x70: (7, 0, 400), 0x80: (9, 1, 0)}, []

    def identify(stream, where):
        asked.append(stream)
        ctypes.cast(where, ctypes.POINTER(ctypes.c_uint64))[0], _, status = said[stream]
        return status

    def captured(stream, where):
        _, ctypes.cast(where, ctypes.POINTER(ctypes.c_int))[0], status = said[stream]
        return status

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
    made = function(identify), function(captured)
    entries = driver.EntryPoints(0, 0, 0, 0, *(ctypes.cast(each, ctypes.c_void_p).value for each in made))
    state = stream_state._native.__wrapped__(entries)
    assert [state(stream) for stream in (0, 1, 0x50, 0x70)] == [-2, -2, 10, stream_state.UNKNOWN]
    assert state(0x60) == 2**63 - 2**64, "an identifier keeps its bits"
    assert state(0x80) == 2 * 0x80 + 1
    assert 0x80 not in asked, "the driver ends the capture of a stream whose identifier is asked for"
    with pytest.raises(TypeError):
        state("stream")
    monkeypatch.setattr(driver, "stream_id", lambda stream: 9)
    monkeypatch.setattr(driver, "is_capturing", lambda stream: True)
    assert [stream_state.asked(stream) for stream in (0, 5)] == [-2, 11]


def test_a_checked_gemm_is_repacked_first_and_leaves_its_flags_zero(gpu):
    plan, product = planned(), DeviceProduct(GIVEN, sets=2)
    expected = product.reference()
    found = product.check(plan, expected)
    assert found.wrong is None
    targets = product._launcher.workspaces.pointers(plan.kernel.workspaces)
    given = product.pointers(0) | targets
    assert [each[1:] for each in gpu.copied] == [tuple(given[name] for name in ("A", "repacked A", "B", "repacked B"))]
    product._launcher.workspaces._zeros.newest.fill(1)
    assert product.check(plan, expected).wrong == "256 bytes of workspaces that it must leave zero are not"
    assert product.check(plan, expected).wrong is None
    product.close()


def test_repacking_is_part_of_what_is_timed_in_every_set(gpu):
    plan, product = planned(), DeviceProduct(GIVEN, sets=2)
    candidate = product.candidate(plan)
    for index in (0, 1, 0):
        candidate.launch(index, 7)
    assert gpu.launches == 6
    sources = [(product.pointers(index)["A"], product.pointers(index)["B"]) for index in (0, 1, 0)]
    assert [each[1::2] for each in gpu.copied] == sources
    assert len({each[2::2] for each in gpu.copied}) == 1
    product.close()


def test_a_batch_repacks_what_its_matrices_share_once(gpu, states, monkeypatch):
    launched = []

    def load(self, kernel):
        return SimpleNamespace(
            launch=lambda spec, pointers, stream: launched.append((kernel.entry, spec, pointers, stream))
        )

    monkeypatch.setattr(driver, "on_device", lambda ordinal: nullcontext())
    monkeypatch.setattr(GpuBackend, "load", load)
    backend = object.__new__(GpuBackend)
    backend.info = SimpleNamespace(ordinal=0)
    plan = planned()
    on_gpu = {
        "A": np.zeros((3, 9, 29), np.float16),
        "B": np.zeros((29, 13), np.float16),
        "D": np.zeros((3, 9, 13), np.float32),
    }
    views = {name: replace(array_view.view(array, name), device=0, stream=7) for name, array in on_gpu.items()}
    views["B"] = views["B"].broadcast((3, 29, 13))
    backend.run(plan, views, [(0,), (1,), (2,)], 1.0, 0.0)
    both, of_a = (
        execute.copy_launch(some, plan.arch)[0].entry for some in (plan.kernel.copies, plan.kernel.copies[:1])
    )
    product = execute.compiled(plan).entry
    assert [each[0] for each in launched] == [both, product, of_a, product, of_a, product]
    assert {each[3] for each in launched} == {7}
    given = launched[-1][2]
    assert given["A"] == on_gpu["A"][2].ctypes.data
    assert given.keys() == {"A", "B", "D", "repacked A", "repacked B", "flags"}
