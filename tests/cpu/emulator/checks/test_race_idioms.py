"""Well-known ways to synchronise: none is reported, and none can do without any of its parts.

Each part stands between ``@``: the kernel runs once as it is, and once without each part, which must be reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import DataRace, Deadlock, UninitializedRead

PART = re.compile(r"@(.*?)@")


@dataclass(frozen=True)
class Idiom:
    """A kernel, its launch, and what it makes of the numbers from 0 on."""

    text: str
    expected: np.ndarray
    block: int
    grid: int = 1

    def run(self, text: str) -> np.ndarray:
        out = np.zeros(len(self.expected), np.int32)
        numbers = np.arange(512, dtype=np.int32)
        run_cuda(text, "k", [out, numbers], block=self.block, grid=self.grid, outputs={0: False})
        return out


def in_turn(blocks: int) -> np.ndarray:
    return sum(np.roll(np.arange(64), 40 * block) for block in range(blocks))


IDIOMS = {
    "the sum of a block": Idiom(
        """__global__ void k(int* o, const int* a) {
             __shared__ int s[128];
             s[threadIdx.x] = a[threadIdx.x];
             @__syncthreads();@
             #pragma unroll 1
             for (int step = 64; step > 16; step /= 2) {
               if (threadIdx.x < step) s[threadIdx.x] += s[threadIdx.x + step];
               @__syncthreads();@
             }
             if (threadIdx.x >= 32) return;
             #pragma unroll 1
             for (int step = 16; step; step /= 2) {
               int other = s[threadIdx.x + step];
               @__syncwarp();@
               s[threadIdx.x] += other;
               @__syncwarp();@
             }
             if (threadIdx.x == 0) o[0] = s[0];
           }""",
        np.array([127 * 128 // 2]), block=128,
    ),
    "a running sum in two buffers": Idiom(
        """__global__ void k(int* o, const int* a) {
             __shared__ int s[2][64];
             int now = 0;
             s[0][threadIdx.x] = a[threadIdx.x];
             #pragma unroll 1
             for (int step = 1; step < 64; step *= 2) {
               @__syncthreads();@
               s[now ^ 1][threadIdx.x] = s[now][threadIdx.x] + (threadIdx.x >= step ? s[now][threadIdx.x - step] : 0);
               now ^= 1;
             }
             o[threadIdx.x] = s[now][threadIdx.x];
           }""",
        np.cumsum(np.arange(64)), block=64,
    ),
    "blocks that add to one row in turn": Idiom(
        """__device__ volatile int turn;
           __global__ void k(int* o, const int* a) {
             if (threadIdx.x == 0) {
               while (turn != blockIdx.x) {}
               @__threadfence();@
             }
             @__syncthreads();@
             o[(threadIdx.x + 40 * blockIdx.x) % 64] += a[threadIdx.x];
             @__syncthreads();@
             if (threadIdx.x == 0) {
               @__threadfence();@
               turn = blockIdx.x + 1;
             }
           }""",
        in_turn(3), block=64, grid=3,
    ),
    "a barrier of all blocks": Idiom(
        """__device__ int arrived;
           __global__ void k(int* o, const int* a) {
             int here = blockIdx.x * 64 + threadIdx.x;
             o[here] = a[here];
             @__syncthreads();@
             if (threadIdx.x == 0) {
               @__threadfence();@
               atomicAdd(&arrived, 1);
               while (*(volatile int*)&arrived < gridDim.x) {}
               @__threadfence();@
             }
             @__syncthreads();@
             o[192 + here] = o[191 - here];
           }""",
        np.concatenate((np.arange(192), np.arange(192)[::-1])), block=64, grid=3,
    ),
    "a warp that looks back at all blocks before its own": Idiom(
        """__device__ volatile int ready[32];
           __device__ int value[32];
           __global__ void k(int* o, const int* a) {
             if (threadIdx.x == 0) {
               value[blockIdx.x] = a[blockIdx.x + 1];
               @__threadfence();@
               ready[blockIdx.x] = 1;
             }
             int sum = 0;
             if (threadIdx.x < blockIdx.x) {
               while (!ready[threadIdx.x]) {}
               @__threadfence();@
               sum = value[threadIdx.x];
             }
             for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
             if (threadIdx.x == 0) o[blockIdx.x] = sum;
           }""",
        np.array([0, 1, 3, 6, 10]), block=32, grid=5,
    ),
    "a lock that serves in order": Idiom(
        """__global__ void k(int* o, const int* a) {
             __shared__ int next, sum;
             __shared__ volatile int serving;
             if (threadIdx.x == 0) { next = 0; serving = 0; sum = 0; }
             @__syncthreads();@
             if (threadIdx.x % 8 == 0) {
               int ticket = atomicAdd(&next, 1);
               while (serving != ticket) {}
               @__threadfence_block();@
               sum += a[threadIdx.x];
               @__threadfence_block();@
               serving = ticket + 1;
             }
             @__syncthreads();@
             o[threadIdx.x] = sum;
           }""",
        np.full(40, 8 + 16 + 24 + 32), block=40,
    ),
    "a ring of named barriers": Idiom(
        """__device__ void arrive(int barrier) { asm volatile("bar.arrive %0, 96;" :: "r"(barrier) : "memory"); }
           __device__ void sync(int barrier) { asm volatile("bar.sync %0, 96;" :: "r"(barrier) : "memory"); }
           __global__ void k(int* o, const int* a) {
             __shared__ int s[2][32];
             int sum = 0, lane = threadIdx.x % 32;
             #pragma unroll 1
             for (int i = 0; i < 5; ++i) {
               const int full = 1 + i % 2, empty = 3 + i % 2;
               if (threadIdx.x < 32) {
                 @if (i >= 2) sync(empty);@
                 s[i % 2][lane] = a[i * 32 + lane];
                 @arrive(full);@
               } else {
                 @sync(full);@
                 sum += s[i % 2][31 - lane];
                 @arrive(empty);@
               }
             }
             if (threadIdx.x >= 32) o[threadIdx.x - 32] = sum;
           }""",
        np.tile(320 + 5 * np.arange(32)[::-1], 2), block=96,
    ),
}  # fmt: skip

PARTS = [(name, number) for name, idiom in IDIOMS.items() for number in range(len(PART.findall(idiom.text)))]


@pytest.mark.parametrize("name", IDIOMS)
def test_it_is_not_reported(name: str) -> None:
    idiom = IDIOMS[name]
    np.testing.assert_array_equal(idiom.run(idiom.text.replace("@", "")), idiom.expected)


@pytest.mark.parametrize(("name", "number"), PARTS)
def test_it_needs_each_of_its_parts(name: str, number: int) -> None:
    idiom = IDIOMS[name]
    part = list(PART.finditer(idiom.text))[number]
    missing = f"{idiom.text[: part.start()]}{idiom.text[part.end() :]}".replace("@", "")
    with pytest.raises((DataRace, Deadlock, UninitializedRead)):
        idiom.run(missing)
