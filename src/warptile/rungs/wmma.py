"""The WMMA rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from warptile.launch import Dim3
from warptile.problem import Problem
from warptile.rungs.legality import blocks
from warptile.rungs.rung import Config, Rung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    MAX_STATIC_SHARED_BYTES,
    elements_per_unit,
    output_width,
    resource_reason,
    stages_reason,
    unit_bytes,
    width,
)
from warptile.rungs.wmma_tiles import (
    FRAGMENTS,
    Geometry,
    capability,
    common_reasons,
    output_reason,
    pad_reason,
    sets_reason,
    tiling_reason,
    vector_reason,
)

SHAPE_KEYS = ("FM", "FN", "FK")
TILE_KEYS = ("BM", "BN", "BK", "WM", "WN", *SHAPE_KEYS)
PADDED_KEYS = (*TILE_KEYS, "PAD")
RING_KEYS = (*PADDED_KEYS, "STAGES")
FINAL_KEYS = (*RING_KEYS, "SETS", "GROUP", "ZIGZAG", "MIN_BLOCKS")


# --- sizes --------------------------------------------------------------------------------------------------------


def _shape(problem: Problem) -> dict[str, int]:
    fm, fn, fk = FRAGMENTS[problem.a.dtype.name][0] if problem.a.dtype.name in FRAGMENTS else (16, 16, 16)
    return {"FM": fm, "FN": fn, "FK": fk}


def _pad(problem: Problem) -> int:
    """16 bytes in elements: 8 halves."""
    return 128 // problem.a.dtype.bits


def _depth(problem: Problem, row_bytes: int = 64) -> int:
    """``row_bytes`` of depth in elements: 32 halves to 64 bytes."""
    return row_bytes * 8 // problem.a.dtype.bits


def _tile(problem: Problem, bm: int = 128, bn: int = 128, wm: int = 64, wn: int = 32) -> dict[str, int]:
    return {"BM": bm, "BN": bn, "BK": _depth(problem), "WM": wm, "WN": wn, **_shape(problem)}


def _padded(problem: Problem) -> dict[str, int]:
    return {**_tile(problem), "PAD": _pad(problem)}


def _ring(problem: Problem, stages: int) -> dict[str, int]:
    return {**_padded(problem), "STAGES": stages}


def _final(problem: Problem, *sizes: int, depth_bytes: int, stages: int, sets: int = 2) -> dict[str, int]:
    choice = {**_tile(problem, *sizes), "BK": _depth(problem, depth_bytes), "PAD": _pad(problem)}
    return {**choice, "STAGES": stages, "SETS": sets, "GROUP": 8, "ZIGZAG": 1, "MIN_BLOCKS": 1}


# --- template arguments -------------------------------------------------------------------------------------------


def _operation(problem: Problem, config: Config) -> str:
    types = f"{problem.a.dtype.cuda}, {problem.accumulator.cuda}, {problem.d.dtype.cuda}"
    column_major = "true" if problem.b.major == "col" else "false"
    return f"warptile::Operation<{types}, {column_major}, {config['FM']}, {config['FN']}, {config['FK']}>"


def _tile_type(problem: Problem, config: Config) -> str:
    depth = config["BK"] // elements_per_unit(problem)
    return f"warptile::Tile<{config['BM']}, {config['BN']}, {depth}, {config['WM']}, {config['WN']}>"


def _widths(problem: Problem) -> str:
    each = unit_bytes(problem)
    return f"warptile::Widths<{width(problem.a, each)}, {width(problem.b, each)}, {output_width(problem)}>"


def _name(kernel: str, problem: Problem, config: Config, *, loads: bool = True, ring: tuple[str, ...] = ()) -> str:
    """The instantiation of ``kernel``; ``loads`` if it takes vector widths, ``ring`` the keys that follow."""
    arguments = [_operation(problem, config), _tile_type(problem, config)]
    if loads:
        arguments.append(_widths(problem))
    for key in ring:
        value = config[key] // elements_per_unit(problem) if key == "PAD" else config[key]
        arguments.append(("false", "true")[value] if key == "ZIGZAG" else str(value))
    return f"warptile::{kernel}<{', '.join(arguments)}>"


# --- legality -----------------------------------------------------------------------------------------------------


def _geometry(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config, fragment_sets=2 if "STAGES" in config else 1)


def _final_geometry(problem: Problem, config: Config) -> Geometry:
    return Geometry(problem, config, whole_rows=True, fragment_sets=2 if config["SETS"] == 2 else 0)


def _naive_as_tile(config: Config) -> dict[str, int]:
    """The naive rung's block as a tile: a warp tile is one fragment, as deep as one fragment."""
    return {**config, "BK": config["FK"], "WM": config["FM"], "WN": config["FN"]}


def _naive_reason(config: Config) -> str | None:
    reason = tiling_reason(_naive_as_tile(config))
    threads = config["BM"] // config["FM"] * (config["BN"] // config["FN"]) * 32
    if reason is None and threads > 1024:
        return f"BM x BN is {threads // 32} fragments, one a warp; a block has at most 32 warps"
    return reason


def _naive_illegal(problem: Problem, config: Config) -> str | None:
    return common_reasons(problem, config, ("BM", "BN", *SHAPE_KEYS)) or _naive_reason(config)


def _shared_illegal(problem: Problem, config: Config) -> str | None:
    reason = common_reasons(problem, config, PADDED_KEYS)
    if reason is not None:
        return reason
    fixed = _padded(problem)
    for key in ("BM", "BN", "BK", "WM", "WN", "PAD"):
        if config[key] != fixed[key]:
            return f"{key} is {config[key]}; this rung's only tile has {key}={fixed[key]} (wmma-block takes others)"
    return None


def _tiled_illegal(
    keys: tuple[str, ...], *, loads: bool, dynamic: bool = False
) -> Callable[[Problem, Config], str | None]:
    """The constraints of the rungs between wmma-shared and wmma-final."""
    most = MAX_DYNAMIC_SHARED_BYTES if dynamic else MAX_STATIC_SHARED_BYTES

    def illegal(problem: Problem, config: Config) -> str | None:
        return (
            common_reasons(problem, config, keys)
            or tiling_reason(config)
            or (pad_reason(problem, config) if "PAD" in keys else None)
            or (stages_reason(config) if "STAGES" in keys else None)
            or (vector_reason(problem, config) if loads else None)
            or resource_reason(_geometry(problem, config), most)
        )

    return illegal


def _final_illegal(problem: Problem, config: Config) -> str | None:
    return (
        common_reasons(problem, config, FINAL_KEYS)
        or (None if config["ZIGZAG"] in (0, 1) else f"ZIGZAG is {config['ZIGZAG']}; it is 0 or 1")
        or tiling_reason(config)
        or sets_reason(config)
        or pad_reason(problem, config)
        or stages_reason(config)
        or vector_reason(problem, config)
        or output_reason(problem, config)
        or resource_reason(_final_geometry(problem, config), MAX_DYNAMIC_SHARED_BYTES)
    )


# --- configurations -----------------------------------------------------------------------------------------------

FINAL_SIZES = (
    (64, 64, 32, 32, 64, 4, 2),
    (64, 128, 32, 64, 64, 4, 2),
    (128, 128, 64, 32, 64, 4, 2),
    (128, 128, 64, 64, 64, 4, 2),
    (128, 128, 64, 64, 128, 3, 2),
    (128, 256, 64, 64, 64, 4, 2),
    (256, 128, 64, 64, 64, 4, 2),
    (128, 256, 64, 64, 128, 3, 2),
    (256, 128, 64, 64, 128, 3, 2),
)
"""This project's nine configurations of wmma-final: BM, BN, WM, WN, bytes of depth (64 are 32 halves), STAGES, SETS."""

ENOUGH_BLOCKS = {8: 100, 7: 100, 5: 100, 2: 100, 0: 0}
"""Default choices among the nine, best first, each with the number of blocks from which a large GPU is kept busy."""


def nine(problem: Problem) -> tuple[Config, ...]:
    """The nine configurations of wmma-final that are always tried, for the problem's types."""
    return tuple(
        _final(problem, *sizes, depth_bytes=depth, stages=stages, sets=sets)
        for *sizes, depth, stages, sets in FINAL_SIZES
    )


def _default_final(problem: Problem) -> Config:
    """The first of the default choices that is legal and has enough blocks.

    Shared memory is what the large tiles are ranked by: reading fragments costs it 1 / WM + 1 / WN a multiply-add,
    filling stages 1 / BM + 1 / BN, and more with 64 bytes of depth, whose padded rows fill banks badly, than with 128.
    """
    choices = nine(problem)
    for index, enough in ENOUGH_BLOCKS.items():
        config = choices[index]
        if _final_illegal(problem, config) is None and blocks(problem, config) >= enough:
            return config
    return choices[0]


def _final_candidates(problem: Problem) -> tuple[Config, ...]:
    """The nine, then every tile, depth and number of stages that is legal, then other groups for the nine."""
    found = list(nine(problem))
    extents, warps = (64, 128, 192, 256), (32, 64, 96, 128)
    for bm, bn, wm, wn, depth, stages in product(extents, extents, warps, warps, (32, 64, 128), (2, 3, 4, 5)):
        if 2 <= bm * bn // (wm * wn) <= 16:
            sets = 1 if wm * wn > 64 * 64 else 2
            found.append(_final(problem, bm, bn, wm, wn, depth_bytes=depth, stages=stages, sets=sets))
    found += [{**config, "MIN_BLOCKS": 2} for config in list(found)]
    for change in ({"GROUP": 1}, {"GROUP": 4}, {"GROUP": 16}, {"ZIGZAG": 0}, {"SETS": 1}):
        found += [{**config, **change} for config in nine(problem)]
    unique = {tuple(config.items()): config for config in found}
    return tuple(config for config in unique.values() if _final_illegal(problem, config) is None)


def _naive_candidates(problem: Problem) -> tuple[Config, ...]:
    shape = _shape(problem)
    return tuple({"BM": shape["FM"] * m, "BN": shape["FN"] * n, **shape} for m, n in ((2, 2), (1, 1), (1, 4), (4, 4)))


def _tile_candidates(default: Callable[[Problem], Config]) -> Callable[[Problem], tuple[Config, ...]]:
    """The default with other block and warp tiles."""
    sizes = ((128, 128, 64, 32), (128, 128, 64, 64), (128, 128, 32, 64), (128, 64, 32, 32), (64, 64, 32, 32))

    def candidates(problem: Problem) -> tuple[Config, ...]:
        base = default(problem)
        return tuple({**base, "BM": bm, "BN": bn, "WM": wm, "WN": wn} for bm, bn, wm, wn in sizes)

    return candidates


# --- rungs --------------------------------------------------------------------------------------------------------


def _linear_grid(problem: Problem, config: Config) -> Dim3:
    return (blocks(problem, config), 1, 1)


def _threads(problem: Problem, config: Config) -> Dim3:
    return (_geometry(problem, config).threads, 1, 1)


def _no_dynamic_shared(problem: Problem, config: Config) -> int:
    return 0


def _rung(
    name: str,
    idea: str,
    previous: str | None,
    *,
    default: Callable[[Problem], Config],
    illegal: Callable[[Problem, Config], str | None],
    name_expression: Callable[[Problem, Config], str],
    min_arch: int = 80,
    candidates: Callable[[Problem], tuple[Config, ...]] | None = None,
    threads: Callable[[Problem, Config], Dim3] = _threads,
    dynamic_shared_bytes: Callable[[Problem, Config], int] = _no_dynamic_shared,
) -> Rung:
    return Rung(
        name=name,
        family="wmma",
        idea=idea,
        file=f"wmma/{name.removeprefix('wmma-').replace('-', '_')}.cuh",
        previous=previous,
        min_arch=min_arch,
        dtypes=tuple(FRAGMENTS),
        default_config=default,
        candidates=candidates or _tile_candidates(default),
        illegal=illegal,
        name_expression=name_expression,
        grid=_linear_grid,
        threads=threads,
        dynamic_shared_bytes=dynamic_shared_bytes,
        capability=lambda problem, config: capability(problem),
    )


WMMA_RUNGS: tuple[Rung, ...] = (
    _rung(
        "wmma-naive",
        "one warp computes one fragment of D, its operands straight from global memory",
        "simt-half2",
        default=lambda problem: _naive_candidates(problem)[0],
        candidates=_naive_candidates,
        illegal=_naive_illegal,
        name_expression=lambda problem, config: _name("wmma_naive", problem, _naive_as_tile(config), loads=False),
        threads=lambda problem, config: _threads(problem, _naive_as_tile(config)),
        min_arch=70,
    ),
    _rung(
        "wmma-shared",
        "a block of 128 x 128 stages its operands in padded shared memory, each warp owns several fragments",
        "wmma-naive",
        default=_padded,
        candidates=lambda problem: (_padded(problem),),
        illegal=_shared_illegal,
        name_expression=lambda problem, config: f"warptile::wmma_shared<{_operation(problem, config)}>",
        min_arch=70,
    ),
    _rung(
        "wmma-block",
        "three levels of tiling as parameters: block, warp, fragment",
        "wmma-shared",
        default=_tile,
        illegal=_tiled_illegal(TILE_KEYS, loads=False),
        name_expression=lambda problem, config: _name("wmma_block", problem, config, loads=False),
        min_arch=70,
    ),
    _rung(
        "wmma-vectorized",
        "16-byte loads from global memory",
        "wmma-block",
        default=_tile,
        illegal=_tiled_illegal(TILE_KEYS, loads=True),
        name_expression=lambda problem, config: _name("wmma_vectorized", problem, config),
        min_arch=70,
    ),
    _rung(
        "wmma-async",
        "cp.async: from global to shared memory past the registers",
        "wmma-vectorized",
        default=_tile,
        illegal=_tiled_illegal(TILE_KEYS, loads=True),
        name_expression=lambda problem, config: _name("wmma_async", problem, config),
    ),
    _rung(
        "wmma-padded",
        "16 unused bytes (8 halves) after each shared row: no bank conflicts",
        "wmma-async",
        default=_padded,
        illegal=_tiled_illegal(PADDED_KEYS, loads=True),
        name_expression=lambda problem, config: _name("wmma_padded", problem, config, ring=("PAD",)),
    ),
    _rung(
        "wmma-multistage",
        "a ring of stages: copies run ahead of the products",
        "wmma-padded",
        default=lambda problem: _ring(problem, 2),
        illegal=_tiled_illegal(RING_KEYS, loads=True),
        name_expression=lambda problem, config: _name("wmma_multistage", problem, config, ring=("PAD", "STAGES")),
    ),
    _rung(
        "wmma-double-buffer",
        "two sets of fragments: loads from shared memory run ahead of the products",
        "wmma-multistage",
        default=lambda problem: _ring(problem, 2),
        illegal=_tiled_illegal(RING_KEYS, loads=True),
        name_expression=lambda problem, config: _name("wmma_double_buffer", problem, config, ring=("PAD", "STAGES")),
    ),
    _rung(
        "wmma-dynamic-smem",
        "more than 48 KB of shared memory: a longer ring",
        "wmma-double-buffer",
        default=lambda problem: _ring(problem, 4),
        illegal=_tiled_illegal(RING_KEYS, loads=True, dynamic=True),
        name_expression=lambda problem, config: _name("wmma_dynamic_smem", problem, config, ring=("PAD", "STAGES")),
        dynamic_shared_bytes=lambda problem, config: _geometry(problem, config).shared_bytes,
    ),
    _rung(
        "wmma-final",
        "overlap across stages, zig-zag order, vector epilogue, grouped blocks, tuned sizes",
        "wmma-dynamic-smem",
        default=_default_final,
        candidates=_final_candidates,
        illegal=_final_illegal,
        name_expression=lambda problem, config: _name(
            "wmma_final", problem, config, ring=("PAD", "STAGES", "SETS", "GROUP", "ZIGZAG", "MIN_BLOCKS")
        ),
        dynamic_shared_bytes=lambda problem, config: _final_geometry(problem, config).shared_bytes,
    ),
)
"""The WMMA family in ladder order."""
