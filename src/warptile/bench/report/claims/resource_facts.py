"""Claims about registers, shared memory and occupancy."""

from __future__ import annotations

from warptile.arch import Arch, arch
from warptile.bench.report.claims import probes
from warptile.bench.report.claims.fact import COMPILER, LIMITS, Answer, Fact

REGISTER_UNIT = 256
"""Registers of a warp are allocated in multiples of this: CUDA Occupancy Calculator, register allocation unit size."""

QUARTERS = 4
"""Schedulers of an SM, each with a quarter of its registers and of its resident warps."""

WARP = 32
_KIB = 1024
_REGISTERS = 165


def warp_registers(registers: int) -> int:
    """Registers that a warp takes whose threads use ``registers`` each."""
    return -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT


def resident_warps(limits: Arch, registers: int, warps: int) -> int:
    """Warps that one SM holds of a kernel with ``registers`` a thread and ``warps`` a CTA, by registers alone."""
    by_registers = limits.registers_per_sm // QUARTERS // warp_registers(registers) * QUARTERS
    return min(by_registers, limits.max_warps_per_sm) // warps * warps


def _occupancy() -> Answer:
    found = {warps: resident_warps(arch("sm_90a"), _REGISTERS, warps) for warps in (4, 8)}
    limit = arch("sm_90a").max_warps_per_sm
    value = "; ".join(
        f"CTAs of {warps} warps: {resident} of {limit}, {100 * resident / limit:.1f} %"
        for warps, resident in found.items()
    )
    return Answer(value, any(abs(resident / limit - 0.18) <= 0.01 for resident in found.values()))


def _tile_of_256() -> Answer:
    warps = (256 // 64) * (256 // 64)
    needed, there = warps * warp_registers(_REGISTERS), arch("sm_90a").registers_per_sm
    accumulators = 64 * 64 // WARP
    alone = warps * WARP * accumulators
    value = f"{warps} warps take {needed:,} of {there:,} registers; f32 accumulators alone {alone:,}"
    return Answer(value, needed <= there)


def _opt_in() -> Answer:
    limits = arch("sm_90a")
    block, sm = limits.shared_bytes_per_block // _KIB, limits.shared_bytes_per_sm // _KIB
    return Answer(f"{block} KB for a CTA, {sm} KB in the SM", block == 228)


def _static() -> Answer:
    text = probes.STATIC_SHARED
    assert not probes.refusal(text, "probe<49152>", "sm_80")
    refused = {target: bool(probes.refusal(text, "probe<49153>", target)) for target in ("sm_80", "sm_90a")}
    value = "; ".join(f"49153 bytes for {target}: {'refused' if no else 'compiles'}" for target, no in refused.items())
    return Answer(value, refused["sm_90a"], elsewhere=refused["sm_80"])


FACTS = (
    Fact("T4", "165 registers for each thread cap the occupancy near 18 %", "64 resident warps", LIMITS,
         _occupancy,
         "A warp takes 21 units of 256 registers, and a scheduler with 16,384 holds three such warps. With CTAs of "
         "eight warps a third of them stays empty."),
    Fact("T4", "CTA tiles of 256 x 256 with warp tiles of 64 x 64, at 165 registers", "one CTA on an SM", LIMITS,
         _tile_of_256,
         "No GPU has the registers; 256 x 128, or accumulators of f16, is what fits (`mma-final` is tuned to the "
         "former)."),
    Fact("T4", "a kernel may opt in to 228 KB of shared memory", "H100", LIMITS, _opt_in,
         "The runtime keeps 1 KB of each CTA (CUDA C++ Programming Guide, \"Compute Capabilities\"). T0 says 228 KB "
         "per SM, which is right."),
    Fact("T3 (code)", "more than 48 KB of shared memory must be dynamic", "nvcc, A100; here NVRTC 13.0", COMPILER,
         _static,
         "For Hopper ptxas assembles static arrays of up to 227 KB (nothing is launched here). Dynamic memory, opted "
         "in to with `cudaFuncAttributeMaxDynamicSharedMemorySize`, is what the programming guide describes."),
)  # fmt: skip
