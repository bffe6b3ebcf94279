"""Compiled atomics against the interpreter."""

import numpy as np
import pytest

from covering import ALL, covering
from random_words import stream
from same_as_interpreter import both, compile_at_once
from warptile.emulator import ALL_CHECKS, DEFAULT_CHECKS, scheduler
from warptile.emulator.compiled_steps import memory_state
from warptile.emulator.ops import atomic
from warptile.launch.params import Scalar


@pytest.fixture(autouse=True)
def from_the_first_step(monkeypatch):
    compile_at_once(monkeypatch)


@pytest.fixture
def interpreted(monkeypatch):
    """Updates by the interpreter, of both launches."""
    updates = []
    apply = atomic.MemoryUpdate.apply

    def noted(self, *arguments):
        updates.append(self.operation)
        return apply(self, *arguments)

    monkeypatch.setattr(atomic.MemoryUpdate, "apply", noted)
    return updates


ATOMICS = """
template <typename T> __device__ T update(T* words, unsigned op, unsigned at, T value) {
    T* word = words + at;
    switch (op & 7) {
    case 0: return atomicAdd(word, value);
    case 1: return atomicMin(word, value);
    case 2: return atomicMax(word, value);
    case 3: return atomicAnd(word, value);
    case 4: return atomicOr(word, value);
    case 5: return atomicXor(word, value);
    case 6: return atomicExch(word, value);
    default: return atomicCAS(word, value & 3, value);
    }
}

extern "C" __global__ void atomics(
    const unsigned* program, int length, unsigned* words, unsigned long long* wide, float* sums, unsigned* seen
) {
    __shared__ unsigned own[64];
    __shared__ unsigned long long own_wide[64];
    __shared__ float own_sums[64];
    unsigned thread = threadIdx.x, value = thread * 2654435761u;
    if (thread < 64) own[thread] = thread, own_wide[thread] = thread * 7, own_sums[thread] = thread;
    __syncthreads();
    for (int i = 0; i < length; ++i) {
        unsigned op = program[i], at = (op >> 16 & 1 ? value >> 9 : thread * (op >> 17 & 3) + (op >> 8)) & 63;
        float single = __uint_as_float(op >> 18 & 1 ? value : 0x3F000000u + (value & 0xFFFFFF));
        if ((op >> 19 & 7) == 0 && (value & 3)) continue;
        switch (op >> 3 & 15) {
        case 0: value += update(own, op, at, value >> 3); break;
        case 1: value ^= update((int*)own, op, at, (int)value); break;
        case 2: value += (unsigned)update(own_wide, op, at, value * 4294967311ull); break;
        case 3: value += update(words, op, at, value >> 3); break;
        case 4: value ^= update((int*)words, op, at, (int)value); break;
        case 5: value += (unsigned)update(wide, op, at, value * 4294967311ull); break;
        case 6: value += op & 1 ? atomicInc(&own[at], value >> 20) : atomicDec(&words[at], value >> 20); break;
        case 7: value += __float_as_uint(atomicAdd(&own_sums[at], single)); break;
        case 8: value += __float_as_uint(atomicAdd(&sums[at], single)); break;
        case 9: atomicAdd(&words[at], 1u); atomicAdd(&own[at], 1u); break;
        case 10: if (op & 1) value += own[at]; else own[at] = value; break;
        case 11: if (op & 1) value += words[at + 64]; else words[at + 64] = i; break;
        case 12: __threadfence(); value += atomicAdd(&words[at], value); break;
        case 13: value += atomicAdd_block(&own[at], 3u) + atomicAdd_block(&words[at], 1u); break;
        case 14: value += atomicAdd(thread & 1 ? &own[at] : &words[at], 5u); break;
        default: __syncthreads();
        }
        value = value * 1664525u + i;
    }
    seen[blockIdx.x * blockDim.x + thread] = value;
}
"""

KINDS = {
    "every type": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    "with barriers": (0, 2, 7, 9, 15, 15),
    "with plain accesses": (0, 3, 9, 10, 11, 15),
    "with fences": (0, 3, 12, 13, 14, 15),
}


def arguments_of(seed, kinds, length):
    words = stream(seed, kinds, shape=length).astype(np.uint32)
    choice = np.array(KINDS[kinds], dtype=np.uint32)
    words = words & ~np.uint32(15 << 3) | choice[(words >> 24) % len(choice)] << np.uint32(3)
    barriers = words >> 3 & 15 == 15  # all threads execute those
    words = np.where(barriers, words | (1 << 19), words).astype(np.uint32)
    return [
        words, Scalar("s32", length), np.arange(128, dtype=np.uint32), np.arange(64, dtype=np.uint64) << 40,
        np.linspace(-1e-38, 1e-38, 64, dtype=np.float32), np.zeros(192, np.uint32),
    ]  # fmt: skip


@pytest.mark.parametrize(("kinds", "seed"), covering(tuple(KINDS), tuple(range(4)), pairs=()))
def test_random_atomics_are_the_same(kinds, seed):
    arguments = arguments_of(seed, kinds, 96 if ALL else 32)
    report, _ = both(
        ATOMICS, "atomics", arguments, outputs=(2, 3, 4, 5), collect=True,
        checks=(DEFAULT_CHECKS, ALL_CHECKS, frozenset(), DEFAULT_CHECKS)[seed],
        schedule="random:1" if seed == 3 else "latest",
    )  # fmt: skip
    assert report.finished
    if kinds == "with plain accesses" and seed != 2:
        assert any(each.check == "races" for each in report.findings)


def test_a_log_that_is_full_is_handed_over(monkeypatch):
    monkeypatch.setattr(memory_state, "LOG_LANE_ROOM", 1)  # what a wave needs: two atomics of all lanes do not fit
    both(ATOMICS, "atomics", arguments_of(0, "with barriers", 32), outputs=(2, 3, 4, 5), collect=True)
    both(ATOMICS, "atomics", arguments_of(1, "with plain accesses", 32), outputs=(2, 3, 4, 5), collect=True)


def test_most_atomics_are_compiled(interpreted):
    text = """
    extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, float* sum, int n) {
        __shared__ unsigned own[64];
        if (threadIdx.x < 64) own[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += 96) { atomicAdd(&own[x[i] & 63], 1u); atomicAdd(sum, 0.5f); }
        __syncthreads();
        if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
    }"""
    x = (stream(1, "x", shape=4800) & np.uint64(255)).astype(np.uint8)
    _, found = both(
        text, "histogram", [x, np.zeros(64, np.uint32), np.zeros(1, np.float32), Scalar("s32", len(x))],
        outputs=(1, 2), grid=1,
    )  # fmt: skip
    assert found["1"].tolist() == np.bincount(x & 63, minlength=64).tolist()
    assert found["2"][0] == len(x) / 2
    assert len(interpreted) < 2 * 50 + 1 + 10  # all of the first launch, and few of the second


@pytest.mark.parametrize("wait", ["atomicCAS(lock, 0, 1) != 0", "atomicExch(lock, 1) != 0"])
def test_locks_are_waited_for_as_long(wait):
    text = f"""
    extern "C" __global__ void lock(int* lock, volatile int* count) {{
        if (threadIdx.x % 32 == 0) {{
            while ({wait});
            __threadfence();
            *count += 1;
            __threadfence();
            atomicExch(lock, 0);
        }}
    }}"""
    _, found = both(text, "lock", [np.zeros(1, np.int32), np.zeros(1, np.int32)], outputs=(0, 1), collect=True)
    assert found["1"][0] == 6


def test_a_thread_that_waits_for_nobody_is_told_the_same(monkeypatch):
    monkeypatch.setattr(scheduler, "SPIN_STEPS", 5000)
    text = """
    extern "C" __global__ void never(unsigned* flag) {
        if (threadIdx.x == 3) while (atomicAdd(flag, 0u) == 0);
    }"""
    error, _ = both(text, "never", [np.zeros(1, np.uint32)], outputs=(0,), grid=1)
    assert error[0].__name__ == "Deadlock"
