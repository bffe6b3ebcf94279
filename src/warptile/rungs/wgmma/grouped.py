"""wgmma-grouped: GEMMs of groups in one launch, their extents in device memory.

It is no rung of the ladder, whose rungs all multiply the same two matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.epilogue.epilogue_program import BLOCKS_OF_A
from warptile.epilogue.fused_epilogue import Fused
from warptile.isa import wgmma
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.launch.workspace import Workspace
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import ceil_div, keys_reason
from warptile.rungs.repack import Repack, repacked
from warptile.rungs.tensor_tiles import round_up, stages_reason
from warptile.rungs.tma import map_type
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.epilogue import HELD_REGISTERS
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.tensor_maps import SWIZZLE
from warptile.rungs.wgmma.tiles import WARPGROUP

FILE, TEMPLATE = "wgmma/grouped.cuh", "wgmma_grouped"

DTYPES_TAKEN = ("bfloat16", "float16")
"""Operand types."""

FLOAT8 = ("float8_e4m3", "float8_e5m2")
"""Those of groups of rows alone: `wgmma` reads 8-bit operands along K, which groups along K would divide."""

OUTPUTS = ("bfloat16", "float16", "float32")
"""Result types."""

KEYS = ("BM", "BN", "BK", "STAGES", "STEP", "BOX", "GROUP")
"""Tunables: the tile, stages of the pipeline; columns of the tile that an instruction may have, a multiple of STEP; of
a box that TMA loads; and tiles across which groups of tiles reach. BM counts columns of the user's B with groups of
rows, BN rows of a group."""

CONSUMERS = 2
ENDS = "offsets"
"""Name of the memory that holds where groups end."""

COUNTERS = "tile counters"
"""Name of the workspace with two counters: of tiles that were taken, and of CTAs that found no more."""

MOST_SORTED = 64
"""Most groups that are sorted: groups of rows by the width of their tiles, groups along K by their extent."""

SORTED_BYTES, TILE_BYTES = 16, 24
"""Shared memory for a group, ``GroupTable``, and for the tile of a stage, ``GroupedTile``."""

K_BLOCK = 16
"""K units of an instruction on 16-bit operands: of the last K tile of a group along K as many blocks are loaded and
multiplied as the group has."""

WIDE: Config = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "STEP": 32, "BOX": 64, "GROUP": 8}
MEDIUM: Config = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 6, "STEP": 32, "BOX": 32, "GROUP": 8}
NARROW: Config = {"BM": 128, "BN": 64, "BK": 128, "STAGES": 4, "STEP": 16, "BOX": 16, "GROUP": 8}
ROW_CONFIGS: tuple[tuple[int, Config], ...] = ((160, WIDE), (64, MEDIUM), (0, NARROW))
"""Configurations for groups of rows, each for more than so many rows of a group on average."""

FLOAT8_CONFIGS: tuple[tuple[int, Config], ...] = (
    (64, {"BM": 128, "BN": 128, "BK": 128, "STAGES": 6, "STEP": 32, "BOX": 32, "GROUP": 8}),
    (0, {"BM": 128, "BN": 64, "BK": 128, "STAGES": 8, "STEP": 16, "BOX": 16, "GROUP": 8}),
)
"""The same of 8-bit floats, whose accumulators have two levels. Estimates."""

BLOCK_SCALED_CONFIGS: tuple[tuple[int, Config], ...] = (
    (64, {"BM": 128, "BN": 96, "BK": 128, "STAGES": 5, "STEP": 48, "BOX": 48, "GROUP": 8}),
    FLOAT8_CONFIGS[-1],
)
"""The same where A has scales along K: a thread has those of many rows, for which wider tiles leave no registers."""

K_CONFIGS: tuple[Config, ...] = (
    {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "STEP": 256, "BOX": 256, "GROUP": 8},
    {"BM": 128, "BN": 192, "BK": 64, "STAGES": 4, "STEP": 192, "BOX": 192, "GROUP": 8},
)
"""Configurations for groups along K: the first for results of 16 bits, which is too large for others."""


@dataclass(frozen=True)
class GroupedProblem:
    """Groups of one operand's rows, or of the K that two share, which follow each other.

    ======  ==================  ==================  ============
    along   a                   b                   d
    ======  ==================  ==================  ============
    rows    [extent, k]         [groups, k, n]      [extent, n]
    k       [m, extent]         [extent, n]         [groups, m, n]
    ======  ==================  ==================  ============

    Attributes:
        along: ``"rows"`` or ``"k"``: what groups divide.
        groups: how many there are.
        extent: rows, or k, that all groups and what is behind them have together.
        m: rows of each D, with groups along k.
        n: columns of D.
        k: extent along k, with groups of rows.
        a, b, d: operands, the batch stride that of a group. With groups of rows ``a`` is row-major; with groups along k
            ``a`` is column-major and ``b`` row-major. ``d`` is row-major.
        offset_bits: of the end of a group: 32 or 64.
        epilogue: scales of the operands, if there are some; with groups of rows. What belongs to one group's ``b`` has
            a batch stride.
    """

    along: str
    groups: int
    extent: int
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    d: Operand
    offset_bits: int
    epilogue: Fused | None = None

    def __post_init__(self) -> None:
        assert self.along in ("rows", "k"), self.along
        assert self.offset_bits in (32, 64), self.offset_bits
        assert min(self.groups, self.extent) >= 1, self
        assert self.a.major == ("row" if self.along == "rows" else "col"), self.a
        assert self.d.major == "row", self.d
        assert self.along == "rows" or self.b.major == "row", self.b
        assert self.a.dtype.name not in FLOAT8 or (self.along == "rows" and self.b.major == "col"), self
        assert self.along == "rows" or self.epilogue is None, self

    @property
    def accumulator(self) -> DType:
        """Products are added up in float32."""
        return DTYPES["float32"]

    @cached_property
    def _aligned(self) -> tuple[tuple[Operand, Repack | None], tuple[Operand, Repack | None]]:
        """A and B as TMA can read them, and how each is repacked for that."""
        of_a, of_b = (self.m, self.extent), (self.extent, self.n)
        if self.along == "rows":
            of_a, of_b = (self.extent, self.k), (self.k, self.n)
        return _aligned("A", self.a, of_a, 1), _aligned("B", self.b, of_b, self.groups)

    @cached_property
    def view(self) -> View:
        """What the kernel is given: operands that TMA cannot read are repacked. Groups of rows have their operands
        swapped, so that the instruction can be as narrow as a group has rows: their weights are A, and its columns are
        the rows of the user's ``a``.

        The view's problem is all groups of rows as one matrix, or a batch of the groups along k: `group_stride` says
        how far the weights of groups are apart.
        """
        (a, of_a), (b, of_b) = self._aligned
        name_a, name_b = ("A" if of_a is None else of_a.target), ("B" if of_b is None else of_b.target)
        repacks = tuple(each for each in (of_a, of_b) if each is not None)
        along_k = self.along == "k"
        batch = self.groups if along_k else 1
        problem = Problem(
            self.m if along_k else self.extent, self.n, self.extent if along_k else self.k, a=a,
            b=replace(b, batch_stride=0), c=None, d=self.d if batch > 1 else replace(self.d, batch_stride=0),
            accumulator=self.accumulator, batch=batch, epilogue=self.epilogue,
        )  # fmt: skip
        if along_k:
            return View(problem, name_a, name_b, repacks)
        return View(problem.swapped, name_b, name_a, repacks)

    @property
    def group_stride(self) -> int:
        """Elements from one group's B to the next, as the kernel sees it, with groups of rows."""
        (_, _), (b, _) = self._aligned
        return b.batch_stride


def _aligned(name: str, operand: Operand, extents: tuple[int, int], groups: int) -> tuple[Operand, Repack | None]:
    """The operand as TMA can read it, and how it is repacked for that, if it is.

    Matrices of groups are repacked as one with all their lines; those that are not so many lines apart have been copied
    before (`lines_follow`).
    """
    if operand.alignment_bytes == MAX_ALIGNMENT_BYTES:
        return operand, None
    rows, columns = extents
    if operand.batch_stride == 0:
        return repacked(name, operand, rows, columns)
    lines = rows if operand.major == "row" else columns
    of_all = (groups * lines, columns) if operand.major == "row" else (rows, groups * lines)
    assert lines_follow(operand, lines), operand
    seen, repack = repacked(name, replace(operand, batch_stride=0), *of_all)
    return replace(seen, batch_stride=lines * seen.leading_dimension), repack


def lines_follow(operand: Operand, lines: int) -> bool:
    """Whether the lines of one group's matrix, ``lines`` of them, follow those of the one before."""
    return operand.batch_stride == lines * operand.leading_dimension


def config_for(problem: GroupedProblem) -> Config:
    """The configuration for a problem, by the rows that its groups have on average."""
    rows = FLOAT8_CONFIGS if problem.a.dtype.name in FLOAT8 else ROW_CONFIGS
    if problem.epilogue is not None and BLOCKS_OF_A in problem.epilogue.program.block_scales:
        rows = BLOCK_SCALED_CONFIGS
    of_rows = [config for least, config in rows if problem.extent > least * problem.groups]
    candidates = K_CONFIGS if problem.along == "k" else of_rows
    return next(config for config in candidates if reason_against(problem, config) is None)


def reason_against(problem: GroupedProblem, config: Config) -> str | None:
    """None where the kernel runs in ``config``, else the reason."""
    seen = problem.view.problem
    reason = keys_reason(config, KEYS) or tiles.tile_reason(seen, config) or stages_reason(config)
    if reason is not None:
        return reason
    if config["BM"] != CONSUMERS * tiles.ROWS:
        return f"BM is {config['BM']}; each of {CONSUMERS} warpgroups has {tiles.ROWS} rows: {CONSUMERS * tiles.ROWS}"
    for name in ("STEP", "BOX"):
        if config[name] % 8 or config["BN"] % config[name]:
            return f"{name} is {config[name]}; it must be a multiple of 8 that divides BN, which is {config['BN']}"
    levels = 2 if tiles.two_level(seen) else 1
    if levels == 2 and config["BK"] != tiles.TWO_LEVEL_K:
        return f"BK is {config['BK']}; sums of 8-bit floats are promoted to float32 after each {tiles.TWO_LEVEL_K}"
    registers = config["BN"] * tiles.ROWS // WARPGROUP * (32 * levels + problem.d.dtype.bits) // 32
    if d_is_aligned(seen) and registers > HELD_REGISTERS:
        return (
            f"a thread needs {registers} registers for its part of a tile of {config['BN']} columns and of the one "
            f"that is stored meanwhile, and has {HELD_REGISTERS}; take a smaller BN"
        )
    return tiles.shared_reason(_shared_bytes(problem, config))


def _shared_bytes(problem: GroupedProblem, config: Config) -> int:
    seen = problem.view.problem
    subtiles = _subtiles(problem, config)
    output = CONSUMERS * subtiles.buffers * subtiles.bytes
    output += round_up(MOST_SORTED * SORTED_BYTES + config["STAGES"] * TILE_BYTES, 16)
    return tiles.shared_bytes(config["STAGES"], tiles.stage_bytes(seen, config), output)


def _subtiles(problem: GroupedProblem, config: Config) -> tiles.EpilogueSubtiles:
    return tiles.EpilogueSubtiles.of(problem.view.problem, {**config, "OVERLAP": 1}, REFERENCE)


def resolve(problem: GroupedProblem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
    """Everything that a launch needs, on a GPU of `warptile.rungs.wgmma`."""
    view = problem.view
    seen, sms = view.problem, device.max_ctas or device.sms
    tiles_of_d = ceil_div(seen.m, config["BM"]) * (
        ceil_div(seen.n, config["BN"]) * problem.groups
        if problem.along == "k"
        else ceil_div(seen.n, config["BN"]) + problem.groups
    )
    return KernelSpec(
        seen,
        config,
        view,
        _instance(problem, config),
        grid=(min(tiles_of_d, sms), 1, 1),
        block=(WARPGROUP * (CONSUMERS + 1), 1, 1),
        params=Params(_members(problem, config)),
        dynamic_shared_bytes=_shared_bytes(problem, config),
        capability=tiles.CAPABILITY,
        kernel_workspaces=(Workspace(COUNTERS, 8, zero=True),),
        overlaps_previous=device.max_ctas is None,
        waits=False,
    )


def _instance(problem: GroupedProblem, config: Config) -> Instance:
    seen, along_k = problem.view.problem, problem.along == "k"
    widths = [config["BN"]] if along_k else range(config["STEP"], config["BN"] + 1, config["STEP"])
    return Instance(
        FILE,
        TEMPLATE,
        (
            ("OPERATION", with_epilogue(tiles.operation_type(seen), seen)),
            ("TILE", tiles.tile_type(seen, config)),
            ("OFFSET", "int" if problem.offset_bits == 32 else "long long"),
        ),
        (
            ("ALONG_K", along_k), ("STORE_BY_TMA", d_is_aligned(seen)), ("STORE_WIDTH", tiles.store_width(seen)),
            ("STAGES", config["STAGES"]), ("STEP", config["STEP"]), ("BOX", config["BOX"]),
            ("GROUP", config["GROUP"]), ("MOST_SORTED", MOST_SORTED),
        ),
        tuple(tiles.instruction(seen, {**config, "BN": width}) for width in widths),
    )  # fmt: skip


def _members(problem: GroupedProblem, config: Config) -> tuple[tuple[str, Field], ...]:
    """Members of ``WgmmaGroupedParams``."""
    view, along_k, groups = problem.view, problem.along == "k", problem.groups
    seen = view.problem
    part_a, part_b = tiles.smem_tiles(seen, config)
    lines_a = (seen.k, seen.m) if part_a.k_major else (seen.m, seen.k)
    lines_b = (seen.k, seen.n) if part_b.k_major else (seen.n, seen.k)
    lines_d = (seen.m, seen.n) if seen.d.major == "col" else (seen.n, seen.m)
    box_a = part_a.row_units, part_a.lines
    box_b = part_b.row_units, part_b.lines if along_k else config["BOX"]
    map_b = _map(view.b, seen.b, lines_b, box_b)
    if along_k:
        map_a = _map(view.a, seen.a, lines_a, box_a)
        map_a_block = _map(view.a, seen.a, lines_a, (part_a.row_units, K_BLOCK))
        map_b_block = _map(view.b, seen.b, lines_b, (part_b.row_units, K_BLOCK))
        of_d = groups, problem.d.batch_stride
    else:
        map_a = map_a_block = _map(view.a, seen.a, lines_a, box_a, (groups, problem.group_stride))
        map_b_block = map_b
        of_d = None
    map_d = map_b  # stands in for it where TMA does not store D
    if d_is_aligned(seen):
        subtiles = _subtiles(problem, config)
        map_d = _map("D", seen.d, lines_d, subtiles.box, of_d, swizzle=subtiles.swizzle, l2_promotion="none")
    return (
        *gemm_members(view), ("map_a", map_a), ("map_b", map_b), ("map_d", map_d),
        ("map_a_block", map_a_block), ("map_b_block", map_b_block),
        ("ends", Pointer(ENDS)), ("counters", Pointer(COUNTERS)),
        ("groups", Scalar("s32", groups)),
        ("batch_stride_d", Scalar("s64", problem.d.batch_stride)),
    )  # fmt: skip


def _map(
    name: str,
    operand: Operand,
    lines: tuple[int, int],
    box: tuple[int, int],
    of_groups: tuple[int, int] | None = None,
    *,
    swizzle: str = SWIZZLE,
    l2_promotion: str = "128B",
) -> TensorMap:
    """The tensor map of an operand, which may have a matrix for each group: how many and how many elements apart."""
    size = operand.dtype.bits // 8
    line_bytes = ceil_div(operand.leading_dimension * size, MAX_ALIGNMENT_BYTES) * MAX_ALIGNMENT_BYTES
    groups, stride = ((of_groups[0],), (of_groups[1] * size,)) if of_groups is not None else ((), ())
    return TensorMap(
        name,
        map_type(operand),
        dims=(*lines, *groups),
        strides_bytes=(line_bytes, *stride),
        box=(*box, *(1 for _ in groups)),
        swizzle=swizzle,
        l2_promotion=l2_promotion,
    )


ARCH = wgmma.ARCH
"""The one architecture that has the instructions."""
