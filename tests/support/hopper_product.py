"""A matrix product as Hopper's fast kernels do it, for tests of the emulator.

Persistent blocks, a warp that fills a ring of stages by tensor copies (to both blocks of a cluster, if there are two),
two warpgroups that multiply, and results that leave through shared memory by tensor copies.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from warptile.codegen.nvrtc import CompiledKernel, compile_source
from warptile.codegen.translation_unit import Source
from warptile.emulator import DEFAULT_CHECKS, EmulationReport, emulate
from warptile.launch.access import Access, Rows
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse

BM, BN, BK = 128, 256, 64
"""The tile of a block: each warpgroup has half of the rows."""

REGISTERS = ", ".join(f"%{i}" for i in range(128))
ACCUMULATORS = ", ".join(f'"+f"(d[{i}])' for i in range(128))

TEXT = f"""
struct alignas(64) Map {{ unsigned long long words[16]; }};
typedef unsigned long long u64;
constexpr int BM = {BM}, BN = {BN}, BK = {BK}, A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
__device__ unsigned at(const void* p) {{ return static_cast<unsigned>(__cvta_generic_to_shared(p)); }}
__device__ void init(u64* b, int n) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}}
__device__ void wait(u64* b, unsigned parity) {{
    unsigned done = 0;
    while (!done)
        asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }}"
                     : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
}}
__device__ void arrive(u64* b, unsigned rank) {{  // at the block of that rank
    asm volatile("{{ .reg .b32 far; mapa.shared::cluster.u32 far, %0, %1;"
                 " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far]; }}"
                 ::"r"(at(b)), "r"(rank) : "memory");
}}
#define LOAD "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
__device__ void load(void* to, const Map* map, u64* full, int x, int y) {{
    asm volatile(LOAD " [%0], [%1, {{%3, %4}}], [%2];"
                 ::"r"(at(to)), "l"(map), "r"(at(full)), "r"(x), "r"(y) : "memory");
}}
__device__ void load_to_both(void* to, const Map* map, u64* full, int x, int y) {{
    asm volatile(LOAD ".multicast::cluster [%0], [%1, {{%3, %4}}], [%2], %5;"
                 ::"r"(at(to)), "l"(map), "r"(at(full)), "r"(x), "r"(y), "h"((short)3) : "memory");
}}
// K-major rows of 128 bytes under the 128-byte swizzle: groups of 8 rows lie 1024 bytes apart.
__device__ u64 descriptor(const void* p) {{
    return (u64)(at(p) >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}}
__device__ void multiply(float (&d)[128], u64 a, u64 b, int adds) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %130, 0;\\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{REGISTERS}}}, %128, %129, p, 1, 1, 0, 0; }}"
                 : {ACCUMULATORS} : "l"(a), "l"(b), "r"(adds));
}}
__device__ unsigned pack(float low, float high) {{
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}}

// C[m, n] = A[m, k] B[n, k]^T in bf16; blocks of one cluster have tiles one below the other.
template <int STAGES, int CLUSTER>
__global__ void __launch_bounds__(384, 1) product(const __grid_constant__ Map a, const __grid_constant__ Map b,
                                                  const __grid_constant__ Map c, int m, int n, int k) {{
    extern __shared__ __align__(1024) char memory[];
    char* const stages = memory;
    char* const staging = memory + STAGES * (A_BYTES + B_BYTES);  // 64 x 64 results of each warpgroup
    __shared__ u64 full[STAGES], empty[STAGES];
    unsigned rank = 0;
    if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const unsigned group = threadIdx.x / 128, thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {{
        for (int i = 0; i < STAGES; ++i) {{
            init(&full[i], 1);
            init(&empty[i], 2 * CLUSTER);
        }}
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }}
    if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
    else __syncthreads();
    const int rows = m / BM, tiles = rows * (n / BN), steps = k / BK;
    if (group == 0) {{
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 0) {{
            unsigned stage = 0, phase = 0;
            #pragma unroll 1
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{
                #pragma unroll 1
                for (int step = 0; step < steps; ++step) {{
                    char* to = stages + stage * (A_BYTES + B_BYTES);
                    wait(&empty[stage], phase ^ 1);
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                                 ::"r"(at(&full[stage])), "r"(A_BYTES + B_BYTES) : "memory");
                    load(to, &a, &full[stage], step * BK, tile % rows * BM);
                    to += A_BYTES + rank * (B_BYTES / CLUSTER);
                    const int column = tile / rows * BN + rank * (BN / CLUSTER);
                    if (CLUSTER > 1) load_to_both(to, &b, &full[stage], step * BK, column);
                    else load(to, &b, &full[stage], step * BK, column);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }}
            }}
        }}
    }} else {{
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        char* const mine = staging + (group - 1) * 64 * 64 * 2;
        unsigned stage = 0, phase = 0;
        #pragma unroll 1
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{
            float d[128];
            int before = -1;  // the stage of the products that are not known to be over
            #pragma unroll 1
            for (int step = 0; step < steps; ++step) {{
                wait(&full[stage], phase);
                const char* from = stages + stage * (A_BYTES + B_BYTES);
                const u64 left = descriptor(from + (group - 1) * 64 * BK * 2), right = descriptor(from + A_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                for (int i = 0; i < BK / 16; ++i) multiply(d, left + 2 * i, right + 2 * i, step + i);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (before >= 0 && thread < CLUSTER) arrive(&empty[before], CLUSTER > 1 ? thread : rank);
                before = stage;
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }}
            asm volatile("wgmma.wait_group.sync.aligned 0;" : {ACCUMULATORS} :: "memory");
            if (thread < CLUSTER) arrive(&empty[before], CLUSTER > 1 ? thread : rank);
            // 64 columns at a time; lane i of a warp gives the row of the matrix i / 8 that its 16 bytes go to.
            const unsigned lane = thread % 32, row = thread / 32 * 16 + lane % 16;
            #pragma unroll
            for (int panel = 0; panel < BN / 64; ++panel) {{
                if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
                for (int i = 0; i < 4; ++i) {{
                    const float* v = d + panel * 32 + i * 8;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {{%1, %2, %3, %4}};"
                                 ::"r"(at(mine) + row * 128 + ((i * 2 + lane / 16) ^ row % 8) * 16),
                                   "r"(pack(v[0], v[1])), "r"(pack(v[2], v[3])), "r"(pack(v[4], v[5])),
                                   "r"(pack(v[6], v[7])) : "memory");
                }}
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
                if (thread == 0) {{
                    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {{%2, %3}}], [%1];"
                                 ::"l"(&c), "r"(at(mine)), "r"(tile / rows * BN + panel * 64),
                                   "r"(tile % rows * BM + ((int)group - 1) * 64) : "memory");
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }}
            }}
        }}
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }}
    if (CLUSTER > 1) asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;" ::: "memory");
}}
"""


@cache
def compiled(stages: int, cluster: int) -> CompiledKernel:
    """The kernel for a ring of so many stages and clusters of 1 or 2 blocks."""
    return compile_source(Source(TEXT, f"product<{stages}, {cluster}>"), "sm_90a")


def run(
    a: np.ndarray,
    b: np.ndarray,
    *,
    stages: int = 4,
    cluster: int = 1,
    blocks: int = 132,
    schedule: str = "latest",
    checks: frozenset[str] = DEFAULT_CHECKS,
) -> tuple[np.ndarray, EmulationReport]:
    """A B^T of bf16 words, A of (m, k) and B of (n, k): m a multiple of 128, n of 256, k of 64. Words, and the report.

    At most ``blocks`` blocks run.
    """
    (m, k), (n, _) = a.shape, b.shape
    kernel = compiled(stages, cluster)
    c = np.zeros((m, n), np.uint16)
    grid = min(m // BM * (n // BN), blocks) // cluster * cluster
    maps = [
        TensorMap("A", "bf16", (k, m), (2 * k,), (BK, BM), swizzle="128B"),
        TensorMap("B", "bf16", (k, n), (2 * k,), (BK, BN // cluster), swizzle="128B"),
        TensorMap("C", "bf16", (n, m), (2 * n,), (64, 64), swizzle="128B"),
    ]
    shared = stages * (BM + BN) * BK * 2 + 2 * 64 * 64 * 2
    sizes = (Scalar("s32", m), Scalar("s32", n), Scalar("s32", k))
    spec = LaunchSpec(
        kernel.entry, (grid, 1, 1), (384, 1, 1), (*maps, *sizes), cluster=(cluster, 1, 1), dynamic_shared_bytes=shared
    )
    report = emulate(
        parse(kernel.ptx), spec, {"A": a, "B": b, "C": c},
        accesses={"C": Access(writes=True, complete=Rows(m, n, 2, 2 * n))},
        arch="sm_90a", schedule=schedule, checks=checks,
    )  # fmt: skip
    return c, report
