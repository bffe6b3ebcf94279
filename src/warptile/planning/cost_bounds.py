"""Predicted time of a rung before it runs: the slowest of six resources, each counted from the tile sizes.

A CTA computes a BM x BN tile of D in ceil(K / BK) K tiles. Each K tile copies (BM + BN) * BK operand elements and does
BM * BN * BK multiply-adds. By resource:

* dram: every operand once, and again for each wave of CTAs where operands do not fit into L2 (`_dram_bytes`).
* l2: each CTA reads (BM + BN) * K elements: 1 / BM + 1 / BN elements a multiply-add.
* shared: wavefronts of the L1 and shared memory data path, 128 bytes a clock and SM (`operand_reads`).
* tensor: multiply-adds of the padded tiles at the issue rate of the tensor cores; only for tensor-core families.
* issue: warp instructions, four a clock and SM, including the multiply-adds of the CUDA cores.
* latency: time of one CTA over its K tiles, when other CTAs do not hide its latencies.

The last four count the SM with the most CTAs, ceil(CTAs / SMs), so that wave quantization shows. The prediction is the
largest of the six plus the launch, and the repacking pass if there is one: twice the operand's bytes over the DRAM
bandwidth. A perfect schedule would reach this bound, by which plans rank configurations; how long a launch takes is in
`warptile.expected`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from warptile.arch import L2_SHARE_FOR_OPERANDS, Device
from warptile.device import REFERENCE, DeviceLimits
from warptile.planning import cost_bounds_wgmma
from warptile.planning.rates import rates_of
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.rung import Rung

L2_LATENCY_CLOCKS = 270
"""Clocks from a global load to its data when L2 has it. An assumption near published Hopper microbenchmarks."""

DRAM_LATENCY_CLOCKS = 600
"""Clocks from a global load to its data when L2 does not have it. An assumption, as above."""

BARRIER_CLOCKS = 40
"""Clocks that a CTA loses at a barrier: its latency and the skew of its warps. An assumption."""

SHARED_LATENCY_CLOCKS = 30
"""Clocks from a shared-memory load to its data. An assumption near published Hopper microbenchmarks."""

WARP_LANES = 32
ISSUE_PER_CLOCK = 4
SMEM_ROW_BYTES = 128

MULTIPLY_ADD_LANES = {"float32": 128, "float16": 128, "float64": 64, "int32": 64}
"""Multiply-add lanes of one SM for each accumulator (a half2 lane does two): CUDA C++ Programming Guide,
"Throughput of native arithmetic instructions", compute capability 9.0."""


@dataclass(frozen=True)
class Prediction:
    """A predicted time.

    Attributes:
        time_ms: the largest term of the GEMM, its launch, and ``repacking``.
        bound: name of the GEMM's largest term.
        tflops: 2 m n k over that time.
        arch: name of the GPU it is for, such as ``"H200"``.
        terms: milliseconds for each resource, and for ``repacking`` where operands are repacked.
    """

    time_ms: float
    bound: str
    tflops: float
    arch: str
    terms: dict[str, float] = field(default_factory=dict)


UNPACKED = {"float8_e4m3": 12, "float8_e5m2": 12}
"""Instructions that unpack the operands of one m16n8k32 to float16 on sm_90: two for each of its six registers."""


@dataclass(frozen=True)
class KTileWork:
    """What one CTA does for one K tile.

    Attributes:
        wavefronts: of the L1 and shared memory data path.
        instructions: issued by all its warps.
        math_clocks: of the multiply-add units (CUDA cores or tensor cores), alone on an SM.
    """

    wavefronts: float
    instructions: float
    math_clocks: float


def predict(
    rung: Rung,
    problem: Problem,
    config: Config,
    limits: DeviceLimits = REFERENCE,
    *,
    kernel: KernelSpec | None = None,
) -> Prediction:
    """Predicted time of ``rung`` on a device; see the module's text for the formulas. ``kernel`` is the resolved one,
    where it is known."""
    device = rates_of(limits)
    if problem.m == 0 or problem.n == 0:
        return Prediction(0.0, "latency", 0.0, _short(device), {})
    kernel = kernel or rung.resolve(problem, config, limits)
    if rung.estimates:
        return _estimated(rung, kernel, limits, device)
    if rung.family == "wgmma":
        return _prediction(kernel, device, cost_bounds_wgmma.terms(kernel, device))
    mechanism = rung.mechanism
    count, splits = blocks(problem, config), config.get("SPLITS", 1)
    k_tiles = max(1, ceil_div(ceil_div(problem.k, config.get("BK", fragment_k(rung, problem))), splits))
    work = k_tile_work(rung, problem, config, mechanism, device)
    ctas_per_sm = ceil_div(count * splits, device.multiprocessors)
    resident = resident_ctas(rung, kernel, limits)
    clock_ms = 1e3 / device.clock_hz
    issue_clocks = max(work.instructions / ISSUE_PER_CLOCK, 0.0 if rung.family != "simt" else work.math_clocks)
    l2_bytes = count * _operand_bytes(problem, mechanism.a_density * config["BM"] + config["BN"])
    l2_bytes += sum(2 * each.bytes for each in kernel.kernel_workspaces)  # partial sums are written and read
    terms = {
        "dram": _dram_bytes(problem, config, mechanism, device, resident) / device.dram_bytes_per_s * 1e3,
        "l2": l2_bytes / device.l2_bytes_per_s * 1e3,
        "shared": ctas_per_sm * k_tiles * work.wavefronts * clock_ms,
        "issue": ctas_per_sm * k_tiles * issue_clocks * clock_ms,
        "latency": (_latency_clocks(problem, config, mechanism, work, k_tiles, device) + _meeting_clocks(splits))
        * ceil(ctas_per_sm / resident)
        * clock_ms,
    }
    if rung.family != "simt":
        terms["tensor"] = ctas_per_sm * k_tiles * work.math_clocks * clock_ms
    return _prediction(kernel, device, terms)


def _prediction(kernel: KernelSpec, device: Device, terms: dict[str, float]) -> Prediction:
    """The largest of the terms, the launch, and repacking."""
    bound = max(terms, key=lambda name: terms[name])
    return _with_repacking(kernel, device, terms, bound, terms[bound] + device.launch_s * 1e3)


def _estimated(rung: Rung, kernel: KernelSpec, limits: DeviceLimits, device: Device) -> Prediction:
    """By the rung's own cost model."""
    found, total_us = rung.estimate_terms_us(kernel.problem, kernel.config, limits)
    terms = {name: term_us / 1e3 for name, term_us in found.items()}
    bound = max((name for name in terms if name != "launch"), key=lambda name: terms[name])
    return _with_repacking(kernel, device, terms, bound, total_us / 1e3)


def _with_repacking(
    kernel: KernelSpec, device: Device, terms: dict[str, float], bound: str, time_ms: float
) -> Prediction:
    added_ms = repacking_ms(kernel.copies, device) + fused_repacking_ms(kernel.view.fused_repacks, device)
    time_ms += added_ms
    if added_ms:
        terms = {**terms, "repacking": added_ms}
    return Prediction(time_ms, bound, kernel.problem.flops / time_ms / 1e9, _short(device), terms)


def resident_ctas(rung: Rung, kernel: KernelSpec, limits: DeviceLimits) -> int:
    """CTAs of this kernel that are resident on one SM: its limits of warps, CTAs, shared memory and registers, with a
    thread's registers estimated as one and a half times its accumulators plus 40, or limited by MIN_BLOCKS."""
    arch, threads = limits.generation, kernel.threads
    problem, config = kernel.problem, kernel.config
    shared_bytes = max(kernel.dynamic_shared_bytes, 1)
    if kernel.dynamic_shared_bytes == 0 and rung.mechanism.staged:
        element_bytes = problem.a.dtype.bytes
        shared_bytes = ceil((config["BM"] + config["BN"]) * config.get("BK", 1) * element_bytes)
    accumulators = config["BM"] * config["BN"] * problem.accumulator.bits / 32 / threads
    registers = min(255, ceil(accumulators * 1.5 + 40))
    most = (
        arch.max_blocks_per_sm,
        arch.max_warps_per_sm * WARP_LANES // threads,
        arch.shared_bytes_per_sm // (shared_bytes + 1024),
        max(arch.registers_per_sm // (registers * threads), config.get("MIN_BLOCKS", 1)),
    )
    return max(1, min(most))


def _short(device: Device) -> str:
    return device.name.removeprefix("NVIDIA ")


def fragment_k(rung: Rung, problem: Problem) -> int:
    """K tile of a kernel without a BK: one element on CUDA cores, one fragment (16 f16) on tensor cores."""
    return 1 if rung.family == "simt" else max(1, 256 // problem.a.dtype.bits)


def _operand_bytes(problem: Problem, elements_per_k: float) -> float:
    """Bytes of ``elements_per_k`` operand elements at every k."""
    return elements_per_k * problem.k * problem.a.dtype.bytes


def _dram_bytes(problem: Problem, config: Config, mechanism: Mechanism, device: Device, resident: int) -> float:
    """Bytes to and from DRAM.

    At least every matrix once. If A and B fit into L2 together, that is all. If not, each wave of SMs * resident CTAs,
    taken as a square of s x s tiles (what L2-friendly rasterization aims at), reads s * (BM + BN) * K elements; the sum
    over all waves is never less than A and B once.
    """
    d_bytes = problem.m * problem.n * problem.d.dtype.bytes * (2 if problem.reads_matrix_c else 1)
    once = _operand_bytes(problem, mechanism.a_density * problem.m + problem.n)
    if once <= device.l2_bytes * L2_SHARE_FOR_OPERANDS:
        return once + d_bytes
    wave = device.multiprocessors * resident
    waves = ceil_div(blocks(problem, config), wave)
    tiles = mechanism.a_density * config["BM"] + config["BN"]
    return max(once, waves * _operand_bytes(problem, wave**0.5 * tiles)) + d_bytes


def k_tile_work(rung: Rung, problem: Problem, config: Config, mechanism: Mechanism, device: Device) -> KTileWork:
    """Wavefronts, instructions and math of one K tile of one CTA."""
    bm, bn, bk = config["BM"], config["BN"], config.get("BK", fragment_k(rung, problem))
    multiply_adds = bm * bn * bk
    read_instructions, read_wavefronts = operand_reads(rung, problem, config, mechanism)
    copy_instructions, copy_wavefronts = staging_copies(problem, mechanism, (mechanism.a_density * bm + bn) * bk)
    if rung.family == "simt":
        math_instructions = multiply_adds / WARP_LANES / mechanism.packed
        math_clocks = multiply_adds / mechanism.packed / MULTIPLY_ADD_LANES[problem.accumulator.name]
    else:
        rate = tensor_rate(rung, problem, config, device) * 1e12 / device.multiprocessors / device.clock_hz
        math_clocks = 2 * multiply_adds / rate
        each = _tensor_multiply_adds(rung, problem, config)
        unpacking = UNPACKED.get(problem.a.dtype.name, 0) / (16 * 8 * 32)
        math_instructions = multiply_adds * (1 / each + unpacking)
    return KTileWork(
        wavefronts=read_wavefronts + copy_wavefronts,
        instructions=math_instructions + read_instructions + copy_instructions,
        math_clocks=math_clocks,
    )


def tensor_rate(rung: Rung, problem: Problem, config: Config, device: Device) -> float:
    """TFLOP/s at which the rung's instruction issues. float64's m8n8k4 has WMMA's rate wherever it is used."""
    name = problem.a.dtype.name
    if rung.mechanism.a_density < 1:
        return device.sparse_rate(name)
    small = name == "float64" and config.get("FM") == 8
    return device.tensor_rate("wmma" if small else rung.family, name)


def _tensor_multiply_adds(rung: Rung, problem: Problem, config: Config) -> int:
    """Multiply-adds of one tensor instruction: the configuration's own. A WMMA fragment is several of m16n8 with 256
    bits of k (16 f16, 8 tf32, 32 s8), and m8n8k4 for f64."""
    if rung.family == "mma":
        return config["FM"] * config["FN"] * config["FK"]
    return 8 * 8 * 4 if problem.a.dtype.name == "float64" else 16 * 8 * (256 // problem.a.dtype.bits)


def operand_reads(rung: Rung, problem: Problem, config: Config, mechanism: Mechanism) -> tuple[float, float]:
    """Instructions and wavefronts that load one K tile's operands from shared (or global) memory for the math.

    * One element a thread (simt-naive, simt-shared): a warp's multiply-add at one k needs one element of A, the same
      for all lanes, and 32 neighbours in a row of B: one wavefront each. From shared memory A's elements at four
      neighbouring k come in one 16-byte load.
    * Register tiles (simt-warptile, simt-half2): a thread reads TM + TN elements at each k, 16 bytes at a time. A
      warp's 16-byte load is four wavefronts, two where pairs of lanes read the same address.
    * Tensor cores: a warp reads (WM + WN) * BK elements a K tile, 512 bytes an instruction (ldmatrix.x4), 128 bytes a
      wavefront times the bank conflicts of the row pitch; swizzled rows have none.
    """
    bm, bn, bk = config["BM"], config["BN"], config.get("BK", fragment_k(rung, problem))
    if rung.family == "simt" and "TM" not in config:
        warps = bm * bn / WARP_LANES
        a_reads = 0.25 if mechanism.staged else 1.0
        return warps * bk * (a_reads + 1), warps * bk * (a_reads + 1)
    warp_m, warp_n = config.get("WM", min(16, bm)), config.get("WN", min(16, bn))
    warps = (bm / warp_m) * (bn / warp_n)
    if rung.family == "simt":
        shared_bytes = problem.a.dtype.bytes if mechanism.packed > 1 else problem.accumulator.bytes
        reads = warps * bk * (config["TM"] + config["TN"]) * shared_bytes / 16
        return reads, reads * (2 if mechanism.interleaved else 4)
    element_bytes = problem.a.dtype.bytes
    a_bytes = warps * warp_m * bk * element_bytes * mechanism.a_density
    b_bytes = warps * warp_n * bk * element_bytes
    if not mechanism.staged:
        # Rows of 32 bytes: one 32-byte sector a row, four rows' worth of data path a wavefront at best.
        return (a_bytes + b_bytes) / 128, (a_bytes + b_bytes) / 32
    a_ratio = _read_ratio(bk if problem.a.major == "row" else bm, mechanism, element_bytes)
    b_ratio = _read_ratio(bn if problem.b.major == "row" else bk, mechanism, element_bytes)
    return (a_bytes + b_bytes) / 512, (a_bytes * a_ratio + b_bytes * b_ratio) / 128


def _read_ratio(columns: int, mechanism: Mechanism, element_bytes: float) -> float:
    """Wavefronts over the ideal of fragment reads from a shared tile whose rows hold ``columns`` elements."""
    if mechanism.swizzled:
        return 1.0
    row_bytes = columns * element_bytes
    pitch_bytes = min(row_bytes, SMEM_ROW_BYTES) if mechanism.narrow_rows else row_bytes
    return row_conflict_ratio(pitch_bytes + mechanism.pad_elements * element_bytes)


def row_conflict_ratio(pitch_bytes: float) -> float:
    """Wavefronts over the ideal for a matrix read of eight 16-byte rows ``pitch_bytes`` apart.

    Shared memory has 32 banks of 4 bytes, so eight groups of 16 bytes: the read takes as many wavefronts as rows
    fall into the fullest group. 256 bytes: all eight in one group. 272 (8 halves of padding): one in each.
    """
    groups = [int(row * pitch_bytes // 16) % 8 for row in range(8)]
    return float(max(groups.count(group) for group in groups))


def staging_copies(problem: Problem, mechanism: Mechanism, elements: float) -> tuple[float, float]:
    """Instructions and wavefronts that stage ``elements`` operand elements: bytes over what an instruction moves.

    A load and a store for each piece; one ``cp.async``, whose bytes cross the data path once; or no instruction, with
    TMA. simt-warptile transposes A with 4-byte copies; they are counted as 16-byte ones here, an error of below a tenth
    of its instructions.
    """
    if not mechanism.staged:
        return 0.0, 0.0
    if mechanism.by_tma:
        return 0.0, elements * problem.a.dtype.bytes / 128
    aligned_bytes = min(problem.a.alignment_bytes, problem.b.alignment_bytes) if mechanism.vector else 0
    piece_bytes = max(float(aligned_bytes), problem.a.dtype.bytes)
    pieces = elements * problem.a.dtype.bytes / piece_bytes / WARP_LANES
    wavefronts_per_piece = max(1.0, piece_bytes * WARP_LANES / 128)
    passes = 1 if mechanism.asynchronous else 2
    return pieces * passes, pieces * wavefronts_per_piece * passes


def _meeting_clocks(splits: int) -> float:
    """Clocks in which CTAs that share a tile write partial sums, one after the other, count arrivals and read sums."""
    return 0.0 if splits == 1 else (3 + splits / 4) * L2_LATENCY_CLOCKS


def _latency_clocks(
    problem: Problem, config: Config, mechanism: Mechanism, work: KTileWork, k_tiles: int, device: Device
) -> float:
    """Clocks of one CTA alone.

    The first tile and the epilogue each wait for DRAM once. A K tile takes as long as its slowest pipe. With one stage
    it also waits for L2, two barriers and shared memory; with S stages, S - 1 K tiles share one wait. Without staging
    the compiler keeps about four K tiles of loads in flight.
    """
    alone = max(work.math_clocks, work.wavefronts, work.instructions / ISSUE_PER_CLOCK)
    stages = config.get("STAGES", mechanism.stages)
    if not mechanism.staged:
        each = max(alone, L2_LATENCY_CLOCKS / 4)
    elif stages == 1:
        each = alone + L2_LATENCY_CLOCKS + SHARED_LATENCY_CLOCKS + 2 * BARRIER_CLOCKS
    else:
        each = max(alone, L2_LATENCY_CLOCKS / (stages - 1)) + BARRIER_CLOCKS
    return 2 * DRAM_LATENCY_CLOCKS + k_tiles * each
