"""Workspaces and copies on the way to a GPU: where they lie, what is launched before what, what is noticed."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pretended_gpu import PretendedGpu
from toy_rung import Asking, toy_view
from warptile.arrays import array_view
from warptile.dtypes import DTYPES
from warptile.gpu import driver, workspaces
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


def test_each_stream_has_its_own(monkeypatch):
    monkeypatch.setattr(workspaces, "_OF_STREAM", {})
    assert workspaces.of_stream(0, 7) is workspaces.of_stream(0, 7)
    assert len({id(workspaces.of_stream(*each)) for each in ((0, 7), (0, 8), (1, 7))}) == 3


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


def test_a_batch_repacks_what_its_matrices_share_once(gpu, monkeypatch):
    launched = []

    def load(self, kernel):
        return SimpleNamespace(
            launch=lambda spec, pointers, stream: launched.append((kernel.entry, spec, pointers, stream))
        )

    monkeypatch.setattr(driver, "on_device", lambda ordinal: nullcontext())
    monkeypatch.setattr(workspaces, "_OF_STREAM", {})
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
        execute.copy_launch(some, plan.arch)[0].entry for some in (plan.kernel.repacks, plan.kernel.repacks[:1])
    )
    product = execute.compiled(plan).entry
    assert [each[0] for each in launched] == [both, product, of_a, product, of_a, product]
    assert {each[3] for each in launched} == {7}
    given = launched[-1][2]
    assert given["A"] == on_gpu["A"][2].ctypes.data
    assert given.keys() == {"A", "B", "D", "repacked A", "repacked B", "flags"}
