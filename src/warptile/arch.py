"""GPU generations and one measured GPU: limits and rates, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.errors import UnsupportedError


@dataclass(frozen=True)
class Arch:
    """What a compute capability can do. Limits: CUDA C++ Programming Guide, "Compute Capabilities".

    Attributes:
        name: the target as the compiler spells it, such as ``"sm_90a"``.
        capability: compute capability times ten.
        shared_bytes_per_block: most shared memory a block may have, dynamic part opted in to.
        shared_bytes_per_sm: shared memory of one SM.
        max_warps_per_sm: resident warps of one SM.
        max_blocks_per_sm: resident CTAs of one SM.
        registers_per_sm: 32-bit registers of one SM.
        has_cp_async: ``cp.async`` copies global to shared memory without registers (sm_80 on).
    """

    name: str
    capability: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int = 65536

    @property
    def reserved_shared_bytes(self) -> int:
        """As `reserved_shared_bytes`."""
        return reserved_shared_bytes(self.capability)

    @property
    def has_cp_async(self) -> bool:
        """Whether ``cp.async`` exists."""
        return self.capability >= 80


def reserved_shared_bytes(capability: int) -> int:
    """How many of the first bytes of a CTA's shared memory belong to the system; variables start behind them.

    Cooperative groups keep 288 of them at ``%reserved_smem_offset_1``, wherever the driver puts it.
    """
    return 1024 if capability >= 80 else 0


MAX_THREADS = 1024
"""Most threads of a block: CUDA C++ Programming Guide, "Technical specifications per compute capability"."""

MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
"""Most threads of a block, and blocks of a grid, along x, y and z: the same table."""

L2_SHARE_FOR_OPERANDS = 0.6
"""Share of L2 that operands can count on: the H200's L2 is two halves that keep some lines twice. An assumption."""

_KIB = 1024
ARCHES = {
    arch.name: arch
    for arch in (
        Arch("sm_75", 75, 64 * _KIB, 64 * _KIB, 32, 16),
        Arch("sm_80", 80, 163 * _KIB, 164 * _KIB, 64, 32),
        Arch("sm_86", 86, 99 * _KIB, 100 * _KIB, 48, 16),
        Arch("sm_87", 87, 163 * _KIB, 164 * _KIB, 48, 16),
        Arch("sm_89", 89, 99 * _KIB, 100 * _KIB, 48, 24),
        Arch("sm_90", 90, 227 * _KIB, 228 * _KIB, 64, 32),
        Arch("sm_90a", 90, 227 * _KIB, 228 * _KIB, 64, 32),
        Arch("sm_100a", 100, 227 * _KIB, 228 * _KIB, 64, 32),
        Arch("sm_120a", 120, 99 * _KIB, 100 * _KIB, 48, 24),
    )
}

REFERENCE_ARCH = "sm_90a"
"""The architecture that predictions and records are made for."""


def arch(name: str) -> Arch:
    """The architecture called ``name``.

    Raises:
        UnsupportedError: warptile does not know it; the message lists those it does.
    """
    found = ARCHES.get(name)
    if found is None:
        raise UnsupportedError(f"arch: got {name!r}; warptile knows {', '.join(ARCHES)}, such as arch='sm_90a'")
    return found


@dataclass(frozen=True)
class Device:
    """One GPU model as measured. Rates in TFLOP/s (TOP/s), bandwidths in bytes a second, latencies in seconds.

    ``tensor_tflops`` is the issue rate of ``mma.sync`` with operands in registers, at the largest shape of each type;
    ``wmma_tflops`` that of WMMA where it has only a slower shape; ``sparse_tflops`` that of ``mma.sp``, counting the
    products with zeros that it leaves out. ``wgmma_tflops`` is the issue rate of ``wgmma`` in short bursts, operands in
    shared memory, ``sparse_gain`` how much faster its sparse form is, by the same count.
    """

    name: str
    arch: str
    multiprocessors: int
    clock_hz: float
    l2_bytes: int
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    shared_bytes_per_clock_per_sm: int
    fp32_tflops: float
    tensor_tflops: dict[str, float]
    wmma_tflops: dict[str, float]
    sparse_tflops: dict[str, float]
    wgmma_tflops: dict[str, float]
    sparse_gain: float
    launch_s: float

    def tensor_rate(self, family: str, dtype: str) -> float:
        """TFLOP/s (TOP/s) at which a family of rungs can issue its instructions on operands of a type."""
        return self.wmma_tflops.get(dtype, self.tensor_tflops[dtype]) if family == "wmma" else self.tensor_tflops[dtype]

    def sparse_rate(self, dtype: str) -> float:
        """The same of ``mma.sp``; types that were not measured gain what float16 gains, which is an assumption."""
        gain = self.sparse_tflops["float16"] / self.tensor_tflops["float16"]
        return self.sparse_tflops.get(dtype, self.tensor_tflops[dtype] * gain)


H200 = Device(
    name="NVIDIA H200",
    arch="sm_90a",
    multiprocessors=132,
    clock_hz=1.74e9,
    l2_bytes=60 * 2**20,
    dram_bytes_per_s=4.3e12,
    l2_bytes_per_s=7.0e12,
    shared_bytes_per_clock_per_sm=128,
    fp32_tflops=63.6,
    tensor_tflops={
        "float16": 647.0,
        "bfloat16": 647.0,
        "tfloat32": 322.0,
        "float64": 66.0,
        "float8_e4m3": 647.0,
        "float8_e5m2": 647.0,
        "int8": 1285.0,
        "uint8": 1285.0,
        "int4": 46.0,
        "uint4": 46.0,
        "bit1": 9800.0,
    },
    wmma_tflops={"float64": 33.0},
    sparse_tflops={"float16": 953.0, "bfloat16": 953.0},
    wgmma_tflops={
        "float16": 928.0,
        "bfloat16": 928.0,
        "tfloat32": 427.0,
        "float8_e4m3": 1843.0,
        "float8_e5m2": 1843.0,
        "int8": 1758.0,
        "uint8": 1758.0,
        "bit1": 15000.0,
    },
    sparse_gain=1646 / 928,
    launch_s=3e-6,
)
"""Issue and copy rates measured on an H200 SXM, 2026-11-20, driver 580.159, CUDA 13.0. float64 is m16n8k16, for WMMA
m8n8k4. 8-bit floats have float16's rate: sm_90's machine code unpacks them (F2FP) and multiplies by HMMA, two for each
m16n8k32. The clock is that of a tensor-core loop at the 700 W cap. ``l2_bytes_per_s`` and ``launch_s`` are
assumptions."""
