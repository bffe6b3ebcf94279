"""The mma.sync rungs whose operands TMA copies: `mma-tma` and `mma-tma-swizzled`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params
from warptile.launch.tensor_map import TensorMap
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.mma import SHAPE_KEYS, SIZE_KEYS, MmaRung, first_busy, operation_type, tile_type, usual
from warptile.rungs.mma_tiles import (
    INSTRUCTIONS,
    SMEM_ROW_BYTES,
    MmaResources,
    capability,
    common_reasons,
    k_major,
    sets_reason,
)
from warptile.rungs.repack import Repack, repacked
from warptile.rungs.rung import Rung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    elements_per_unit,
    output_width,
    resource_reason,
    round_up,
    stages_reason,
    unit_bytes,
)
from warptile.rungs.tma import MAX_BOX, MBARRIER_BYTES, operand_map

KEYS = (*SIZE_KEYS, "STAGES", "GROUP", "MIN_BLOCKS")

WIDEST_ROW_BYTES = SMEM_ROW_BYTES[-1]

FRAGMENT_SETS = 2
"""Sets of fragments: while the tensor cores work on one, the other is loaded, across stages as in mma-final."""


class MmaTmaResources(MmaResources):
    """Sizes of one configuration: as `MmaResources`, and an mbarrier for each stage behind stages and patches."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA."""
        return super().shared_bytes + round_up(self.stages * MBARRIER_BYTES, 16)


def view(problem: Problem) -> View:
    """What the kernel sees: operands whose base or lines do not start at multiples of 16 bytes are repacked first."""
    seen, names, repacks = problem, [], list[Repack]()
    for name, (rows, columns) in (("A", (problem.m, problem.k)), ("B", (problem.k, problem.n))):
        operand = problem.a if name == "A" else problem.b
        if operand.alignment_bytes < MAX_ALIGNMENT_BYTES:
            operand, repack = repacked(name, operand, rows, columns, batch=problem.batch)
            seen = replace(seen, a=operand) if name == "A" else replace(seen, b=operand)
            repacks.append(repack)
            name = repack.target
        names.append(name)
    return View(seen, names[0], names[1], tuple(repacks))


@dataclass(frozen=True)
class OperandBoxes:
    """The boxes of one operand's K tile in shared memory: ``Panels`` in tile/panels.cuh.

    Attributes:
        line: units of what is contiguous in the tile: along K where the operand is K-major, else along M (N).
        lines: how many of them.
        unit_bytes: bytes of a unit.
    """

    line: int
    lines: int
    unit_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a box."""
        return min(self.line * self.unit_bytes, WIDEST_ROW_BYTES)

    @property
    def box(self) -> tuple[int, int]:
        """Units of a row, and rows."""
        return self.row_bytes // self.unit_bytes, self.lines


def operand_boxes(problem: Problem, config: Config) -> tuple[OperandBoxes, OperandBoxes]:
    """The boxes of A and of B."""
    k_extent, unit = config["BK"] // elements_per_unit(problem), unit_bytes(problem)
    sides = ((config["BM"], k_major(problem.a, is_a=True)), (config["BN"], k_major(problem.b, is_a=False)))
    a, b = (
        OperandBoxes(k_extent, extent, unit) if k_major else OperandBoxes(extent, k_extent, unit)
        for extent, k_major in sides
    )
    return a, b


def tensor_maps(found: View, config: Config, *, swizzled: bool) -> tuple[TensorMap, TensorMap]:
    """The tensor maps of A and B, for a view of the problem."""
    seen = found.problem
    extents_a = (seen.k, seen.m) if k_major(seen.a, is_a=True) else (seen.m, seen.k)
    extents_b = (seen.k, seen.n) if k_major(seen.b, is_a=False) else (seen.n, seen.k)
    a, b = (
        operand_map(
            name, operand, extents, boxes.box, swizzle=f"{boxes.row_bytes}B" if swizzled else "none", batch=seen.batch
        )
        for name, operand, extents, boxes in zip(
            (found.a, found.b), (seen.a, seen.b), (extents_a, extents_b), operand_boxes(seen, config), strict=True
        )
    )
    return a, b


def box_reason(problem: Problem, config: Config) -> str | None:
    """Why TMA cannot fill a stage, or None.

    Boxes start at multiples of 1024 bytes, where the swizzle of 128-byte rows repeats: 16 rows (columns) with two steps
    along K, the least that is legal, have that many.
    """
    for name, boxes in zip("AB", operand_boxes(problem, config), strict=True):
        if boxes.lines > MAX_BOX:
            return f"a stage has {boxes.lines} lines of {name}; a box of TMA has at most {MAX_BOX}: take a smaller tile"
    return None


class MmaTma(MmaRung):
    """mma-final's mainloop, fed by TMA.

    Attributes:
        swizzled: TMA permutes the 16-byte chunks of the rows that it writes: fragment loads have no bank conflicts.
    """

    min_arch = 90
    automatic = False

    def __init__(self, name: str, idea: str, previous: str, *, swizzled: bool) -> None:
        super().__init__(
            name,
            idea,
            previous,
            keys=KEYS,
            dynamic=True,
            mechanism=Mechanism(narrow_rows=True, swizzled=swizzled, by_tma=True, overlaps_stages=True),
        )
        self.swizzled = swizzled

    # --- configurations -------------------------------------------------------------------------------------------

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The first of mma-final's usual sizes that is legal and keeps enough SMs busy, else the last that is legal."""
        return first_busy(self, problem, self._usual(problem), device)

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """mma-final's usual sizes, then other numbers of stages, groups and instructions."""
        usual_sizes = self._usual(problem)
        shapes = [dict(zip(SHAPE_KEYS, each, strict=True)) for each in INSTRUCTIONS.get(problem.a.dtype.name, ())[1:]]
        changes = [{"STAGES": stages} for stages in (2, 3, 4, 5)] + [{"GROUP": group} for group in (1, 4, 16)] + shapes
        found = [*usual_sizes, *({**config, **change} for change in changes for config in usual_sizes)]
        unique = {tuple(config.items()): config for config in found}
        return tuple(config for config in unique.values() if self.illegal(problem, config, device) is None)

    def _usual(self, problem: Problem) -> tuple[Config, ...]:
        return tuple({key: config[key] for key in KEYS} for config in usual(problem))

    # --- legality -------------------------------------------------------------------------------------------------

    def resources(self, problem: Problem, config: Config) -> MmaResources:
        """Sizes that follow from a configuration."""
        return MmaTmaResources(problem, config, stages=config["STAGES"], fragment_sets=FRAGMENT_SETS)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            common_reasons(problem, config, self.keys)
            or stages_reason(config)
            or sets_reason(problem, {**config, "SETS": FRAGMENT_SETS})
            or box_reason(problem, config)
            or resource_reason(self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES)
        )

    # --- the launch -----------------------------------------------------------------------------------------------

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        found, resources = view(problem), self.resources(problem, config)
        map_a, map_b = tensor_maps(found, config, swizzled=self.swizzled)
        return KernelSpec(
            problem,
            config,
            found,
            self.instance(problem, config),
            grid=(blocks(problem, config), 1, 1),
            block=(resources.threads, 1, 1),
            params=Params((*gemm_members(found), ("map_a", map_a), ("map_b", map_b))),
            dynamic_shared_bytes=resources.shared_bytes,
            capability=max(capability(problem, config), self.min_arch),
        )

    def instance(self, problem: Problem, config: Config) -> Instance:
        """The kernel template and its configuration."""
        types = (
            ("OPERATION", with_epilogue(operation_type(problem, config), problem)),
            ("TILE", tile_type(problem, config)),
        )
        values = tuple((key, config[key]) for key in KEYS if key not in SIZE_KEYS)
        d_bytes = output_width(problem) * problem.d.dtype.bits // 8
        return Instance(self.file, self.template, types, (*values, ("D_BYTES", d_bytes)))


MMA_TMA_RUNGS: tuple[Rung, ...] = (
    MmaTma(
        "mma-tma",
        "TMA: one thread copies whole tiles, an mbarrier counts their bytes",
        "mma-final",
        swizzled=False,
    ),
    MmaTma(
        "mma-tma-swizzled",
        "TMA swizzles the rows that it writes: no bank conflicts again",
        "mma-tma",
        swizzled=True,
    ),
)
"""In ladder order."""
