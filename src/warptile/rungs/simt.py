"""The CUDA-core rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from math import gcd
from typing import ClassVar

from warptile.arch import MAX_THREADS
from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params
from warptile.problem import Problem
from warptile.rungs import simt_cost
from warptile.rungs.batch import for_batches
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, element_types, gemm_members
from warptile.rungs.legality import blocks, ceil_div, grid_reason, keys_reason, operand_reason, padding_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.rung import Rung

ANY_DTYPE = ("float32", "float16", "bfloat16", "float64", "tfloat32", "int8", "uint8")
STATIC_SHARED_BYTES = 48 * 1024
REGISTERS = 65536
OTHER_REGISTERS = 20
"""Registers of a simt-warptile thread beside values and pointers: where it reads and writes, sizes, the loop."""
LANES_K = 8
"""Lanes of a warp that copy neighbouring k of one row: ``LANES_K`` of kernels/simt/staging.cuh."""
BUSY_SHARE = 0.72
"""Large tiles are the default where D has a tile for so large a share of the SMs."""


class SimtRung(Rung):
    """What the CUDA-core rungs share: one CTA for each BM x BN tile of D, in a linear grid.

    Attributes:
        keys: its tunables; the kernel takes them as compile-time values.
        not_compiled: but for these.
    """

    family: ClassVar[str] = "simt"
    min_arch = 70
    keys: tuple[str, ...]
    not_compiled: tuple[str, ...] = ()

    def threads(self, config: Config) -> int:
        """Threads of a CTA: one for each element of the tile."""
        return config["BM"] * config["BN"]

    def dynamic_shared_bytes(self, problem: Problem, config: Config) -> int:
        """Dynamic shared memory of a CTA."""
        return 0

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """Elements of one access, where the kernel takes them as compile-time values; and whether D lies by columns,
        where it may."""
        return ()

    def view(self, problem: Problem, config: Config) -> View:
        """What the kernel is given."""
        return View(problem)

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view = self.view(problem, config)
        seen = view.problem
        values = (
            ("A_COLUMN_MAJOR", seen.a.major == "col"),
            ("B_COLUMN_MAJOR", seen.b.major == "col"),
            *self.widths(seen, config),
            *((key, config[key]) for key in self.keys if key not in self.not_compiled),
        )
        return KernelSpec(
            problem,
            config,
            view,
            Instance(self.file, self.template, element_types(seen), values),
            grid=(blocks(seen, config), 1, 1),
            block=(self.threads(config), 1, 1),
            params=Params(gemm_members(view)),
            dynamic_shared_bytes=self.dynamic_shared_bytes(seen, config),
        )


# --- simt-naive and simt-shared: a thread for each element --------------------------------------------------------


def _threads_reason(config: Config) -> str | None:
    threads = config["BM"] * config["BN"]
    if threads > MAX_THREADS:
        return f"BM * BN is {threads} threads; a block has at most {MAX_THREADS}"
    return None


def _static_shared_reason(shared_bytes: int) -> str | None:
    if shared_bytes > STATIC_SHARED_BYTES:
        return f"its tiles take {shared_bytes} bytes; without opting in a block has {STATIC_SHARED_BYTES}"
    return None


class SimtNaive(SimtRung):
    """Every operand element comes from global memory each time it is needed."""

    name = "simt-naive"
    idea = "each thread computes one element of D, reading global memory directly"
    previous = None
    dtypes = ANY_DTYPE
    mechanism = Mechanism(staged=False, vector=False, asynchronous=False, unrolled_k=16)
    keys = ("BM", "BN")

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return {"BM": 8, "BN": 32}

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return tuple({"BM": bm, "BN": bn} for bn in (32, 16, 64) for bm in (8, 16, 4))

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, ANY_DTYPE)
            or keys_reason(config, self.keys)
            or _threads_reason(config)
            or grid_reason(problem, config)
        )


class SimtShared(SimtRung):
    """The threads of a CTA share what they load, through shared memory."""

    name = "simt-shared"
    idea = "a block stages tiles of A and B in shared memory"
    previous = "simt-naive"
    dtypes = ANY_DTYPE
    mechanism = Mechanism(vector=False, asynchronous=False)
    keys = ("BM", "BN", "BK")

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return {"BM": 32, "BN": 32, "BK": 32}

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return tuple({"BM": bm, "BN": bn, "BK": bk} for bm, bn in ((32, 32), (16, 32), (16, 16)) for bk in (32, 16))

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, ANY_DTYPE)
            or keys_reason(config, self.keys)
            or _threads_reason(config)
            or _static_shared_reason(config["BK"] * (config["BM"] + config["BN"] + 1) * problem.accumulator.bits // 8)
            or grid_reason(problem, config)
        )


# --- register tiles: simt-warptile and simt-half2 -----------------------------------------------------------------

TILE_KEYS = ("BM", "BN", "BK", "WM", "WN", "TM", "TN")


def _tiled_thread_count(config: Config) -> int:
    return config["BM"] // config["WM"] * (config["BN"] // config["WN"]) * 32


def _piece(staged_bits: int) -> int:
    """Elements of a 16-byte access to shared memory."""
    return 128 // staged_bits


def _b_width(problem: Problem, staged_bits: int) -> int:
    """Elements of one copy of B: what its alignment allows and divides n, 16 staged bytes at most; 1 if transposed."""
    if problem.b.major == "col":
        return 1
    return gcd(problem.b.vector_elements, problem.n, _piece(staged_bits))


def _a_width(problem: Problem, config: Config, staged_bits: int) -> int:
    """Elements of one copy of A: 1 where its rows run along K and are transposed; else as of B, and at most as many as
    leave a copy of each row of the tile to some thread."""
    if problem.a.major == "row":
        return 1
    most = max(1, config["BM"] * config["BK"] // _tiled_thread_count(config))
    return gcd(problem.a.vector_elements, problem.m, _piece(staged_bits), 1 << (most.bit_length() - 1))


def _d_width(problem: Problem, staged_bits: int) -> int:
    """Elements of one store to D (and load of C): what both alignments allow and divides n, inside one piece; 1 where D
    lies by columns."""
    if problem.d.major == "col":
        return 1
    c_elements = problem.c.vector_elements if problem.c is not None else problem.d.vector_elements
    return gcd(problem.d.vector_elements, c_elements, problem.n, _piece(staged_bits))


def _staged_elements(problem: Problem, config: Config, staged_bits: int) -> int:
    """Elements of one stage: tiles of A and B, with 16 bytes of padding a row when they are transposed."""
    padded = (problem.a.major == "row") + (problem.b.major == "col")
    return config["BK"] * (config["BM"] + config["BN"] + padded * _piece(staged_bits))


def _tile_reason(problem: Problem, config: Config, staged_bits: int) -> str | None:
    """Why the three levels of tiles do not fit together, or None: the static_asserts of register_tile.cuh."""
    bm, bn, wm, wn, tm, tn = (config[key] for key in ("BM", "BN", "WM", "WN", "TM", "TN"))
    piece = _piece(staged_bits)
    if bm % wm or bn % wn:
        return f"a block of {bm} x {bn} is not a whole number of warp tiles of {wm} x {wn}"
    if wm % tm or wn % tn or (wm // tm) * (wn // tn) != 32:
        return f"a warp tile of {wm} x {wn} is not 32 thread tiles of {tm} x {tn}"
    if (wm // tm) % 2 or (wn // tn) % 2:
        return f"lanes are {wm // tm} x {wn // tn}; they are interleaved two by two, so both must be even"
    if tm % piece or tn % piece:
        return f"a thread tile of {tm} x {tn} is not a whole number of 16-byte pieces of {piece}"
    threads = _tiled_thread_count(config)
    if threads > MAX_THREADS:
        return f"it has {threads} threads in a CTA; {MAX_THREADS} is the most"
    return _copy_reason(problem, config, threads, staged_bits)


def _copy_reason(problem: Problem, config: Config, threads: int, staged_bits: int) -> str | None:
    """Why the threads of a block cannot share the copying of a tile evenly, or None: static_asserts of staging.cuh."""
    bk = config["BK"]
    if bk % LANES_K:
        return f"BK is {bk}; transposed tiles are copied {LANES_K} k at a time, so it must be a multiple of that"
    operands = (
        ("A", config["BM"], problem.a.major == "row", _a_width(problem, config, staged_bits)),
        ("B", config["BN"], problem.b.major == "col", _b_width(problem, staged_bits)),
    )
    for name, extent, along_k, width in operands:
        if along_k:
            if extent % (threads // LANES_K):
                copied = threads // LANES_K
                return f"{threads} threads copy {copied} rows at once, which does not divide a tile of {extent}"
            continue
        per_row = extent // width
        rows, parts = max(1, threads // per_row), max(1, per_row // threads)
        if extent % width or bk % rows or rows * per_row != parts * threads:
            return f"{threads} threads cannot share a {bk} x {extent} tile of {name} evenly, {width} elements at a time"
    return None


# --- simt-warptile ------------------------------------------------------------------------------------------------

WARPTILE_KEYS = (*TILE_KEYS, "STAGES", "MIN_BLOCKS", "GROUP")
WARPTILE_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8")


def _register_reason(problem: Problem, config: Config) -> str | None:
    """Why a thread's registers do not suffice, or None: accumulators, two sets of fragments, a pointer for each row
    that it copies and OTHER_REGISTERS must fit into its share of the register file, divided by MIN_BLOCKS."""
    tm, tn, threads = config["TM"], config["TN"], _tiled_thread_count(config)
    rows = threads // LANES_K
    pointers = config["BM"] // rows + (config["BN"] // rows if problem.b.major == "col" else 1)
    values = (tm * tn + 2 * (tm + tn)) * problem.accumulator.bits // 32
    needed = values + 2 * pointers + OTHER_REGISTERS
    available = min(255, REGISTERS // (config["MIN_BLOCKS"] * threads) // 8 * 8)
    if needed > available:
        return (
            f"a thread needs about {needed} registers for a tile of {tm} x {tn}; {config['MIN_BLOCKS']} blocks of "
            f"{threads} threads leave it {available}"
        )
    return None


def _group_reason(problem: Problem, config: Config) -> str | None:
    """Why blocks cannot be numbered, or None: a group's blocks are counted in 32 bits."""
    tiles_n = ceil_div(problem.n, config["BN"])
    if config["GROUP"] * tiles_n >= 2**32:
        return f"GROUP is {config['GROUP']} rows of {tiles_n} tiles; a group has fewer than 2**32 of them"
    return None


def _warptile_config(*values: int) -> Config:
    return dict(zip(WARPTILE_KEYS, values, strict=True))


WARPTILE_CANDIDATES = tuple(
    _warptile_config(*values)
    for values in (
        # 8 x 8 a thread: 16 operands for 64 multiply-adds, and 16 warps to hide latency behind; fastest where measured
        (128, 128, 16, 64, 32, 8, 8, 3, 2, 8),
        (128, 128, 16, 64, 32, 8, 8, 4, 2, 8),
        # 16 x 8 a thread: 24 operands for 128 multiply-adds, two blocks of 128 threads or one of 256
        (128, 128, 16, 64, 64, 16, 8, 3, 2, 8),
        (128, 128, 16, 64, 64, 16, 8, 4, 2, 8),
        (128, 128, 8, 64, 64, 16, 8, 4, 2, 8),
        (128, 128, 16, 64, 64, 8, 16, 3, 2, 8),
        (128, 128, 8, 64, 64, 8, 16, 4, 2, 8),
        (256, 128, 16, 64, 64, 16, 8, 3, 1, 8),
        (256, 128, 8, 64, 64, 16, 8, 4, 1, 8),
        (256, 128, 16, 64, 64, 8, 16, 3, 1, 8),
        (128, 256, 16, 64, 64, 16, 8, 3, 1, 8),
        (128, 256, 16, 64, 64, 8, 16, 3, 1, 8),
        (128, 256, 8, 64, 64, 16, 8, 4, 1, 8),
        (128, 256, 16, 64, 64, 8, 16, 4, 1, 16),
        (256, 128, 16, 64, 64, 16, 8, 4, 1, 4),
        (128, 256, 16, 128, 32, 16, 8, 3, 1, 8),
        (256, 128, 16, 32, 128, 8, 16, 3, 1, 8),
        # 8 x 8 a thread in other shapes
        (128, 128, 16, 32, 64, 8, 8, 3, 1, 8),
        (128, 64, 16, 64, 32, 8, 8, 3, 3, 8),
        # small tiles for small problems
        (64, 64, 16, 32, 32, 8, 4, 3, 4, 8),
        (64, 32, 16, 32, 16, 4, 4, 3, 4, 8),
        (32, 32, 16, 16, 32, 4, 4, 3, 8, 8),
    )
)
"""What a search over simt-warptile tries for 32-bit accumulators, values in the order of `WARPTILE_KEYS`."""

FLOAT64_CANDIDATES = tuple(
    _warptile_config(*values)
    for values in (
        (128, 128, 8, 64, 32, 8, 8, 3, 1, 8),
        (128, 128, 16, 64, 32, 8, 8, 3, 1, 8),
        (64, 128, 8, 64, 32, 8, 8, 4, 2, 8),
        (128, 64, 8, 32, 32, 8, 4, 4, 1, 8),
        (64, 64, 16, 32, 32, 8, 4, 3, 3, 8),
        (64, 64, 8, 32, 32, 8, 4, 4, 3, 8),
        (64, 32, 16, 32, 16, 4, 4, 3, 4, 8),
        (32, 32, 8, 16, 32, 4, 4, 3, 8, 8),
    )
)
"""The same for float64, whose values take two registers each."""


class SimtWarptile(SimtRung):
    """CTA, warp and register tiles."""

    name = "simt-warptile"
    idea = "block, warp and register tiles, fed by cp.async and 16-byte loads"
    previous = "simt-shared"
    dtypes: tuple[str, ...] = WARPTILE_DTYPES
    mechanism = Mechanism(interleaved=True)
    keys: tuple[str, ...] = WARPTILE_KEYS
    batch_invariant = True
    batches = True

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The first legal candidate if D has enough of its tiles for the SMs, else the smallest tile."""
        *_, small = candidates = self.candidates(problem, device)
        large = next((config for config in candidates if self.illegal(problem, config, device) is None), small)
        return large if blocks(problem, large) >= BUSY_SHARE * device.sms else small

    def compared_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float | None:
        """As `Rung.compared_us`: of float32."""
        if problem.a.dtype.name != "float32":
            return None
        return simt_cost.terms_us(self.view(problem, config).problem, config, device.sms)[1]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return FLOAT64_CANDIDATES if problem.accumulator.bits == 64 else WARPTILE_CANDIDATES

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, WARPTILE_DTYPES, batches=True)
            or keys_reason(config, WARPTILE_KEYS)
            or self.tiles_reason(problem, config)
        )

    def tiles_reason(self, seen: Problem, config: Config) -> str | None:
        """Why tiles do not suit the problem as the kernel sees it, or None."""
        return (
            _tile_reason(seen, config, seen.accumulator.bits)
            or (
                f"STAGES is {config['STAGES']}; one is filled while another is used: 2"
                if config["STAGES"] < 2
                else None
            )
            or _register_reason(seen, config)
            or grid_reason(seen, config)
            or _group_reason(seen, config)
            or padding_reason(seen, config, 8 if seen.accumulator.bits == 64 else 16)
        )

    def threads(self, config: Config) -> int:
        """A warp for each warp tile."""
        return _tiled_thread_count(config)

    def dynamic_shared_bytes(self, problem: Problem, config: Config) -> int:
        """All stages, or what a block's warps exchange before they store (kernels/simt/register_tile.cuh)."""
        bits, exchanged = problem.accumulator.bits, 0
        if _d_width(problem, bits) < _piece(bits):
            rows = config["WM"] // config["TM"] * _piece(bits)
            exchanged = _tiled_thread_count(config) // 32 * rows * (config["WN"] + 1)
        return max(config["STAGES"] * _staged_elements(problem, config, bits), exchanged) * bits // 8

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """Elements of one copy of A and of B, and of one store to D."""
        bits = problem.accumulator.bits
        widths = _a_width(problem, config, bits), _b_width(problem, bits), _d_width(problem, bits)
        return tuple(zip(("A_WIDTH", "B_WIDTH", "D_WIDTH"), widths, strict=True))

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        return for_batches(super().resolve(problem, config, device))


# --- simt-half2 ---------------------------------------------------------------------------------------------------

HALF2_CANDIDATES: tuple[Config, ...] = tuple(
    dict(zip(TILE_KEYS, values, strict=True))
    for values in (
        (128, 256, 16, 64, 64, 16, 8),
        (128, 128, 16, 64, 64, 16, 8),
        (256, 128, 16, 64, 64, 16, 8),
        (128, 128, 16, 64, 32, 8, 8),
        (64, 64, 16, 64, 32, 8, 8),
    )
)


class SimtHalf2(SimtRung):
    """float16 on CUDA cores, two elements in a register."""

    name = "simt-half2"
    idea = "float16 on CUDA cores: two multiply-adds per instruction (HFMA2)"
    previous = "simt-warptile"
    dtypes = ("float16",)
    mechanism = Mechanism(asynchronous=False, interleaved=True, packed=2)
    keys = TILE_KEYS

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The largest tile if D has enough of them for the SMs, else the smallest."""
        large, small = HALF2_CANDIDATES[0], HALF2_CANDIDATES[-1]
        return large if blocks(problem, large) >= BUSY_SHARE * device.sms else small

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return HALF2_CANDIDATES

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, ("float16",), ("float16",))
            or keys_reason(config, TILE_KEYS)
            or _tile_reason(problem, config, 16)
            or _static_shared_reason(_staged_elements(problem, config, 16) * 2)
            or grid_reason(problem, config)
        )

    def threads(self, config: Config) -> int:
        """A warp for each warp tile."""
        return _tiled_thread_count(config)

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """Elements of one copy of B and of one store to D."""
        return ("B_WIDTH", _b_width(problem, 16)), ("D_WIDTH", _d_width(problem, 16))


SIMT_RUNGS = (SimtNaive(), SimtShared(), SimtWarptile(), SimtHalf2())
"""The CUDA-core family in ladder order."""
