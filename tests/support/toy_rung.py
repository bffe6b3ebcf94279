"""A rung that uses everything that a rung can ask for, on matrices of at most 8 x 16 with a K of at most 32 halves.

Two CTAs of a cluster take half of K each: A by TMA from a repacked A on 16-byte boundaries, B from a transposed one.
Each stores its partial sums in one workspace; the CTA that arrives last, by the count in another workspace, adds them.
"""

from __future__ import annotations

from dataclasses import replace

from warptile.codegen.translation_unit import Source
from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.launch.params import Params, Pointer, Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.rungs import rung
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members
from warptile.rungs.repack import repacked
from warptile.rungs.rung import Rung

M, N, HALF = 8, 16, 16

BUGS = ("none", "counter left at 2", "sums read before they are written", "pad of a repacked operand read")

TEXT = """
#include <cuda_fp16.h>
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/cp_async_bulk_tensor.cuh"

namespace warptile {

struct ToyParams {
    const __half *a, *b;
    const float* c;
    float* d;
    int m, n, k;
    long long lda, ldb, ldc, ldd;
    float alpha, beta;
    TensorMap map;
    float* sums;
    unsigned* arrivals;
    int ctas;
};

template <typename CONFIG>
__global__ void toy(const __grid_constant__ ToyParams params) {
    constexpr int BUG = CONFIG::BUG;
    __shared__ alignas(128) __half tile[8][16];
    __shared__ alignas(8) unsigned long long full;
    __shared__ bool last;
    const unsigned barrier = shared_address(&full), begin = blockIdx.x * 16;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(barrier, sizeof tile);
        cp_async_bulk_tensor_load_2d(shared_address(tile), params.map, begin, 0, barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
    const int extent = BUG == 3 ? 16 : min(16, params.k - static_cast<int>(begin));
    float sum = 0;
    for (int i = 0; i < extent; ++i)
        if (column < params.n)
            sum += __half2float(tile[row][i]) * __half2float(params.b[column * params.ldb + begin + i]);
    float* own = params.sums + blockIdx.x * 128 + threadIdx.x;
    if (BUG == 2) sum += *own;
    *own = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before_last = params.ctas - 1;
        __threadfence();
        last = (BUG == 1 ? atomicAdd(params.arrivals, 1) : atomicInc(params.arrivals, before_last)) == before_last;
        __threadfence();
    }
    __syncthreads();
    if (last && row < params.m && column < params.n)
        params.d[row * params.ldd + column] =
            params.alpha * (params.sums[threadIdx.x] + params.sums[128 + threadIdx.x]);
}

}  // namespace warptile
"""


def toy_source(kernel: KernelSpec) -> Source:
    """What `translation_unit` returns for a rung whose template is a file of the package."""
    return Source(f"{TEXT}\n{kernel.instance.text}\n", kernel.instance.name_expression)


def toy_view(problem: Problem) -> View:
    """A on 16-byte boundaries, B with K contiguous."""
    a, repacked_a = repacked("A", problem.a, problem.m, problem.k)
    b, repacked_b = repacked("B", problem.b, problem.k, problem.n, transposed=True)
    return View(replace(problem, a=a, b=b), repacked_a.target, repacked_b.target, (repacked_a, repacked_b))


class ToyRung(Rung):
    """See the module's text.

    Args:
        map_columns: columns of A that the tensor map has beyond K: a planted bug.
    """

    name = "toy"
    family = "simt"
    idea = "everything that a rung can ask for"
    previous = None
    min_arch = 90
    dtypes = ("float16",)

    def __init__(self, map_columns: int = 0) -> None:
        self.map_columns = map_columns

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        return {"BM": M, "BN": N, "BUG": 0}

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        return ()

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        return None

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        view = toy_view(problem)
        stride_bytes = view.problem.a.leading_dimension * 2
        columns = problem.k + self.map_columns
        further = (
            ("map", TensorMap(view.a, "f16", (columns, problem.m), (stride_bytes,), (HALF, M))),
            ("sums", Pointer("sums")),
            ("arrivals", Pointer("arrivals")),
            ("ctas", Scalar("s32", 2)),
        )
        return KernelSpec(
            problem,
            config,
            view,
            Instance("simt/toy.cuh", "toy", (), (("BUG", config["BUG"]),)),
            grid=(2, 1, 1),
            block=(M * N, 1, 1),
            cluster=(2, 1, 1),
            params=Params((*gemm_members(view), *further)),
            kernel_workspaces=(Workspace("sums", 2 * M * N * 4), Workspace("arrivals", 4, zero=True)),
        )


TOY = ToyRung()


class Asking(type(rung("simt-naive"))):  # type: ignore[misc]
    """simt-naive whose resolved kernel has other attributes: those given, or what a function makes of a problem."""

    def __init__(self, **changes: object) -> None:
        self.changes = changes

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        kernel = super().resolve(problem, config, device)
        made = {name: each(problem) if callable(each) else each for name, each in self.changes.items()}
        return replace(kernel, **made)


def toy_problem(m: int = 7, n: int = 13, k: int = 29) -> Problem:
    """float16 with rows of odd length, float32 out."""
    half, single = DTYPES["float16"], DTYPES["float32"]
    return Problem.dense(m, n, k, half, out=single, accumulator=single)
