"""The CUDA-core rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from math import gcd

from warptile.launch import Dim3
from warptile.problem import Problem
from warptile.rungs.legality import blocks, ceil_div, grid_reason, keys_reason, operand_reason
from warptile.rungs.rung import Config, Rung

ANY_DTYPE = ("float32", "float16", "bfloat16", "float64", "tfloat32", "int8", "uint8")
MAX_THREADS = 1024
STATIC_SHARED_BYTES = 48 * 1024
REGISTERS = 65536
OTHER_REGISTERS = 20
"""Registers of a simt-warptile thread beside values and pointers: where it reads and writes, sizes, the loop."""
LANES_K = 8
"""Lanes of a warp that copy neighbouring k of one row: ``LANES_K`` of kernels/simt/staging.cuh."""
ENOUGH_BLOCKS = 96
"""Blocks from which large tiles are the default: about three quarters of an H200's multiprocessors busy."""


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _types(problem: Problem) -> str:
    """The template arguments that every kernel starts with: operand, accumulator and output type, major of B."""
    a, accumulator, d = problem.a.dtype.cuda, problem.accumulator.cuda, problem.d.dtype.cuda
    return f"{a}, {accumulator}, {d}, {_flag(problem.b.major == 'col')}"


def _linear_grid(problem: Problem, config: Config) -> Dim3:
    return (blocks(problem, config), 1, 1)


def _no_dynamic_shared(problem: Problem, config: Config) -> int:
    return 0


# --- simt-naive ---------------------------------------------------------------------------------------------------


def _thread_each(problem: Problem, config: Config) -> Dim3:
    return (config["BM"] * config["BN"], 1, 1)


def _threads_reason(config: Config) -> str | None:
    threads = config["BM"] * config["BN"]
    if threads > MAX_THREADS:
        return f"BM * BN is {threads} threads; a block has at most {MAX_THREADS}"
    return None


def _naive_illegal(problem: Problem, config: Config) -> str | None:
    return (
        operand_reason(problem, ANY_DTYPE)
        or keys_reason(config, ("BM", "BN"))
        or _threads_reason(config)
        or grid_reason(problem, config)
    )


NAIVE = Rung(
    name="simt-naive",
    family="simt",
    idea="one thread computes one element, straight from global memory",
    file="simt/naive.cuh",
    previous=None,
    min_arch=70,
    dtypes=ANY_DTYPE,
    default_config=lambda problem: {"BM": 8, "BN": 32},
    candidates=lambda problem: tuple({"BM": bm, "BN": bn} for bn in (32, 16, 64) for bm in (8, 16, 4)),
    illegal=_naive_illegal,
    name_expression=lambda problem, config: f"warptile::simt_naive<{_types(problem)}, {config['BM']}, {config['BN']}>",
    grid=_linear_grid,
    threads=_thread_each,
    dynamic_shared_bytes=_no_dynamic_shared,
)

# --- simt-shared --------------------------------------------------------------------------------------------------


def _shared_illegal(problem: Problem, config: Config) -> str | None:
    return (
        operand_reason(problem, ANY_DTYPE)
        or keys_reason(config, ("BM", "BN", "BK"))
        or _threads_reason(config)
        or _static_shared_reason(config["BK"] * (config["BM"] + config["BN"] + 1) * problem.accumulator.bits // 8)
        or grid_reason(problem, config)
    )


def _static_shared_reason(shared_bytes: int) -> str | None:
    if shared_bytes > STATIC_SHARED_BYTES:
        return f"its tiles take {shared_bytes} bytes; without opting in a block has {STATIC_SHARED_BYTES}"
    return None


SHARED = Rung(
    name="simt-shared",
    family="simt",
    idea="a block stages tiles in shared memory and shares them among its threads",
    file="simt/shared.cuh",
    previous="simt-naive",
    min_arch=70,
    dtypes=ANY_DTYPE,
    default_config=lambda problem: {"BM": 32, "BN": 32, "BK": 32},
    candidates=lambda problem: tuple(
        {"BM": bm, "BN": bn, "BK": bk} for bm, bn in ((32, 32), (16, 32), (16, 16)) for bk in (32, 16)
    ),
    illegal=_shared_illegal,
    name_expression=lambda problem, config: (
        f"warptile::simt_shared<{_types(problem)}, {config['BM']}, {config['BN']}, {config['BK']}>"
    ),
    grid=_linear_grid,
    threads=_thread_each,
    dynamic_shared_bytes=_no_dynamic_shared,
)


# --- register tiles: simt-warptile and simt-half2 -----------------------------------------------------------------

TILE_KEYS = ("BM", "BN", "BK", "WM", "WN", "TM", "TN")


def _tiled_threads(problem: Problem, config: Config) -> Dim3:
    return (_tiled_thread_count(config), 1, 1)


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


def _d_width(problem: Problem, staged_bits: int) -> int:
    """Elements of one store to D (and load of C): what both alignments allow and divides n, inside one piece."""
    c_elements = problem.c.vector_elements if problem.c is not None else problem.d.vector_elements
    return gcd(problem.d.vector_elements, c_elements, problem.n, _piece(staged_bits))


def _staged_elements(problem: Problem, config: Config, staged_bits: int) -> int:
    """Elements of one stage: A's tile with 16 bytes of padding a row, and B's, padded when it is transposed."""
    pad = _piece(staged_bits)
    return config["BK"] * (config["BM"] + pad + config["BN"] + (pad if problem.b.major == "col" else 0))


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
        return f"it has {threads} threads in a block; {MAX_THREADS} is the most"
    return _copy_reason(problem, config, threads, staged_bits)


def _copy_reason(problem: Problem, config: Config, threads: int, staged_bits: int) -> str | None:
    """Why the threads of a block cannot share the copying of a tile evenly, or None: static_asserts of staging.cuh."""
    bk, bn = config["BK"], config["BN"]
    if bk % LANES_K:
        return f"BK is {bk}; transposed tiles are copied {LANES_K} k at a time, so it must be a multiple of that"
    transposed = [config["BM"], bn] if problem.b.major == "col" else [config["BM"]]
    for extent in transposed:
        if extent % (threads // LANES_K):
            return f"{threads} threads copy {threads // LANES_K} rows at once, which does not divide a tile of {extent}"
    if problem.b.major == "row":
        width = _b_width(problem, staged_bits)
        per_row = bn // width
        rows, parts = max(1, threads // per_row), max(1, per_row // threads)
        if bn % width or bk % rows or rows * per_row != parts * threads:
            return f"{threads} threads cannot share a {bk} x {bn} tile of B evenly, {width} elements at a time"
    return None


# --- simt-warptile ------------------------------------------------------------------------------------------------

WARPTILE_KEYS = (*TILE_KEYS, "STAGES", "MIN_BLOCKS", "GROUP")
WARPTILE_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8")


def _warptile_illegal(problem: Problem, config: Config) -> str | None:
    return (
        operand_reason(problem, WARPTILE_DTYPES)
        or keys_reason(config, WARPTILE_KEYS)
        or _tile_reason(problem, config, problem.accumulator.bits)
        or (f"STAGES is {config['STAGES']}; one is filled while another is used: 2" if config["STAGES"] < 2 else None)
        or _register_reason(problem, config)
        or grid_reason(problem, config)
        or _group_reason(problem, config)
    )


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


def _warptile_name(problem: Problem, config: Config) -> str:
    bits = problem.accumulator.bits
    numbers = [_b_width(problem, bits), _d_width(problem, bits), *(config[key] for key in WARPTILE_KEYS)]
    return f"warptile::simt_warptile<{_types(problem)}, {', '.join(map(str, numbers))}>"


def _warptile_shared_bytes(problem: Problem, config: Config) -> int:
    bits = problem.accumulator.bits
    return config["STAGES"] * _staged_elements(problem, config, bits) * bits // 8


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


def _warptile_candidates(problem: Problem) -> tuple[Config, ...]:
    return FLOAT64_CANDIDATES if problem.accumulator.bits == 64 else WARPTILE_CANDIDATES


def _warptile_default(problem: Problem) -> Config:
    """The first legal candidate if D has enough of its tiles for the GPU's multiprocessors, else the smallest tile."""
    *_, small = candidates = _warptile_candidates(problem)
    large = next((config for config in candidates if _warptile_illegal(problem, config) is None), small)
    return large if blocks(problem, large) >= ENOUGH_BLOCKS else small


WARPTILE = Rung(
    name="simt-warptile",
    family="simt",
    idea="block, warp and register tiles: a thread owns TM x TN elements, fed by cp.async and 16-byte loads",
    file="simt/warptile.cuh",
    previous="simt-shared",
    min_arch=70,
    dtypes=WARPTILE_DTYPES,
    default_config=_warptile_default,
    candidates=_warptile_candidates,
    illegal=_warptile_illegal,
    name_expression=_warptile_name,
    grid=_linear_grid,
    threads=_tiled_threads,
    dynamic_shared_bytes=_warptile_shared_bytes,
)


# --- simt-half2 ---------------------------------------------------------------------------------------------------


def _half2_illegal(problem: Problem, config: Config) -> str | None:
    return (
        operand_reason(problem, ("float16",), ("float16",))
        or keys_reason(config, TILE_KEYS)
        or _tile_reason(problem, config, 16)
        or _static_shared_reason(_staged_elements(problem, config, 16) * 2)
        or grid_reason(problem, config)
    )


def _half2_name(problem: Problem, config: Config) -> str:
    numbers = [_b_width(problem, 16), _d_width(problem, 16), *(config[key] for key in TILE_KEYS)]
    types = f"{problem.d.dtype.cuda}, {_flag(problem.b.major == 'col')}"
    return f"warptile::simt_half2<{types}, {', '.join(map(str, numbers))}>"


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


def _half2_default(problem: Problem) -> Config:
    large, small = HALF2_CANDIDATES[0], HALF2_CANDIDATES[-1]
    return large if blocks(problem, large) >= ENOUGH_BLOCKS else small


HALF2 = Rung(
    name="simt-half2",
    family="simt",
    idea="float16 on CUDA cores: two multiply-adds an instruction, accumulated in float16",
    file="simt/half2.cuh",
    previous="simt-warptile",
    min_arch=70,
    dtypes=("float16",),
    default_config=_half2_default,
    candidates=lambda problem: HALF2_CANDIDATES,
    illegal=_half2_illegal,
    name_expression=_half2_name,
    grid=_linear_grid,
    threads=_tiled_threads,
    dynamic_shared_bytes=_no_dynamic_shared,
)

SIMT_RUNGS = (NAIVE, SHARED, WARPTILE, HALF2)
