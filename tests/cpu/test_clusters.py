"""Clusters: which block is where, barriers of a whole cluster, and shared memory of other blocks."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import run_cuda

from warptile.errors import UnsupportedError

REACH = """
__device__ unsigned local_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ unsigned rank() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ unsigned map(const void* p, unsigned rank) {
  unsigned r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(local_address(p)), "r"(rank));
  return r;
}
__device__ int load(unsigned a) {
  int v; asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(v) : "r"(a) : "memory"); return v;
}
__device__ void store(unsigned a, int v) {
  asm volatile("st.shared::cluster.s32 [%0], %1;" :: "r"(a), "r"(v) : "memory");
}
#define ARRIVE(how) asm volatile("barrier.cluster.arrive" how ";" ::: "memory")
#define WAIT(how) asm volatile("barrier.cluster.wait" how ";" ::: "memory")
#define SYNC ARRIVE(".aligned"); WAIT(".aligned")
"""

SPECIAL = """
#define S(name, i) { unsigned v; asm volatile("mov.u32 %0, %%" name ";" : "=r"(v)); o[14 * b + i] = v; }
__global__ void k(unsigned* o) {
  unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) {
    S("cluster_ctaid.x", 0) S("cluster_ctaid.y", 1) S("cluster_ctaid.z", 2) S("cluster_ctarank", 3)
    S("cluster_nctaid.x", 4) S("cluster_nctaid.y", 5) S("cluster_nctarank", 6)
    S("clusterid.x", 7) S("clusterid.y", 8) S("clusterid.z", 9)
    S("nclusterid.x", 10) S("nclusterid.y", 11) S("nclusterid.z", 12)
    int e; asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.s32 %0, 1, 0, p; }" : "=r"(e));
    o[14 * b + 13] = e;
  }
}
"""


@pytest.mark.parametrize("lanes", [1 << 17, 32 * 7])
def test_every_block_knows_its_place_in_its_cluster(monkeypatch, lanes):
    monkeypatch.setattr("warptile.emulator.launch.LANES_PER_WAVE", lanes)
    out = np.zeros((2, 6, 4, 14), np.uint32)
    run_cuda(SPECIAL, "k", [out], grid=(4, 6, 2), cluster=(2, 3, 1))
    for z, y, x in np.ndindex(2, 6, 4):
        rank = x % 2 + 2 * (y % 3)
        assert out[z, y, x].tolist() == [x % 2, y % 3, 0, rank, 2, 3, 6, x // 2, y // 3, z, 2, 2, 2, 1]


def test_without_clusters_every_block_is_one():
    out = np.zeros((1, 2, 3, 14), np.uint32)
    run_cuda(SPECIAL, "k", [out], grid=(3, 2, 1))
    for _, y, x in np.ndindex(1, 2, 3):
        assert out[0, y, x].tolist() == [0, 0, 0, 0, 1, 1, 1, x, y, 0, 3, 2, 1, 0]


def test_a_kernel_may_bring_its_own_cluster():
    out = np.zeros((1, 1, 4, 14), np.uint32)
    source = SPECIAL.replace("void k", "void __cluster_dims__(4, 1, 1) k")
    run_cuda(source, "k", [out], grid=4)
    assert out[0, 0, :, 3].tolist() == [0, 1, 2, 3]
    with pytest.raises(UnsupportedError, match=r"compiled for clusters of \(4, 1, 1\)"):
        run_cuda(source, "k", [out], grid=4, cluster=(2, 1, 1))


@pytest.mark.parametrize(
    ("grid", "cluster", "arch", "words"),
    [
        (4, (3, 1, 1), "sm_90a", "not a multiple"),
        (32, (32, 1, 1), "sm_90a", "32 blocks; a cluster has 1 to 16"),
        (4, (2, 1, 1), "sm_80", "clusters begin with sm_90"),
    ],
)
def test_clusters_that_cannot_be(grid, cluster, arch, words):
    source = "__global__ void k(int* o) { o[blockIdx.x] = 1; }"
    with pytest.raises(UnsupportedError, match=words):
        run_cuda(source, "k", [np.zeros(grid, np.int32)], grid=grid, cluster=cluster, arch=arch)


RING = (
    REACH
    + """
__global__ void k(int* o) {
  __shared__ int s[64];
  for (int round = 0; round < 3; ++round) {
    s[threadIdx.x] = 1000 * round + 64 * blockIdx.x + threadIdx.x;
    SYNC;
    o[(round * gridDim.x + blockIdx.x) * 64 + threadIdx.x] = load(map(&s[63 - threadIdx.x], (rank() + 1) % 4));
    SYNC;
  }
}
"""
)


@pytest.mark.parametrize("lanes", [1 << 17, 64 * 9])
def test_blocks_of_a_cluster_read_each_others_shared_memory(monkeypatch, lanes):
    monkeypatch.setattr("warptile.emulator.launch.LANES_PER_WAVE", lanes)
    out = np.zeros((3, 12, 64), np.int32)
    run_cuda(RING, "k", [out], grid=12, block=64, cluster=(4, 1, 1))
    for number, block in np.ndindex(3, 12):
        neighbour = block // 4 * 4 + (block + 1) % 4
        np.testing.assert_array_equal(out[number, block], 1000 * number + 64 * neighbour + 63 - np.arange(64))
