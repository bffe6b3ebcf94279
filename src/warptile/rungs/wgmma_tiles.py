"""Sizes that follow from a configuration of the wgmma family, and every constraint on one: the Python side of
tile/wgmma_panels.cuh and tile/wgmma_output.cuh.

Whatever the type, rows of a stage have 128 bytes, permuted by TMA, and an instruction takes 32 bytes of depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warptile.isa import wgmma
from warptile.isa.wgmma_wrappers import SATURATED
from warptile.launch import SWIZZLE_BYTES
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs import wgmma_beside
from warptile.rungs import wgmma_classes as classes
from warptile.rungs.copies import Copy, copied
from warptile.rungs.legality import ceil_div, grid_reason, keys_reason, operand_reason
from warptile.rungs.rung import Config, View
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    elements_per_unit,
    output_width,
    packing_reason,
    round_up,
    unit_bytes,
)

ROWS = wgmma.ROWS
"""Rows of an instruction."""

ROW_BYTES = 128
"""Bytes of a row of a panel: the widest that TMA permutes."""

FEW_COLUMNS = 128
"""Of D, where A's rows are taken as they lie badly, whatever the tile: A is read once or twice, and to copy it doubles
and triples the time. With more of them it takes tiles as wide as D, or as half of it: 8192 rows of A with K = 8191 took
56 us against 107 for 128 columns of D, 67 against 125 for 256 (tiles of 64 x 256), 136 against 164 for 512, but 193
with tiles of 128 x 128; 4095^3 took 306 against 232 (H200)."""

PLACES = {1: 132, 2: 132, 4: 116, 8: 104}
"""Blocks that certainly run at one time on an H200, in clusters of so many. A cluster's blocks are in one GPC, of eight
of an even number of multiprocessors, 18 at most; 18, 18, 18, 18, 18, 14, 14 and 14 have the least room."""

STEP_BYTES = 32
"""Bytes of depth of an instruction."""

WARPGROUP = 128
CAPABILITY = 90
"""Compute capability times ten; compiled for sm_90a."""

MAX_BOX = 256
"""Most elements along one side of a box."""

WIDEST, WIDEST_IN_BURSTS, WIDEST_OF_TWO = 128, 56, 72
"""Columns of a panel of 16-bit elements that TMA stores, of one that it stores between products, and of one of which a
warpgroup has two buffers, not one."""

MBARRIER_BYTES = 8
RESULTS = {"float16": "f16", "float32": "f32", "float32_fast": "f32", "int32": "s32", "int32_saturating": "s32"}
"""Type of D of the instruction for each accumulator."""

DTYPES = ("bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2", "int8", "uint8", "bit1")
"""Operand types of the family."""

OVERHEAD_REGISTERS = 38
"""Registers of addresses and loop state beside accumulators, as compiled kernels show them."""


# --- what the kernel sees -----------------------------------------------------------------------------------------


def turned(problem: Problem) -> Problem:
    """D^T = B^T A^T: the same memory, rows and columns exchanged."""

    def flipped(operand: Operand) -> Operand:
        return replace(operand, major={"row": "col", "col": "row"}[operand.major])

    c = flipped(problem.c) if problem.c is not None else None
    a, b, d = flipped(problem.b), flipped(problem.a), flipped(problem.d)
    return replace(problem, m=problem.n, n=problem.m, a=a, b=b, c=c, d=d)


def along_k(operand: Operand, *, is_a: bool) -> bool:
    """Whether what is contiguous runs along K."""
    return operand.major == ("row" if is_a else "col")


def stored_k(problem: Problem) -> int:
    """Columns of A that are stored: half of them if it is sparse."""
    return problem.k // 2 if problem.a.sparse else problem.k


def needs_copy(operand: Operand, *, is_a: bool) -> bool:
    """Whether neither TMA nor the instruction take the operand as it lies."""
    across = not along_k(operand, is_a=is_a) and operand.dtype.bits != 16
    return across or operand.alignment_bytes < MAX_ALIGNMENT_BYTES


def lies_well(problem: Problem) -> bool:
    """Whether the kernel takes all operands as they lie, whatever its configuration."""
    copied = needs_copy(problem.a, is_a=True) or needs_copy(problem.b, is_a=False)
    return not copied and classes.stored_whole(problem)


def any_start(seen: Problem, config: Config) -> bool:
    """Whether rows of A that lie badly are taken as they lie, through registers, as wgmma-final alone does: of 16 bits,
    along K, streamed past few columns, in the simplest schedule or with their depth split."""
    a = seen.a
    if a.alignment_bytes == MAX_ALIGNMENT_BYTES or a.dtype.bits != 16 or a.sparse or not along_k(a, is_a=True):
        return False
    if seen.batch > 1 or not seen.k or "SPLITS" not in config:
        return False
    if seen.n > max(FEW_COLUMNS, config["BN"]) and seen.n != 2 * config["BN"]:
        return False
    return config["CM"] * config["CN"] == 1 and not (config["OVERLAP"] or config["PINGPONG"] or config["STREAM"])


def view(problem: Problem, config: Config) -> View:
    """What the kernel sees: turned round if the configuration says so, operands copied where they lie badly and the
    kernel does not take them so (`any_start`), before the product or beside it (`wgmma_beside`), rows of D in classes
    where these lie badly (`wgmma_classes`)."""
    names = ("A", "B")
    if config.get("SWAP", 0):
        problem, names = turned(problem), ("B", "A")
    copies: list[Copy] = []
    seen, found = [], []
    for operand, name, is_a in ((problem.a, names[0], True), (problem.b, names[1], False)):
        if needs_copy(operand, is_a=is_a) and not (is_a and any_start(problem, config)):
            rows, columns = (problem.m, problem.k) if is_a else (problem.k, problem.n)
            across = not along_k(operand, is_a=is_a) and operand.dtype.bits != 16
            operand, copy = copied(name, operand, rows, columns, transposed=across)
            copies.append(copy)
            name = copy.target
        seen.append(operand)
        found.append(name)
    product = classes.as_classes(replace(problem, a=seen[0], b=seen[1]), config)
    if wgmma_beside.fits(product, (found[0], found[1]), copies, config, by_tma=classes.by_tma(product, config)):
        return View(product, found[0], found[1], beside=tuple(copies))
    return View(product, found[0], found[1], tuple(copies))


# --- sizes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panels:
    """One operand's part of a stage: ``WgmmaPanels``.

    Attributes:
        extent: rows of A or columns of B that a block needs.
        depth: units of depth.
        unit: bytes of a unit.
        k_major: lines run along K.
        any_start: lines are rows that begin at any element: ``WgmmaRows``.
    """

    extent: int
    depth: int
    unit: int
    k_major: bool
    any_start: bool = False

    @property
    def row(self) -> int:
        """Units of a row of a panel."""
        if self.any_start:
            return self.depth // self.parts + MAX_ALIGNMENT_BYTES // self.unit
        return ROW_BYTES // self.unit

    @property
    def parts(self) -> int:
        """Boxes in which rows that begin at any element come: one, or halves if that is too wide."""
        return 1 + (self.depth + MAX_ALIGNMENT_BYTES // self.unit > MAX_BOX)

    @property
    def lines(self) -> int:
        """Lines of a panel."""
        return self.extent if self.k_major else self.depth

    @property
    def bytes(self) -> int:
        """Bytes of all panels."""
        if self.any_start:
            return self.parts * self.extent * self.row * self.unit
        return -(-(self.depth if self.k_major else self.extent) // self.row) * self.lines * ROW_BYTES


def panels(seen: Problem, config: Config) -> tuple[Panels, Panels]:
    """Those of A and of B of the problem as the kernel sees it."""
    depth, unit = config["BK"] // elements_per_unit(seen), unit_bytes(seen)
    stored = depth // 2 if seen.a.sparse else depth
    return (
        Panels(config["BM"], stored, unit, along_k(seen.a, is_a=True), any_start(seen, config)),
        Panels(config["BN"], depth, unit, along_k(seen.b, is_a=False)),
    )


def stage_bytes(seen: Problem, config: Config) -> int:
    """Bytes of a stage: ``WgmmaStage``."""
    return sum(each.bytes for each in panels(seen, config))


@dataclass(frozen=True)
class Output:
    """The panels in which 64 rows of a tile are stored: ``OutputPanels``.

    Attributes:
        element_bytes: of an element of D.
        bn: columns of the tile, or of the part of it that a block stores.
        column_major: D's columns are contiguous.
        most: columns of a panel where it is as wide as may be, or 0.
    """

    element_bytes: int
    bn: int
    column_major: bool
    most: int

    @staticmethod
    def of(seen: Problem, config: Config) -> Output:
        """The panels of a problem as the kernel sees it."""
        most = 0 if not classes.stored_whole(seen) else WIDEST_IN_BURSTS if config.get("OVERLAP") else WIDEST
        columns = config["BN"] // (blocks_along_k(seen, config) if "SPLITS" in config else 1)
        return Output(seen.d.dtype.bits // 8, columns, seen.d.major == "col", most)

    @property
    def _wide(self) -> bool:
        return self.most > 0 and self.element_bytes == 2

    def _columns(self) -> int:
        """The most columns of a panel that divide BN and of which rows fall into different banks."""
        if self.bn % 64 == 0:
            return 64
        if not self.column_major and self.bn % 32 == 0:
            return 32
        spread = (c for c in range(self.most, 8, -8) if self.column_major or c == 16 or c // 8 % 2 == 1)
        return next((columns for columns in spread if self.bn % columns == 0), 8)

    def _part(self, most: int) -> int:
        """The largest power of two up to ``most`` that divides BN."""
        return next(part for part in (128, 64, 32, 16, 8) if part <= most and self.bn % part == 0)

    @property
    def box(self) -> tuple[int, int]:
        """Elements of a line, and lines."""
        fits = ROW_BYTES // self.element_bytes
        if self.column_major:
            return min(fits, 64), self._columns() if self._wide else self._part(64)
        return self._columns() if self._wide else self._part(fits), 64

    @property
    def bytes(self) -> int:
        """A panel's buffer."""
        line, lines = self.box
        return line * lines * self.element_bytes if self._wide else 64 * ROW_BYTES

    @property
    def buffers(self) -> int:
        """Of a warpgroup."""
        return 1 if self.bytes > WIDEST_OF_TWO * ROW_BYTES else 2

    @property
    def count(self) -> int:
        """Panels of 64 rows."""
        line, lines = self.box
        return ROWS * self.bn // (line * lines)

    @property
    def swizzle(self) -> str:
        """The permutation of lines, as a tensor map names it."""
        row_bytes = self.box[0] * self.element_bytes
        return next((name for name, span in SWIZZLE_BYTES.items() if span == row_bytes), "none")


# --- template arguments -------------------------------------------------------------------------------------------


def operation_type(seen: Problem) -> str:
    """The kernels' operation: element, accumulator and output types, and majors."""
    types = f"{seen.a.dtype.cuda}, {seen.accumulator.cuda}, {seen.d.dtype.cuda}"
    majors = ", ".join("true" if each.major == "col" else "false" for each in (seen.a, seen.b, seen.d))
    return f"warptile::WgmmaOperation<{types}, {majors}>"


def tile_type(seen: Problem, config: Config) -> str:
    """The kernels' tile, its depth in units."""
    return f"warptile::WgmmaTile<{config['BM']}, {config['BN']}, {config['BK'] // elements_per_unit(seen)}>"


def store_width(seen: Problem) -> int:
    """Elements of D that one access may store without TMA."""
    return seen.d.vector_elements if seen.c is None else output_width(seen)


def instruction(problem: Problem, config: Config) -> str:
    """The name of the instruction: `warptile.isa.wgmma.by_name`."""
    element, accumulator = problem.a.dtype, problem.accumulator.name
    depth = STEP_BYTES * 8 // element.bits * (2 if problem.a.sparse else 1)
    family = "wgmma.sp" if problem.a.sparse else "wgmma"
    saturated = SATURATED if accumulator == "int32_saturating" else ""
    return f"{family}.m{ROWS}n{config['BN']}k{depth}.{RESULTS[accumulator]}.{element.ptx}{saturated}"


# --- legality -----------------------------------------------------------------------------------------------------


def type_reason(problem: Problem, *, sparse: bool = False, batches: bool = False) -> str | None:
    """Why the operands cannot be taken at all, or None."""
    accumulators = tuple(name for name in problem.a.dtype.accumulators if name in RESULTS)
    majors = ("row",) if sparse else ("row", "col")
    dtypes = tuple(name for name in DTYPES if not sparse or name != "bit1")
    return (
        operand_reason(problem, dtypes, accumulators, majors, sparse=sparse, batches=batches)
        or packing_reason(problem)
        or _batch_reason(problem)
    )


def _batch_reason(problem: Problem) -> str | None:
    """Why a batch cannot be one launch, or None."""
    if problem.batch > 1:
        for name, operand, is_a in (("A", problem.a, True), ("B", problem.b, False)):
            if needs_copy(operand, is_a=is_a):
                return f"the batch has {problem.batch} matrices and {name} needs a copy first; that is made for one"
    return None


def tile_reason(problem: Problem, config: Config) -> str | None:
    """Why there is no such tile, or None."""
    bm, bn = config["BM"], config["BN"]
    if bm % ROWS or bm > MAX_BOX:
        return f"BM is {bm}; it must be a multiple of {ROWS}, at most {MAX_BOX}"
    family = next(each for each in wgmma.FAMILIES if problem.a.dtype.ptx in each.types)
    if bn not in family.columns:
        columns = "a multiple of 8" if len(family.columns) == 32 else "8, 24 or a multiple of 16"
        return f"BN is {bn}; for {problem.a.dtype.name} it must be {columns}, at most {MAX_BOX}"
    depth_bytes = config["BK"] * problem.a.dtype.bits // 8
    row_bytes = ROW_BYTES * (2 if problem.a.sparse else 1)
    if depth_bytes % row_bytes:
        unit = row_bytes * 8 // problem.a.dtype.bits
        return f"BK is {config['BK']}; rows of a stage have {ROW_BYTES} bytes, so it must be a multiple of {unit}"
    part_a, part_b = panels(problem, config)
    if max(part_a.lines, part_b.lines) > MAX_BOX:
        return f"BK is {config['BK']}; a box has at most {MAX_BOX} lines"
    return None


def shares_reason(seen: Problem, config: Config) -> str | None:
    """Why the blocks of a cluster cannot load equal parts of a stage for each other, or None."""
    part_a, part_b = panels(seen, config)
    for name, part, shares in (("A", part_a, config.get("CN", 1)), ("B", part_b, config.get("CM", 1))):
        if part.lines % (8 * shares):
            return f"a stage has {part.lines} lines of {name}; {shares} blocks load groups of 8 lines each"
    return None


def common_reasons(
    problem: Problem,
    config: Config,
    keys: tuple[str, ...],
    may_be_zero: tuple[str, ...] = (),
    *,
    sparse: bool = False,
    batches: bool = False,
) -> str | None:
    """The reasons that all rungs share, in the order in which they build on each other."""
    counted = {name: value + (name in may_be_zero) for name, value in config.items()}
    return (
        type_reason(problem, sparse=sparse, batches=batches)
        or keys_reason(counted, keys)
        or tile_reason(view(problem, config).problem, config)
        or grid_reason(problem, config)
    )


PROMOTED_DEPTH = 128
"""Products of 8-bit floats that are added in short sums before these are added in float32: ``ShortSums``."""


def promoted(problem: Problem) -> bool:
    """Whether short sums are added to others in registers: ``WgmmaOperation::PROMOTED``."""
    return problem.a.dtype.name.startswith("float8") and problem.accumulator.name == "float32"


def shared_reason(needed: int) -> str | None:
    """Why a block cannot have so much shared memory, or None."""
    if needed > MAX_DYNAMIC_SHARED_BYTES:
        return f"the block needs {needed} bytes of shared memory; at most {MAX_DYNAMIC_SHARED_BYTES}: take fewer stages"
    return None


def accumulator_registers(problem: Problem, rows: int, columns: int) -> int:
    """Registers of a thread for ``rows`` x ``columns`` sums of a warpgroup."""
    return rows * columns * problem.accumulator.bits // 32 // WARPGROUP


def blocks_along_k(seen: Problem, config: Config) -> int:
    """Blocks of a cluster that share a tile's depth and add their sums through shared memory: all SPLITS of them where
    they can be in one cluster, clusters all have a place at one time, each block gets whole columns to finish, and sums
    fit where stages were. Else one: sums go through global memory."""
    splits = config.get("SPLITS", 1)
    if splits == 1:
        return 1
    bm, bn, each = config["BM"], config["BN"], config["CM"] * config["CN"] * splits
    tiles = ceil_div(seen.m, bm * config["CM"]) * ceil_div(seen.n, bn * config["CN"]) * seen.batch
    fits = bm * bn * seen.accumulator.bits // 8 <= config["STAGES"] * stage_bytes(seen, config)
    return splits if tiles * each <= PLACES.get(each, 0) and bn % (8 * splits) == 0 and fits else 1


def shared_bytes(stages: int, each: int, output: int) -> int:
    """Shared memory of a block: stages, output buffers, and two barriers for each stage."""
    return stages * each + output + round_up(2 * stages * MBARRIER_BYTES, 16)
