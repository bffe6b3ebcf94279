"""A ring of stages between a producer and consumers, as Hopper kernels have it: right under every schedule, and told
when one of its parts is missing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tensor_product import ptx_once
from warptile.codegen.translation_unit import Source
from warptile.emulator import EmulationReport, emulate
from warptile.errors import DataRace, EmulationError
from warptile.launch.access import Access, Rows
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse
from warptile.ptx.instruction import PtxModule

SCHEDULES = ("latest", "earliest", "random:1", "random:2")

RING = """
struct alignas(64) Map { unsigned long long words[16]; };
typedef unsigned long long u64;

__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(u64* bar, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(address(bar)), "r"(parity) : "memory");
}

// Rows of floats, 32 columns: C = 3 A, box after box, through STAGES boxes of 16 rows in shared memory.
template <int STAGES>
__global__ void ring(const __grid_constant__ Map a, const __grid_constant__ Map c, int boxes) {
    __shared__ alignas(1024) float stage[STAGES][16 * 32];
    __shared__ alignas(1024) float result[2][16 * 32];
    __shared__ u64 full[STAGES], empty[STAGES];
    int first = blockIdx.x * boxes, t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < STAGES; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full[s])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" :: "r"(address(&empty[s])) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (t >= 64) {
        if (t != 64) return;
        for (int i = 0; i < boxes; ++i) {
            int s = i % STAGES;
            EMPTY(if (i >= STAGES) wait(&empty[s], (i / STAGES - 1) & 1);)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(address(&full[s])), "r"(2048) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                         "[%0], [%1, {%2, %3}], [%4];"
                         :: "r"(address(stage[s])), "l"(&a), "r"(0), "r"(16 * (first + i)), "r"(address(&full[s]))
                         : "memory");
        }
        return;
    }
    for (int i = 0; i < boxes; ++i) {
        int s = i % STAGES;
        FULL(wait(&full[s], (i / STAGES) & 1);)
        // The buffer of two boxes ago must have been read before it is written again.
        READ(if (t == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");)
        asm volatile("bar.sync 1, 64;" ::: "memory");
        for (int e = t; e < 16 * 32; e += 64) result[i % 2][e] = 3 * stage[s][e];
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(&empty[s])) : "memory");
        PROXY(asm volatile("fence.proxy.async.shared::cta;" ::: "memory");)
        BARRIER(asm volatile("bar.sync 1, 64;" ::: "memory");)
        if (t == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                         :: "l"(&c), "r"(0), "r"(16 * (first + i)), "r"(address(result[i % 2])) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    }
    END(if (t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");)
}
"""
PARTS = ("EMPTY", "FULL", "READ", "PROXY", "BARRIER", "END")


@cache
def compiled(without: str, stages: int) -> tuple[PtxModule, str]:
    """The kernel without one of its parts (or with all of them)."""
    defines = "".join(
        f"#define {part}(...){'' if part == without else ' __VA_ARGS__'}\n" for part in PARTS
    )  # fmt: skip
    entry, ptx = ptx_once(Source(defines + RING, f"ring<{stages}>"), "sm_90a")
    return parse(ptx), entry


def run(without: str, schedule: str, *, stages: int = 3, boxes: int = 7, blocks: int = 3) -> EmulationReport:
    """One launch; checks the result. The last box lies partly outside the 325 rows."""
    module, entry = compiled(without, stages)
    rows = 16 * boxes * blocks - 11
    a = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    c = np.zeros_like(a)
    maps = [TensorMap(name, "f32", (32, rows), (128,), (32, 16)) for name in "AC"]
    spec = LaunchSpec(entry, (blocks, 1, 1), (96, 1, 1), (*maps, Scalar("s32", boxes)))
    accesses = {"C": Access(writes=True, complete=Rows(rows, 32, 4, 128))}
    report = emulate(module, spec, {"A": a, "C": c}, accesses=accesses, arch="sm_90a", schedule=schedule)
    np.testing.assert_array_equal(c, 3 * a)
    return report


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 3, 8])
def test_a_ring_is_right_under_every_schedule(schedule: str, stages: int) -> None:
    assert run("", schedule, stages=stages).unfinished_copies == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("without", "error", "said"),
    [
        ("EMPTY", EmulationError, r"waits for 0 of 1 arrivals|write-write race on shared memory, stage"),
        ("FULL", EmulationError, r"has not been waited for|nobody has waited for the copy|nothing has written"),
        ("READ", DataRace, "nobody has waited for the copy"),
        ("PROXY", DataRace, r"fence\.proxy\.async"),
        ("BARRIER", EmulationError, r"no barrier|__syncwarp|nothing has written"),
        ("END", EmulationError, "ends before this copy has read shared memory"),
    ],
)
def test_a_missing_part_is_told(schedule: str, without: str, error: type[EmulationError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        run(without, schedule)
    assert caught.value.location is not None
