"""Memory as the emulator checks it: bounds, alignment, poison, outputs, asynchronous copies, atomics."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS, run_grid
from warptile.errors import (
    ConflictingWrites,
    DataRace,
    IllegalAddress,
    MisalignedAccess,
    UninitializedRead,
    UnsupportedError,
    UnwrittenOutput,
)
from warptile.launch.params import Scalar

SCHEDULES = ["latest", "earliest", "random:1", "random:2"]


def test_reading_one_element_past_a_buffer_names_the_buffer_and_the_lane() -> None:
    with pytest.raises(
        IllegalAddress,
        match=r"thread \(31, 0, 0\) of block \(0, 0, 0\) accesses 4 bytes at 1\+128, but 1 has 128 bytes",
    ):
        run_cuda("__global__ void k(int* o, const int* a) { o[threadIdx.x] = a[threadIdx.x + 1]; }", "k",
                 [np.zeros(32, np.int32), np.zeros(32, np.int32)])  # fmt: skip


def test_the_first_lane_outside_is_named_even_when_others_leave_the_whole_memory() -> None:
    source = "__global__ void k(int* o, const int* a) { int i = blockIdx.x * 32 + threadIdx.x; o[i] = a[i]; }"
    with pytest.raises(
        IllegalAddress, match=r"thread \(0, 0, 0\) of block \(2, 0, 0\) accesses 4 bytes at 1\+256, but 1 has 256 bytes"
    ):
        run_cuda(source, "k", [np.zeros(256, np.int32), np.zeros(64, np.int32)], grid=8)


def test_writing_before_a_buffer() -> None:
    with pytest.raises(IllegalAddress, match=r"thread \(0, 0, 0\)"):
        run_cuda("__global__ void k(int* o) { o[int(threadIdx.x) - 1] = 1; }", "k", [np.zeros(32, np.int32)])


def test_writing_an_input_is_refused() -> None:
    with pytest.raises(IllegalAddress, match="1, which is read-only"):
        run_cuda("__global__ void k(int* o, int* a) { a[threadIdx.x] = 1; o[threadIdx.x] = 1; }", "k",
                 [np.zeros(32, np.int32), np.zeros(32, np.int32)])  # fmt: skip


def test_a_null_pointer() -> None:
    with pytest.raises(IllegalAddress, match="in no buffer"):
        run_cuda("__global__ void k(int* o, const int* a) { o[threadIdx.x] = a[threadIdx.x]; }", "k",
                 [np.zeros(32, np.int32), None])  # fmt: skip


def test_a_misaligned_vector_load() -> None:
    with pytest.raises(MisalignedAccess, match="not a multiple of 16"):
        run_cuda("""__global__ void k(float4* o, const float* a) {
                      o[threadIdx.x] = *(const float4*)(a + 4 * threadIdx.x + 1);
                    }""",
                 "k", [np.zeros(128, np.float32), np.zeros(256, np.float32)])  # fmt: skip


def test_shared_memory_starts_without_values() -> None:
    source = """__global__ void k(int* o) {
        __shared__ int s[64];
        if (threadIdx.x != 7) s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        o[threadIdx.x] = s[threadIdx.x ^ 1];
      }"""
    with pytest.raises(UninitializedRead, match=r"thread \(6, 0, 0\) .*which nothing has written"):
        run_cuda(source, "k", [np.zeros(32, np.int32)])
    out = np.zeros(32, np.int32)
    run_cuda(source, "k", [out], checks=frozenset({"writes"}))
    assert out[6] == -1  # the poison
    assert out[5] == 4


def test_shared_memory_is_poisoned_again_for_every_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.launch_geometry.LANES_PER_WAVE", 64)
    out = np.zeros(4, np.int32)
    run_cuda("""__global__ void k(int* o) {
                  __shared__ int s[1];
                  if (threadIdx.x == 0) s[0] = 100 + blockIdx.x;
                  __syncthreads();
                  if (threadIdx.x == 31) o[blockIdx.x] = s[0];
                }""", "k", [out], grid=4)  # fmt: skip
    assert out.tolist() == [100, 101, 102, 103]
    with pytest.raises(UninitializedRead):
        run_cuda("""__global__ void k(int* o) {
                      __shared__ volatile int s[1];
                      if (blockIdx.x < 2) s[0] = 5;
                      __syncthreads();
                      if (threadIdx.x == 31) o[blockIdx.x] = s[0];
                    }""", "k", [out], grid=4)  # fmt: skip


def test_shared_memory_ends_where_it_ends() -> None:
    with pytest.raises(IllegalAddress, match="shared memory"):
        run_cuda("""__global__ void k(int* o) {
                      extern __shared__ int s[];
                      s[threadIdx.x] = 1;
                      o[threadIdx.x] = s[threadIdx.x];
                    }""", "k", [np.zeros(32, np.int32)], shared=124)  # fmt: skip


def test_more_shared_memory_than_the_architecture_has() -> None:
    source = (
        "__global__ void k(int* o) { extern __shared__ int s[]; s[threadIdx.x] = 1; o[threadIdx.x] = s[threadIdx.x]; }"
    )
    run_cuda(source, "k", [np.zeros(32, np.int32)], shared=200 * 1024)
    with pytest.raises(UnsupportedError, match="sm_75"):
        run_cuda(source, "k", [np.zeros(32, np.int32)], shared=200 * 1024, arch="sm_75")


def test_an_output_element_that_is_never_written_is_named() -> None:
    with pytest.raises(UnwrittenOutput, match=r"0\[0, 5\] was never written: 1 of 32"):
        run_cuda(
            "__global__ void k(int* o) { if (threadIdx.x != 5) o[threadIdx.x] = 0; }", "k", [np.zeros(32, np.int32)]
        )


def test_two_threads_that_write_different_values_to_one_place() -> None:
    source = "__global__ void k(int* o, int c) { o[threadIdx.x] = 0; o[threadIdx.x ^ 1] = c * threadIdx.x; }"
    writes = frozenset({"writes"})
    with pytest.raises(ConflictingWrites, match=r"0\[0, \d+\]"):
        run_cuda(source, "k", [np.zeros(32, np.int32), Scalar("s32", 1)], checks=writes)
    run_cuda(source, "k", [np.zeros(32, np.int32), Scalar("s32", 0)], checks=writes)


def test_local_arrays_are_private_to_a_thread() -> None:
    out = np.zeros(64, np.int32)
    run_cuda("""__global__ void k(int* o, int n) {
                  int local[16];
                  for (int i = 0; i < n; i++) local[(i * 7) % 16] = i * threadIdx.x;
                  o[threadIdx.x] = local[threadIdx.x % 16];
                }""", "k", [out, Scalar("s32", 16)], block=64)  # fmt: skip
    inverse = {(i * 7) % 16: i for i in range(16)}
    assert out.tolist() == [inverse[t % 16] * t for t in range(64)]


def test_constants_and_device_variables() -> None:
    out = np.zeros(32, np.float32)
    run_cuda("""__constant__ float c[4] = {1.5f, -2.f, 3.25f, 0.f};
                __device__ float g[2] = {10.f, 20.f};
                __device__ const float* p = g + 1;
                __global__ void k(float* o) {
                  if (threadIdx.x == 0) g[0] = 11.f;
                  __syncthreads();
                  o[threadIdx.x] = c[threadIdx.x % 4] + g[0] + *p;
                }""", "k", [out])  # fmt: skip
    np.testing.assert_array_equal(out, np.tile([32.5, 29.0, 34.25, 31.0], 8).astype(np.float32))


def test_a_generic_access_with_lanes_in_two_spaces() -> None:
    out = np.zeros(32, np.int32)
    run_cuda("""__global__ void k(int* o, int* g) {
                  __shared__ int s[32];
                  s[threadIdx.x] = threadIdx.x;
                  volatile int* p = threadIdx.x % 2 ? (volatile int*)(s + threadIdx.x)
                                                    : (volatile int*)(g + threadIdx.x);
                  *p = *p + 1;
                  o[threadIdx.x] = *p;
                }""", "k", [out, np.arange(1000, 1032, dtype=np.int32)], outputs={0: True, 1: False})  # fmt: skip
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.where(lanes % 2, lanes + 1, lanes + 1001))


COPY = """
__device__ unsigned at(void* p) {{ return (unsigned)__cvta_generic_to_shared(p); }}
__global__ void k(int4* o, const int4* a, int bytes) {{
  __shared__ int4 s[2][32];
  for (int stage = 0; stage < 2; stage++) {{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at(&s[stage][threadIdx.x])), "l"(a + stage * 32 + threadIdx.x), "r"(bytes) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  }}
  asm volatile("cp.async.wait_group {first};" ::: "memory");
  __syncthreads();
  int4 x = s[0][threadIdx.x ^ 1];
  asm volatile("cp.async.wait_group {second};" ::: "memory");
  __syncthreads();
  int4 y = s[1][threadIdx.x ^ 1];
  o[threadIdx.x] = make_int4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}}
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("bytes_read", [16, 7, 0])
def test_asynchronous_copies_that_are_waited_for(schedule: str, bytes_read: int) -> None:
    out = np.zeros((32, 4), np.int32)
    a = np.random.default_rng(1).integers(1, 1 << 20, (64, 4)).astype(np.int32)
    run_cuda(COPY.format(first=1, second=0), "k", [out, a, Scalar("s32", bytes_read)], schedule=schedule)
    filled = a.copy().view(np.uint8).reshape(64, 16)
    filled[:, bytes_read:] = 0
    swapped = filled.view(np.int32).reshape(2, 32, 4)[:, np.arange(32) ^ 1]
    np.testing.assert_array_equal(out, swapped.sum(axis=0))


def test_a_missing_wait_is_found_when_copies_are_late_and_is_a_race_at_all_times() -> None:
    arrays = [np.zeros((32, 4), np.int32), np.ones((64, 4), np.int32), Scalar("s32", 16)]
    source = COPY.format(first=1, second=1)
    with pytest.raises(UninitializedRead, match="has not been waited for"):
        run_cuda(source, "k", arrays, schedule="latest")
    with pytest.raises(DataRace, match="has not waited for its copy"):
        run_cuda(source, "k", arrays, schedule="earliest")
    run_cuda(source, "k", arrays, schedule="earliest", checks=DEFAULT_CHECKS - {"races"})


def test_an_asynchronous_copy_checks_its_source() -> None:
    out = np.zeros((32, 4), np.int32)
    with pytest.raises(IllegalAddress, match=r"thread \(31, 0, 0\)"):
        run_cuda(COPY.format(first=1, second=0), "k", [out, np.ones((63, 4), np.int32), Scalar("s32", 16)])
    run_cuda(COPY.format(first=1, second=0), "k", [out, np.ones((1, 4), np.int32), Scalar("s32", 0)])
    ends = np.ones(63 * 4 + 2, np.int32)
    run_cuda(COPY.format(first=1, second=0), "k", [out, ends, Scalar("s32", 8)])
    with pytest.raises(IllegalAddress, match=r"thread \(31, 0, 0\)"):
        run_cuda(COPY.format(first=1, second=0), "k", [out, ends, Scalar("s32", 9)])


def test_unknown_schedule() -> None:
    with pytest.raises(UnsupportedError, match="random:7"):
        run_cuda("__global__ void k(int* o) { o[threadIdx.x] = 0; }", "k", [np.zeros(32, np.int32)], schedule="never")


def test_atomics_on_one_place_and_on_many() -> None:
    out = np.zeros(8, np.int32)
    run_cuda("""__global__ void k(int* o) {
                  int t = threadIdx.x + blockIdx.x * blockDim.x;
                  atomicAdd(o + 0, t); atomicMax(o + 1, t); atomicMin(o + 2, -t); atomicOr(o + 3, 1 << (t % 20));
                  atomicXor(o + 4, t); atomicInc((unsigned*)o + 5, 9); atomicExch(o + 6 + t % 2, t);
                }""", "k", [out], block=64, grid=3, outputs={0: False})  # fmt: skip
    everything = np.arange(192)
    assert out[:6].tolist() == [
        everything.sum(), 191, -191, (1 << 20) - 1, np.bitwise_xor.reduce(everything), 192 % 10
    ]  # fmt: skip
    assert out[6:].tolist() == [190, 191]


def test_an_atomic_that_acquires_and_releases() -> None:
    out = np.zeros(1, np.int32)
    run_cuda("""__global__ void k(int* o) {
                  int before;
                  asm volatile("atom.add.acq_rel.gpu.s32 %0, [%1], 1;" : "=r"(before) : "l"(o) : "memory");
                }""", "k", [out], grid=2)  # fmt: skip
    assert out.tolist() == [64]


@pytest.mark.parametrize(("order", "races"), [("acq_rel", False), ("relaxed", True)])
def test_an_atomic_that_acquires_and_releases_orders_what_stands_around_it(order, races) -> None:
    """Each of two blocks writes its value; the one that comes second, by the ticket, adds both."""
    source = f"""__global__ void k(int* o, int* values, int* ticket) {{
        values[blockIdx.x] = 10 + blockIdx.x;
        int before;
        asm volatile("atom.add.{order}.gpu.s32 %0, [%1], 1;" : "=r"(before) : "l"(ticket) : "memory");
        if (before == 1) o[0] = values[0] + values[1];
      }}"""
    out = np.zeros(1, np.int32)
    arguments = [out, np.zeros(2, np.int32), np.zeros(1, np.int32)]
    outputs = {0: True, 1: True, 2: True}
    if races:
        with pytest.raises(DataRace):
            run_cuda(source, "k", arguments, grid=2, block=1, outputs=outputs)
        return
    run_cuda(source, "k", arguments, grid=2, block=1, outputs=outputs)
    assert out.tolist() == [21]


@pytest.mark.parametrize(("arch", "start"), [("sm_75", 0), ("sm_80", 1024), ("sm_90a", 1024)])
def test_where_the_shared_memory_of_a_block_starts(arch, start) -> None:
    """From sm_80 on the first 1024 bytes belong to the system."""
    out = np.zeros(2, np.uint32)
    run_cuda("""__global__ void k(unsigned* o) {
                  extern __shared__ unsigned s[];
                  s[threadIdx.x] = 7;
                  asm volatile("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(o[1]));
                  o[0] = (unsigned)__cvta_generic_to_shared(s) + (s[0] - 7);
                }""" if arch != "sm_75" else """__global__ void k(unsigned* o) {
                  extern __shared__ unsigned s[];
                  s[threadIdx.x] = 7;
                  o[1] = 0;
                  o[0] = (unsigned)__cvta_generic_to_shared(s) + (s[0] - 7);
                }""", "k", [out], block=1, shared=64, arch=arch)  # fmt: skip
    assert out.tolist() == [start, start]


def test_atomic_floats_and_returned_old_values_in_shared_memory() -> None:
    out, total = np.zeros(64, np.float32), np.zeros(1, np.float64)
    run_cuda("""__global__ void k(float* o, double* total) {
                  __shared__ float s[2];
                  if (threadIdx.x < 2) s[threadIdx.x] = 0.f;
                  __syncthreads();
                  o[threadIdx.x] = atomicAdd(s + threadIdx.x % 2, 1.f);
                  atomicAdd(total, 0.125 * threadIdx.x);
                }""", "k", [out, total], block=64, outputs={0: True, 1: False})  # fmt: skip
    assert sorted(out[::2].tolist()) == list(range(32))
    assert sorted(out[1::2].tolist()) == list(range(32))
    assert total[0] == 0.125 * (63 * 64 // 2)


def test_warp_votes_matches_and_reductions() -> None:
    out = np.zeros((8, 32), np.uint32)
    run_cuda("""__global__ void k(unsigned* o) {
                  unsigned t = threadIdx.x, m = 0xffffffffu;
                  int same;
                  o[t] = __ballot_sync(m, t % 3 == 1);
                  o[32 + t] = __any_sync(m, t == 9) * 2 + __all_sync(m, t < 32);
                  o[64 + t] = __match_any_sync(m, t % 5);
                  o[96 + t] = __match_all_sync(m, 7u, &same) + same;
                  o[128 + t] = __reduce_add_sync(m, t * t);
                  o[160 + t] = __reduce_xor_sync(m, t * 37u);
                  unsigned half = t < 16 ? 0xffffu : 0xffff0000u;
                  o[192 + t] = __reduce_max_sync(half, t);
                  o[224 + t] = __shfl_up_sync(m, t, 3, 8) * 100 + __shfl_down_sync(m, t, 2);
                }""", "k", [out])  # fmt: skip
    lanes = np.arange(32)
    assert (out[0] == sum(1 << t for t in range(32) if t % 3 == 1)).all()
    assert (out[1] == 3).all()
    assert out[2].tolist() == [sum(1 << u for u in range(32) if u % 5 == t % 5) for t in range(32)]
    assert (out[3] == 0).all()  # the full mask plus one wraps
    assert (out[4] == (lanes**2).sum()).all()
    assert (out[5] == np.bitwise_xor.reduce(lanes * 37)).all()
    assert out[6].tolist() == [15] * 16 + [31] * 16
    up = np.where(lanes % 8 >= 3, lanes - 3, lanes)
    down = np.where(lanes + 2 < 32, lanes + 2, lanes)
    np.testing.assert_array_equal(out[7], up * 100 + down)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_memory_of_a_launch_is_freed_when_it_is_over(monkeypatch, schedule) -> None:
    """At once, and not when Python next looks for cycles."""
    parts = []
    assemble = run_grid.assemble

    def observed(module, layout, machine):
        steps = assemble(module, layout, machine)
        memory = machine.memory
        parts.extend(map(weakref.ref, (memory.global_space, memory.shared_space, memory.local_space, *steps)))
        return steps

    def noted(maker):
        def make(*arguments, **options):
            made = maker(*arguments, **options)
            parts.append(weakref.ref(made))
            return made

        return make

    monkeypatch.setattr(run_grid, "assemble", observed)
    for name in ("Scheduler", "CompiledWhenItPays", "RaceChecker"):
        monkeypatch.setattr(run_grid, name, noted(getattr(run_grid, name)))
    gc.disable()
    try:
        run_cuda("""__global__ void k(int* o, const int* a) {
                      __shared__ int s[32];
                      asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;"
                          :: "r"((unsigned)__cvta_generic_to_shared(s + threadIdx.x)), "l"(a + threadIdx.x));
                      __syncthreads();
                      o[threadIdx.x] = s[31 - threadIdx.x];
                    }""", "k", [np.zeros(32, np.int32), np.ones(32, np.int32)], schedule=schedule)  # fmt: skip
    finally:
        gc.enable()
    assert parts
    assert [part() for part in parts if part() is not None] == []


def test_an_index_beyond_a_shared_array_is_named_with_it() -> None:
    source = """__global__ void k(int* o) {
        __shared__ int tile[32];
        tile[threadIdx.x + 1] = threadIdx.x;
        __syncthreads();
        o[threadIdx.x] = tile[threadIdx.x];
      }"""
    with pytest.raises(IllegalAddress, match=r"thread \(31, .* 1152 bytes of shared memory, at tile\+128"):
        run_cuda(source, "k", [np.zeros(32, np.int32)])


@pytest.mark.parametrize(
    ("grid", "block", "said"),
    [
        ((1, 0, 1), 32, r"grid: got \(1, 0, 1\); every extent is at least 1"),
        ((1, 1, 1), 0, r"block: got \(0, 1, 1\); every extent is at least 1"),
        ((1, 1, 1), 1056, r"block: got \(1056, 1, 1\): 1056 threads; a CTA has at most 1024 threads"),
    ],
)
def test_a_launch_of_wrong_extents_says_which(grid: tuple[int, int, int], block: int, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        run_cuda(
            "__global__ void k(int* o) { o[threadIdx.x] = 0; }", "k", [np.zeros(32, np.int32)], grid=grid, block=block
        )
