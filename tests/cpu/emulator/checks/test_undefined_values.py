"""Undefined values of shared memory and registers: reported where something depends on them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS, EmulationReport
from warptile.errors import UninitializedRead

HEAD = """#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__device__ int counter;
__device__ void around(int& v, int w) {
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 3; @p bra over; add.s32 %0, %0, 5; over: }" : "+r"(v) : "r"(w));
}
__device__ int between(int w, int x) {
  int v;
  asm volatile("{ .reg .pred p, q; .reg .b32 u; setp.gt.s32 p, %1, 3; @p bra second; mul.lo.s32 u, %2, 2;"
               "setp.gt.s32 q, u, 6; @q bra last; add.s32 u, u, 1; last: mov.b32 %0, u; bra done;"
               "second: mov.b32 %0, 7; done: }" : "=r"(v) : "r"(w), "r"(x));
  return v;
}
__device__ void around_store(int* out, int w) {
  asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 3; @p bra over; st.global.u32 [%0], 5; over: }" :: "l"(out), "r"(w));
}
__device__ void into(int& v, int w) {
  asm volatile("{ .reg .pred p, q; setp.gt.s32 q, %0, 99; @q bra middle; setp.ne.s32 p, %1, 3; @p bra over;"
               "add.s32 %0, %0, 5; middle: add.s32 %0, %0, 1; over: }" : "+r"(v) : "r"(w));
}
__device__ __noinline__ int first(int2 pair, int n) { return threadIdx.x < n ? pair.x : n; }
"""

SCHEDULES = ("latest", "earliest", "random:5")


def run(
    body: str, *, block: int = 32, schedule: str = "latest", **options: object
) -> tuple[np.ndarray, EmulationReport]:
    """Run ``body``, a kernel of ``in``, 64 numbers from 1 on, and ``out``, 64 zeros; ``t`` is the thread."""
    text = f"{HEAD}__global__ void k(int* out, const int* in) {{ const int t = threadIdx.x; {body} }}"
    out, numbers = np.zeros(64, np.int32), np.arange(1, 65, dtype=np.int32)
    given = {"outputs": {0: False}, "schedule": schedule, **options}
    report = run_cuda(text, "k", [out, numbers], block=block, **given)
    return out, report


PARTLY_WRITTEN = "__shared__ int s[32]; if (t < 4) s[t] = in[t]; __syncthreads(); int w = s[t];"
PARTLY_SET = "__shared__ int s[64]; int v; if (t < 20) v = in[t]; s[63 - t] = v; __syncthreads(); int w = s[63 - t];"
RIGHT_AND_WRONG = {
    "lanes without a value do not store": (PARTLY_WRITTEN + "if (t < @) out[t] = w;", "4", "5"),
    "a shuffle takes values from lanes that have one": (
        PARTLY_WRITTEN + "out[t] = __shfl_sync(~0u, w, t & @);", "3", "7",
    ),
    "a sum over a warp of which one lane is used": (
        PARTLY_WRITTEN + "for (int i = 1; i < 4; i *= 2) w += __shfl_down_sync(~0u, w, i); if (t < @) out[t] = w;",
        "1", "2",
    ),
    "a scan": (
        "__shared__ int s[32]; if (t < 8) s[t] = in[t]; __syncthreads(); int w = s[t];"
        "for (int i = 1; i < 32; i *= 2) { int x = __shfl_up_sync(~0u, w, i); if (t >= i) w += x; }"
        "if (t < @) out[t] = w;",
        "8", "9",
    ),
    "a vote that leaves them out": (
        PARTLY_WRITTEN + "out[t] = __any_sync(~0u, @w == 3);", "t < 4 && ", "",
    ),
    "undefined registers pass through shared memory": (PARTLY_SET + "if (t < @) out[t] = w;", "20", "21"),
    "and through local memory": (
        PARTLY_WRITTEN + "int l[4]; for (int i = 0; i < 4; ++i) l[i & in[0]] = w + i; if (t < @) out[t] = l[in[0]];",
        "4", "5",
    ),
    "a branch": (PARTLY_WRITTEN + "if (t < @) if (w > 2) out[t] = 1;", "4", "5"),
    "a branch around what is computed": (
        PARTLY_WRITTEN + "int v = in[t]; around(v, w); if (t < @) out[t] = v;", "4", "5",
    ),
    "a branch between two ways to compute": (
        PARTLY_WRITTEN + "int v = between(w, in[t]); if (t < @) out[t] = v;", "4", "5",
    ),
    "a branch around a store": (PARTLY_WRITTEN + "around_store(out + t, t < @ ? w : 0);", "4", "5"),
    "a branch to what another one computes": (
        PARTLY_WRITTEN + "int v = in[t]; into(v, t < @ ? w : 0); if (t < 4) out[t] = v;", "4", "5",
    ),
    "an address": (PARTLY_WRITTEN + "if (t < @) out[w & 31] = 1;", "4", "5"),
    "a select": (PARTLY_WRITTEN + "out[t] = t < @ ? w : -1;", "4", "5"),
    "halves of a word": (
        "__shared__ __half2 s[32]; if (t < 5) reinterpret_cast<short*>(s)[t] = in[t]; __syncthreads();"
        "__half2 w = s[t]; short* o = reinterpret_cast<short*>(out);"
        "if (2 * t < 5) o[2 * t] = __half_as_short(__low2half(w));"
        "if (2 * t + 1 < @) o[2 * t + 1] = __half_as_short(__high2half(w));",
        "5", "6",
    ),
    "packed halves": (
        "__shared__ __half2 s[32]; if (t < 5) reinterpret_cast<__half*>(s)[t] = in[t]; __syncthreads();"
        "__half2 w = __hfma2(s[t], __float2half2_rn(2.f), __hadd2(s[t], __float2half2_rn(1.f)));"
        "short* o = reinterpret_cast<short*>(out);"
        "if (2 * t < 5) o[2 * t] = __half_as_short(__low2half(w));"
        "if (2 * t + 1 < @) o[2 * t + 1] = __half_as_short(__high2half(w));",
        "5", "6",
    ),
    "masked bits": (PARTLY_WRITTEN + "out[t] = w & (t < @ ? -1 : 0);", "4", "5"),
    "vectors": (
        "__shared__ int4 s[8]; if (t < 9) reinterpret_cast<int*>(s)[t] = in[t]; __syncthreads();"
        "if (t < 3) { int4 w = s[t]; out[4 * t] = w.x; if (t < 2) out[4 * t + 1] = w.y + w.w + w.z; @ }",
        "", "out[4 * t + 2] = w.z;",
    ),
    "rows of a matrix product": (
        "__shared__ __half a[256], b[256]; __shared__ float d[256];"
        "for (int i = t; i < 256; i += 32) { if (i < 5 * 16) a[i] = 1; b[i] = 2; } __syncthreads();"
        "wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;"
        "wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;"
        "wmma::fragment<wmma::accumulator, 16, 16, 16, float> fd; wmma::fill_fragment(fd, 0);"
        "wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16); wmma::mma_sync(fd, fa, fb, fd);"
        "wmma::store_matrix_sync(d, fd, 16, wmma::mem_row_major); __syncwarp();"
        "if (t < 16) for (int r = 0; r < @; ++r) out[t] += d[16 * r + t];",
        "5", "6",
    ),
    "columns of a matrix product": (
        "__shared__ __half a[256], b[256]; __shared__ float d[256];"
        "for (int i = t; i < 256; i += 32) { a[i] = 1; if (i % 16 < 9) b[i] = 2; } __syncthreads();"
        "wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;"
        "wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;"
        "wmma::fragment<wmma::accumulator, 16, 16, 16, float> fd; wmma::fill_fragment(fd, 0);"
        "wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16); wmma::mma_sync(fd, fa, fb, fd);"
        "wmma::store_matrix_sync(d, fd, 16, wmma::mem_row_major); __syncwarp();"
        "if (t < @) out[t] = d[t + 32];",
        "9", "10",
    ),
    "a generic address": (
        PARTLY_WRITTEN.replace("w = s[t]", "w = *(in[t] ? &s[t] : const_cast<int*>(in))") + "if (t < @) out[t] = w;",
        "4", "5",
    ),
    "an argument of a function": (
        PARTLY_WRITTEN + "int2 pair; pair.y = t; pair.x = w; out[t] = first(pair, @);", "4", "6",
    ),
    "atomic operations": (
        PARTLY_WRITTEN + "__syncthreads(); if (t < @) atomicAdd(out + t, w);", "4", "5",
    ),
    "an accumulator in shared memory": (
        "__shared__ int s[2]; if (t == 0) s[0] = @; __syncthreads(); atomicAdd(s + in[0] - 1, 1); __syncthreads();"
        "if (t == 0) out[0] = s[0];",
        "0", "s[1]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT_AND_WRONG)
def test_undefined_values_are_reported_where_they_matter(name: str) -> None:
    body, right, wrong = RIGHT_AND_WRONG[name]
    out, report = run(body.replace("@", right), collect=True)
    assert report.findings == ()
    assert out.any() or "vote" in name
    (found,) = run(body.replace("@", wrong), collect=True)[1].findings
    assert (found.check, found.severity, found.kind) == ("uninitialised", "error", "UninitializedRead")
    with pytest.raises(UninitializedRead):
        run(body.replace("@", wrong))


SUM = "int w = in[t]; for (int i = 16; i; i /= 2) w += __shfl_down_sync(~0u, w, i);"
SHUFFLES = {
    "a block that is no multiple of a warp": ("", SUM, "if (t == @) out[t] = w;", "0", "32"),
    "lanes that have exited": ("if (t >= 20) return;", SUM, "if (t @ 20) out[t] = 1; else out[t] = w;", "<", ">"),
    "a maximum, which hides a NaN": (
        "", "float w = in[t]; w = fmaxf(w, __shfl_xor_sync(~0u, w, 16));", "if (t < @) out[t] = w;", "32", "33",
    ),
    "lanes that their width keeps apart": (
        "", "int w = in[t]; for (int i = 4; i; i /= 2) w += __shfl_xor_sync(~0u, w, i, 8);", "if (t < @) out[t] = w;",
        "40", "41",
    ),
    "a lane that is asked": ("", "int w = __shfl_sync(~0u, in[t], t < 32 ? t : t - @);", "out[t] = w;", "32", "20"),
    "shuffles without those that take no part": (
        "", "int w = in[t]; if (t < 16) w += __shfl_down_sync(0xFFFF, w, 8, 16);", "if (t < @) out[t] = w;", "16", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles_that_ask_lanes_that_take_no_part(name: str) -> None:
    before, shuffle, after, right, wrong = SHUFFLES[name]
    body = f"{before}{shuffle}\n\n{after}"
    block = 41 if "41" in wrong else 40
    assert run(body.replace("@", right), block=block, collect=True)[1].findings == ()
    if wrong:
        (found,) = run(body.replace("@", wrong), block=block, collect=True)[1].findings
        assert found.kind == "UninitializedRead"
        assert "from a lane that does not execute the shuffle, which nothing has written" in found.message
        assert found.fix.startswith("let every lane that is asked execute the shuffle")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_report_names_where_the_value_was_read_and_where_it_matters(schedule: str) -> None:
    said = r"st\.global.*thread \(4, 0, 0\) .* read at kernel.cu:\d+ .* from shared memory at byte 1040, which nothing"
    with pytest.raises(UninitializedRead, match=said) as caught:
        run(PARTLY_WRITTEN + "\n\nif (t < 5) out[t] = w;", schedule=schedule)
    first, location = caught.value.first, caught.value.location
    assert first is not None
    assert location is not None
    assert location.line - first.line == 2
    with pytest.raises(UninitializedRead, match=r"thread \(20, 0, 0\) .*, stored at .* from %r\d+, which nothing has"):
        run(PARTLY_SET + "if (t < 21) out[t] = w;", schedule=schedule)


WGMMA = """
__shared__ __align__(128) __half a[64 * 16], b[8 * 16];  // as 8 x 8 matrices, two of which lie side by side
for (int i = t; i < 5 * 128; i += 128) a[i] = 1;
b[t] = 2;
asm volatile("fence.proxy.async;"); __syncthreads();
float d[4];
auto at = [](const void* p) { return (__cvta_generic_to_shared(p) >> 4) | 8ull << 16 | 16ull << 32; };
unsigned ones = t < 64 + 32 * @ ? 0x3c003c00 : SET;
asm volatile("wgmma.fence.sync.aligned;");
asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, LEFT, 0, 1, 1, LAST;"
             : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "l"(at(a)), "l"(at(b)), "r"(ones));
asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
const int row = t / 32 * 16 + t % 32 / 4;
if (row < ROWS) out[row] = d[0];
if (row + 8 < ROWS) out[row + 8] = d[2];
"""
SHARED_A = {"LEFT": "%4, %5", "LAST": "0, 0", "SET": "0", "@": "0"}
REGISTER_A = {"LEFT": "{%6, %6, %6, %6}, %5", "LAST": "0", "SET": "junk", "ROWS": "48"}


def run_wgmma(schedule: str, **given: str) -> np.ndarray:
    text = "unsigned junk; if (in[0] > 1) junk = in[1];" + WGMMA
    for name, value in given.items():
        text = text.replace(name, value)
    return run(text, block=128, schedule=schedule)[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_of_wgmma(schedule: str) -> None:
    """Of A in shared memory 40 rows are written; of A in registers those of two warps, or of three."""
    assert run_wgmma(schedule, **SHARED_A, ROWS="40").tolist() == [32] * 40 + [0] * 24
    with pytest.raises(UninitializedRead, match=r"thread \(64, 0, 0\) .* read at kernel.cu:\d+ .* from shared memory"):
        run_wgmma(schedule, **SHARED_A, ROWS="41")
    given = {"@": "1", **REGISTER_A}
    assert run_wgmma(schedule, **given).tolist() == [32] * 48 + [0] * 16
    with pytest.raises(UninitializedRead, match=r"thread \(64, 0, 0\) .*, computed at .* from %r"):
        run_wgmma(schedule, **{**given, "@": "0"})


def test_a_launch_that_is_followed_has_the_effects_of_one() -> None:
    """It starts twice: memory is put back before the second time, and everything is counted once."""
    body = "if (t == 0) out[40] = atomicAdd(&counter, 1); atomicAdd(out + 41, 1);" + PARTLY_WRITTEN
    body += "if (t < 4) out[t] = w;"
    out, followed = run(body)
    assert out.tolist()[:5] == [1, 2, 3, 4, 0]
    assert (out[40], out[41]) == (0, 32)
    plain, report = run(body, checks=DEFAULT_CHECKS - {"uninitialised"})
    assert plain.tolist() == out.tolist()
    assert followed.counters == report.counters
    assert followed.steps == report.steps


def test_registers_and_memory_are_forgotten_between_blocks() -> None:
    """What one block has written is not there for the next one, also where that runs in a later wave."""
    body = "__shared__ int s[32]; if (blockIdx.x == 0) s[t] = t; __syncthreads(); if (blockIdx.x == @) out[t] = s[t];"
    for here, grid in (("0", 2), ("1", 2)):
        if here == "0":
            assert run(body.replace("@", here), grid=grid)[0][31] == 31
        else:
            with pytest.raises(UninitializedRead, match=r"block \(1, 0, 0\)"):
                run(body.replace("@", here), grid=grid)
