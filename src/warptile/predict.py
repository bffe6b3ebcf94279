"""Predicted time of a rung before it is run: the slowest of six resources, each counted from the tile sizes.

A block computes a BM x BN tile of D in ceil(K / BK) steps. A step copies (BM + BN) * BK operand elements and does
BM * BN * BK multiply-adds. Per resource:

* dram: every operand once, and again for each wave of blocks where operands and L2 leave it no choice (`_dram_bytes`).
* l2: each block reads its own (BM + BN) * K elements: 1 / BM + 1 / BN elements a multiply-add.
* shared: wavefronts of the L1 and shared memory data path, 128 bytes a clock and multiprocessor (`_operand_reads`).
* tensor: multiply-adds of the padded tiles at the issue rate of the tensor cores; only for tensor-core families.
* issue: warp instructions, four a clock and multiprocessor, with the multiply-adds of the CUDA cores among them.
* latency: what one block takes alone, step after step, when the steps' latencies are not hidden by other blocks.

The last four are work of one multiprocessor: the one with the most blocks, ceil(blocks / multiprocessors), sets the
time, so that a poor last wave shows. The prediction is the largest of the six plus the launch, and before it a launch
for each operand that the rung copies first: twice its bytes over the bandwidth of DRAM. It is a bound that a
perfect schedule would reach; what a kernel loses against it is what its lesson is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from warptile import arch as arches
from warptile import predict_wgmma
from warptile.arch import H200, Device
from warptile.problem import Problem
from warptile.rungs import wgmma_cost
from warptile.rungs.copies import beside_ms, copies_ms
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.rung import Config, Rung

L2_LATENCY_CLOCKS = 270
"""Clocks from a global load to its data when L2 has it. An assumption near published Hopper microbenchmarks."""

DRAM_LATENCY_CLOCKS = 600
"""Clocks from a global load to its data when L2 does not have it. An assumption, as above."""

BARRIER_CLOCKS = 40
"""Clocks that a block loses at a barrier: its own latency and the skew of its warps. An assumption."""

SHARED_LATENCY_CLOCKS = 30
"""Clocks from a shared-memory load to its data. An assumption near published Hopper microbenchmarks."""

WARP_LANES = 32
ISSUE_PER_CLOCK = 4
PANEL_BYTES = 128
L2_SHARE_FOR_OPERANDS = 0.6
"""Share of L2 that operands can count on: the H200's L2 is two halves that keep some lines twice. An assumption."""

MULTIPLY_ADD_LANES = {"float32": 128, "float16": 128, "float64": 64, "int32": 64}
"""Multiply-add lanes of one multiprocessor for each accumulator (a half2 lane does two): CUDA C++ Programming Guide,
"Throughput of native arithmetic instructions", compute capability 9.0."""


@dataclass(frozen=True)
class Prediction:
    """A predicted time.

    Attributes:
        time_ms: the largest term of the product, its launch, and ``copies``.
        bound: name of the product's largest term.
        tflops: 2 m n k over that time.
        arch: name of the GPU it is for, such as ``"H200"``.
        terms: milliseconds for each resource, and for ``copies`` where operands are copied first.
    """

    time_ms: float
    bound: str
    tflops: float
    arch: str
    terms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mechanism:
    """How a rung moves operands: facts of its source, from which counts follow.

    Attributes:
        staged: operands go through shared memory.
        vector: global loads and shared stores move 16 bytes where alignment allows.
        asynchronous: ``cp.async`` copies without registers: one instruction where a load and a store were two.
        pad_elements: elements added to each row of a shared tile.
        swizzled: rows of a shared tile are at most 128 bytes, and their 16-byte pieces change places by XOR: fragment
            loads have no conflicts and no padding.
        panels: rows of a shared tile are at most 128 bytes; wider tiles are several of them side by side.
        a_density: share of A that is stored and moved: half of a 2:4 sparse one.
        stages: buffers in shared memory, where the configuration does not say.
        interleaved: fragment loads are 16 bytes, by lanes ordered so that two quarters of a warp share a wavefront.
    """

    staged: bool = True
    vector: bool = True
    asynchronous: bool = True
    pad_elements: int = 0
    swizzled: bool = False
    panels: bool = False
    a_density: float = 1.0
    stages: int = 1
    interleaved: bool = False


MECHANISMS = {
    "simt-naive": Mechanism(staged=False, vector=False, asynchronous=False),
    "simt-shared": Mechanism(vector=False, asynchronous=False),
    "simt-warptile": Mechanism(interleaved=True),
    "simt-half2": Mechanism(asynchronous=False, interleaved=True),
    "wmma-naive": Mechanism(staged=False, vector=False, asynchronous=False),
    "wmma-shared": Mechanism(vector=False, asynchronous=False, pad_elements=8),
    "wmma-block": Mechanism(vector=False, asynchronous=False),
    "wmma-vectorized": Mechanism(asynchronous=False),
    "wmma-async": Mechanism(),
    "mma-naive": Mechanism(vector=False, asynchronous=False, panels=True),
    "mma-vectorized": Mechanism(asynchronous=False, panels=True),
    "mma-swizzled": Mechanism(asynchronous=False, panels=True, swizzled=True),
    "mma-double-buffer": Mechanism(panels=True, swizzled=True, stages=2),
    "mma-sparse": Mechanism(panels=True, swizzled=True, a_density=0.5),
}
"""Rungs whose mechanism is not their family's."""

FAMILY = {
    "simt": Mechanism(pad_elements=8),
    "wmma": Mechanism(pad_elements=8),
    "mma": Mechanism(panels=True, swizzled=True),
}
"""How the rest of a family moves operands: ``cp.async`` into padded or swizzled rows."""

UNPACKED = {"float8_e4m3": 12, "float8_e5m2": 12}
"""Instructions that unpack the operands of one m16n8k32 to float16 on sm_90: two for each of its six registers."""


def mechanism_of(rung: Rung) -> Mechanism:
    """How a rung moves operands."""
    return MECHANISMS.get(rung.name, FAMILY[rung.family])


@dataclass(frozen=True)
class Step:
    """What one block does in one step of BK along K.

    Attributes:
        wavefronts: of the L1 and shared memory data path.
        instructions: issued by all its warps.
        math_clocks: of the multiply-add units (CUDA cores or tensor cores), alone on a multiprocessor.
    """

    wavefronts: float
    instructions: float
    math_clocks: float


def predict(rung: Rung, problem: Problem, config: Config, device: Device = H200) -> Prediction:
    """Predicted time of ``rung`` on ``device``; see the module's text for the formulas."""
    if problem.m == 0 or problem.n == 0:
        return Prediction(0.0, "latency", 0.0, _short(device), {})
    if rung.weigh is not None:
        return _weighed(rung, problem, config, device)
    if rung.family == "wgmma":
        return _prediction(rung, problem, config, device, predict_wgmma.terms(rung, problem, config, device))
    mechanism = mechanism_of(rung)
    count = blocks(problem, config)
    steps = max(1, ceil_div(problem.k, config.get("BK", _fragment_k(rung, problem))))
    step = _step(rung, problem, config, mechanism, device)
    per_multiprocessor = ceil_div(count, device.multiprocessors)
    resident = resident_blocks(rung, problem, config, device)
    clock_ms = 1e3 / device.clock_hz
    issue_clocks = max(step.instructions / ISSUE_PER_CLOCK, 0.0 if rung.family != "simt" else step.math_clocks)
    l2_bytes = count * _operand_bytes(problem, mechanism.a_density * config["BM"] + config["BN"])
    terms = {
        "dram": _dram_bytes(problem, config, mechanism, device, resident) / device.dram_bytes_per_s * 1e3,
        "l2": l2_bytes / device.l2_bytes_per_s * 1e3,
        "shared": per_multiprocessor * steps * step.wavefronts * clock_ms,
        "issue": per_multiprocessor * steps * issue_clocks * clock_ms,
        "latency": _latency_clocks(problem, config, mechanism, step, steps, device)
        * ceil(per_multiprocessor / resident)
        * clock_ms,
    }
    if rung.family != "simt":
        terms["tensor"] = per_multiprocessor * steps * step.math_clocks * clock_ms
    return _prediction(rung, problem, config, device, terms)


def _prediction(rung: Rung, problem: Problem, config: Config, device: Device, terms: dict[str, float]) -> Prediction:
    """The largest of the terms, and the launch, behind the copies that the rung makes first."""
    bound = max(terms, key=lambda name: terms[name])
    return _with_copies(rung, problem, config, device, terms, bound, terms[bound] + device.launch_s * 1e3)


def _weighed(rung: Rung, problem: Problem, config: Config, device: Device) -> Prediction:
    """By the costs that were fitted to a rung's measured configurations."""
    found = wgmma_cost.terms(problem, config, device.wgmma_costs)
    terms = {name: microseconds / 1e3 for name, microseconds in found.items()}
    bound = max((name for name in terms if name != "launch"), key=lambda name: terms[name])
    time_ms = wgmma_cost.total(found, device.wgmma_costs) / 1e3
    return _with_copies(rung, problem, config, device, terms, bound, time_ms)


def _with_copies(
    rung: Rung, problem: Problem, config: Config, device: Device, terms: dict[str, float], bound: str, time_ms: float
) -> Prediction:
    view = rung.view(problem, config)
    copied_ms = copies_ms(view.copies, device) + beside_ms(view.beside, device)
    time_ms += copied_ms
    if copied_ms:
        terms = {**terms, "copies": copied_ms}
    return Prediction(time_ms, bound, problem.flops / time_ms / 1e9, _short(device), terms)


def resident_blocks(rung: Rung, problem: Problem, config: Config, device: Device) -> int:
    """Blocks of this shape that one multiprocessor holds at once: its limits of warps, blocks, shared memory and
    registers, the last with a thread's registers taken as one and a half times its accumulators and 40 more, or what
    MIN_BLOCKS makes the compiler keep to."""
    arch = arches.arch(device.arch)
    threads = rung.threads(problem, config)[0]
    shared_bytes = max(rung.dynamic_shared_bytes(problem, config), 1)
    if rung.dynamic_shared_bytes(problem, config) == 0 and mechanism_of(rung).staged:
        element_bytes = problem.a.dtype.bytes
        shared_bytes = ceil((config["BM"] + config["BN"]) * config.get("BK", 1) * element_bytes)
    accumulators = config["BM"] * config["BN"] * problem.accumulator.bits / 32 / threads
    registers = min(255, ceil(accumulators * 1.5 + 40))
    limits = (
        arch.max_blocks_per_sm,
        arch.max_warps_per_sm * WARP_LANES // threads,
        arch.shared_bytes_per_sm // (shared_bytes + 1024),
        max(arch.registers_per_sm // (registers * threads), config.get("MIN_BLOCKS", 1)),
    )
    return max(1, min(limits))


def _short(device: Device) -> str:
    return device.name.removeprefix("NVIDIA ")


def _fragment_k(rung: Rung, problem: Problem) -> int:
    """K of one step of a kernel without a BK: one element on CUDA cores, one fragment (16 f16) on tensor cores."""
    return 1 if rung.family == "simt" else max(1, 256 // problem.a.dtype.bits)


def _operand_bytes(problem: Problem, elements_per_k: float) -> float:
    """Bytes of ``elements_per_k`` operand elements at every k."""
    return elements_per_k * problem.k * problem.a.dtype.bytes


def _dram_bytes(problem: Problem, config: Config, mechanism: Mechanism, device: Device, resident: int) -> float:
    """Bytes to and from DRAM.

    At least every matrix once. If A and B fit into L2 together, that is all. If not, each wave of
    multiprocessors * resident blocks, taken as a square of s x s tiles (what a grouped block order aims at), reads
    s * (BM + BN) * K elements; the sum over all waves is never less than A and B once.
    """
    d_bytes = problem.m * problem.n * problem.d.dtype.bytes * (1 if problem.c is None else 2)
    once = _operand_bytes(problem, mechanism.a_density * problem.m + problem.n)
    if once <= device.l2_bytes * L2_SHARE_FOR_OPERANDS:
        return once + d_bytes
    wave = device.multiprocessors * resident
    waves = ceil_div(blocks(problem, config), wave)
    tiles = mechanism.a_density * config["BM"] + config["BN"]
    return max(once, waves * _operand_bytes(problem, wave**0.5 * tiles)) + d_bytes


def _step(rung: Rung, problem: Problem, config: Config, mechanism: Mechanism, device: Device) -> Step:
    """Wavefronts, instructions and math of one step of one block."""
    bm, bn, bk = config["BM"], config["BN"], config.get("BK", _fragment_k(rung, problem))
    multiply_adds = bm * bn * bk
    read_instructions, read_wavefronts = _operand_reads(rung, problem, config, mechanism)
    copy_instructions, copy_wavefronts = _copies(problem, mechanism, (mechanism.a_density * bm + bn) * bk)
    if rung.family == "simt":
        packed = 2 if rung.name == "simt-half2" else 1
        math_instructions = multiply_adds / WARP_LANES / packed
        math_clocks = multiply_adds / packed / MULTIPLY_ADD_LANES[problem.accumulator.name]
    else:
        rate = tensor_rate(rung, problem, config, device) * 1e12 / device.multiprocessors / device.clock_hz
        math_clocks = 2 * multiply_adds / rate
        each = _tensor_multiply_adds(rung, problem, config)
        unpacking = UNPACKED.get(problem.a.dtype.name, 0) / (16 * 8 * 32)
        math_instructions = multiply_adds * (1 / each + unpacking)
    return Step(
        wavefronts=read_wavefronts + copy_wavefronts,
        instructions=math_instructions + read_instructions + copy_instructions,
        math_clocks=math_clocks,
    )


def tensor_rate(rung: Rung, problem: Problem, config: Config, device: Device) -> float:
    """TFLOP/s at which the rung's instruction issues. float64's m8n8k4 has WMMA's rate wherever it is used."""
    name = problem.a.dtype.name
    if mechanism_of(rung).a_density < 1:
        return device.sparse_rate(name)
    small = name == "float64" and config.get("FM") == 8
    return device.tensor_rate("wmma" if small else rung.family, name)


def _tensor_multiply_adds(rung: Rung, problem: Problem, config: Config) -> int:
    """Multiply-adds of one tensor instruction: the configuration's own. A WMMA fragment is several of m16n8 with 256
    bits of k (16 f16, 8 tf32, 32 s8), and m8n8k4 for f64."""
    if rung.family == "mma":
        return config["FM"] * config["FN"] * config["FK"]
    return 8 * 8 * 4 if problem.a.dtype.name == "float64" else 16 * 8 * (256 // problem.a.dtype.bits)


def _operand_reads(rung: Rung, problem: Problem, config: Config, mechanism: Mechanism) -> tuple[float, float]:
    """Instructions and wavefronts that bring one step's operands from shared (or global) memory to the math.

    * One element a thread (simt-naive, simt-shared): a warp's multiply-add at one k needs one element of A, the same
      for all lanes, and 32 neighbours in a row of B: one wavefront each. From shared memory A's elements at four
      neighbouring k come in one 16-byte load.
    * Register tiles (simt-warptile, simt-half2): a thread reads TM + TN elements at each k, 16 bytes at a time. A
      warp's 16-byte load is four wavefronts, two where pairs of lanes read the same address.
    * Tensor cores: a warp reads (WM + WN) * BK elements a step, 512 bytes an instruction (ldmatrix.x4), 128 bytes a
      wavefront times the conflict ratio of the row pitch; swizzled rows have none.
    """
    bm, bn, bk = config["BM"], config["BN"], config.get("BK", _fragment_k(rung, problem))
    if rung.family == "simt" and "TM" not in config:
        warps = bm * bn / WARP_LANES
        a_reads = 0.25 if mechanism.staged else 1.0
        return warps * bk * (a_reads + 1), warps * bk * (a_reads + 1)
    warp_m, warp_n = config.get("WM", min(16, bm)), config.get("WN", min(16, bn))
    warps = (bm / warp_m) * (bn / warp_n)
    if rung.family == "simt":
        shared_bytes = problem.a.dtype.bytes if rung.name == "simt-half2" else problem.accumulator.bytes
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
    """Conflict ratio of fragment reads from a shared tile whose rows hold ``columns`` elements."""
    if mechanism.swizzled:
        return 1.0
    row_bytes = columns * element_bytes
    pitch_bytes = min(row_bytes, PANEL_BYTES) if mechanism.panels else row_bytes
    return row_conflict_ratio(pitch_bytes + mechanism.pad_elements * element_bytes)


def row_conflict_ratio(pitch_bytes: float) -> float:
    """Wavefronts over the ideal for a matrix read of eight 16-byte rows ``pitch_bytes`` apart.

    Shared memory has 32 banks of 4 bytes, so eight groups of 16 bytes: the read takes as many wavefronts as rows
    fall into the fullest group. 256 bytes: all eight in one group. 272 (8 halves of padding): one in each.
    """
    groups = [int(row * pitch_bytes // 16) % 8 for row in range(8)]
    return float(max(groups.count(group) for group in groups))


def _copies(problem: Problem, mechanism: Mechanism, elements: float) -> tuple[float, float]:
    """Instructions and wavefronts that stage ``elements`` operand elements: bytes over what an instruction moves.

    A load and a store for each piece, or one ``cp.async``, whose bytes cross the data path once. simt-warptile
    transposes A with 4-byte copies; they are counted as 16-byte ones here, an error of below a tenth of its
    instructions.
    """
    if not mechanism.staged:
        return 0.0, 0.0
    aligned_bytes = min(problem.a.alignment_bytes, problem.b.alignment_bytes) if mechanism.vector else 0
    piece_bytes = max(float(aligned_bytes), problem.a.dtype.bytes)
    pieces = elements * problem.a.dtype.bytes / piece_bytes / WARP_LANES
    wavefronts_per_piece = max(1.0, piece_bytes * WARP_LANES / 128)
    passes = 1 if mechanism.asynchronous else 2
    return pieces * passes, pieces * wavefronts_per_piece * passes


def _latency_clocks(
    problem: Problem, config: Config, mechanism: Mechanism, step: Step, steps: int, device: Device
) -> float:
    """Clocks of one block alone.

    The first tile and the epilogue each wait for DRAM once. A step takes as long as its slowest pipe. With one stage
    it also waits for L2, two barriers and shared memory; with S stages, S - 1 steps share one wait. Without staging
    the compiler keeps about four steps of loads in flight.
    """
    alone = max(step.math_clocks, step.wavefronts, step.instructions / ISSUE_PER_CLOCK)
    stages = config.get("STAGES", mechanism.stages)
    if not mechanism.staged:
        each = max(alone, L2_LATENCY_CLOCKS / 4)
    elif stages == 1:
        each = alone + L2_LATENCY_CLOCKS + SHARED_LATENCY_CLOCKS + 2 * BARRIER_CLOCKS
    else:
        each = max(alone, L2_LATENCY_CLOCKS / (stages - 1)) + BARRIER_CLOCKS
    return 2 * DRAM_LATENCY_CLOCKS + steps * each
