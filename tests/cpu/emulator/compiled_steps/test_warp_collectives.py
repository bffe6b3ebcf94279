"""Compiled collectives of whole warps against the interpreter."""

import numpy as np
import pytest

from covering import ALL
from random_words import stream
from same_as_interpreter import both, compile_at_once
from warptile.emulator import DEFAULT_CHECKS, select_checks
from warptile.emulator.scheduler import Scheduler
from warptile.launch.params import Scalar


@pytest.fixture(autouse=True)
def from_the_first_step(monkeypatch):
    compile_at_once(monkeypatch)


@pytest.fixture
def interpreted(monkeypatch):
    """Positions of collectives that the interpreter executed, of both launches."""
    positions = []
    execute = Scheduler._mask_collective

    def noted(self, step, position, active):
        positions.append(position)
        return execute(self, step, position, active)

    monkeypatch.setattr(Scheduler, "_mask_collective", noted)
    return positions


COLLECTIVES = """
extern "C" __global__ void collectives(const unsigned* program, int length, unsigned* seen) {
    __shared__ unsigned tile[256];
    unsigned thread = threadIdx.x, value = thread * 2654435761u, full = 0xFFFFFFFFu;
    for (int i = 0; i < length; ++i) {
        unsigned op = program[i], place = op >> 8 & 31, own = op >> 13 & 1 ? place : value >> 7;
        unsigned width = 1u << (op >> 14 & 3) + 2, found = 0;
        if ((op >> 16 & 7) == 0 && thread < 32) continue;                     // one warp is elsewhere
        unsigned how = op >> 19 & 3;
        bool yes = how == 0 ? value & 1 : how == 1 ? true : how == 2 ? false : value >> 5 & 1;
        switch (op & 15) {
        case 0: found = __shfl_sync(full, value, own, width); break;
        case 1: found = __shfl_up_sync(full, value, own & 31, width); break;
        case 2: found = __shfl_down_sync(full, value, own & 31, width); break;
        case 3: found = __shfl_xor_sync(full, value, place, width); break;
        case 4: found = __shfl_xor_sync(full, value, 16); break;
        case 5: {
            unsigned inside;
            asm volatile("{.reg .pred p; shfl.sync.down.b32 %0|p, %2, %3, 31, -1; selp.u32 %1, 1, 0, p;}"
                         : "=r"(found), "=r"(inside) : "r"(value), "r"(own & 31));
            found += inside;
            break;
        }
        case 6: found = __ballot_sync(full, yes); break;
        case 7: found = __any_sync(full, !yes); break;
        case 8: found = __all_sync(full, yes); break;
        case 9:
            asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.uni.pred q, !p, -1; selp.u32 %0, 1, 0, q;}"
                         : "=r"(found) : "r"((unsigned)yes));
            break;
        case 10: found = __reduce_add_sync(full, value); break;
        case 11: found = __reduce_min_sync(full, (int)value) ^ __reduce_max_sync(full, (int)value); break;
        case 12: found = __reduce_min_sync(full, value) ^ __reduce_max_sync(full, value); break;
        case 13:
            found = __reduce_and_sync(full, value | 7) ^ __reduce_or_sync(full, value) ^ __reduce_xor_sync(full, value);
            break;
        case 14: {
            unsigned leads;
            asm volatile("{.reg .pred p; elect.sync %0|p, -1; selp.u32 %1, 1, 0, p;}" : "=r"(found), "=r"(leads));
            found += 2 * leads;
            break;
        }
        default:
            tile[thread] = value;
            if (op >> 21 & 1) __syncwarp(); else found = __shfl_xor_sync(full, value, 1);
            if (op >> 22 & 1) found += tile[thread ^ 1];
            if (op >> 23 & 1) __syncthreads();
        }
        value = value * 1664525u + found + i;
    }
    seen[blockIdx.x * blockDim.x + thread] = value;
}
"""

KINDS = {"values": tuple(range(15)), "shared memory": (15,), "both": (4, 5, 6, 15)}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("block", [96, 80])
@pytest.mark.parametrize("model", ["strict", "common"])
def test_random_collectives_are_the_same(kinds, block, model):
    length = 96 if ALL else 40
    words = stream(block, kinds, shape=length).astype(np.uint32)
    choice = np.array(KINDS[kinds], dtype=np.uint32)
    words = words & ~np.uint32(15) | choice[(words >> 24) % len(choice)]
    barriers = (words & 15 == 15) & (words >> 23 & 1 == 1)  # all threads execute those
    words = np.where(barriers, words | (1 << 16), words)
    checks = select_checks(model="common") if model == "common" else DEFAULT_CHECKS
    arguments = [words, Scalar("s32", length), np.zeros(2 * block, np.uint32)]
    report, _ = both(COLLECTIVES, "collectives", arguments, outputs=(2,), block=block, collect=True, checks=checks)
    assert report.finished
    if kinds == "shared memory" and model == "strict":
        assert any(each.check == "warp-order" for each in report.findings)


def test_collectives_of_whole_warps_are_compiled(interpreted):
    words = np.arange(15, dtype=np.uint32) | 1 << 16
    arguments = [words, Scalar("s32", len(words)), np.zeros(192, np.uint32)]
    both(COLLECTIVES, "collectives", arguments, outputs=(2,))
    positions = set(interpreted)
    assert len(positions) >= 15
    assert all(interpreted.count(each) == 1 for each in positions)  # once, by the launch that interprets everything


def test_lanes_that_wait_are_joined_by_those_that_come_later():
    text = """
    extern "C" __global__ void late(unsigned* seen) {
        unsigned lane = threadIdx.x % 32, value = threadIdx.x * 3 + 1;
        for (int i = 0; i < 4; ++i) {
            if (threadIdx.x < 48 && (lane + i) % 3 == 0) value += 100;
            else value ^= 5;
            value += __shfl_xor_sync(0xFFFFFFFFu, value, 1 << i);
            if (lane < 16) value += __shfl_xor_sync(0xFFFFu, value, 8);
        }
        seen[threadIdx.x] = value;
    }"""
    both(text, "late", [np.zeros(96, np.uint32)], outputs=(0,), grid=1)


def test_what_lanes_know_of_others_is_united():
    text = """
    extern "C" __global__ void known(unsigned* seen) {
        __shared__ unsigned flag, data[64];
        unsigned t = threadIdx.x;
        if (t == 0) flag = 0;
        __syncthreads();
        data[t & 63] = t < 64 ? t : data[t & 63];
        if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
        if (t == 5) { data[40] = 7; __threadfence_block(); atomicExch(&flag, 1); }
        if (t == 70) { while (atomicAdd(&flag, 0) == 0); __threadfence_block(); data[40] += 1; }
        __syncwarp();
        if (t > 64 && t < 80) data[t] = data[40];
        seen[t] = t < 64 ? data[t ^ 1] : 0;
    }"""
    report, _ = both(text, "known", [np.zeros(96, np.uint32)], outputs=(0,), grid=1, collect=True)
    assert report.findings
