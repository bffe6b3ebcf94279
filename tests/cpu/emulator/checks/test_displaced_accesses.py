"""Atomics do not race with each other, and nothing orders them: a weak access may race with each, not only the last.

In each kernel another atomic, or another strong access, comes between the two accesses of the race.
"""

import time

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import DataRace


def run(text: str, *, grid: int = 1, block: int = 32, cluster: int = 1) -> list[np.ndarray]:
    """Run kernel ``k`` on buffers of 64 zeros, one for each of its pointers."""
    buffers = text[text.index(" k(") : text.index("{", text.index(" k("))].count("*")
    arrays = [np.zeros(64, np.int32) for _ in range(buffers)]
    outputs = dict.fromkeys(range(buffers), False)
    run_cuda(text, "k", list(arrays), grid=grid, block=block, cluster=(cluster, 1, 1), outputs=outputs)
    return arrays


def adds(value: str, *, order: str = "relaxed", returns: bool = False) -> str:
    """An atomic sum to global memory, `atom` or `red`."""
    if not returns:
        return f'asm volatile("red.{order}.gpu.global.add.s32 [%0], 1;" :: "l"({value}) : "memory");'
    return (
        f'int ignored; asm volatile("atom.{order}.gpu.global.add.s32 %0, [%1], 1;" : "=r"(ignored) : "l"({value}) : '
        '"memory");'
    )


LAST_BLOCK = """
extern "C" __global__ void k(int* out, int* sum, int* counter) {
    ADD
    BEFORE
    int before;
    asm volatile("atom.ORDER.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    if (before == gridDim.x - 1) { AFTER USE }
}
"""
READ, OVERWRITE = "out[0] = *sum;", "*sum = -1;"
FENCE = "__threadfence();"


def last_block(*, returns: bool, before: str = "", after: str = "", order: str = "relaxed", use: str = READ) -> str:
    text = LAST_BLOCK.replace("ADD", adds("sum", returns=returns)).replace("ORDER", order).replace("USE", use)
    return text.replace("BEFORE", before).replace("AFTER", after)


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize(("before", "after"), [("", ""), (FENCE, ""), ("", FENCE)])
@pytest.mark.parametrize(("use", "kind"), [(READ, "write-read"), (OVERWRITE, "write-write")])
def test_the_last_block_uses_a_sum_to_which_it_has_added_itself(
    returns: bool, before: str, after: str, use: str, kind: str
) -> None:
    with pytest.raises(DataRace, match=rf"{kind} race on 1\+0") as found:
        run(last_block(returns=returns, before=before, after=after, use=use), grid=8, block=1)
    assert "thread (0, 0, 0) of block (7, 0, 0) " in str(found.value)
    assert found.value.first is not None
    assert found.value.first.line == 3


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("use", [READ, OVERWRITE])
def test_fences_or_acq_rel_order_the_sums_of_all_blocks(returns: bool, use: str) -> None:
    for ordered in (
        last_block(returns=returns, before=FENCE, after=FENCE, use=use),
        last_block(returns=returns, order="acq_rel", use=use),
    ):
        out, total, counter = run(ordered, grid=8, block=1)
        assert (out[0], total[0], counter[0]) == ((8, 8, 8) if use == READ else (0, -1, 8))


@pytest.mark.parametrize("order", ["acquire", "release"])
def test_half_of_acq_rel_does_not_order_the_sums(order: str) -> None:
    with pytest.raises(DataRace, match=r"write-read race on 1\+0"):
        run(last_block(returns=False, order=order), grid=8, block=1)


COLUMNS_OF_ALL_BLOCKS = """
extern "C" __global__ void k(int* out, int* sums, int* counter) {
    __shared__ int part[64], before;
    part[threadIdx.x] = threadIdx.x;
    __syncthreads();
    atomicAdd(&sums[threadIdx.x], part[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) { BEFORE before = atomicAdd(counter, 1); AFTER }
    __syncthreads();
    if (before == gridDim.x - 1) out[threadIdx.x] = sums[threadIdx.x];
}
"""


@pytest.mark.parametrize(("before", "after"), [("", ""), (FENCE, ""), ("", FENCE), (FENCE, FENCE)])
def test_the_last_block_reads_sums_of_columns(before: str, after: str) -> None:
    text = COLUMNS_OF_ALL_BLOCKS.replace("BEFORE", before).replace("AFTER", after)
    if before and after:
        assert (run(text, grid=8, block=64)[0] == 8 * np.arange(64)).all()
        return
    with pytest.raises(DataRace, match=r"write-read race on 1\+0"):
        run(text, grid=8, block=64)


SUM_OF_A_BLOCK = """
extern "C" __global__ void k(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = 0; i < 3; ++i) ADD;
    WAIT
    if (threadIdx.x == 96) { USE }
    __syncthreads();
    ADD;
}
"""
ADD_SHARED = {
    "red": "atomicAdd(&sum, 1)",
    "atom": "if (atomicAdd(&sum, 1) < 0) __trap()",
    "within the block": "atomicAdd_block(&sum, 1)",
}


@pytest.mark.parametrize("add", list(ADD_SHARED))
@pytest.mark.parametrize("use", ["out[0] = sum;", "sum = 1;"])
@pytest.mark.parametrize(
    ("wait", "races"),
    [
        ("__syncthreads();", False),
        ("__syncwarp();", True),
        ('if (threadIdx.x >= 64) asm volatile("bar.sync 1, 64;" ::: "memory");', True),
        ('asm volatile("bar.sync 1, 128;" ::: "memory");', False),
    ],
)
def test_a_sum_in_shared_memory_is_used_after_a_barrier_of_all(add: str, use: str, wait: str, races: bool) -> None:
    text = SUM_OF_A_BLOCK.replace("ADD", ADD_SHARED[add]).replace("USE", use).replace("WAIT", wait)
    if races:
        with pytest.raises(DataRace, match="race on shared memory, sum"):
            run(text, block=128)
    else:
        (out,) = run(text, block=128)
        assert out[0] == (0 if use.startswith("sum") else 3 * 128)


def test_the_sum_of_a_cluster_is_read_after_a_barrier_of_all_its_blocks() -> None:
    text = """
    __device__ void sync() { asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory"); }
    extern "C" __global__ void k(int* out) {
        __shared__ int sum;
        if (threadIdx.x == 0) sum = 0;
        sync();
        for (int i = 0; i < 2; ++i) {
            atomicAdd(static_cast<int*>(__cluster_map_shared_rank(&sum, 0)), 1);
            WAIT
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = sum;
        sync();
    }
    """
    assert run(text.replace("WAIT", "sync();"), grid=4, block=64, cluster=4)[0][0] == 2 * 4 * 64
    with pytest.raises(DataRace, match="write-read race on shared memory of block"):
        run(text.replace("WAIT", "__syncthreads();"), grid=4, block=64, cluster=4)


FIRST_WEAK = """
extern "C" __global__ void k(int* out, int* sum, int* ready) {
    if (blockIdx.x == 0 && threadIdx.x == 0) { WEAK; }
    __syncthreads();
    WAIT
    atomicAdd(sum, 1);
}
"""
WAIT_FOR_BLOCK_0 = """
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) { __threadfence(); atomicExch(ready, 1); }
        else { while (atomicAdd(ready, 0) == 0) {} __threadfence(); }
    }
    __syncthreads();
"""


@pytest.mark.parametrize(("weak", "kind"), [("*sum = 5", "write-write"), ("out[0] = *sum", "read-write")])
def test_a_weak_access_of_the_first_block_races_with_the_atomics_of_others(weak: str, kind: str) -> None:
    """The first block's own atomics are ordered after it."""
    with pytest.raises(DataRace, match=rf"{kind} race on 1\+0"):
        run(FIRST_WEAK.replace("WEAK", weak).replace("WAIT", ""), grid=4)
    total = run(FIRST_WEAK.replace("WEAK", weak).replace("WAIT", WAIT_FOR_BLOCK_0), grid=4)[1][0]
    assert total == 4 * 32 + (5 if "5" in weak else 0)


def test_a_relaxed_load_that_an_atomic_displaces_races_with_a_weak_store() -> None:
    text = """extern "C" __global__ void k(int* out, int* x) {
        if (blockIdx.x == 0) asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(out[0]) : "l"(x) : "memory");
        asm volatile("bar.sync 0;" ::: "memory");
        if (blockIdx.x == 1) { atomicAdd(x, 1); STORE }
    }
    """
    run(text.replace("STORE", "atomicExch(x, 7);"), grid=2, block=1)
    with pytest.raises(DataRace, match=r"read-write race on 1\+0"):
        run(text.replace("STORE", "*x = 7;"), grid=2, block=1)


def test_an_atomic_of_a_narrow_scope_is_remembered_behind_one_of_a_wide_scope() -> None:
    text = """extern "C" __global__ void k(int* x) {
        if (blockIdx.x == 0 && threadIdx.x == 0) FIRST(x, 1);
        if (blockIdx.x == 0 && threadIdx.x == 32) atomicAdd(x, 1);
        if (blockIdx.x == 1 && threadIdx.x == 0) atomicAdd(x, 1);
    }
    """
    assert run(text.replace("FIRST", "atomicAdd"), grid=2, block=64)[0][0] == 3
    with pytest.raises(DataRace, match=r"write-write race on 0\+0"):
        run(text.replace("FIRST", "atomicAdd_block"), grid=2, block=64)


def test_words_of_several_lengths_share_what_has_been_displaced() -> None:
    """The bytes that are read lie in a word that has been changed as a whole."""
    text = """extern "C" __global__ void k(int* out, unsigned long long* x) {
        atomicAdd(x, 1ull << 40);
        if (threadIdx.x == 33) out[0] = reinterpret_cast<const unsigned char*>(x)[BYTE];
    }
    """
    for byte in range(8):
        with pytest.raises(DataRace, match=rf"write-read race on 1\+{byte}"):
            run(text.replace("BYTE", f"{byte}"), block=34)
    run(text.replace("BYTE", "8"), block=34)


def test_phases_of_atomics_and_weak_accesses_with_barriers_between_them() -> None:
    text = """extern "C" __global__ void k(int* out, const int* numbers, int* total) {
        __shared__ int bins[64];
        for (int tile = 0; tile < 4; ++tile) {
            if (threadIdx.x < 64) bins[threadIdx.x] = 0;
            __syncthreads();
            for (int i = 0; i < 8; ++i) atomicAdd(&bins[(threadIdx.x * 7 + i * tile) % 64], 1);
            __syncthreads();
            if (threadIdx.x < 64) atomicAdd(&total[threadIdx.x], bins[threadIdx.x]);
            WAIT
        }
    }
    """
    assert run(text.replace("WAIT", "__syncthreads();"), grid=3, block=128)[2].sum() == 3 * 128 * 4 * 8
    text = text.replace("WAIT", "__syncwarp();").replace("bins[threadIdx.x]);", "bins[63 - threadIdx.x]);")
    with pytest.raises(DataRace, match="read-write race on shared memory, bins"):
        run(text, grid=3, block=128)


def test_a_word_that_all_threads_change_and_then_read_takes_time_linear_in_their_number() -> None:
    """65,536 atomics on one word, and after a barrier of the grid 65,536 weak reads of it."""
    text = """
    extern "C" __global__ void k(int* out, int* x, int* counter) {
        for (int i = 0; i < 4; ++i) atomicAdd(x, 1);
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(counter, 1);
            while (atomicAdd(counter, 0) < gridDim.x) {}
            __threadfence();
        }
        __syncthreads();
        if (*x != 4 * 65536) __trap();
    }
    """
    start = time.process_time()
    run(text, grid=256, block=256)
    assert time.process_time() - start < 10
