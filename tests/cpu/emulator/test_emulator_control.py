"""Branches, calls, barriers, warps: who runs when, and what the emulator says when nobody can."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source
from warptile.emulator.scheduler import SPIN_PATIENCE
from warptile.errors import Deadlock, DivergentCollective, KernelTrap
from warptile.launch.params import Scalar


def test_lanes_that_took_different_paths_meet_again_for_a_shuffle() -> None:
    out = np.zeros(96, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             int v = threadIdx.x;
             if (v % 3 == 0) { for (int i = 0; i < v; i++) v += out == nullptr; v *= 2; } else v += 100;
             out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 1);
           }""",
        "k", [out], block=96,
    )  # fmt: skip
    lanes = np.arange(96)
    values = np.where(lanes % 3 == 0, lanes * 2, lanes + 100)
    np.testing.assert_array_equal(out, values[lanes ^ 1])


def test_a_spinning_lane_does_not_starve_the_lane_that_it_waits_for() -> None:
    out = np.zeros(32, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             __shared__ volatile int flag;
             flag = 0;
             __syncthreads();
             if (threadIdx.x != 31) { while (flag == 0) ; } else flag = 7;
             out[threadIdx.x] = flag;
           }""",
        "k", [out],
    )  # fmt: skip
    assert (out == 7).all()


def test_a_lock_taken_by_every_thread_in_turn() -> None:
    out = np.zeros(2, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             bool done = false;
             while (!done) {
               if (atomicCAS(out, 0, 1) == 0) {
                 __threadfence();
                 out[1] = out[1] + 1;
                 __threadfence();
                 atomicExch(out, 0);
                 done = true;
               }
             }
           }""",
        "k", [out], block=64, grid=2, outputs={0: False},
    )  # fmt: skip
    assert out.tolist() == [0, 128]


def test_a_block_larger_than_its_warps_runs_only_its_threads() -> None:
    out = np.zeros(3 * 50, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             int n = __syncthreads_count(threadIdx.x % 2 == 0);
             out[blockIdx.x * blockDim.x + threadIdx.x] = n * 1000 + threadIdx.x;
           }""",
        "k", [out], block=50, grid=3,
    )  # fmt: skip
    np.testing.assert_array_equal(out, np.tile(25_000 + np.arange(50), 3))


def test_a_lane_that_its_own_mask_leaves_out_is_named_and_the_run_goes_on() -> None:
    out = np.zeros(32, dtype=np.int32)
    report = run_cuda(
        """__global__ void k(int* out) {
             int next = __shfl_down_sync(0x55555555, threadIdx.x, 1);
             out[threadIdx.x] = next + __ballot_sync(0xFFFF0000, threadIdx.x >= 20);
           }""",
        "k", [out], block=32, collect=True,
    )  # fmt: skip
    assert [(each.kind, each.location.line, each.fix) for each in report.findings if each.location is not None] == [
        ("DivergentCollective", line, "give it a mask with every lane that executes it") for line in (2, 3)
    ]
    assert "thread (1, 0, 0) of block (0, 0, 0) executes it but is not in its own" in report.findings[0].message
    votes = np.uint32(0xFFF00000).astype(np.int32)
    np.testing.assert_array_equal(out, np.minimum(np.arange(1, 33), 31) + votes)


def test_named_barriers_let_a_producer_warp_arrive_and_a_consumer_warp_wait() -> None:
    out = np.zeros(32, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             __shared__ int data[32];
             if (threadIdx.x < 32) {
               asm volatile("bar.sync 1, 64;" ::: "memory");
               out[threadIdx.x] = data[31 - threadIdx.x];
             } else {
               data[threadIdx.x - 32] = 5 * threadIdx.x;
               asm volatile("bar.arrive 1, 64;" ::: "memory");
             }
           }""",
        "k", [out], block=64,
    )  # fmt: skip
    np.testing.assert_array_equal(out, 5 * (63 - np.arange(32)))


def test_threads_that_have_exited_do_not_hold_a_barrier() -> None:
    out = np.zeros(96, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             __shared__ int data[96];
             data[threadIdx.x] = threadIdx.x;
             out[threadIdx.x] = -1;
             if (threadIdx.x >= 64) return;
             __syncthreads();
             out[threadIdx.x] = data[63 - threadIdx.x];
           }""",
        "k", [out], block=96, outputs={0: False},
    )  # fmt: skip
    np.testing.assert_array_equal(out, np.concatenate([63 - np.arange(64), np.full(32, -1)]))


def test_a_barrier_met_by_half_of_a_warp_names_both_places() -> None:
    out = np.zeros(32, dtype=np.int32)
    with pytest.raises((DivergentCollective, Deadlock)) as caught:
        run_cuda(
            """__global__ void k(int* out) {
                 if (threadIdx.x < 16) { asm volatile("bar.sync 1, 64;" ::: "memory"); out[threadIdx.x] = 1; }
                 else { asm volatile("bar.sync 2, 64;" ::: "memory"); out[threadIdx.x] = 2; }
               }""",
            "k", [out],
        )  # fmt: skip
    assert "barrier 1" in str(caught.value)
    assert "barrier 2" in str(caught.value)


def test_a_deadlock_says_who_waits_for_what() -> None:
    out = np.zeros(64, dtype=np.int32)
    with pytest.raises(Deadlock, match=r"32 threads, .* in barrier 3"):
        run_cuda(
            """__global__ void k(int* out) {
                 if (threadIdx.x < 32) asm volatile("bar.sync 3, 64;" ::: "memory");
                 out[threadIdx.x] = 1;
               }""",
            "k", [out], block=64,
        )  # fmt: skip


def test_a_shuffle_whose_lanes_wait_for_each_other_in_two_places_is_divergent() -> None:
    out = np.zeros(32, dtype=np.int32)
    with pytest.raises(DivergentCollective, match="shfl"):
        run_cuda(
            """__global__ void k(int* out) {
                 int v = threadIdx.x;
                 if (threadIdx.x < 16) v = __shfl_sync(0xffffffffu, v, 3); else v = __shfl_down_sync(0xffffffffu, v, 3);
                 out[threadIdx.x] = v;
               }""",
            "k", [out],
        )  # fmt: skip


def test_calls_results_and_function_pointers() -> None:
    out = np.zeros(64, dtype=np.float32)
    run_cuda(
        """struct Pair { float a; int b; };
           __device__ __noinline__ Pair twice(Pair p) { p.a *= 2; p.b += 1; return p; }
           __device__ __noinline__ float plus(float x) { return x + 0.5f; }
           __device__ __noinline__ float minus(float x) { return x - 0.5f; }
           typedef float (*fn)(float);
           __device__ fn table[2] = {plus, minus};
           __global__ void k(float* out) {
             Pair p{float(threadIdx.x), int(threadIdx.x)};
             if (threadIdx.x % 4 == 1) p = twice(p);
             out[threadIdx.x] = table[threadIdx.x & 1](p.a) + p.b;
           }""",
        "k", [out], block=64,
    )  # fmt: skip
    lanes = np.arange(64)
    called = lanes % 4 == 1
    expected = np.where(called, 2 * lanes, lanes) + np.where(lanes & 1, -0.5, 0.5) + lanes + called
    np.testing.assert_array_equal(out, expected.astype(np.float32))


def test_switches_become_indexed_branches() -> None:
    out = np.zeros(64, dtype=np.int32)
    run_cuda(
        """__global__ void k(int* out) {
             int t = threadIdx.x, v;
             switch (t % 8) { case 0: v = t * 3; break; case 1: v = out != nullptr; break; case 2: v = t ^ 5; break;
               case 3: v = 10 - t; break; case 4: v = t / 3; break; case 5: v = t % 5; break; default: v = -t; }
             out[t] = v;
           }""",
        "k", [out], block=64,
    )  # fmt: skip
    expected = [
        {0: t * 3, 1: 1, 2: t ^ 5, 3: 10 - t, 4: t // 3, 5: t % 5}.get(t % 8, -t) for t in range(64)
    ]  # fmt: skip
    assert out.tolist() == expected


def test_printf_and_assert() -> None:
    out = np.zeros(1, dtype=np.int32)
    source = """__global__ void k(int* out, int limit) {
          printf("t%d %5.2f %s %llu|", threadIdx.x, threadIdx.x * 1.5, "text", 1ull << 40);
          assert(threadIdx.x < limit);
          if (threadIdx.x == 0) out[0] = 1;
        }"""
    report = run_cuda(source, "k", [out, Scalar("s32", 4)], block=3)
    assert report.output == "".join(f"t{t} {t * 1.5:5.2f} text {1 << 40}|" for t in range(3))
    with pytest.raises(KernelTrap, match=r"assertion failed: threadIdx.x < limit .*thread \(2, 0, 0\)"):
        run_cuda(source, "k", [out, Scalar("s32", 2)], block=3)


def test_an_empty_compiler_log_changes_no_constant_of_the_interpreter() -> None:
    # NVRTC writes outputs into a bytes object; one of a single byte is shared by the whole process.
    ptx_alone(Source("__global__ void k() {}", "k"), "sm_90a")
    assert [bytes([i])[0] for i in range(256)] == list(range(256))


def test_trap_ends_the_launch() -> None:
    with pytest.raises(KernelTrap, match=r"first by thread \(5, 0, 0\)"):
        run_cuda("__global__ void k(int* out) { out[threadIdx.x] = 0; if (threadIdx.x >= 5) __trap(); }", "k",
                 [np.zeros(32, dtype=np.int32)])  # fmt: skip


LOCK = """
__device__ int lock;
__global__ void k(int* out) {
  while (atomicCAS(&lock, 0, 1) != 0) {}
  __threadfence();
  out[0] += 1;
  __threadfence();
  RELEASE
}
"""


@pytest.mark.parametrize(("grid", "block"), [(64, 1), (1, 64)])
def test_whoever_holds_a_contended_lock_goes_before_those_that_spin_for_it(grid: int, block: int) -> None:
    out = np.zeros(1, dtype=np.int32)
    report = run_cuda(
        LOCK.replace("RELEASE", "atomicExch(&lock, 0);"), "k", [out], grid=grid, block=block, outputs={0: False}
    )
    assert out[0] == 64
    # 64 takes of the lock, at each of which at most 64 warps (2 in one block) read it for SPIN_PATIENCE steps or so.
    assert report.counters["warp_instructions"] < 64 * 64 * 2 * SPIN_PATIENCE


def test_a_lock_that_nobody_releases_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.scheduler.SPIN_STEPS", 5_000)
    with pytest.raises(Deadlock, match="spin"):
        run_cuda(LOCK.replace("RELEASE", ""), "k", [np.zeros(1, dtype=np.int32)], grid=2, outputs={0: False})


LOOP = """__global__ void k(unsigned* out, unsigned n) {
  unsigned x = threadIdx.x + 1;
  for (unsigned i = 0; i < n; ++i) x = x * 3 % 1009;
  out[threadIdx.x] = x;
}"""
ENDLESS = LOOP.replace("unsigned i = 0; i < n; ++i", "; x != n;")


def test_a_loop_that_only_computes_may_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.scheduler.SPIN_STEPS", 5_000)
    monkeypatch.setattr("warptile.emulator.scheduler.LOOK_STEPS", 100)
    out = np.zeros(32, dtype=np.uint32)
    run_cuda(LOOP, "k", [out, Scalar("u32", 20_000)], block=32)
    assert out.tolist() == [(each + 1) * pow(3, 20_000, 1009) % 1009 for each in range(32)]


def test_a_loop_that_comes_back_to_where_it_was_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.scheduler.SPIN_STEPS", 5_000)
    monkeypatch.setattr("warptile.emulator.scheduler.LOOK_STEPS", 100)
    with pytest.raises(Deadlock, match=r"loop forever: .* \[in _Z1kPjj at kernel\.cu:3 ") as caught:
        run_cuda(ENDLESS, "k", [np.zeros(32, np.uint32), Scalar("u32", 1009)], block=32)
    assert caught.value.fix.startswith("change in the loop what its condition depends on")


def test_threads_that_spin_on_a_flag_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.scheduler.SPIN_STEPS", 5_000)
    with pytest.raises(Deadlock, match="spin"):
        run_cuda("__global__ void k(volatile int* out) { while (out[0] == 0) ; }", "k",
                 [np.zeros(1, dtype=np.int32)], outputs={0: False})  # fmt: skip
