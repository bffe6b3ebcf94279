"""A launch that is started again finds memory as it was, whatever has written to it; the rest of it costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import compiled
from warptile.emulator import emulate
from warptile.emulator.compiled_steps.step_library import library
from warptile.emulator.memory.device_memory import DeviceMemory
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec

THREADS, BLOCKS = 128, 64

WRITES = {
    "a store": "y[i] = y[i] + 1;",
    "an atomic": "atomicAdd(y + i, 1);",
    "a vector": "if (t % 4 == 0) { int4 v = reinterpret_cast<int4*>(y)[i / 4]; v.x += 1; v.y += 1; v.z += 1; v.w += 1;"
    " reinterpret_cast<int4*>(y)[i / 4] = v; }",
    "a bulk copy": (
        "__shared__ alignas(128) int r[128]; r[t] = 1;"
        'asm volatile("fence.proxy.async;" ::: "memory"); __syncthreads();'
        'if (t == 0) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 512;'
        ' cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"'
        ' :: "l"(y + i), "r"(static_cast<unsigned>(__cvta_generic_to_shared(r))) : "memory");'
    ),
    "memory of the heap": "int* p = (int*)malloc(4); *p = y[i]; y[i] = *p + 1; free(p);",
}  # fmt: skip
AGAIN = "__shared__ int s[THREADS]; if (t < 4) s[t] = i; __syncthreads(); int w = s[t]; if (t < 4 && w != i) y[0] = -1;"


def launch(device: DeviceMemory, body: str, *addresses: int, interpreted: bool = False) -> None:
    text = f"""#define THREADS {THREADS}
    __global__ void k(int* y, const int* x) {{ const int t = threadIdx.x, i = blockIdx.x * THREADS + t; {body} }}"""
    entry, module = compiled(text, "k", "sm_90a")
    arguments = tuple(Scalar("u64", address) for address in addresses)
    spec = LaunchSpec(entry, (BLOCKS, 1, 1), (THREADS, 1, 1), arguments)
    report = emulate(module, spec, {}, arch="sm_90a", device=device, collect=True, interpreted=interpreted)
    assert [each for each in report.findings if each.check != "leaks"] == []
    assert report.finished


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("way", WRITES)
def test_what_was_written_before_the_second_start_is_put_back(way: str, interpreted: bool) -> None:
    library(wait=True)
    device = DeviceMemory()
    before = np.arange(THREADS * BLOCKS, dtype=np.int32)
    y, x = device.place("y", before), device.place("x", before)
    for count in (1, 2):
        launch(device, WRITES[way] + AGAIN, y, x, interpreted=interpreted)
        after = np.frombuffer(device.read(y, before.nbytes), np.int32)
        np.testing.assert_array_equal(after, before + count)


def test_only_what_is_written_to_is_kept() -> None:
    """Launches do not get slower with the memory that they leave alone."""
    device = DeviceMemory()
    values = np.zeros(THREADS * BLOCKS, np.int32)
    y, x = device.place("y", values), device.place("x", values)
    device.allocate("more", 1 << 20)
    launch(device, "y[i] = x[i] + 1;", y, x)
    undo = device.remember().space
    kept = device.space._undo
    assert kept is undo
    assert kept is not None
    assert kept.saved == {}
    device.space.touch(device.space.named("y"))
    assert list(kept.saved) == [device.space.named("y").start]


def test_allocations_are_undone() -> None:
    device = DeviceMemory()
    x, y = device.place("x", b"\1" * 600), device.place("y", b"\2" * 600)
    undo = device.remember()
    device.space.touch(device.space.named("x"))
    device.write(x, b"\3" * 600)
    device.free(y)
    made = device.place("z", b"\4" * 100)
    device.restore(undo)
    assert device.read(x, 600) == b"\1" * 600
    assert device.read(y, 600) == b"\2" * 600
    assert device.unwritten(y, 600) == 0
    assert not device.space.has("z")
    assert device.space.shadow[made - x + device.space.named("x").start] == 0
