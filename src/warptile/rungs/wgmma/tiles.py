"""Sizes that follow from a configuration of the wgmma family, and every constraint on one: the Python side of
tile/wgmma_smem_tile.cuh and tile/wgmma_epilogue.cuh.

Whatever the type, rows of a stage have 128 bytes, swizzled by TMA, and an MMA-K block is 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from warptile.device import DeviceLimits
from warptile.epilogue.fused_epilogue import STAGED_BITS
from warptile.isa import wgmma
from warptile.isa.wrappers.wgmma import SATURATED
from warptile.launch.tensor_map import SWIZZLE_BYTES
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.legality import ceil_div, grid_reason, keys_reason, operand_reason
from warptile.rungs.repack import Repack, repacked
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    elements_per_unit,
    output_width,
    packing_reason,
    round_up,
    unit_bytes,
)
from warptile.rungs.tma import MAX_BOX, MBARRIER_BYTES
from warptile.rungs.wgmma import fused_repack, residue_classes

ROWS = wgmma.ROWS
"""M of a wgmma instruction."""

ROW_BYTES = 128
"""Bytes of a row of a smem tile: the widest TMA swizzle."""

SECTOR_BYTES = 32
"""A sector of L2. Rows of the last panel are loaded in whole sectors, or half of one: with rows of 80 or 112 bytes some
problems took up to 14 % longer than with 128 (H200, 2026-11-30, no record)."""

ATOM_LINES = 8
"""Lines after which the pattern of a swizzle repeats."""

FEW_COLUMNS = 128
"""Columns of D up to which an unaligned A is loaded through registers whatever the tile: the kernel reads A once or
twice, and repacking would double or triple the time. With more columns, only tiles as wide as D or half of it do so:
with 8192 rows of A and K = 8191, loading through registers took 56 us (repacking 107) for 128 columns of D, 67 (125)
for 256 in tiles of 64 x 256, 136 (164) for 512 but 193 in tiles of 128 x 128; 4095^3 took 306 us (232) (H200)."""

MAX_CLUSTER_CTAS = 8
"""CTAs of a cluster that every GPU with clusters takes (CUDA C++ Programming Guide, "Thread Block Clusters")."""

MMA_K_BYTES = 32
"""K extent of an instruction in bytes: an MMA-K block."""

WARPGROUP = 128
CAPABILITY = 90
"""Compute capability times ten; compiled for sm_90a."""


WIDEST, WIDEST_OVERLAPPED, WIDEST_DOUBLE_BUFFERED = 128, 56, 72
WIDEST_IN_PAIRS, NARROW = 72, 32
"""Most columns of an epilogue subtile of 16-bit elements that TMA stores, of one whose store overlaps the next
mainloop, and of one that is double-buffered."""

RESULTS = {"float16": "f16", "float32": "f32", "float32_fast": "f32", "int32": "s32", "int32_saturating": "s32"}
"""The instruction's D type for each accumulator type."""

DTYPES = ("bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2", "int8", "uint8", "bit1")
"""Operand types of the family."""

OVERHEAD_REGISTERS = 38
"""Registers for addresses and loop state, in addition to accumulators: from compiled kernels."""


# --- what the kernel sees -----------------------------------------------------------------------------------------


def k_major(operand: Operand, *, is_a: bool) -> bool:
    """Whether the operand is contiguous along K."""
    return operand.major == ("row" if is_a else "col")


def stored_k(problem: Problem) -> int:
    """Stored columns of A: K, or half of it if A is sparse."""
    return problem.k // 2 if problem.a.sparse else problem.k


def needs_repacking(operand: Operand, *, is_a: bool) -> bool:
    """Whether TMA cannot load the operand (misaligned), or the instruction cannot read it (not K-major)."""
    across = not k_major(operand, is_a=is_a) and operand.dtype.bits != 16
    return across or operand.alignment_bytes < MAX_ALIGNMENT_BYTES


def is_aligned(problem: Problem) -> bool:
    """Whether the kernel takes all operands without repacking or residue classes, whatever its configuration."""
    repacked = needs_repacking(problem.a, is_a=True) or needs_repacking(problem.b, is_a=False)
    return not repacked and residue_classes.d_is_aligned(problem)


def takes_unaligned_a(seen: Problem, config: Config) -> bool:
    """Whether a misaligned A is loaded through registers instead of repacked, which only wgmma-final does: an A of 16
    bits, or K-major of 32; few columns of D; and a basic or split-K schedule."""
    return "SPLITS" in config and may_take_unaligned_a(seen) and bool(loads_unaligned_a(seen, config))


def may_take_unaligned_a(problem: Problem, swap: int = 0) -> bool:
    """Whether some configuration loads a misaligned A, or with ``swap`` B, through registers."""
    a = problem.b if swap else problem.a
    if a.alignment_bytes == MAX_ALIGNMENT_BYTES or a.dtype.bits < 16 or a.sparse or problem.batch > 1:
        return False
    if k_major(a, is_a=not swap):
        return problem.k > 0
    return a.dtype.bits == 16 and problem.k >= residue_classes.RESIDUE_CLASSES  # each class of lines has one


def loads_unaligned_a(seen: Problem, config: Mapping[str, Any]) -> Any:
    """Whether this one does, where some do: of one configuration, or of an array of each tunable."""
    few = (seen.n <= np.maximum(FEW_COLUMNS, config["BN"])) | (seen.n == 2 * config["BN"])
    overlaps = config["OVERLAP"] + config["PINGPONG"] + config["STREAM"]
    of_a_box = k_major(seen.a, is_a=True) | (config["BM"] + _padding(seen.a.dtype.bits // 8) <= MAX_BOX)
    return few & of_a_box & (config["CM"] * config["CN"] == 1) & (overlaps == 0) & (column_parts(config) == 1)


def _padding(unit_bytes: int) -> int:
    """Units that a line of an unaligned A may begin too early: of its whole alignment."""
    return MAX_ALIGNMENT_BYTES // unit_bytes


def view(problem: Problem, config: Config) -> View:
    """The problem as the kernel sees it: operands swapped with SWAP; misaligned or wrongly laid out operands repacked
    (`fused_repack`) unless the kernel loads them as they are (`takes_unaligned_a`); rows of a misaligned D split into
    residue classes (`residue_classes`)."""
    names = ("A", "B")
    if config.get("SWAP", 0):
        problem, names = problem.swapped, ("B", "A")
    if is_aligned(problem):
        return View(problem, *names)
    seen, found, repacks = _repacked(problem, names, takes_unaligned_a(problem, config))
    gemm = residue_classes.split_by_residue_class(seen, config)
    stores_by_tma = residue_classes.stores_by_tma(gemm, config)
    if fused_repack.fits(gemm, found, repacks, config, stores_by_tma=stores_by_tma):
        return View(gemm, *found, fused_repacks=repacks)
    return View(gemm, *found, repacks)


@lru_cache(maxsize=64)  # planning asks for hundreds of configurations of one problem
def _repacked(
    problem: Problem, names: tuple[str, str], loads_a: bool
) -> tuple[Problem, tuple[str, str], tuple[Repack, ...]]:
    """The problem with operands repacked, their names and how: all that the kernel does not load as they are. Of A
    ``loads_a`` says whether it does whatever its alignment."""
    seen, found = [problem.a, problem.b], list(names)
    repacks = []
    for place, operand in enumerate(seen):
        is_a = place == 0
        if needs_repacking(operand, is_a=is_a) and not (is_a and loads_a):
            rows, columns = (problem.m, problem.k) if is_a else (problem.k, problem.n)
            transposed = not k_major(operand, is_a=is_a) and operand.dtype.bits != 16
            seen[place], repack = repacked(
                names[place], operand, rows, columns, batch=problem.batch, transposed=transposed
            )
            repacks.append(repack)
            found[place] = repack.target
    return replace(problem, a=seen[0], b=seen[1]), (found[0], found[1]), tuple(repacks)


# --- sizes --------------------------------------------------------------------------------------------------------


def column_parts(config: Mapping[str, Any]) -> Any:
    """Parts of the columns of a tile, each of one consumer warpgroup: more than one only where cooperative consumers
    cannot share its rows in whole blocks of `ROWS`. Of one configuration, or of an array of each tunable."""
    sharing = 1 + (config.get("CONSUMERS", 1) - 1) * (config.get("PINGPONG", 0) == 0)
    return 1 + (config["BM"] // ROWS % sharing != 0) * (sharing - 1)


def rows_per_warpgroup(config: Mapping[str, Any]) -> Any:
    """Rows of a tile that one consumer warpgroup computes: all of them with PINGPONG, or where consumers share its
    columns."""
    sharing = 1 + (config["CONSUMERS"] - 1) * (config["PINGPONG"] == 0)
    return config["BM"] * column_parts(config) // sharing


def columns_per_warpgroup(config: Mapping[str, Any]) -> Any:
    """Columns of a tile that one consumer warpgroup computes."""
    return config["BN"] // column_parts(config)


@dataclass(frozen=True)
class SmemTile:
    """One operand's part of a pipeline stage: ``WgmmaSmemTile``.

    Attributes:
        extent: rows of A or columns of B of a CTA tile.
        k_units: K extent in units.
        unit_bytes: bytes of a unit.
        k_major: lines run along K.
        unaligned: lines may start at any element: ``WgmmaUnalignedA``, ``WgmmaUnalignedPanels``.
    """

    extent: int
    k_units: int
    unit_bytes: int
    k_major: bool
    unaligned: bool = False

    @property
    def row_units(self) -> int:
        """Units of a row of a swizzle atom, or of an unaligned line with its padding."""
        if self.unaligned:
            return (self.k_units // self.boxes if self.k_major else self.extent) + _padding(self.unit_bytes)
        return ROW_BYTES // self.unit_bytes

    @property
    def last_row_units(self) -> int:
        """Units of a row of the last panel that are loaded: fewer than `row_units` where an MN-major tile is no whole
        number of panels wide."""
        beyond = 0 if self.k_major or self.unaligned else self.extent % self.row_units
        sector = SECTOR_BYTES // self.unit_bytes
        return beyond if 2 * beyond == sector else round_up(beyond, sector) or self.row_units

    @property
    def has_narrow_panel(self) -> bool:
        """Whether the last panel has a tensor map of its own."""
        return self.last_row_units < self.row_units

    @property
    def boxes(self) -> int:
        """TMA boxes of an unaligned line: one, or along K two halves where one would be too wide."""
        return 1 + (self.k_major and self.k_units + _padding(self.unit_bytes) > MAX_BOX)

    @property
    def lines(self) -> int:
        """Lines of a box."""
        return self.extent if self.k_major else self.k_units

    def lines_loaded_at_once(self, ctas: int) -> int:
        """Lines of a box where ``ctas`` CTAs of a cluster load the tile for each other: of equal parts, or if those are
        not whole swizzle atoms all lines, which they take turns at (``WgmmaSmemTile::load_multicast``)."""
        return self.lines if self.lines % (ATOM_LINES * ctas) else self.lines // ctas

    @cached_property
    def bytes(self) -> int:
        """Bytes of the whole tile."""
        if self.unaligned:
            return self.boxes * self.lines * self.row_units * self.unit_bytes
        return -(-(self.k_units if self.k_major else self.extent) // self.row_units) * self.lines * ROW_BYTES


_smem_tile = lru_cache(maxsize=1024)(SmemTile)
"""One object for equal ones: their sizes are computed once."""


def smem_tiles(seen: Problem, config: Config, *, unaligned_a: bool | None = None) -> tuple[SmemTile, SmemTile]:
    """A's and B's parts of a stage, for the problem as the kernel sees it. ``unaligned_a``: whether A is loaded through
    registers, where that is known."""
    unaligned = takes_unaligned_a(seen, config) if unaligned_a is None else unaligned_a
    units, each = config["BK"] // elements_per_unit(seen), unit_bytes(seen)
    stored = units // 2 if seen.a.sparse else units
    return (
        _smem_tile(config["BM"], stored, each, k_major(seen.a, is_a=True), unaligned),
        _smem_tile(config["BN"], units, each, k_major(seen.b, is_a=False)),
    )


def stage_bytes(seen: Problem, config: Config, *, unaligned_a: bool | None = None) -> int:
    """Bytes of a stage: ``WgmmaStage``; arguments as of `smem_tiles`."""
    part_a, part_b = smem_tiles(seen, config, unaligned_a=unaligned_a)
    return part_a.bytes + part_b.bytes


@dataclass(frozen=True)
class EpilogueSubtiles:
    """The subtiles in which 64 rows of a tile are stored: ``EpilogueSubtiles``.

    Attributes:
        element_bytes: bytes of an element of D.
        bn: columns that a warpgroup stores of the tile.
        column_major: D's columns are contiguous.
        widest: most columns of a subtile of 16-bit elements that TMA stores, or 0.
        in_pairs: there are two buffers, however wide a subtile is: the kernel stages matrices of an epilogue in them.
    """

    element_bytes: int
    bn: int
    column_major: bool
    widest: int
    in_pairs: bool = False

    @staticmethod
    def of(seen: Problem, config: Config, device: DeviceLimits) -> EpilogueSubtiles:
        """The subtiles of a problem as the kernel sees it."""
        return EpilogueSubtiles.shared(seen, config, cluster_k(seen, config, device) if "SPLITS" in config else 1)

    @staticmethod
    def shared(seen: Problem, config: Config, ctas: int) -> EpilogueSubtiles:
        """As `of`, where ``ctas`` CTAs of a cluster, which split K, each store a part of a tile's columns."""
        widest = 0 if not residue_classes.d_is_aligned(seen) else WIDEST_OVERLAPPED if config.get("OVERLAP") else WIDEST
        columns, in_pairs = columns_per_warpgroup(config) // ctas, stages_epilogue(seen, config)
        return epilogue_subtiles(seen.d.dtype.bits // 8, columns, seen.d.major == "col", widest, in_pairs)

    @property
    def _wide(self) -> bool:
        return self.widest > 0 and self.element_bytes == 2

    def _columns(self) -> int:
        """The most columns of a subtile that divide BN and whose rows start in different banks."""
        some = _subtile_columns(self.bn, self.column_major, WIDEST_IN_PAIRS) if self.in_pairs else 0
        return some if some >= NARROW else _subtile_columns(self.bn, self.column_major, self.widest)

    def _part(self, most: int) -> int:
        """The largest power of two up to ``most`` that divides BN."""
        return next(part for part in (128, 64, 32, 16, 8) if part <= most and self.bn % part == 0)

    @cached_property
    def box(self) -> tuple[int, int]:
        """Elements of a line, and lines."""
        fits = ROW_BYTES // self.element_bytes
        if self.column_major:
            return min(fits, 64), self._columns() if self._wide else self._part(64)
        return self._columns() if self._wide else self._part(fits), 64

    @cached_property
    def bytes(self) -> int:
        """Bytes of a subtile's buffer."""
        line, lines = self.box
        return line * lines * self.element_bytes if self._wide else 64 * ROW_BYTES

    @property
    def buffers(self) -> int:
        """Buffers of a warpgroup."""
        return 2 if self.in_pairs or self.bytes <= WIDEST_DOUBLE_BUFFERED * ROW_BYTES else 1

    @property
    def count(self) -> int:
        """Subtiles of 64 rows of a tile."""
        line, lines = self.box
        return ROWS * self.bn // (line * lines)

    @property
    def swizzle(self) -> str:
        """The swizzle of the buffer, as a tensor map names it."""
        row_bytes = self.box[0] * self.element_bytes
        return next((name for name, span in SWIZZLE_BYTES.items() if span == row_bytes), "none")


epilogue_subtiles = lru_cache(maxsize=1024)(EpilogueSubtiles)
"""One object for equal ones: their sizes are computed once."""


@lru_cache(maxsize=1024)
def _subtile_columns(bn: int, column_major: bool, widest: int) -> int:
    """The most columns, up to ``widest``, that divide BN and whose rows start in different banks."""
    if bn % 64 == 0:
        return 64
    if not column_major and bn % 32 == 0:
        return 32
    spread = (c for c in range(widest, 8, -8) if column_major or c == 16 or c // 8 % 2 == 1)
    return next((columns for columns in spread if bn % columns == 0), 8)


def stages_epilogue(seen: Problem, config: Mapping[str, Any]) -> bool:
    """Whether an epilogue is staged: evaluated a few columns at a time, straight into the buffers through which D
    leaves, and into which TMA loads operands that are laid out as D is. The kernel stores D by TMA when a tile is
    finished, in fragments whose rows are in order. Those that do are wgmma-final, known by its tunables,
    wgmma-quantized and wgmma-sparse."""
    is_final, is_quantized = "SPLITS" in config, seen.a.quantized is not None
    fused = seen.epilogue
    if fused is None or not (is_final or is_quantized or seen.a.sparse) or not residue_classes.d_is_aligned(seen):
        return False
    if is_final and (config["OVERLAP"] or takes_unaligned_a(seen, config)):
        return False
    return seen.d.dtype.bits == STAGED_BITS and not (is_quantized and config["SPLIT_K"] > 1)


# --- template arguments -------------------------------------------------------------------------------------------


def operation_type(seen: Problem) -> str:
    """The kernels' operation: element, accumulator and output types, and layouts."""
    types = f"{seen.a.dtype.cuda}, {seen.accumulator.cuda}, {seen.d.dtype.cuda}"
    majors = ", ".join("true" if each.major == "col" else "false" for each in (seen.a, seen.b, seen.d))
    return f"warptile::WgmmaOperation<{types}, {majors}>"


def tile_type(seen: Problem, config: Config) -> str:
    """The kernels' tile, its K extent in units."""
    return f"warptile::WgmmaTile<{config['BM']}, {config['BN']}, {config['BK'] // elements_per_unit(seen)}>"


def store_width(seen: Problem) -> int:
    """Elements of D that one access may store without TMA."""
    return seen.d.vector_elements if seen.c is None else output_width(seen)


def instruction(problem: Problem, config: Config) -> str:
    """The name of the instruction: `warptile.isa.wgmma.by_name`."""
    element, accumulator = problem.a.dtype, problem.accumulator.name
    mma_k = MMA_K_BYTES * 8 // element.bits * (2 if problem.a.sparse else 1)
    family = "wgmma.sp" if problem.a.sparse else "wgmma"
    saturated = SATURATED if accumulator == "int32_saturating" else ""
    columns = columns_per_warpgroup(config)
    return f"{family}.m{ROWS}n{columns}k{mma_k}.{RESULTS[accumulator]}.{element.ptx}{saturated}"


# --- legality -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)  # asked for all candidates, and for the one that is taken
def type_reason(problem: Problem, *, sparse: bool = False, batches: bool = False, final: bool = False) -> str | None:
    """Why the operands cannot be taken at all, or None. ``final``: wgmma-final applies scales of blocks, and writes
    8-bit floats."""
    accumulators = tuple(name for name in problem.a.dtype.accumulators if name in RESULTS)
    majors = ("row",) if sparse else ("row", "col")
    dtypes = tuple(name for name in DTYPES if not sparse or name != "bit1")
    return operand_reason(
        problem, dtypes, accumulators, majors, sparse=sparse, batches=batches, block_scales=final, eight_bits=final
    ) or packing_reason(problem)


def tile_reason(problem: Problem, config: Config) -> str | None:
    """Why there is no such tile, or None."""
    bm, bn = config["BM"], config["BN"]
    if bm % ROWS or bm > MAX_BOX:
        return f"BM is {bm}; it must be a multiple of {ROWS}, at most {MAX_BOX}"
    family = next(each for each in wgmma.FAMILIES if problem.a.dtype.ptx in each.types)
    parts = column_parts(config)
    if bn % parts or bn // parts not in family.columns or bn > MAX_BOX:
        columns = "a multiple of 8" if len(family.columns) == 32 else "8, 24 or a multiple of 16"
        shared = f"half of it, which is one warpgroup's with BM={bm}, " if parts > 1 else "it "
        return f"BN is {bn}; for {problem.a.dtype.name} {shared}must be {columns}, and BN at most {MAX_BOX}"
    if parts > 1 and not k_major(problem.b, is_a=False) and bn // parts % (ROW_BYTES * 8 // problem.b.dtype.bits):
        return (
            f"BN is {bn}, of which each of {parts} warpgroups has {bn // parts} columns with BM={bm}; of a B that is "
            f"contiguous along N it must be a multiple of {ROW_BYTES * 8 // problem.b.dtype.bits}"
        )
    k_bytes = config["BK"] * problem.a.dtype.bits // 8
    row_bytes = ROW_BYTES * (2 if problem.a.sparse else 1)
    if k_bytes % row_bytes:
        unit = row_bytes * 8 // problem.a.dtype.bits
        return f"BK is {config['BK']}; rows of a stage have {ROW_BYTES} bytes, so it must be a multiple of {unit}"
    part_a, part_b = smem_tiles(problem, config)
    if max(part_a.lines, part_b.lines) > MAX_BOX:
        return f"BK is {config['BK']}; a TMA box has at most {MAX_BOX} lines"
    return None


def tunables_reason(config: Config, keys: tuple[str, ...], may_be_zero: tuple[str, ...] = ()) -> str | None:
    """Why the names of a configuration are wrong, or a number is too small, or None."""
    return keys_reason({name: value + (name in may_be_zero) for name, value in config.items()}, keys)


def common_reasons(
    problem: Problem,
    config: Config,
    keys: tuple[str, ...],
    *,
    sparse: bool = False,
) -> str | None:
    """The reasons that all rungs of one launch a matrix share, in the order in which they build on each other."""
    return (
        type_reason(problem, sparse=sparse)
        or tunables_reason(config, keys)
        or tile_reason(view(problem, config).problem, config)
        or grid_reason(problem, config)
    )


TWO_LEVEL_K = 128
"""K extent of the first level of two-level accumulation of 8-bit floats: ``TwoLevelAccumulation``."""


def two_level(problem: Problem) -> bool:
    """Whether accumulation has two levels, as float32 accumulation of 8-bit floats does."""
    return problem.a.dtype.name.startswith("float8") and problem.accumulator.name == "float32"


def shared_reason(needed: int) -> str | None:
    """Why a CTA cannot have so much shared memory, or None."""
    if needed > MAX_DYNAMIC_SHARED_BYTES:
        return f"a CTA needs {needed} bytes of shared memory; at most {MAX_DYNAMIC_SHARED_BYTES}: take fewer stages"
    return None


def accumulator_registers(problem: Problem, rows: Any, columns: Any) -> Any:
    """Accumulator registers of a thread for ``rows`` x ``columns`` elements of a warpgroup."""
    return rows * columns * problem.accumulator.bits // 32 // WARPGROUP


def cluster_k(seen: Problem, config: Config, device: DeviceLimits) -> int:
    """CTAs of a cluster that split K of a tile and reduce their accumulators through shared memory: all SPLITS of them
    where they fit into one cluster, all clusters are co-resident, each CTA gets whole columns to finish, and
    accumulators fit where the stages were. Else one: accumulators are reduced through global memory."""
    splits = config.get("SPLITS", 1)
    if splits == 1:
        return 1
    tiles = ceil_div(seen.m, config["BM"] * config["CM"]) * ceil_div(seen.n, config["BN"] * config["CN"]) * seen.batch
    resident = resident_ctas(device)[min(config["CM"] * config["CN"] * splits, MAX_CLUSTER_CTAS + 1)]
    return (
        splits if reduces_in_cluster(seen.accumulator.bits, config, tiles, stage_bytes(seen, config), resident) else 1
    )


def reduces_in_cluster(
    accumulator_bits: Any, config: Mapping[str, Any], count: Any, each_stage_bytes: Any, resident: Any
) -> Any:
    """Whether the CTAs that split K of a tile form a cluster: of one configuration, or of an array of each tunable.

    Args:
        accumulator_bits: of an accumulator.
        config: configurations.
        count: tiles of the GEMM, those of a cluster without the splits counted as one.
        each_stage_bytes: bytes of a stage.
        resident: CTAs that are certainly co-resident in such clusters: of `resident_ctas`.
    """
    bm, bn, splits = config["BM"], config["BN"], config["SPLITS"]
    each = config["CM"] * config["CN"] * splits
    fits = bm * bn * accumulator_bits // 8 <= config["STAGES"] * each_stage_bytes
    return (count * each <= resident) & (bn // column_parts(config) % (8 * splits) == 0) & fits


@lru_cache(maxsize=64)
def resident_ctas(device: DeviceLimits) -> tuple[int, ...]:
    """CTAs that are certainly co-resident, by CTAs of a cluster: from none, for all SMs, to one more than there may be,
    for which it is zero."""
    return device.sms, *map(device.co_resident_ctas, range(1, MAX_CLUSTER_CTAS + 1)), 0


def shared_bytes(stages: int, each: int, output: int) -> int:
    """Shared memory of a CTA: stages, epilogue buffers, and two mbarriers for each stage."""
    return stages * each + output + round_up(2 * stages * MBARRIER_BYTES, 16)
