"""The ``mma.sync`` rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from warptile.launch import Dim3
from warptile.problem import Problem
from warptile.rungs.legality import blocks
from warptile.rungs.mma_tiles import INSTRUCTIONS, Geometry, capability, common_reasons, sets_reason, step
from warptile.rungs.rung import Config, Rung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    MAX_STATIC_SHARED_BYTES,
    VECTOR_BYTES,
    elements_per_unit,
    output_width,
    resource_reason,
    stages_reason,
    unit_bytes,
)

SHAPE_KEYS = ("FM", "FN", "FK")
SIZE_KEYS = ("BM", "BN", "BK", "WM", "WN", *SHAPE_KEYS)
TILE_KEYS = (*SIZE_KEYS, "MIN_BLOCKS")
RING_KEYS = (*SIZE_KEYS, "STAGES", "MIN_BLOCKS")
FINAL_KEYS = (*SIZE_KEYS, "STAGES", "SETS", "GROUP", "MIN_BLOCKS")

WIDE = ("float64", "float8_e4m3", "float8_e5m2")
"""Types whose operands take two registers for one."""

ALL_REGISTERS = (*WIDE, "int8", "uint8")
"""Types for which the compiler, left to itself, chooses so few registers that some spill."""


# --- sizes --------------------------------------------------------------------------------------------------------


def _shape_keys(shape: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(SHAPE_KEYS, shape, strict=True))


def _tile(problem: Problem, bm: int = 128, bn: int = 128, wm: int = 64, wn: int = 32) -> dict[str, int]:
    """Lines of 128 bytes of depth: 64 halves. Doubles, and 8-bit floats, which are widened, fill twice the registers:
    they get half of the tile."""
    shape = INSTRUCTIONS.get(problem.a.dtype.name, INSTRUCTIONS["float16"])[0]
    if problem.a.dtype.name in WIDE:
        bn, wm = bn // 2, wm // 2
    sizes = {"BM": bm, "BN": bn, "BK": 128 * 8 // problem.a.dtype.bits, "WM": wm, "WN": wn}
    return {**sizes, **_shape_keys(shape), "MIN_BLOCKS": 1 if problem.a.dtype.name in ALL_REGISTERS else 0}


def _ring(problem: Problem, stages: int) -> dict[str, int]:
    """At least two steps of depth, so that two sets of fragments can take turns."""
    tile = _tile(problem)
    return {**tile, "BK": max(tile["BK"], 2 * step(problem, tile)), "STAGES": stages, "MIN_BLOCKS": tile["MIN_BLOCKS"]}


# --- template arguments -------------------------------------------------------------------------------------------


def operation_type(problem: Problem, config: Config) -> str:
    """The kernels' operation: element, accumulator and output types, majors, and the instruction's FM and FK."""
    types = f"{problem.a.dtype.cuda}, {problem.accumulator.cuda}, {problem.d.dtype.cuda}"
    majors = ", ".join("true" if operand.major == "col" else "false" for operand in (problem.a, problem.b))
    return f"warptile::MmaOperation<{types}, {majors}, {config['FM']}, {config['FK']}>"


def tile_type(problem: Problem, config: Config) -> str:
    """The kernels' tile, its depth in units."""
    depth = config["BK"] // elements_per_unit(problem)
    return f"warptile::Tile<{config['BM']}, {config['BN']}, {depth}, {config['WM']}, {config['WN']}>"


def access_type(problem: Problem, *, vectors: bool = True) -> str:
    """Bytes that one access to A, to B, and to C and D may move; without ``vectors`` a unit of A or B."""
    unit, widest = unit_bytes(problem), VECTOR_BYTES if vectors else 1
    a, b = (max(unit, min(operand.alignment_bytes, widest)) for operand in (problem.a, problem.b))
    return f"warptile::AccessBytes<{a}, {b}, {output_width(problem) * problem.d.dtype.bits // 8}>"


def _name(kernel: str, problem: Problem, config: Config, *, vectors: bool = True, ring: tuple[str, ...] = ()) -> str:
    """The instantiation of ``kernel``; ``ring`` are the keys that follow."""
    arguments = [operation_type(problem, config), tile_type(problem, config), access_type(problem, vectors=vectors)]
    arguments += [str(config[key]) for key in ring]
    return f"warptile::{kernel}<{', '.join(arguments)}>"


# --- legality -----------------------------------------------------------------------------------------------------


def _one_stage(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config)


def _two_stages(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config, stages=2)


def _stages(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config, stages=config["STAGES"], fragment_sets=2)


def _final_geometry(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config, stages=config["STAGES"], fragment_sets=2 if config["SETS"] == 2 else 0)


def _illegal(
    keys: tuple[str, ...], geometry: Callable[[Problem, Config], Geometry], *, dynamic: bool
) -> Callable[[Problem, Config], str | None]:
    most = MAX_DYNAMIC_SHARED_BYTES if dynamic else MAX_STATIC_SHARED_BYTES

    def illegal(problem: Problem, config: Config) -> str | None:
        return (
            common_reasons(problem, config, keys)
            or (stages_reason(config) if "STAGES" in keys else None)
            or (sets_reason(problem, config) if "SETS" in keys else None)
            or resource_reason(geometry(problem, config), most)
        )

    return illegal


_final_illegal = _illegal(FINAL_KEYS, _final_geometry, dynamic=True)


# --- configurations -----------------------------------------------------------------------------------------------


def _tile_candidates(default: Callable[[Problem], Config]) -> Callable[[Problem], tuple[Config, ...]]:
    """The default with other block and warp tiles, then with the type's other instructions."""
    sizes = ((128, 128, 64, 32), (128, 128, 64, 64), (128, 128, 32, 64), (128, 64, 32, 32), (64, 64, 32, 32))

    def candidates(problem: Problem) -> tuple[Config, ...]:
        base = {**default(problem), "MIN_BLOCKS": 1}
        shapes = INSTRUCTIONS.get(problem.a.dtype.name, ())[1:]
        tiles = [{**base, "BM": bm, "BN": bn, "WM": wm, "WN": wn} for bm, bn, wm, wn in sizes]
        return (*tiles, *({**base, **_shape_keys(shape)} for shape in shapes))

    return candidates


FINAL_SIZES = (
    (256, 128, 64, 64, 128, 3, 2),
    (128, 256, 64, 64, 128, 3, 2),
    (128, 128, 64, 32, 128, 4, 2),
    (128, 64, 32, 32, 128, 4, 2),
    (64, 64, 32, 32, 128, 4, 2),
)
"""Sizes that are always tried: BM, BN, WM, WN, bytes of depth (128: 64 halves), STAGES, SETS, MIN_BLOCKS if not 1."""

FLOAT8_SIZES = ((128, 64, 32, 32, 128, 4, 2), (64, 128, 32, 32, 128, 4, 2), (64, 64, 32, 32, 128, 4, 2))
"""The same for 8-bit floats."""

FLOAT64_SIZES = (
    (64, 64, 32, 32, 256, 3, 2, 2),
    (64, 64, 32, 32, 128, 4, 2, 2),
    (128, 64, 32, 32, 128, 4, 2),
    (64, 128, 32, 32, 128, 4, 2),
)
"""The same for doubles; two small blocks on a multiprocessor fill each other's pauses."""

BIT_SIZES = ((128, 128, 64, 64, 128, 3, 2, 2), *FINAL_SIZES[2:])
"""The same for bits, whose products take so little time that two blocks have to fill each other's pauses."""

SIZES_OF_TYPE = {
    "float64": FLOAT64_SIZES,
    **dict.fromkeys(("float8_e4m3", "float8_e5m2"), FLOAT8_SIZES),
    **dict.fromkeys(("int8", "uint8"), FINAL_SIZES[1:]),
    "bit1": BIT_SIZES,
    **dict.fromkeys(("int4", "uint4"), FINAL_SIZES[2:]),
}
"""Where registers do not suffice for all of `FINAL_SIZES`."""

ENOUGH_BLOCKS = 100
"""Blocks from which a large GPU is kept busy."""


def usual(problem: Problem) -> tuple[Config, ...]:
    """The configurations of mma-final that are always tried, for the problem's types."""
    return tuple(_final(problem, *sizes) for sizes in SIZES_OF_TYPE.get(problem.a.dtype.name, FINAL_SIZES))


def _final(
    problem: Problem, bm: int, bn: int, wm: int, wn: int, depth_bytes: int, stages: int, sets: int, min_blocks: int = 1
) -> dict[str, int]:
    tile = _tile(problem)
    depth = depth_bytes * 8 // problem.a.dtype.bits
    sizes = {"BM": bm, "BN": bn, "BK": depth, "WM": wm, "WN": wn} | {key: tile[key] for key in SHAPE_KEYS}
    return {**sizes, "STAGES": stages, "SETS": sets, "GROUP": 8, "MIN_BLOCKS": min_blocks}


def _default_final(problem: Problem) -> Config:
    """The first of the usual sizes that is legal and has enough blocks, else the last that is legal."""
    legal = [config for config in usual(problem) if _final_illegal(problem, config) is None]
    large = (config for config in legal if blocks(problem, config) >= ENOUGH_BLOCKS)
    return next(large, (legal or list(usual(problem)))[-1])


def _final_candidates(problem: Problem) -> tuple[Config, ...]:
    """The usual sizes, then every tile, depth and ring that is legal, then other groups, sets and instructions."""
    found = list(usual(problem))
    extents, warps = (64, 128, 192, 256), (32, 64, 96, 128)
    for bm, bn, wm, wn, depth, stages in product(extents, extents, warps, warps, (64, 128, 256), (2, 3, 4, 5, 6)):
        if bm % wm == 0 and bn % wn == 0 and 2 <= bm * bn // (wm * wn) <= 16:
            sets = 1 if wm * wn > 64 * 64 else 2
            found.append(_final(problem, bm, bn, wm, wn, depth, stages, sets))
    found += [{**config, "MIN_BLOCKS": 2} for config in list(found)]
    shapes = INSTRUCTIONS.get(problem.a.dtype.name, ())[1:]
    for change in ({"GROUP": 1}, {"GROUP": 4}, {"GROUP": 16}, {"SETS": 1}, *map(_shape_keys, shapes)):
        found += [{**config, **change} for config in usual(problem)]
    unique = {tuple(config.items()): config for config in found}
    return tuple(config for config in unique.values() if _final_illegal(problem, config) is None)


# --- rungs --------------------------------------------------------------------------------------------------------


def _linear_grid(problem: Problem, config: Config) -> Dim3:
    return (blocks(problem, config), 1, 1)


def _threads(problem: Problem, config: Config) -> Dim3:
    return (Geometry(problem, config).threads, 1, 1)


def _rung(
    name: str,
    idea: str,
    previous: str,
    *,
    default: Callable[[Problem], Config],
    geometry: Callable[[Problem, Config], Geometry],
    keys: tuple[str, ...] = TILE_KEYS,
    candidates: Callable[[Problem], tuple[Config, ...]] | None = None,
    vectors: bool = True,
    dynamic: bool = False,
) -> Rung:
    kernel = name.replace("-", "_")
    ring = tuple(key for key in keys if key not in SIZE_KEYS)
    return Rung(
        name=name,
        family="mma",
        idea=idea,
        file=f"mma/{kernel.removeprefix('mma_')}.cuh",
        previous=previous,
        min_arch=80,
        dtypes=tuple(INSTRUCTIONS),
        default_config=default,
        candidates=candidates or _tile_candidates(default),
        illegal=_illegal(keys, geometry, dynamic=dynamic),
        name_expression=lambda problem, config: _name(kernel, problem, config, vectors=vectors, ring=ring),
        grid=_linear_grid,
        threads=_threads,
        dynamic_shared_bytes=lambda problem, config: geometry(problem, config).shared_bytes if dynamic else 0,
        capability=capability,
    )


MMA_RUNGS: tuple[Rung, ...] = (
    _rung(
        "mma-naive",
        "ldmatrix and mma.sync by hand on tiles in shared memory, staged one element at a time",
        "wmma-final",
        default=_tile,
        geometry=_one_stage,
        vectors=False,
    ),
    _rung(
        "mma-vectorized",
        "operands are staged 16 bytes at a time, the loops unrolled",
        "mma-naive",
        default=_tile,
        geometry=_one_stage,
    ),
    _rung(
        "mma-swizzled",
        "16-byte pieces of each shared row change places by XOR: no bank conflicts, no padding",
        "mma-vectorized",
        default=_tile,
        geometry=_one_stage,
    ),
    _rung(
        "mma-double-buffer",
        "cp.async into one of two buffers while the other is multiplied",
        "mma-swizzled",
        default=_tile,
        geometry=_two_stages,
        dynamic=True,
    ),
    _rung(
        "mma-multistage",
        "a ring of stages, two sets of fragments, every address worked out before the loop",
        "mma-double-buffer",
        default=lambda problem: _ring(problem, 3),
        geometry=_stages,
        keys=RING_KEYS,
        dynamic=True,
    ),
    _rung(
        "mma-final",
        "fragments run ahead across stages, no branch in the main loop, grouped blocks, tuned sizes",
        "mma-multistage",
        default=_default_final,
        candidates=_final_candidates,
        geometry=_final_geometry,
        keys=FINAL_KEYS,
        dynamic=True,
    ),
)
"""The mma family in ladder order."""
