"""Calls of matmul_grouped on tensors of a GPU: the first one is planned, later ones only write addresses and launch."""

import numpy as np
import pytest

import warptile as wt
from stubbed_gpu import StubbedGpu, stubbed_torch
from warptile import grouped_call
from warptile.gpu import workspaces
from warptile.launch.workspace import Workspace
from warptile.rungs.wgmma.grouped import COUNTERS


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr(grouped_call, "_bound", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    module = stubbed_torch(monkeypatch)
    for name in ("detach", "contiguous"):
        monkeypatch.setattr(module.Tensor, name, lambda self: self, raising=False)
    monkeypatch.setattr(module.Tensor, "view", lambda self, kind: self, raising=False)
    return module


@pytest.fixture
def gpu(monkeypatch, torch):
    return StubbedGpu().install(monkeypatch)


def tensors(torch, *shapes):
    return [torch.empty(shape, torch.float16) for shape in shapes]


@pytest.fixture
def ends(torch):
    made = torch.empty((3,), torch.int32)
    made.array[...] = [2, 2, 30]
    return made


def check(gpu, launched, a, b, offsets, d, stream):
    """A launch is what its spec says, with these operands."""
    spec = gpu.specs[launched.entry]
    pointers = {name: each.data_ptr() for name, each in (("A", a), ("B", b), ("offsets", offsets), ("D", d))}
    if COUNTERS in spec.operands:
        shared = workspaces.of_stream(0, stream)
        with shared.used_on(stream):
            pointers |= shared.pointers((Workspace(COUNTERS, 8, zero=True),))
    assert (launched.grid, launched.shared, launched.overlaps) == (spec.grid, spec.dynamic_shared_bytes, True)
    assert launched.stream == stream
    assert launched.parameters == gpu.expect(spec, pointers)


@pytest.mark.parametrize("along_k", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_later_calls_write_addresses_and_launch(torch, gpu, ends, along_k, given):
    shapes = ((64, 40), (40, 72), (3, 64, 72)) if along_k else ((40, 64), (3, 64, 72), (40, 72))
    made = []
    for _ in range(3):
        a, b, d = tensors(torch, *shapes)
        if along_k:
            a = torch.Tensor(np.asfortranarray(a.array), torch.float16)
        found = wt.matmul_grouped(a, b, ends, out=d if given else None)
        assert found.shape == shapes[2]
        assert not given or found is d
        made.append((a, b, found))
    assert gpu.compiled == 1
    launches = gpu.launches
    assert len(launches) == 2, "those of bound calls; the first one is prepared"
    assert len(gpu.prepared) == 1
    for launched, (a, b, d) in zip(launches, made[1:], strict=True):
        check(gpu, launched, a, b, ends, d, torch.stream)


def test_another_shape_is_another_call(torch, gpu, ends):
    for rows in (40, 48, 40, 48):
        a, b = tensors(torch, (rows, 64), (3, 64, 72))
        wt.matmul_grouped(a, b, ends)
    assert len(gpu.prepared) == 2
    assert len(gpu.launches) == 2


def test_repacked_operands_are_launched_too(torch, gpu, ends):
    for _ in range(2):
        a, b = tensors(torch, (40, 63), (3, 63, 72))
        wt.matmul_grouped(a, b, ends)
    assert len(gpu.prepared) == 2
    assert len(gpu.launches) == 2, "the repacking pass and the GEMM"


def test_an_out_that_is_an_operand_takes_the_long_way(torch, gpu, ends):
    (a,), b = tensors(torch, (40, 64)), tensors(torch, (3, 64, 64))[0]
    d = tensors(torch, (40, 64))[0]
    wt.matmul_grouped(a, b, ends, out=d)
    launched = len(gpu.launches)
    with pytest.raises(AttributeError):  # tensors that stand in for torch's cannot be copied
        wt.matmul_grouped(a, b, ends, out=a)
    assert len(gpu.launches) == launched
