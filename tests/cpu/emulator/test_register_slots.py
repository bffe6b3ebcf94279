"""Registers that share memory: which ones, and that nothing that a kernel does depends on it."""

import numpy as np
import pytest

from emulation import compiled as module_of
from same_as_interpreter import both
from warptile.bench.emulator_suite.emulated_kernels import FOLDER
from warptile.emulator import program
from warptile.emulator.lanes import register_bytes
from warptile.emulator.register_slots import register_slots
from warptile.launch.params import Scalar
from warptile.ptx import parse

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def slots_of(body, declared=".reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<5>;"):
    module = parse(f"{HEAD}.visible .entry k(.param .u64 a) {{ {declared}\n{body}\nret;\n}}")
    return register_slots(next(iter(module.functions.values())))


def test_a_register_gets_the_memory_of_one_that_is_not_read_any_more():
    slots = slots_of("mov.u32 %r1, 1;\nadd.u32 %r2, %r1, 1;\nadd.u32 %r3, %r2, 1;\nadd.u32 %r4, %r3, 1;")
    assert slots["%r1"] != slots["%r2"]  # one instruction reads one and writes the other
    assert slots["%r1"] == slots["%r3"] != slots["%r4"] == slots["%r2"]


def test_widths_share_with_their_own():
    slots = slots_of("mov.u32 %r1, 1;\nmov.u64 %rd1, 1;\nsetp.eq.u32 %p1, 1, 1;\nmov.u32 %r2, 1;\nmov.u64 %rd2, 2;")
    assert slots["%r1"] == slots["%r2"]
    assert slots["%rd1"] == slots["%rd2"]
    assert len({slots["%r1"], slots["%rd1"], slots["%p1"]}) == 3


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("mov.u32 %r1, 1;\nL:\nadd.u32 %r2, %r1, 1;", "%r1"),  # read in another block
        ("setp.eq.u32 %p1, 1, 1;\n@%p1 mov.u32 %r1, 1;\nadd.u32 %r2, %r1, 1;", "%r1"),  # not written by all lanes
        ("add.u32 %r1, %r1, 1;", "%r1"),  # read first
        ("setp.eq.u32 %p1, 1, 1;\n@%p1 bra L;\nmov.u32 %r2, 1;\nL:\n@%p1 mov.u32 %r2, 2;", "%p1"),
        ("mov.b64 {%r1, %r1}, 1;", "%r1"),  # which half it gets is the instruction's
        ("atom.global.add.u32 %r1, [%rd1], 1;\nadd.u32 %r2, %r1, 1;", "%r1"),  # not one of those that are known
    ],
)
def test_what_has_to_be_kept_shares_nothing(body, kept):
    assert kept not in slots_of(body)


@pytest.mark.parametrize("name", ["attention", "histogram", "reduction", "sgemm", "softmax", "transpose"])
def test_lives_of_registers_that_share_do_not_meet(name):
    _, module = module_of((FOLDER / f"{name}.cu").read_text(), name, "sm_90a")
    for function in module.functions.values():
        slots = register_slots(function)
        lives = {}
        for position, instruction in enumerate(function.body or ()):
            guard = (instruction.predicate,) if instruction.predicate is not None else ()
            for register in (*instruction.registers, *guard):
                if register.name in slots:
                    lives.setdefault(register.name, [position, position, register_bytes(register.type)])[1] = position
        assert len(lives) > 10
        assert len(set(slots.values())) < len(lives)
        targets = set(function.labels.values())
        taken = {}
        for register, (first, last, size) in lives.items():
            assert not any(first < each <= last for each in targets)
            for others in taken.setdefault(slots[register], []):
                assert others[2] == size
                assert others[1] < first or last < others[0]
            taken[slots[register]].append((first, last, size))


TEXT = """
__device__ __noinline__ float deep(float x, int n) {
    if (n == 0) return x;
    float more = deep(x * 0.5f + n, n - 1);
    return more * x + n;
}

extern "C" __global__ void mixed(const float* x, float* y, int n) {
    __shared__ float tile[96];
    int t = threadIdx.x;
    float value = x[t] * 2, other = x[95 - t];
    tile[t] = value + other * 3;
    __syncthreads();
    for (int i = 0; i < n + t % 3; ++i) {
        float a = tile[(t + i) % 96], b = tile[(t * 5 + i) % 96];
        if ((t + i) % 4 == 0) { value = value * a - b; continue; }
        value += __shfl_xor_sync(__activemask(), a, 0) + b * (i & 1 ? a : other);
    }
    if (t % 2) value += deep(value, t % 5);
    y[blockIdx.x * 96 + t] = value + __shfl_xor_sync(0xFFFFFFFFu, value, 1);
}
"""


@pytest.mark.parametrize("schedule", ["latest", "random:2"])
def test_a_kernel_does_the_same_without_sharing(monkeypatch, schedule):
    arguments = [np.linspace(-1, 1, 96, dtype=np.float32), np.zeros(192, np.float32), Scalar("s32", 6)]
    shared = both(TEXT, "mixed", arguments, outputs=(1,), collect=True, schedule=schedule)
    monkeypatch.setattr(program, "register_slots", lambda function: {})
    alone = both(TEXT, "mixed", arguments, outputs=(1,), collect=True, schedule=schedule)
    assert shared[0] == alone[0]
    assert shared[1]["1"].tobytes() == alone[1]["1"].tobytes()
    assert len(set(shared[1]["1"].tolist())) > 40
