"""Clusters: which block is where, barriers of a whole cluster, and shared memory of other blocks."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS, emulate
from warptile.errors import (
    ClusterMisuse,
    DataRace,
    Deadlock,
    DivergentCollective,
    IllegalAddress,
    MbarrierMisuse,
    MisalignedAccess,
    UninitializedRead,
    UnsupportedError,
)
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

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
    monkeypatch.setattr("warptile.emulator.launch_geometry.LANES_PER_WAVE", lanes)
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
        (32, (32, 1, 1), "sm_90a", "32 CTAs; a cluster has 1 to 16"),
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
    monkeypatch.setattr("warptile.emulator.launch_geometry.LANES_PER_WAVE", lanes)
    out = np.zeros((3, 12, 64), np.int32)
    run_cuda(RING, "k", [out], grid=12, block=64, cluster=(4, 1, 1))
    for number, block in np.ndindex(3, 12):
        neighbour = block // 4 * 4 + (block + 1) % 4
        np.testing.assert_array_equal(out[number, block], 1000 * number + 64 * neighbour + 63 - np.arange(64))


def run_pair(body, *, elements=128, before="", checks=DEFAULT_CHECKS, complete=True, block=64, schedule="latest"):
    """A kernel of two blocks of one cluster, with ``__shared__ int s[64]``."""
    out = np.zeros(elements, np.int32)
    run_cuda(
        REACH + before + "__global__ void k(int* o) {\n__shared__ int s[64];\nint t = threadIdx.x;\n" + body + "\n}",
        "k", [out], grid=2, block=block, cluster=(2, 1, 1), outputs={0: complete}, checks=checks,
        schedule=schedule,
    )  # fmt: skip
    return out


def test_generic_addresses_atomics_and_questions_about_addresses():
    out = run_pair(
        """s[t] = 0;
        SYNC;
        unsigned long long mine = reinterpret_cast<unsigned long long>(s), other;
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(mine), "r"(rank() ^ 1));
        int* peer = reinterpret_cast<int*>(other);
        atomicAdd(&peer[0], t);
        asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(map(&s[1], rank() ^ 1)), "r"(2) : "memory");
        int old;
        unsigned third = map(&s[2], rank() ^ 1);
        asm volatile("atom.shared::cluster.cas.b32 %0, [%1], 0, 7;" : "=r"(old) : "r"(third) : "memory");
        if (t > 2) peer[t] = 100 * blockIdx.x + t;
        SYNC;
        if (t > 2) o[64 * blockIdx.x + t] = s[t];
        unsigned r, q; int in_cluster, in_block, own;
        asm volatile("getctarank.u64 %0, %1;" : "=r"(r) : "l"(other));
        asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(q) : "r"(local_address(s)));
        asm volatile("{.reg .pred p; isspacep.shared::cluster p, %1; selp.s32 %0, 1, 0, p;}"
                     : "=r"(in_cluster) : "l"(other));
        asm volatile("{.reg .pred p; isspacep.shared::cta p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(in_block) : "l"(other));
        asm volatile("{.reg .pred p; isspacep.shared p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(own) : "l"(mine));
        if (t == 0) {
          o[64 * blockIdx.x] = s[0]; o[64 * blockIdx.x + 1] = s[1] + 1000 * s[2];
          o[64 * blockIdx.x + 2] = 10000 * r + 1000 * q + 100 * in_cluster + 10 * in_block + own;
        }"""
    ).reshape(2, 64)
    assert (out[:, 0] == 63 * 64 // 2).all()
    assert (out[:, 1] == 2 * 64 + 7000).all()
    assert out[:, 2].tolist() == [10101, 1101]
    np.testing.assert_array_equal(out[:, 3:], 100 * np.array([[1], [0]]) + np.arange(3, 64))


def test_the_functions_that_cooperative_groups_are_made_of():
    out = np.zeros((4, 64), np.int32)
    run_cuda(
        """__global__ void __cluster_dims__(4, 1, 1) k(int* o) {
          __shared__ int s[64];
          s[threadIdx.x] = 64 * blockIdx.x + threadIdx.x;
          __cluster_barrier_arrive(); __cluster_barrier_wait();
          unsigned next = (__clusterRelativeBlockRank() + 1) % __clusterSizeInBlocks();
          const int* there = static_cast<const int*>(__cluster_map_shared_rank(s, next));
          o[64 * blockIdx.x + threadIdx.x] = there[63 - threadIdx.x] + 1000 * __cluster_query_shared_rank(there);
          __cluster_barrier_arrive(); __cluster_barrier_wait();
        }""",
        "k", [out], grid=4, block=64,
    )  # fmt: skip
    after = np.array([[1], [2], [3], [0]])
    np.testing.assert_array_equal(out, 64 * after + 63 - np.arange(64) + 1000 * after)


def test_a_shared_address_says_whose_it_is():
    out = np.zeros((4, 2), np.uint32)
    run_cuda(
        REACH
        + """
        __global__ void __cluster_dims__(4, 1, 1) k(unsigned* o) {
          __shared__ int s[64];
          if (threadIdx.x == 0) {
            o[2 * blockIdx.x] = local_address(s) >> 24;
            o[2 * blockIdx.x + 1] = map(s, 3) >> 24;
          }
        }""",
        "k", [out], grid=4,
    )  # fmt: skip
    assert out.tolist() == [[0, 3], [1, 3], [2, 3], [3, 3]]


def test_a_rank_that_the_cluster_does_not_have():
    with pytest.raises(IllegalAddress, match=r"thread \(0, 0, 0\) of block \(1, 0, 0\) asks for the memory of rank 2"):
        run_pair("SYNC; o[64 * blockIdx.x + t] = load(map(s, rank() + 1));")


def test_past_the_end_of_another_blocks_shared_memory():
    with pytest.raises(IllegalAddress, match=r"thread \(1, .* of 1280 bytes of shared memory of block \(1, 0, 0\)"):
        run_pair("s[t] = t; SYNC; if (blockIdx.x == 0) o[t] = load(map(&s[63], 1) + 4 * t); SYNC;")
    with pytest.raises(MisalignedAccess, match=r"of the shared memory of block \(1, 0, 0\), .* multiple of 4"):
        run_pair("s[t] = t; SYNC; if (blockIdx.x == 0) o[t] = load(map(s, 1) + t); SYNC;")


def test_an_address_that_no_block_of_the_cluster_has():
    with pytest.raises(IllegalAddress, match="0x5000400, which belongs to no CTA of its cluster"):
        run_pair("s[t] = t; SYNC; o[64 * blockIdx.x + t] = load(local_address(s) + (5u << 24)); SYNC;")


def test_another_blocks_memory_takes_an_instruction_for_it():
    with pytest.raises(IllegalAddress, match=r"\.shared::cluster or a generic address"):
        run_pair(
            """s[t] = t; SYNC; int v;
            asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(map(&s[t], rank() ^ 1)) : "memory");
            SYNC; o[64 * blockIdx.x + t] = v;"""
        )


def test_shared_memory_of_another_block_that_nothing_has_written():
    body = "if (blockIdx.x == 0 || t != 8) s[t] = t; SYNC; o[64 * blockIdx.x + t] = load(map(&s[t], rank() ^ 1)); SYNC;"
    with pytest.raises(
        UninitializedRead,
        match=r"read at kernel.cu:.* from shared memory at byte 1056 of block \(1, 0, 0\), which nothing has written",
    ):
        run_pair(body)


# -- barriers ------------------------------------------------------------------------------------------------------

EXCHANGE = """s[t] = 64 * blockIdx.x + t;
ARRIVE("@");
WAIT("");
o[64 * blockIdx.x + t] = load(map(&s[63 - t], rank() ^ 1));
SYNC;"""


def test_an_arrival_releases_unless_it_is_relaxed():
    for how in ("", ".release", ".release.aligned", ".aligned"):
        out = run_pair(EXCHANGE.replace("@", how))
        np.testing.assert_array_equal(out.reshape(2, 64), 64 * np.array([[1], [0]]) + 63 - np.arange(64))
    with pytest.raises(DataRace, match=r"write-read race on shared memory of block .*no barrier of their cluster"):
        run_pair(EXCHANGE.replace("@", ".relaxed"))


def test_a_flag_orders_blocks_of_a_cluster_if_its_scope_includes_them():
    flag = """__shared__ int flag;
    if (t == 0) flag = 0;
    SYNC;
    if (t == 0 && blockIdx.x == 1) {
      store(map(&s[5], 0), 77);
      asm volatile("st.release.@.shared::cluster.s32 [%0], 1;" :: "r"(map(&flag, 0)) : "memory");
    } else if (t == 0) {
      int v;
      do asm volatile("ld.acquire.@.shared.s32 %0, [%1];" : "=r"(v) : "r"(local_address(&flag)) : "memory"); while (!v);
      o[0] = s[5];
    }
    SYNC;"""
    assert run_pair(flag.replace("@", "cluster"), complete=False)[0] == 77
    assert run_pair(flag.replace("@", "gpu"), complete=False)[0] == 77
    with pytest.raises(DataRace):
        run_pair(flag.replace("@", "cta"), complete=False)


def test_work_between_arrival_and_wait_is_not_ordered():
    body = """ARRIVE(""); @ WAIT(""); o[64 * blockIdx.x + t] = load(map(&s[t], rank() ^ 1)); SYNC;"""
    with pytest.raises(DataRace, match="write-read"):
        run_pair(body.replace("@", "s[t] = t;"))
    run_pair("s[t] = t; " + body.replace("@", "o[64 * blockIdx.x + t] = 1;"))


def test_threads_that_have_exited_do_not_hold_the_clusters_barrier():
    out = run_pair(
        """s[t] = t + 64 * blockIdx.x;
        if (blockIdx.x == 1 && t >= 32) return;
        ARRIVE(""); WAIT("");
        o[64 * blockIdx.x + t] = load(map(&s[63 - t], rank() ^ 1));
        ARRIVE(""); WAIT("");""",
        complete=False,
    )
    np.testing.assert_array_equal(out[:64], 127 - np.arange(64))


def test_without_clusters_the_barrier_is_one_of_the_block():
    out = np.zeros(128, np.int32)
    run_cuda(
        REACH + """__global__ void k(int* o) {
          __shared__ int s[64];
          s[threadIdx.x] = threadIdx.x; SYNC; o[64 * blockIdx.x + threadIdx.x] = s[63 - threadIdx.x];
        }""", "k", [out], grid=2, block=64,
    )  # fmt: skip
    assert out.tolist() == 2 * list(range(63, -1, -1))


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ('WAIT("");', ClusterMisuse, "waits for its cluster without having arrived"),
        ('ARRIVE(""); WAIT(""); WAIT("");', ClusterMisuse, "waits for its cluster without having arrived"),
        ('ARRIVE(""); ARRIVE("");', ClusterMisuse, "arrives a second time without having waited"),
        ('if (blockIdx.x == 0) { ARRIVE(""); WAIT(""); } else asm volatile("bar.sync 1, 128;");', Deadlock,
         r"in barrier 1; 64 threads, first thread \(0, 0, 0\) of block \(0, 0, 0\), at barrier.cluster.wait .* waiting "
         r"for 64 threads of its cluster to arrive, first thread \(0, 0, 0\) of block \(1, 0, 0\)"),
        ('if (t < 16) { ARRIVE(".aligned"); o[0] = 1; } else { ARRIVE(".aligned"); o[1] = 1; } WAIT("");',
         DivergentCollective, "from 2 places"),
    ],
)  # fmt: skip
def test_barriers_used_wrongly(body, error, words):
    with pytest.raises(error, match=words):
        run_pair(body, complete=False, checks=DEFAULT_CHECKS - {"writes", "races"})


# -- while it exists -------------------------------------------------------------------------------------------------


def test_a_block_that_exits_while_a_peer_may_still_use_its_shared_memory():
    body = "s[t] = t; SYNC; o[64 * blockIdx.x + t] = load(map(&s[t], rank() ^ 1)); @"
    with pytest.raises(DataRace, match=r"accesses shared memory of block \(.*\), which may have exited") as caught:
        run_pair(body.replace("@", ""))
    assert caught.value.kind == "exit-access"
    run_pair(body.replace("@", "SYNC;"))


def test_a_block_that_is_gone():
    with pytest.raises(IllegalAddress, match=r"shared memory of block \(1, 0, 0\), which has exited"):
        run_pair(
            """s[t] = t; SYNC;
            if (blockIdx.x == 1) return;
            ARRIVE(""); WAIT("");
            o[t] = load(map(&s[t], 1));""",
            complete=False,
        )


def test_a_block_that_may_not_have_started():
    body = "@ if (blockIdx.x == 0) store(map(&s[t], 1), t); SYNC; o[64 * blockIdx.x + t] = blockIdx.x ? s[t] : 0;"
    with pytest.raises(DataRace, match=r"shared memory of block \(1, 0, 0\), which may not have started") as caught:
        run_pair(body.replace("@", ""))
    assert caught.value.kind == "start-access"
    for how in ("", ".relaxed"):
        assert run_pair(body.replace("@", f'ARRIVE("{how}"); WAIT("");')).tolist() == 64 * [0] + list(range(64))


# -- asynchronous stores ---------------------------------------------------------------------------------------------

ASYNC = """
__device__ void init(unsigned b, int n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(n) : "memory");
}
__device__ void expect(unsigned b, int bytes) {
  asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], %1;}" :: "r"(b), "r"(bytes) : "memory");
}
__device__ void wait(unsigned b, int parity) {
  int done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                             " selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "r"(parity) : "memory");
}
__device__ void send(unsigned to, int v, unsigned b) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];"
               :: "r"(to), "r"(v), "r"(b) : "memory");
}
"""

SEND = """__shared__ unsigned long long m;
unsigned b = local_address(&m);
if (t == 0) { init(b, 1); expect(b, @); }
SYNC;
send(map(&s[t], rank() ^ 1), 64 * blockIdx.x + t, map(&m, rank() ^ 1));
%
o[64 * blockIdx.x + t] = s[63 - t];
SYNC;"""


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1", "random:2"])
def test_asynchronous_stores_bring_their_bytes_to_an_mbarrier(schedule):
    out = run_pair(SEND.replace("@", "256").replace("%", "wait(b, 0);"), before=ASYNC, schedule=schedule)
    np.testing.assert_array_equal(out.reshape(2, 64), 64 * np.array([[1], [0]]) + 63 - np.arange(64))


def test_an_asynchronous_store_that_nobody_waits_for():
    with pytest.raises(UninitializedRead, match="an asynchronous copy into it has not been waited for"):
        run_pair(SEND.replace("@", "256").replace("%", ""), before=ASYNC)
    with pytest.raises(DataRace):
        run_pair(SEND.replace("@", "256").replace("%", ""), before=ASYNC, schedule="earliest")


def test_an_asynchronous_store_that_comes_when_its_block_may_be_gone():
    body = SEND.replace("@", "256").replace("%", "").replace("s[63 - t]", "1")
    with pytest.raises(IllegalAddress, match=r"shared memory of block \(0, 0, 0\), which ends without having waited"):
        run_pair(body, before=ASYNC)


def test_an_mbarrier_that_expects_more_bytes_than_come():
    with pytest.raises(Deadlock, match=r"lacks 0 of 1 arrivals and 4 bytes"):
        run_pair(SEND.replace("@", "260").replace("%", "wait(b, 0);"), before=ASYNC)


def test_vectors_and_reductions_that_arrive_later():
    out = run_pair(
        """__shared__ unsigned long long m;
        __shared__ alignas(16) int wide[256];
        unsigned b = local_address(&m);
        if (t < 2) s[t] = 100;
        if (t == 0) { init(b, 1); expect(b, 64 * 16 + 64 * 4); }
        SYNC;
        unsigned there = map(&m, rank() ^ 1);
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
          :: "r"(map(&wide[4 * t], rank() ^ 1)), "r"(t), "r"(2 * t), "r"(3 * t), "r"(64 * blockIdx.x), "r"(there)
          : "memory");
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
          :: "r"(map(&s[t % 2], rank() ^ 1)), "r"(t), "r"(there) : "memory");
        wait(b, 0);
        o[64 * blockIdx.x + t] = wide[4 * t] + wide[4 * t + 1] + wide[4 * t + 2] + 1000 * wide[4 * t + 3] + s[t % 2];
        SYNC;""",
        before=ASYNC,
    ).reshape(2, 64)
    t = np.arange(64)
    sums = 100 + np.where(t % 2, 32 * 32, 31 * 32)
    np.testing.assert_array_equal(out, 6 * t + 64_000 * np.array([[1], [0]]) + sums)


def test_the_place_and_the_mbarrier_belong_to_one_block():
    body = SEND.replace("@", "256").replace("%", "wait(b, 0);").replace("map(&m, rank() ^ 1)", "map(&m, rank())")
    with pytest.raises(MbarrierMisuse, match="shared memory of one CTA"):
        run_pair(body, before=ASYNC)


def test_an_arrival_at_another_blocks_mbarrier():
    body = """__shared__ unsigned long long m;
    unsigned b = local_address(&m);
    if (t == 0) init(b, 64);
    SYNC;
    store(map(&s[t], rank() ^ 1), 64 * blockIdx.x + t);
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(map(&m, rank() ^ 1)) : "memory");
    wait(b, 0);
    o[64 * blockIdx.x + t] = s[63 - t];
    @"""
    out = run_pair(body.replace("@", ""), before=ASYNC)  # who has been waited for needs no barrier at the end
    np.testing.assert_array_equal(out.reshape(2, 64), 64 * np.array([[1], [0]]) + 63 - np.arange(64))
    one_way = body.replace("wait(b, 0);", "if (blockIdx.x == 0) wait(b, 0); else s[63 - t] = 1;").replace("@", "")
    with pytest.raises(DataRace):
        run_pair(one_way, before=ASYNC)


def test_a_block_that_exits_before_a_peers_arrival():
    body = """__shared__ unsigned long long m;
    unsigned b = local_address(&m);
    if (t == 0) init(b, 64);
    SYNC;
    if (blockIdx.x == 1)
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(map(&m, 0)) : "memory");
    @
    o[64 * blockIdx.x + t] = t;"""
    with pytest.raises(DataRace, match=r"mbarrier.arrive.* of block \(0, 0, 0\), which may have exited by then"):
        run_pair(body.replace("@", ""), before=ASYNC)
    run_pair(body.replace("@", "if (blockIdx.x == 0) wait(b, 0);"), before=ASYNC)


def test_an_asynchronous_store_to_a_block_that_may_not_have_started():
    body = SEND.replace("@", "256").replace("%", "wait(b, 0);").replace("SYNC;\nsend", "__syncthreads();\nsend")
    with pytest.raises(DataRace, match="which may not have started yet"):
        run_pair(body, before=ASYNC)


PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .shared .align 8 .b8 s[32];
  ld.param.u64 %rd1, [out];
  mapa.shared::cluster.u32 %r1, s, 0;
  mapa.shared::cluster.u64 %rd2, s, 0;
  cvt.u32.u64 %r2, %rd2;
  sub.u32 %r3, %r1, %r2;
  st.shared.u32 [s+4], 77;
  ld.shared::cluster.u32 %r4, [%r1+4];
  ld.shared::cta.u32 %r5, [%rd2+4];
  getctarank.shared::cluster.u32 %r6, s;
  st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6};
  ret;
}"""


def test_addresses_of_variables_and_of_64_bits():
    out = np.ones(4, np.uint32)
    spec = LaunchSpec("k", (1, 1, 1), (1, 1, 1), (Pointer("o"),))
    emulate(parse(PTX), spec, {"o": out}, accesses={"o": Access(writes=True)}, arch="sm_90a")
    assert out.tolist() == [0, 77, 77, 0]  # a block's own rank is the block itself
