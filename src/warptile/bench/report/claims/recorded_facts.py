"""Factual claims that measurements answer: the checks look them up in records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from warptile.arch import H200
from warptile.bench.protocol.workloads import F16_F16, F16_F32, F32, type_table_key
from warptile.bench.report.claims.fact import RECORD, Answer, Fact
from warptile.bench.report.record_lookup import RecordLookup
from warptile.rungs import RUNGS

_SIZE, _LARGE = 4096, 8192
_A100_NAIVE, _A100_FP32 = 28.0, 7.1
"""TFLOP/s of naive WMMA and of optimized FP32 on an A100, by T1."""


def _floor(lookup: RecordLookup) -> Answer | None:
    naive, scalar = (
        lookup.cell(name, group, _SIZE) for name, group in (("wmma-naive", F16_F32), ("simt-warptile", F32))
    )
    if naive is None or scalar is None or not naive.tflops or not scalar.tflops:
        return None
    found = f"{naive.tflops:.1f} TFLOP/s against {scalar.tflops:.1f}; T1's A100: {_A100_NAIVE:.0f} against {_A100_FP32}"
    return Answer(found, naive.tflops > scalar.tflops, elsewhere=_A100_NAIVE > _A100_FP32)


def _stall(lookup: RecordLookup) -> Answer | None:
    profile = lookup.profile("wmma-naive")
    if profile is None or profile.top_stall is None:
        return None
    share = profile.stalls[profile.top_stall]
    return Answer(f"`{profile.top_stall}`, {100 * share:.0f} % of the stalls", profile.top_stall == "long_scoreboard")


def _library(lookup: RecordLookup) -> Answer | None:
    found = lookup.baseline(F16_F32, _LARGE)
    if found is None or not found.best_ms:
        return None
    share = found.problem.tflops(found.best_ms) / H200.wgmma_tflops["float16"]
    return Answer(f"{100 * share:.0f} % of the issue rate, at {_LARGE}^3", share >= 0.93 * 0.95, elsewhere=True)


def _most_registers(lookup: RecordLookup) -> Answer | None:
    profiles = [profile for profile in map(lookup.profile, RUNGS) if profile is not None]
    if not profiles:
        return None
    most = max(profiles, key=lambda profile: profile.registers)
    return Answer(f"{most.registers} at most, in `{most.rung}`, of {len(profiles)} kernels", most.registers <= 255)


def _error_in_f16(lookup: RecordLookup) -> Answer | None:
    cells = [lookup.type_cell("mma-final", type_table_key(group)) for group in (F16_F32, F16_F16)]
    wide, narrow = (cell.error if cell is not None else None for cell in cells)
    if not wide or not narrow:
        return None
    found = f"largest error {narrow:.1e} of the root mean square of D, {wide:.1e} with f32, at {_LARGE}^3"
    return Answer(found, narrow > wide)


def _conflicts(lookup: RecordLookup) -> Answer | None:
    profile = lookup.profile("mma-vectorized")
    if profile is None:
        return None
    loads, stores = (profile.counters.get(f"shared_{kind}_conflict_ratio") for kind in ("load", "store"))
    if loads is None or stores is None:
        return None
    same = abs(loads / 5 - 1) <= 0.05 and abs(stores / 2.6 - 1) <= 0.05
    return Answer(f"loads {loads:.2f}-way, stores {stores:.2f}-way, in `mma-vectorized`", same, elsewhere=True)


def _not_selected(lookup: RecordLookup) -> Answer | None:
    profile = lookup.profile("mma-final")
    if profile is None or not profile.stalls or profile.occupancy is None:
        return None
    share = profile.stalls.get("not_selected", 0.0)
    resident = f"{profile.registers} registers and {profile.occupancy:.0f} % occupancy"
    found = f"{100 * share:.0f} % of the stalls, at {resident}"
    return Answer(found, share >= 0.3, elsewhere=True)


Check = Callable[[RecordLookup], Answer | None]

_ROWS: tuple[tuple[str, str, str, Check, str], ...] = (
    ("T0, T2", "the slowest tensor-core kernel is faster than the best one on CUDA cores", "large square GEMM", _floor,
     "By their datasheets an H200 has over three times the FP32 rate of an A100. Naive WMMA is limited by its loads "
     "through L1 and L2, which grew less."),
    ("T0", "naive WMMA waits mostly for global memory, in Nsight's words long scoreboard", "`wmma-naive`", _stall,
     "Operands come straight from global memory, and a warp has nothing else to do meanwhile."),
    ("T1", "cuBLAS reaches 93 % of the FP16 peak", "A100, 4096^3; here cuBLASLt", _library,
     "Sustained load lowers the clock at the power cap; the issue rate is that of short bursts."),
    ("T4", "a thread has at most 255 registers", "every rung, as profiled", _most_registers,
     "The encoding of SASS ends there: its register 255 is RZ, which reads as zero."),
    ("T4", "sums of f16 products should be accumulated in f32 to stay accurate", "`mma-final`", _error_in_f16,
     "Each step of sixteen products rounds to 11 significant bits, and there are 512 steps."),
    ("T4", "a naive tile has 5-way conflicts of loads and 2.6-way ones of stores", "its kernel", _conflicts,
     "Mean over the kernel's accesses, hence between the cases. Loads of whole 8 x 8 matrices from rows of 128 bytes "
     "cannot be below 8; the few other loads bring the mean down."),
    ("T4", "a third of the cycles stalls as not selected", "its best kernel", _not_selected,
     "This stall means that another warp was issued instead. With two warps to a scheduler there rarely is one."),
)  # fmt: skip


def recorded_facts(lookup: RecordLookup) -> tuple[Fact, ...]:
    """The facts whose checks look into some records."""
    return tuple(
        Fact(source, claimed, conditions, RECORD, partial(check, lookup), why)
        for source, claimed, conditions, check, why in _ROWS
    )
