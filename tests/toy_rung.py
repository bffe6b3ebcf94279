"""A rung that uses everything a rung can ask for, on matrices of at most 8 x 16 with K of at most 32 halves.

Two blocks of a cluster take half of K each: A by a tensor copy from a copy of A on 16-byte boundaries, B from a
transposed copy. Each leaves its sums in one workspace; the block that comes last, as a counter in another one says,
adds them up.
"""

from __future__ import annotations

from dataclasses import replace

from warptile.dtypes import DTYPES
from warptile.launch import Pointer, Scalar, TensorMap
from warptile.problem import Problem
from warptile.rungs import rung
from warptile.rungs.copies import copied
from warptile.rungs.rung import Config, Rung, View, Workspace

M, N, HALF = 8, 16, 16

MISTAKES = ("none", "counter left at 2", "sums read before they are written", "pad of a copy read")

TEXT = """
#include <cuda_fp16.h>
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

template <int MISTAKE>
__global__ void toy(const __half* a, const __half* b, const float* c, float* d, int m, int n, int k, long long lda,
                    long long ldb, long long ldc, long long ldd, float alpha, float beta,
                    const __grid_constant__ warptile::TensorMap map, float* sums, unsigned* arrivals, int blocks) {
    __shared__ alignas(128) __half tile[8][16];
    __shared__ alignas(8) unsigned long long full;
    __shared__ bool last;
    const unsigned barrier = warptile::shared_address(&full), begin = blockIdx.x * 16;
    if (threadIdx.x == 0) {
        warptile::mbarrier_init(barrier, 1);
        warptile::fence_mbarrier_init();
        warptile::mbarrier_arrive_expect(barrier, sizeof tile);
        warptile::load_box(warptile::shared_address(tile), map, begin, 0, barrier);
    }
    __syncthreads();
    warptile::mbarrier_wait(barrier, 0);
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
    const int depth = MISTAKE == 3 ? 16 : min(16, k - static_cast<int>(begin));
    float sum = 0;
    for (int i = 0; i < depth; ++i)
        if (column < n) sum += __half2float(tile[row][i]) * __half2float(b[column * ldb + begin + i]);
    float* own = sums + blockIdx.x * 128 + threadIdx.x;
    if (MISTAKE == 2) sum += *own;
    *own = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = MISTAKE == 1 ? atomicAdd(arrivals, 1) == blocks - 1 : atomicInc(arrivals, blocks - 1) == blocks - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && row < m && column < n)
        d[row * ldd + column] = alpha * (sums[threadIdx.x] + sums[128 + threadIdx.x]);
}
"""


def toy_view(problem: Problem, config: Config) -> View:
    """A on 16-byte boundaries, B with K contiguous."""
    a, copy_a = copied("A", problem.a, problem.m, problem.k)
    b, copy_b = copied("B", problem.b, problem.k, problem.n, transposed=True)
    return View(replace(problem, a=a, b=b), copy_a.target, copy_b.target, (copy_a, copy_b))


def _parameters(problem, config):
    stride = toy_view(problem, config).problem.a.leading_dimension * 2
    a = TensorMap("copy of A", "f16", (problem.k, problem.m), (stride,), (HALF, M))
    return a, Pointer("sums"), Pointer("arrivals"), Scalar("s32", 2)


TOY: Rung = replace(
    rung("simt-naive"),
    name="toy",
    family="simt",
    default_config=lambda problem: {"BM": M, "BN": N, "MISTAKE": 0},
    illegal=lambda problem, config: None,
    name_expression=lambda problem, config: f"toy<{config['MISTAKE']}>",
    grid=lambda problem, config: (2, 1, 1),
    threads=lambda problem, config: (M * N, 1, 1),
    cluster=lambda problem, config: (2, 1, 1),
    view=toy_view,
    parameters=_parameters,
    workspaces=lambda problem, config: (Workspace("sums", 2 * M * N * 4), Workspace("arrivals", 4, zero=True)),
)


def toy_problem(m: int = 7, n: int = 13, k: int = 29) -> Problem:
    """float16 in rows of odd length, float32 out."""
    half, single = DTYPES["float16"], DTYPES["float32"]
    return Problem.dense(m, n, k, half, out=single, accumulator=single)
