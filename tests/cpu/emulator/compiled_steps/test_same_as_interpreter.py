"""Compiled steps against the interpreter: the same operands, counters, source lines, steps and findings."""

import numpy as np
import pytest

from covering import ALL, covering
from random_words import stream
from same_as_interpreter import THREADS, both, compile_at_once
from warptile.emulator import ALL_CHECKS, DEFAULT_CHECKS
from warptile.emulator.compiled_steps import compiled_program
from warptile.errors import DataRace
from warptile.launch.params import Scalar


@pytest.fixture(autouse=True)
def from_the_first_step(monkeypatch):
    compile_at_once(monkeypatch)


@pytest.fixture
def executed(monkeypatch):
    """Positions at which compiled code ran."""
    positions = []
    run = compiled_program.CompiledProgram.run

    def noted(self, position, *arguments, **options):
        positions.append(position)
        return run(self, position, *arguments, **options)

    monkeypatch.setattr(compiled_program.CompiledProgram, "run", noted)
    return positions


ACCESSES = """
struct alignas(16) Sixteen { unsigned x[4]; };

extern "C" __global__ void accesses(const unsigned* program, int length, unsigned* words, unsigned* seen) {
    __shared__ __align__(16) unsigned shared[512];
    unsigned sum = 0, thread = threadIdx.x;
    for (int i = thread; i < 512; i += blockDim.x) shared[i] = i * 2654435761u;
    __syncthreads();
    for (int i = 0; i < length; ++i) {
        unsigned op = program[i], pattern = op >> 4 & 7, place = op >> 8 & 255;
        unsigned at = pattern == 0 ? place                                    // all lanes at one word
                    : pattern == 1 ? thread + place                           // consecutive
                    : pattern == 2 ? thread                                   // its own
                    : pattern == 3 ? (thread * 1103515245u + op) >> 8         // scattered
                    : pattern == 4 ? (thread & 3) * 32 + place                // conflicts of banks
                    : pattern == 5 ? thread / 2 + place
                    : thread * (op >> 16 & 7) + place;
        if (pattern == 7 && (thread * 7 + op >> 3 & 3) == 0) continue;        // some lanes do nothing
        unsigned word = at & 511, pair = at & 255, quad = at & 127;
        switch (op & 15) {
        case 0: shared[word] = sum; break;
        case 1: case 2: sum += shared[word]; break;
        case 3: { uint2 v = ((uint2*)shared)[pair]; sum += v.x ^ v.y; break; }
        case 4: { uint4 v = ((uint4*)shared)[quad]; sum += v.x ^ v.w; break; }
        case 5: ((uint4*)shared)[quad] = make_uint4(sum, i, thread, 7); break;
        case 6: sum += ((signed char*)shared)[word * 2 + 1]; break;
        case 7: ((unsigned short*)shared)[word] = (unsigned short)sum; break;
        case 8: case 9: __syncthreads(); break;
        case 10: __syncwarp(); break;
        case 11: sum += words[word]; break;
        case 12: words[word + 512 * blockIdx.x] = i; break;
        case 13: sum += ((short*)words)[word]; break;
        case 14: if (thread < (op >> 16 & 127)) sum += shared[word]; break;
        default:
            if (op >> 20 & 1) { __threadfence_block(); sum += atomicAdd(&shared[511], 1); __threadfence_block(); }
            else if (thread < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
        }
    }
    seen[blockIdx.x * blockDim.x + thread] = sum;
}
"""


def program(seed, length, kinds):
    """Random operations of the given kinds; barriers are executed by all lanes."""
    words = stream(seed, "accesses", shape=length).astype(np.uint32)
    kinds = np.array(kinds, dtype=np.uint32)
    words = words & ~np.uint32(15) | kinds[(words >> 24) % len(kinds)]
    barriers = np.isin(words & 15, (8, 9, 10, 15))
    return np.where(barriers & (words >> 4 & 7 == 7), words ^ 16, words)


PATTERNS = {
    "reads and barriers": (1, 2, 3, 4, 6, 8, 9, 10, 11, 13),
    "everything": (0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 11, 12, 13, 14),
    "writes after barriers": (0, 8, 8, 5, 8, 9, 1, 12, 9, 10),
    "partial barriers and flags": (0, 15, 15, 15, 1, 2, 5, 15, 8, 12, 15),
}


@pytest.mark.parametrize(("kinds", "seed"), covering(tuple(PATTERNS), tuple(range(4)), pairs=()))
def test_random_accesses_have_the_same_findings(kinds, seed):
    words, seen = np.arange(1024, dtype=np.uint32), np.zeros(2 * THREADS, dtype=np.uint32)
    given = program(seed, 48 if ALL else 24, PATTERNS[kinds])
    report, _ = both(
        ACCESSES, "accesses", [given, Scalar("s32", len(given)), words, seen], outputs=(2, 3),
        collect=True, checks=ALL_CHECKS if seed % 2 else DEFAULT_CHECKS,
    )  # fmt: skip
    assert report.finished
    if kinds != "reads and barriers":
        assert any(each.check == "races" for each in report.findings)


def test_reads_by_lanes_that_know_of_others_are_remembered_the_same():
    words, seen = np.arange(1024, dtype=np.uint32), np.zeros(2 * THREADS, dtype=np.uint32)
    given = program(1, 48 if ALL else 24, PATTERNS["partial barriers and flags"])
    arguments = [given, Scalar("s32", len(given)), words, seen]
    report, _ = both(ACCESSES, "accesses", arguments, outputs=(2, 3), collect=True, checks=ALL_CHECKS)
    assert any(each.count > 20 for each in report.findings)


def test_random_accesses_raise_the_same_error():
    words, seen = np.arange(1024, dtype=np.uint32), np.zeros(2 * THREADS, dtype=np.uint32)
    given = program(7, 48, PATTERNS["everything"])
    error, _ = both(ACCESSES, "accesses", [given, Scalar("s32", len(given)), words, seen], outputs=(2, 3))
    assert error[0] is DataRace


@pytest.mark.parametrize("seed", range(3))
def test_random_accesses_without_checks(seed):
    words, seen = np.arange(1024, dtype=np.uint32), np.zeros(2 * THREADS, dtype=np.uint32)
    given = program(seed, 48, PATTERNS["everything"])
    arguments = [given, Scalar("s32", len(given)), words, seen]
    both(ACCESSES, "accesses", arguments, outputs=(2, 3), checks=frozenset())


WRONG = """
__device__ int counter;
extern "C" __global__ void wrong(const float* in, float* out, int kind, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    switch (kind) {
    case 0: out[t + n] = in[t]; break;                               // past the end
    case 1: out[t] = in[t + n]; break;
    case 2: out[t] = tile[t & 63]; break;                            // never written
    case 3: out[t / 2] = in[t]; break;                               // twice, and not all of it
    case 4: ((float*)in)[t] = 1; out[t] = 1; break;                  // read-only
    case 5: *(float2*)(out + 1) = make_float2(t, t); break;          // misaligned
    case 6: if (t & 1) out[t] = in[t]; break;                        // half
    case 7: tile[t + n] = 1; out[t] = 1; break;                      // past shared memory
    case 8: { float local[8]; for (int i = 0; i < 8; ++i) if (i != n % 8) local[i] = in[t + i & 63];
              out[t] = local[(t + n) & 7]; break; }                  // some never written
    case 9: out[t] = in[t] + (t == 5 ? *(float*)8 : 0); break;       // in no buffer
    case 10: { float* p = t & 1 ? tile + t : out + t; *p = t; if (!(t & 1)) return; out[t] = *p; break; } // two spaces
    }
}
"""


@pytest.mark.parametrize("kind", range(11))
@pytest.mark.parametrize("collect", [False, True])
def test_what_is_wrong_is_told_the_same(kind, collect):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, dtype=np.float32)
    arguments = [x, y, Scalar("s32", kind), Scalar("s32", 3)]
    report, _ = both(WRONG, "wrong", arguments, outputs=(1,), grid=1, block=64, complete=True, collect=collect)
    if kind == 10:
        assert not isinstance(report, tuple)
    elif collect:
        assert report.findings
    else:
        assert isinstance(report, tuple)


LOOPS = """
extern "C" __global__ void loops(const int* trips, const double* in, double* out, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    for (int i = 0; i < trips[t]; ++i) {
        if ((i + t) % 3 == 0) continue;
        sum = fma(sum, 0.5, in[(t * 7 + i) % n]);
        if (sum > 3) sum -= i & 1 ? 3 : 1.5;
    }
    long long whole = (long long)(t * 1000003ll) >> (t & 7);
    out[t] = sum + (double)(whole % 1000) + (float)__popc(t) + (unsigned short)(t * 77);
}
"""


@pytest.mark.parametrize("schedule", ["latest", "random:3"])
def test_divergent_loops(schedule, executed):
    count = 2 * THREADS
    trips = (stream(3, "trips", shape=count) % np.uint64(40)).astype(np.int32)
    values = np.linspace(-2, 2, 50)
    report, found = both(
        LOOPS, "loops", [trips, values, np.zeros(count), Scalar("s32", 50)], outputs=(2,), complete=True,
        schedule=schedule,
    )  # fmt: skip
    assert report.steps > 500
    assert len(set(executed)) > 10
    assert not np.isnan(found["2"]).any()


def test_most_steps_of_a_loop_are_compiled(executed):
    text = """
    extern "C" __global__ void sum(const float* x, float* y, int n) {
        __shared__ float tile[96];
        float s = 0;
        for (int i = threadIdx.x; i < n; i += 96) s += x[i] * 2;
        tile[threadIdx.x] = s;
        __syncthreads();
        if (threadIdx.x == 0) { for (int i = 1; i < 96; ++i) s += tile[i]; *y = s; }
    }"""
    x = np.arange(9600, dtype=np.float32) / 1024
    report, found = both(text, "sum", [x, np.zeros(1, np.float32), Scalar("s32", 9600)], outputs=(1,), grid=1)
    assert found["1"][0] == pytest.approx(2 * x.sum(dtype=np.float64), rel=1e-4)
    assert report.steps > 600
    assert len(executed) < 40  # between barriers and divergent branches nothing is the interpreter's
