"""Published peak rates and bandwidths of seven GPUs, each with its source.

How many SMs a GPU has, its L2 and its shared memory are in `warptile.device` and `warptile.arch`, what was measured on
the reference GPU in `warptile.arch.H200`. Here is what vendors publish beside that, and for L2 what others measured
where the vendor publishes nothing. A figure without a source is missing. So is the L2 of the H100 SXM: what is
published (6.65 TB/s in OpenXLA's cost model, 6.9 TB/s in gpu-benches for the PCIe card) is less than its kernels move.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import H200, Arch, arch
from warptile.device import KNOWN, DeviceLimits
from warptile.errors import UnsupportedError

SHARED, L2, DRAM = "shared", "l2", "dram"
LEVELS = (SHARED, L2, DRAM)
"""Memory levels of a roofline, from the SM outwards."""

LEVEL_NAMES = {SHARED: "L1/shared", L2: "L2", DRAM: "DRAM"}

HALF2 = "half2"
"""Beside the names of types: float16 on CUDA cores, two multiply-adds in one instruction."""

CUDA_CORES = ("float32", HALF2)
"""The rates that are of CUDA cores; all others are of tensor cores."""

SPARSE_GAIN = 2.0
"""Published rate of 2:4 sparse MMAs over dense ones, counting the products with zeros: NVIDIA A100 whitepaper,
"A100 Introduces Fine-Grained Structured Sparsity". From compute capability 8.0 on."""

SPARSE_CAPABILITY = 80

PEAK_NAMES = {"float64": "FP64", "float32": "FP32", HALF2: "half2", "tfloat32": "TF32", "float16": "FP16",
              "bfloat16": "BF16", "float8_e4m3": "FP8", "int8": "INT8"}  # fmt: skip
"""Types as vendors write them, the widest first."""

SAME_PEAK = {"float8_e5m2": "float8_e4m3", "uint8": "int8"}
"""Types for which vendors print no peak of their own."""


@dataclass(frozen=True)
class Publication:
    """A document.

    Attributes:
        title: author and title.
        place: where it is found: a document number, an address, or a repository and file.
    """

    title: str
    place: str


V100_PAPER = Publication("NVIDIA Tesla V100 GPU Architecture", "whitepaper WP-08608-001_v1.1, August 2017")
V100_SHEET = Publication("NVIDIA V100 Tensor Core GPU", "data sheet, January 2020")
T4_BRIEF = Publication("NVIDIA T4 Tensor Core GPU", "product brief PB-09256-001")
T4_SHEET = Publication("NVIDIA T4 Tensor Core GPU", "data sheet, March 2019")
GA102_PAPER = Publication("NVIDIA Ampere GA102 GPU Architecture", "whitepaper, 2021")
A100_PAPER = Publication("NVIDIA A100 Tensor Core GPU Architecture", "whitepaper, 2020")
A100_SHEET = Publication("NVIDIA A100 Tensor Core GPU", "data sheet 2188504, May 2022")
L40S_PAGE = Publication("NVIDIA L40S GPU", "https://www.nvidia.com/en-us/data-center/l40s/")
L40S_BRIEF = Publication("NVIDIA L40S GPU Accelerator", "product brief PB-11470-001_v02, August 2023")
H100_PAPER = Publication("NVIDIA H100 Tensor Core GPU Architecture", "whitepaper v1.04, 2022")
H100_SHEET = Publication("NVIDIA H100 Tensor Core GPU", "data sheet 3440270, September 2024")
H200_SHEET = Publication("NVIDIA H200 Tensor Core GPU", "data sheet 3512650, November 2024")
B200_SHEET = Publication("NVIDIA Blackwell", "data sheet 4204213, October 2025")
B200_BRIEF = Publication("NVIDIA Blackwell Architecture", "technical brief v2.1, 2025")
CUDA_GUIDE = Publication("CUDA C++ Programming Guide", "https://docs.nvidia.com/cuda/cuda-c-programming-guide/")
JIA_T4 = Publication(
    "Z. Jia et al., Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking", "https://arxiv.org/abs/1903.07486"
)
GPU_BENCHES = Publication("D. Ernst, gpu-benches", "https://github.com/te42kyfo/gpu-benches")
RECORDS = Publication("warptile's records of an H200", "samples of the driver's clocks in records/")


@dataclass(frozen=True)
class Quantity:
    """One published number.

    Attributes:
        value: in operations, bytes or clocks per second, or in watts.
        source: the document.
        where: the table or section of it, and what was computed from what it prints.
        measured: somebody measured it; else a vendor states it.
    """

    value: float
    source: Publication
    where: str
    measured: bool = False


@dataclass(frozen=True)
class PublishedGpu:
    """One GPU model.

    Attributes:
        name: short, such as ``"H200"``; its products' other forms have other figures.
        limits: SMs and L2 size.
        generation: shared memory of an SM, and the compute capability.
        boost_hz: the clock of the peaks, and of the shared memory's bandwidth.
        power_w: limit of the board or module.
        peaks: dense operations per second by type: tensor cores, but for `CUDA_CORES`.
        dram: bytes per second.
        l2: bytes per second from L2 to all SMs, or None where no source was found.
        shared_bytes_per_clock: of the data path that L1 and shared memory of one SM have in common.
    """

    name: str
    limits: DeviceLimits
    generation: Arch
    boost_hz: Quantity
    power_w: Quantity
    peaks: dict[str, Quantity]
    dram: Quantity
    l2: Quantity | None
    shared_bytes_per_clock: Quantity

    @property
    def product(self) -> str:
        """The name that the driver reports."""
        return self.limits.name

    @property
    def shared(self) -> Quantity:
        """Bytes per second through L1 and shared memory: SMs x bytes per clock x boost clock."""
        per_clock, clock = self.shared_bytes_per_clock, self.boost_hz
        sms = self.limits.multiprocessors
        where = f"{sms} SMs x {per_clock.value:.0f} bytes per clock x {clock.value / 1e9:.3g} GHz; {per_clock.where}"
        return Quantity(per_clock.value * clock.value * sms, per_clock.source, where, per_clock.measured)

    @property
    def figures(self) -> dict[str, Quantity]:
        """Every figure by what it is, in the order of tables."""
        found = {"boost clock": self.boost_hz, "power limit": self.power_w, "DRAM": self.dram}
        found |= {"L2": self.l2} if self.l2 is not None else {}
        found |= {"L1/shared": self.shared}
        return found | {name: self.peaks[dtype] for dtype, name in PEAK_NAMES.items() if dtype in self.peaks}

    def bandwidth(self, level: str) -> Quantity | None:
        """Bytes per second of a memory level, or None where no source was found."""
        return {SHARED: self.shared, L2: self.l2, DRAM: self.dram}[level]

    def peak(self, dtype: str, *, sparse: bool = False) -> float | None:
        """Operations per second of a type, or None where the GPU has no such units."""
        found = self.peaks.get(SAME_PEAK.get(dtype, dtype))
        if found is None or (sparse and self.generation.capability < SPARSE_CAPABILITY):
            return None
        return found.value * (SPARSE_GAIN if sparse else 1.0)

    def ridge(self, dtype: str, level: str) -> float | None:
        """FLOP per byte from which on a memory level is no limit: peak over bandwidth."""
        peak, bandwidth = self.peak(dtype), self.bandwidth(level)
        return peak / bandwidth.value if peak is not None and bandwidth is not None else None


def _tera(source: Publication, where: str, **peaks: float) -> dict[str, Quantity]:
    return {name: Quantity(tera * 1e12, source, where) for name, tera in peaks.items()}


_BANKS = Quantity(128, CUDA_GUIDE, '"Shared Memory": 32 banks, 32 bits each per clock')
_BOOST = 'boost clock of "Comparison of NVIDIA Data Center GPUs"'
_GPU_BENCHES_READS = "median of the data sets that lie in L2 and not in L1"
_H200_SPARSE = "Technical Specifications, SXM; half of the figure with sparsity"
_B200_SPARSE = "Individual GPU Specifications, HGX B200; half of the figure with sparsity"
_HALF = 0.5

_V100_LIMITS = DeviceLimits("Tesla V100-SXM2-32GB", "sm_70", 80, 6 * 2**20)
_VOLTA = Arch("sm_70", 70, 96 * 2**10, 96 * 2**10, 64, 32)
"""V100 whitepaper, Table 1. Older than what warptile compiles for, and so in no other table."""

GPUS = {
    gpu.name: gpu
    for gpu in (
        PublishedGpu(
            "V100", _V100_LIMITS, _VOLTA,
            boost_hz=Quantity(1.53e9, V100_PAPER, "Table 1"),
            power_w=Quantity(300, V100_PAPER, "Table 1"),
            peaks=_tera(V100_PAPER, "Table 1", float32=15.7, float16=125)
            | _tera(A100_PAPER, "Table 4, column V100", half2=31.4),
            dram=Quantity(900e9, V100_SHEET, "Specifications, V100 SXM2"),
            l2=Quantity(2048 * 1.53e9, A100_PAPER, '"A100 L2 Cache": 2048 bytes per clock on V100, x 1.53 GHz'),
            shared_bytes_per_clock=_BANKS,
        ),
        PublishedGpu(
            "T4", KNOWN["Tesla T4"], arch("sm_75"),
            boost_hz=Quantity(1.59e9, T4_BRIEF, "Table 1"),
            power_w=Quantity(70, T4_SHEET, "Specifications"),
            peaks=_tera(T4_SHEET, "Specifications", float32=8.1, float16=65, int8=130),
            dram=Quantity(320e9, T4_BRIEF, "Table 2"),
            l2=Quantity(1270e9, JIA_T4, "Table 3.1, L2 load bandwidth", measured=True),
            shared_bytes_per_clock=Quantity(
                64, GA102_PAPER, '"Larger and Faster Unified Shared Memory and L1 Data Cache": 64 bytes per clock and '
                "SM in Turing",
            ),
        ),
        PublishedGpu(
            "A100", KNOWN["NVIDIA A100-SXM4-80GB"], arch("sm_80"),
            boost_hz=Quantity(1.41e9, A100_PAPER, f"Table 4, {_BOOST}"),
            power_w=Quantity(400, A100_SHEET, "Specifications, A100 80GB SXM"),
            peaks=_tera(A100_SHEET, "Specifications, A100 80GB SXM", float32=19.5, tfloat32=156, float16=312,
                        bfloat16=312, int8=624, float64=19.5)
            | _tera(A100_PAPER, "Table 4", half2=78),
            dram=Quantity(2039e9, A100_SHEET, "Specifications, A100 80GB SXM"),
            l2=Quantity(5120 * 1.41e9, A100_PAPER, '"A100 L2 Cache": 5120 bytes per clock, x 1.41 GHz'),
            shared_bytes_per_clock=_BANKS,
        ),
        PublishedGpu(
            "L40S", KNOWN["NVIDIA L40S"], arch("sm_89"),
            boost_hz=Quantity(2.52e9, L40S_BRIEF, "Table 1"),
            power_w=Quantity(350, L40S_BRIEF, "Table 1"),
            peaks=_tera(L40S_PAGE, "Specifications", float32=91.6, tfloat32=183, float8_e4m3=733, int8=733)
            | _tera(L40S_PAGE, "Specifications; the page prints 733 with sparsity, which is not twice it",
                    float16=362.05, bfloat16=362.05),
            dram=Quantity(864e9, L40S_BRIEF, "Table 2"),
            l2=Quantity(
                5.22e12, GPU_BENCHES, f"gpu-l2-cache/l40.txt, {_GPU_BENCHES_READS}: an L40, the same 142 SMs at a 1 % "
                "lower boost clock", measured=True,
            ),
            shared_bytes_per_clock=_BANKS,
        ),
        PublishedGpu(
            "H100", KNOWN["NVIDIA H100 80GB HBM3"], arch("sm_90a"),
            boost_hz=Quantity(
                1.98e9, H100_PAPER, "Table 3, H100 SXM5, boost clock of FP32 and FP64; the peaks of the other "
                "tensor-core types are at 1.83 GHz",
            ),
            power_w=Quantity(700, H100_SHEET, "Technical Specifications, SXM"),
            peaks=_tera(H100_PAPER, "Table 3, H100 SXM5", float32=66.9, half2=133.8, tfloat32=494.7, float16=989.4,
                        bfloat16=989.4, float8_e4m3=1978.9, int8=1978.9, float64=66.9),
            dram=Quantity(3.35e12, H100_SHEET, "Technical Specifications, SXM"),
            l2=None,
            shared_bytes_per_clock=_BANKS,
        ),
        PublishedGpu(
            "H200", KNOWN[H200.name], arch("sm_90a"),
            boost_hz=Quantity(1.98e9, RECORDS, "highest SM clock of profile-h200-20261122T141927", measured=True),
            power_w=Quantity(700, H200_SHEET, "Technical Specifications, SXM"),
            peaks=_tera(H200_SHEET, "Technical Specifications, SXM", float32=67, float64=67)
            | _tera(H100_PAPER, "Table 3, H100 SXM5: the same chip", half2=133.8)
            | _tera(H200_SHEET, _H200_SPARSE, tfloat32=989 * _HALF, float16=1979 * _HALF, bfloat16=1979 * _HALF,
                    float8_e4m3=3958 * _HALF, int8=3958 * _HALF),
            dram=Quantity(4.8e12, H200_SHEET, "Technical Specifications, SXM"),
            l2=Quantity(9.78e12, GPU_BENCHES, f"gpu-l2-cache/h200.txt, {_GPU_BENCHES_READS}", measured=True),
            shared_bytes_per_clock=_BANKS,
        ),
        PublishedGpu(
            "B200", KNOWN["NVIDIA B200"], arch("sm_100a"),
            boost_hz=Quantity(75e12 / (KNOWN["NVIDIA B200"].multiprocessors * 128 * 2), B200_SHEET,
                            "not published; from the FP32 peak: 75 TFLOP/s over 148 SMs x 128 lanes x 2 operations"),
            power_w=Quantity(1000, B200_SHEET, "Individual GPU Specifications, HGX B200"),
            peaks=_tera(B200_SHEET, "Individual GPU Specifications, HGX B200", float32=75, float64=37)
            | _tera(B200_SHEET, _B200_SPARSE, tfloat32=2200 * _HALF, float16=4500 * _HALF, bfloat16=4500 * _HALF,
                    int8=9000 * _HALF)
            | _tera(B200_BRIEF, "Table 3, dense", float8_e4m3=4500),
            dram=Quantity(7.7e12, B200_SHEET, "Individual GPU Specifications, HGX B200"),
            l2=None,
            shared_bytes_per_clock=_BANKS,
        ),
    )
}  # fmt: skip
"""From the oldest to the newest."""

REFERENCE_GPU = GPUS["H200"]
"""The one that rungs were measured on."""


def published(name: str) -> PublishedGpu:
    """The GPU of a short name, such as ``"H200"``, in capitals or not.

    Raises:
        UnsupportedError: there are no figures of it; the message lists those that there are.
    """
    found = GPUS.get(name.upper())
    if found is None:
        raise UnsupportedError(f"gpu: got {name!r}; there are figures of {', '.join(GPUS)}, such as gpu='H200'")
    return found
