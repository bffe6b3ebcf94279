"""A small matrix product by warpgroups in CUDA C++, compiled as kernels are and run on the emulator."""

import numpy as np
import pytest

from covering import few
from emulation import run_cuda
from exact_adder import dot
from warptile.errors import DataRace

N, K = 64, 128

REGISTERS = ", ".join(f"%{i}" for i in range(N // 2))
OUTPUTS = ", ".join(f'"=f"(d[{i}])' for i in range(N // 2))
BOTH = OUTPUTS.replace("=f", "+f")


def product(outputs, scale):
    return (
        f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, {scale}, 0;\\n"\n'
        f'"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.f16.f16 {{{REGISTERS}}}, %{N // 2}, %{N // 2 + 1}, '
        f'p, 1, 1, 0, 0; }}\\n"\n: {outputs} : "l"(a), "l"(b));'
    )


TEXT = f"""
#include <cuda_fp16.h>
// Rows of 128 bytes: 64 elements along k. The 16-byte chunks of row r are permuted by r % 8.
__device__ unsigned place(unsigned row, unsigned k) {{
  return row * 64 + ((k / 8 ^ row % 8) * 8 + k % 8);
}}
__device__ unsigned long long describe(const void* start) {{
  return 1ull << 62 | 64ull << 32 | 1ull << 16 | (unsigned)__cvta_generic_to_shared(start) >> 4;
}}
extern "C" __global__ void multiply(float* out, const __half* left, const __half* right) {{
  extern __shared__ __align__(1024) __half tile[];
  __half *rows = tile, *columns = tile + 128 * 64;
  unsigned group = threadIdx.x / 128;
  float d[{N // 2}];
  #pragma unroll
  for (unsigned step = 0; step < {K // 64}; ++step) {{
    for (unsigned i = threadIdx.x; i < 128 * 64; i += 256)
      rows[place(i / 64, i % 64)] = left[i / 64 * {K} + step * 64 + i % 64];
    for (unsigned i = threadIdx.x; i < {N} * 64; i += 256)
      columns[place(i / 64, i % 64)] = right[i / 64 * {K} + step * 64 + i % 64];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long a = describe(rows + group * 64 * 64), b = describe(columns);
    asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");
    if (step == 0) {{ {product(OUTPUTS, 0)} }} else {{ {product(BOTH, 1)} }}
    #pragma unroll
    for (int inner = 1; inner < 4; ++inner) {{ a += 2; b += 2; {product(BOTH, 1)} }}
    asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
    __syncthreads();
  }}
  unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (int i = 0; i < {N // 2}; ++i)
    out[(row + (i >> 1 & 1) * 8) * {N} + (i >> 2) * 8 + lane % 4 * 2 + (i & 1)] = d[i];
}}
"""


def run(left, right, *, schedule="latest", text=TEXT):
    out = np.full((128, N), np.nan, np.float32)
    report = run_cuda(text, "multiply", [out, left, right], block=256, shared=(128 + N) * 128, schedule=schedule)
    return out, report


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:3"])
def test_a_product_of_two_warpgroups(schedule):
    random = np.random.default_rng(1)
    left, right = (random.integers(-3, 4, (rows, K)).astype(np.float16) for rows in (128, N))
    out, report = run(left, right, schedule=schedule)
    assert (out == left.astype(np.float64) @ right.astype(np.float64).T).all()
    assert report.counters["tensor_instructions"] == 8 * K // 16
    assert report.counters["tensor_flops"] == 2 * 128 * N * K


def test_its_sums_are_those_of_steps_of_16_products():
    random = np.random.default_rng(2)
    left, right = (random.normal(size=(rows, K)).astype(np.float16) for rows in (128, N))
    out, _ = run(left, right)
    steps = [range(k, k + 16) for k in range(0, K, 16)]
    for row, column in zip(random.integers(0, 128, 30), random.integers(0, N, 30), strict=True):
        want = dot(left[row].tolist(), right[column].tolist(), 0.0, ("f16", "f16", "f32"), steps, 25)
        assert out[row, column] == want


def test_what_must_not_be_left_out():
    """The proxy fence behind the stores, and the barrier before the next ones."""
    left, right = np.ones((128, K), np.float16), np.ones((N, K), np.float16)
    fence = 'asm volatile("fence.proxy.async;" ::: "memory");'
    with pytest.raises(DataRace, match=r"fence\.proxy\.async"):
        run(left, right, text=TEXT.replace(fence, ""))
    last = "    __syncthreads();\n  }\n"
    assert TEXT.count(last) == 1
    with pytest.raises(DataRace, match=r"read it with wgmma\.mma_async"):
        run(left, right, text=TEXT.replace(last, "  }\n"))


@pytest.mark.parametrize("schedule", few(["latest", "earliest", "random:5"], 1))
def test_a_loop_with_zeroed_accumulators(schedule):
    """What the compiler makes of a loop that is not unrolled touches no register of a product in flight."""
    first, last = TEXT.index("if (step == 0)"), TEXT.index("#pragma unroll\n    for (int inner")
    text = TEXT[:first] + product(BOTH, 1) + "\n    " + TEXT[last:]
    text = text.replace("#pragma unroll\n  for (unsigned step", "#pragma unroll 1\n  for (unsigned step")
    text = text.replace(f"float d[{N // 2}];", f"float d[{N // 2}]; for (int i = 0; i < {N // 2}; ++i) d[i] = 0;")
    random = np.random.default_rng(4)
    left, right = (random.integers(-3, 4, (rows, K)).astype(np.float16) for rows in (128, N))
    assert (run(left, right, text=text, schedule=schedule)[0] == left.astype(float) @ right.astype(float).T).all()
