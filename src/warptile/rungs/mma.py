"""The ``mma.sync`` rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar

from warptile.device import HOPPER, REFERENCE, DeviceLimits
from warptile.launch.params import Params
from warptile.problem import Problem
from warptile.rungs import mma_cost
from warptile.rungs.batch import for_batches
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks, keeps_order, padding_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.mma_tiles import (
    INSTRUCTIONS,
    MmaResources,
    capability,
    common_reasons,
    copies_reason,
    min_blocks,
    mma_k,
    sets_reason,
)
from warptile.rungs.rung import Rung
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
"""Types for which the compiler, without MIN_BLOCKS, chooses so few registers that it spills."""


# --- sizes --------------------------------------------------------------------------------------------------------


def _shape_keys(shape: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(SHAPE_KEYS, shape, strict=True))


def _tile(problem: Problem, bm: int = 128, bn: int = 128, wm: int = 64, wn: int = 32) -> dict[str, int]:
    """A tile with 128 bytes of K: 64 halves. Doubles, and 8-bit floats, which are widened, take twice the registers
    and get half of the tile."""
    shape = INSTRUCTIONS.get(problem.a.dtype.name, INSTRUCTIONS["float16"])[0]
    if problem.a.dtype.name in WIDE:
        bn, wm = bn // 2, wm // 2
    sizes = {"BM": bm, "BN": bn, "BK": 128 * 8 // problem.a.dtype.bits, "WM": wm, "WN": wn}
    return {**sizes, **_shape_keys(shape), "MIN_BLOCKS": 1 if problem.a.dtype.name in ALL_REGISTERS else 0}


def _ring(problem: Problem, stages: int) -> dict[str, int]:
    """At least two MMA-K blocks, so that fragments can be double-buffered."""
    tile = _tile(problem)
    return {**tile, "BK": max(tile["BK"], 2 * mma_k(problem, tile)), "STAGES": stages, "MIN_BLOCKS": tile["MIN_BLOCKS"]}


# --- template arguments -------------------------------------------------------------------------------------------


def operation_type(problem: Problem, config: Config) -> str:
    """The kernels' operation: element, accumulator and output types, layouts, and the instruction's FM and FK."""
    types = f"{problem.a.dtype.cuda}, {problem.accumulator.cuda}, {problem.d.dtype.cuda}"
    column_major = ", ".join("true" if operand.major == "col" else "false" for operand in (problem.a, problem.b))
    return f"warptile::MmaOperation<{types}, {column_major}, {config['FM']}, {config['FK']}>"


def tile_type(problem: Problem, config: Config) -> str:
    """The kernels' tile, its K extent in units."""
    k_units = config["BK"] // elements_per_unit(problem)
    return f"warptile::Tile<{config['BM']}, {config['BN']}, {k_units}, {config['WM']}, {config['WN']}>"


def access_type(problem: Problem, *, vectors: bool = True) -> str:
    """Bytes that one access to A, to B, and to C and D may move; without ``vectors`` a unit of A or B."""
    unit, widest = unit_bytes(problem), VECTOR_BYTES if vectors else 1
    a, b = (max(unit, min(operand.alignment_bytes, widest)) for operand in (problem.a, problem.b))
    return f"warptile::AccessBytes<{a}, {b}, {output_width(problem) * problem.d.dtype.bits // 8}>"


# --- configurations -----------------------------------------------------------------------------------------------


TILE_SIZES = ((128, 128, 64, 32), (128, 128, 64, 64), (128, 128, 32, 64), (128, 64, 32, 32), (64, 64, 32, 32))
"""Tiles that rungs without a list of their own try: BM, BN, WM, WN."""

FINAL_SIZES = (
    (256, 128, 64, 64, 128, 3, 2),
    (128, 256, 64, 64, 128, 3, 2),
    (128, 128, 64, 32, 128, 4, 2),
    (128, 64, 32, 32, 128, 4, 2),
    (64, 64, 32, 32, 128, 4, 2),
)
"""Sizes that are always tried: BM, BN, WM, WN, bytes of K (128: 64 halves), STAGES, SETS, MIN_BLOCKS if not 1."""

FLOAT8_SIZES = ((128, 64, 32, 32, 128, 4, 2), (64, 128, 32, 32, 128, 4, 2), (64, 64, 32, 32, 128, 4, 2))
"""The same for 8-bit floats."""

FLOAT64_SIZES = (
    (64, 64, 32, 32, 256, 3, 2, 2),
    (64, 64, 32, 32, 128, 4, 2, 2),
    (128, 64, 32, 32, 128, 4, 2),
    (64, 128, 32, 32, 128, 4, 2),
)
"""The same for doubles; two small CTAs on an SM hide each other's latencies."""

RANKED_FLOAT64_SIZES = (
    *FLOAT64_SIZES[:2],
    (64, 64, 32, 32, 128, 3, 2, 3),
    (64, 64, 32, 16, 128, 3, 2, 2),
    (64, 32, 32, 16, 128, 3, 2, 4),
    (32, 64, 16, 32, 128, 4, 2, 3),
)
"""Those of which mma-final takes the one that `mma_cost` predicts to be the fastest."""

SMALLEST_OF_DOUBLES = (8, 8, 4)
"""The one instruction for doubles before Hopper."""

FEW_REGISTERS = 168
"""Registers of a thread with which kernels for doubles may spill: those above with three or four CTAs on an SM, or with
eight warps in each of two, keep some words in local memory in some layouts. They are the fastest for short K all
the same (2026-11-30, no record)."""

BIT_SIZES = ((128, 128, 64, 64, 128, 3, 2, 2), *FINAL_SIZES[2:])
"""The same for bits, whose MMAs take so little time that two CTAs on an SM have to hide each other's latencies."""

SIZES_OF_TYPE = {
    "float64": FLOAT64_SIZES,
    **dict.fromkeys(("float8_e4m3", "float8_e5m2"), FLOAT8_SIZES),
    **dict.fromkeys(("int8", "uint8"), FINAL_SIZES[1:]),
    "bit1": BIT_SIZES,
    **dict.fromkeys(("int4", "uint4"), FINAL_SIZES[2:]),
}
"""Where registers do not suffice for all of `FINAL_SIZES`."""

USUAL_BK_OF_DOUBLES = 16
"""K extent whose zeros behind K are those of all configurations with batch invariance."""

BUSY_SHARE = 0.75
"""A tile is the default where D has one for so large a share of the SMs."""


def usual(problem: Problem) -> tuple[Config, ...]:
    """The configurations of mma-final that are always tried, for the problem's types."""
    return tuple(_final(problem, *sizes) for sizes in SIZES_OF_TYPE.get(problem.a.dtype.name, FINAL_SIZES))


def shape_of_doubles(device: DeviceLimits) -> tuple[int, int, int]:
    """The instruction for doubles: Hopper's, or the one that GPUs before it have."""
    return INSTRUCTIONS["float64"][0] if device.generation.capability >= HOPPER else SMALLEST_OF_DOUBLES


def ranked(problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
    """The configurations of mma-final that a plan compares for doubles."""
    shape = _shape_keys(shape_of_doubles(device))
    return tuple({**_final(problem, *sizes), **shape} for sizes in RANKED_FLOAT64_SIZES)


def first_busy(rung: Rung, problem: Problem, configs: tuple[Config, ...], device: DeviceLimits) -> Config:
    """The first of ``configs`` that is legal and keeps enough SMs busy, else the last that is legal, else the last."""
    large = (config for config in configs if blocks(problem, config) >= BUSY_SHARE * device.sms)
    for config in (*large, *reversed(configs)):
        if rung.illegal(problem, config, device) is None:
            return config
    return configs[-1]


def _final(
    problem: Problem, bm: int, bn: int, wm: int, wn: int, k_bytes: int, stages: int, sets: int, min_blocks: int = 1
) -> dict[str, int]:
    tile = _tile(problem)
    bk = k_bytes * 8 // problem.a.dtype.bits
    sizes = {"BM": bm, "BN": bn, "BK": bk, "WM": wm, "WN": wn} | {key: tile[key] for key in SHAPE_KEYS}
    return {**sizes, "STAGES": stages, "SETS": sets, "GROUP": 8, "MIN_BLOCKS": min_blocks}


# --- rungs --------------------------------------------------------------------------------------------------------


SWIZZLED = Mechanism(narrow_rows=True, swizzled=True)
"""``cp.async`` into swizzled rows."""


class MmaRung(Rung):
    """What the mma.sync rungs share: one CTA for each tile of D, tiles of CTA, K, warp and instruction.

    Attributes:
        keys: its tunables; the kernel takes those behind the tile's as compile-time values.
        stages: stages in shared memory, or 0 where the configuration says.
        fragment_sets: sets of fragments that a thread holds.
        vectors: operands are staged 16 bytes at a time.
        dynamic: its stages are in dynamic shared memory.
        eight_bits: it writes 8-bit floats.
    """

    family: ClassVar[str] = "mma"
    min_arch = 80
    dtypes = tuple(INSTRUCTIONS)
    eight_bits = False

    def __init__(
        self,
        name: str,
        idea: str,
        previous: str,
        *,
        keys: tuple[str, ...] = TILE_KEYS,
        stages: int = 1,
        vectors: bool = True,
        dynamic: bool = False,
        mechanism: Mechanism = SWIZZLED,
    ) -> None:
        self.name, self.idea, self.previous = name, idea, previous
        self.keys, self.stages, self.vectors, self.dynamic = keys, stages, vectors, dynamic
        self.mechanism = mechanism

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return _tile(problem)

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The default with other CTA and warp tiles, then with the type's other instructions."""
        base = {**self.default_config(problem, device), "MIN_BLOCKS": 1}
        shapes = INSTRUCTIONS.get(problem.a.dtype.name, ())[1:]
        tiles = [{**base, "BM": bm, "BN": bn, "WM": wm, "WN": wn} for bm, bn, wm, wn in TILE_SIZES]
        return (*tiles, *({**base, **_shape_keys(shape)} for shape in shapes))

    def resources(self, problem: Problem, config: Config) -> MmaResources:
        """What a CTA of a configuration takes of an SM."""
        return MmaResources(problem, config, stages=self.stages)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            common_reasons(problem, config, self.keys, eight_bits=self.eight_bits, batches=self.batches)
            or (stages_reason(config) if "STAGES" in self.keys else None)
            or (sets_reason(problem, config) if "SETS" in self.keys else None)
            or resource_reason(
                self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES if self.dynamic else MAX_STATIC_SHARED_BYTES
            )
        )

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view, resources = View(problem), self.resources(problem, config)
        types = (
            ("OPERATION", with_epilogue(operation_type(problem, config), problem)),
            ("TILE", tile_type(problem, config)),
            ("ACCESS", access_type(problem, vectors=self.vectors)),
        )
        tuned = {**config, "MIN_BLOCKS": min_blocks(problem, config)}
        values = tuple((key, tuned[key]) for key in self.keys if key not in SIZE_KEYS)
        return KernelSpec(
            problem,
            config,
            view,
            Instance(self.file, self.template, types, values),
            grid=(blocks(problem, config), 1, 1),
            block=(resources.threads, 1, 1),
            params=Params(gemm_members(view)),
            dynamic_shared_bytes=resources.shared_bytes if self.dynamic else 0,
            capability=capability(problem, config),
        )


class MmaMultistage(MmaRung):
    """A pipeline of STAGES stages, two sets of fragments."""

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return _ring(problem, 3)

    def resources(self, problem: Problem, config: Config) -> MmaResources:
        """What a CTA of a configuration takes of an SM."""
        return MmaResources(problem, config, stages=config["STAGES"], fragment_sets=2)


class MmaFinal(MmaRung):
    """All of it, tuned."""

    batch_invariant = True
    batches = True
    eight_bits = True

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The first of the usual sizes that is legal and keeps enough SMs busy, else the last that is legal; of doubles
        the one that is predicted to be the fastest."""
        if not self.ranks(problem):
            return first_busy(self, problem, usual(problem), device)
        configs = mma_cost.fastest_first(problem, ranked(problem, device), device.sms)
        return next((config for config in configs if self.illegal(problem, config, device) is None), configs[0])

    def ranks(self, problem: Problem) -> bool:
        """As `Rung.ranks`: of float64."""
        return problem.a.dtype.name == "float64"

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The usual sizes, then every tile, K extent and pipeline that is legal, then other groups, sets and
        instructions."""
        found = list(ranked(problem, device) if self.ranks(problem) else usual(problem))
        extents, warps = (64, 128, 192, 256), (32, 64, 96, 128)
        for bm, bn, wm, wn, k_bytes, stages in product(extents, extents, warps, warps, (64, 128, 256), (2, 3, 4, 5, 6)):
            if bm % wm == 0 and bn % wn == 0 and 2 <= bm * bn // (wm * wn) <= 16:
                sets = 1 if wm * wn > 64 * 64 else 2
                found.append(_final(problem, bm, bn, wm, wn, k_bytes, stages, sets))
        # Two CTAs on an SM leave each thread no more registers than one does.
        found = [config for config in found if self.illegal(problem, config, device) is None]
        found += [{**config, "MIN_BLOCKS": 2} for config in list(found)]
        shapes = INSTRUCTIONS.get(problem.a.dtype.name, ())[1:]
        for change in ({"GROUP": 1}, {"GROUP": 4}, {"GROUP": 16}, {"SETS": 1}, *map(_shape_keys, shapes)):
            found += [{**config, **change} for config in usual(problem)]
        unique = {tuple(config.items()): config for config in found}
        return tuple(config for config in unique.values() if self.illegal(problem, config, device) is None)

    def looked_at(self, problem: Problem) -> int:
        """As `Rung.looked_at`."""
        return len(RANKED_FLOAT64_SIZES) if self.ranks(problem) else super().looked_at(problem)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = super().illegal(problem, config, device) or _order_reason(problem, config)
        return reason or copies_reason(problem, config, self.resources(problem, config))

    def compared_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float | None:
        """As `Rung.compared_us`: of float64."""
        return mma_cost.terms_us(problem, config, device.sms)[1] if self.ranks(problem) else None

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        if self.ranks(problem) and self.resources(problem, config).register_limit <= FEW_REGISTERS:
            one = replace(one, instance=replace(one.instance, may_spill=True))
        return for_batches(one)

    def resources(self, problem: Problem, config: Config) -> MmaResources:
        """What a CTA of a configuration takes of an SM."""
        return MmaResources(problem, config, stages=config["STAGES"], fragment_sets=2 if config["SETS"] == 2 else 0)


def _order_reason(problem: Problem, config: Config) -> str | None:
    """Why a configuration adds in another order than batch invariance asks for, or None: it has another instruction, or
    doubles, whose sums are chains of multiply-adds, are filled up with other zeros."""
    shape = INSTRUCTIONS[problem.a.dtype.name][0]
    given = tuple(config[key] for key in SHAPE_KEYS)
    if keeps_order(problem) and given != shape:
        return (
            f"FM, FN, FK are {', '.join(map(str, given))}; with batch_invariant=True the instruction is always "
            f"{', '.join(map(str, shape))}"
        )
    return padding_reason(problem, config, USUAL_BK_OF_DOUBLES) if problem.a.dtype.name == "float64" else None


MMA_RUNGS: tuple[Rung, ...] = (
    MmaRung(
        "mma-naive",
        "ldmatrix and mma.sync instead of WMMA, tiles staged one element at a time",
        "wmma-final",
        vectors=False,
        mechanism=Mechanism(vector=False, asynchronous=False, narrow_rows=True, loads_in_flight=(1, 1)),
    ),
    MmaRung(
        "mma-vectorized",
        "vectorized (16-byte) staging, unrolled loops",
        "mma-naive",
        mechanism=Mechanism(asynchronous=False, narrow_rows=True),
    ),
    MmaRung(
        "mma-swizzled",
        "XOR swizzle of 16-byte chunks: no bank conflicts, no padding",
        "mma-vectorized",
        mechanism=Mechanism(asynchronous=False, narrow_rows=True, swizzled=True),
    ),
    MmaRung(
        "mma-double-buffer",
        "cp.async fills one of two stages while the other is multiplied",
        "mma-swizzled",
        stages=2,
        dynamic=True,
        mechanism=Mechanism(narrow_rows=True, swizzled=True, stages=2),
    ),
    MmaMultistage(
        "mma-multistage",
        "multistage pipeline, double-buffered fragments, precomputed addresses",
        "mma-double-buffer",
        keys=RING_KEYS,
        dynamic=True,
    ),
    MmaFinal(
        "mma-final",
        "overlap across stages, branch-free mainloop, larger warp tiles, tuned",
        "mma-multistage",
        keys=FINAL_KEYS,
        dynamic=True,
        mechanism=replace(SWIZZLED, overlaps_stages=True),
    ),
)
"""The mma family in ladder order."""
