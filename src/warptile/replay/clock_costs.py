"""What an instruction of PTX costs one SM of Hopper, in clocks.

An SM has four partitions, each of which issues one warp instruction a clock to units of its own, and a load/store unit,
a TMA unit and a path to L2 that all share. Throughputs are the CUDA C++ Programming Guide's, "Throughput of native
arithmetic instructions", compute capability 9.0: results a clock and SM, of which a partition has a quarter. Memory
latencies are those of an H100 in "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499).
Rates of tensor cores are this project's own measurements (`warptile.arch.H200`). The rest are assumptions, and say so.

PTX is not what runs: ptxas drops moves and address arithmetic that fits into loads, and merges others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from warptile.arch import H200
from warptile.ptx.instruction import Instruction

WARP = 32
PARTITIONS = 4
L2_BYTES_PER_CLOCK = 64
"""From L2 into one SM: NVIDIA H100 whitepaper, as on the A100."""

SHARED_BYTES_PER_CLOCK = H200.shared_bytes_per_clock_per_sm
SHARED_LATENCY, L1_LATENCY, L2_LATENCY = 29, 41, 263
DRAM_LATENCY = 479
"""Clocks from a load to its data (arXiv 2402.13499, Table IV, H100)."""

ARITHMETIC_LATENCY = 4
"""Of dependent FP32 and integer instructions: known since Volta ("Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", arXiv 1804.06826)."""

SHUFFLE_LATENCY, SPECIAL_LATENCY, CONVERT_LATENCY, DOUBLE_LATENCY = 24, 18, 12, 8
MMA_LATENCY = 33
"""``mma.sync.m16n8k16`` of f16 (arXiv 2402.13499, "Tensor core": 32 to 33)."""

WGMMA_LATENCY = 32
"""Of the first ``wgmma`` beyond its own length. An assumption: that of ``mma.sync``."""

TMA_LATENCY = 640
"""From a bulk or tensor load to its mbarrier, when L2 has the data, without the bytes' own time. An assumption: L2's
latency, and what the fitted ``refill_clocks`` of wgmma-final's cost model leaves."""

TMA_ISSUE = 30
"""Clocks that the TMA unit is busy with starting one copy. An assumption."""

MBARRIER_WAKE, BARRIER_LATENCY, CLUSTER_BARRIER_LATENCY, REMOTE_LATENCY = 20, 20, 190, 180
"""From the last arrival to the threads that wait: at an mbarrier, at ``bar.sync``, and across a cluster; and to the
shared memory of another SM (arXiv 2402.13499: 180 of distributed shared memory). The others are assumptions."""

BRANCH_CLOCKS = 8
"""From a branch to the next instruction of its warp. An assumption."""

FREE = {"mov", "cvta", "isspacep", "pragma", "nop", "discard", "applypriority"}
"""What ptxas turns into register names, or into nothing."""


@dataclass(frozen=True)
class Cost:
    """What one warp instruction costs.

    Attributes:
        kind: what it is: ``math``, ``integer``, ``tensor``, ``wgmma``, ``shared``, ``global``, ``copy``, ``store``,
            ``sync``, ``branch`` or ``free``.
        unit: that it keeps busy: ``"fma"``, ``"integer"``, ``"special"``, ``"double"``, ``"tensor"`` of a partition,
            or ``"lsu"`` of the SM, or none.
        clocks: for how long; of loads and stores, that of a wavefront.
        latency: clocks to the result.
    """

    kind: str
    unit: str = ""
    clocks: float = 0.0
    latency: float = 0.0


_FREE = Cost("free")
_INTEGER = Cost("integer", "integer", 2, ARITHMETIC_LATENCY)
_FMA = Cost("math", "fma", 1, ARITHMETIC_LATENCY)


def fma_clocks(dtype: str, *, wgmma: bool) -> float:
    """Multiply-adds that one partition's tensor core does in a clock, for operands of a type of `warptile.dtypes`."""
    rates = H200.wgmma_tflops if wgmma else H200.tensor_tflops
    return rates[dtype] * 1e12 / 2 / H200.clock_hz / H200.multiprocessors / PARTITIONS


_TENSOR_TYPES = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "f64": "float64", "e4m3": "float8_e4m3",
    "e5m2": "float8_e5m2", "s8": "int8", "u8": "uint8", "s4": "int4", "u4": "uint4", "b1": "bit1",
}  # fmt: skip


@lru_cache(maxsize=4096)
def cost_of(instruction: Instruction) -> Cost:
    """What an instruction costs; without what depends on its addresses."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in FREE or (opcode == "ld" and modifiers[:1] == ("param",)):
        return _FREE
    if opcode in ("mma", "wmma", "wgmma"):
        return _tensor(instruction)
    if opcode in ("ld", "ldu", "ldmatrix"):
        return _load(opcode, modifiers)
    if opcode in ("st", "red", "stmatrix"):
        space = "shared" if opcode == "stmatrix" or any(each.startswith("shared") for each in modifiers) else "global"
        return Cost("store" if space == "global" else "shared", "lsu", 1)
    if opcode == "atom":
        shared = any(each.startswith("shared") for each in modifiers)
        return Cost("shared" if shared else "global", "lsu", 1, SHARED_LATENCY if shared else L2_LATENCY)
    if opcode == "cp":
        return Cost("sync") if {"wait_group", "wait_all"} & set(modifiers) else Cost("copy", "lsu", 1)
    if opcode in ("bra", "brx", "call", "ret", "exit"):
        return Cost("branch", "", 0, BRANCH_CLOCKS)
    if opcode in ("bar", "barrier", "mbarrier", "fence", "membar", "griddepcontrol", "setmaxnreg", "elect"):
        return Cost("sync")
    if opcode in ("shfl", "vote", "match", "redux", "movmatrix", "activemask"):
        return Cost("integer", "lsu", 1, SHUFFLE_LATENCY)
    return _arithmetic(opcode, modifiers)


def _arithmetic(opcode: str, modifiers: tuple[str, ...]) -> Cost:
    if opcode in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div"):
        return Cost("math", "special", 8, SPECIAL_LATENCY)
    if opcode == "cvt":
        wide = any(each.endswith("64") for each in modifiers)
        narrow = {"u64", "s64", "u32", "s32", "u16", "s16"} >= set(modifiers)
        return _FREE if narrow else Cost("math", "special" if wide else "integer", 8 if wide else 2, CONVERT_LATENCY)
    if "f64" in modifiers:
        return Cost("math", "double", 2, DOUBLE_LATENCY)
    if any(each in modifiers for each in ("f32", "f16", "f16x2", "bf16", "bf16x2")) and opcode not in ("setp", "selp"):
        return _FMA
    return _INTEGER


def _load(opcode: str, modifiers: tuple[str, ...]) -> Cost:
    if opcode == "ldmatrix" or any(each.startswith("shared") for each in modifiers):
        return Cost("shared", "lsu", 1, SHARED_LATENCY)
    if "local" in modifiers or "const" in modifiers:
        return Cost("global", "lsu", 1, L1_LATENCY)
    return Cost("global", "lsu", 1, L2_LATENCY)


def _tensor(instruction: Instruction) -> Cost:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "wmma" and "load" in modifiers:
        shared = any(each.startswith("shared") for each in modifiers)
        return Cost("shared" if shared else "global", "lsu", 1, SHARED_LATENCY if shared else L2_LATENCY)
    if opcode == "wmma" and "store" in modifiers:
        return Cost("store", "lsu", 1)
    if opcode == "wgmma" and "mma_async" not in modifiers:
        return Cost("sync")
    shape = next((re.fullmatch(r"m(\d+)n(\d+)k(\d+)", each) for each in modifiers if each.startswith("m")), None)
    for each in modifiers:
        shape = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", each) or shape
    assert shape is not None, instruction.text
    m, n, k = map(int, shape.groups())
    types = [each for each in modifiers if each in _TENSOR_TYPES]
    operands = types[1] if len(types) > 1 else types[0] if types else "f16"
    wgmma = opcode == "wgmma"
    dtype = _TENSOR_TYPES[operands]
    share = PARTITIONS if wgmma else 1  # of a wgmma, each warp of the four has a quarter
    clocks = m * n * k / share / fma_clocks(dtype, wgmma=wgmma)
    if "sp" in modifiers:
        clocks /= H200.sparse_gain
    latency = WGMMA_LATENCY if wgmma else max(MMA_LATENCY - clocks, 0)
    return Cost("wgmma" if wgmma else "tensor", "tensor", clocks, clocks + latency)
