"""wgmma-split: float32 GEMMs on tensor cores, as accurate as float32."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.launch.workspace import Workspace
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks, ceil_div, grid_reason, keeps_order, keys_reason, operand_reason
from warptile.rungs.operand_split import Split, split_of
from warptile.rungs.repack import repacking_ms
from warptile.rungs.tensor_tiles import stages_reason
from warptile.rungs.tma import map_type
from warptile.rungs.wgmma import split_cost, tensor_maps, tiles
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.rungs import PERSISTENT_KEYS, TILE_KEYS, WgmmaRung
from warptile.rungs.wgmma.stream_k import PARTIAL_ACCUMULATORS, PARTIAL_FLAGS
from warptile.rungs.wgmma.tiles import ROWS, WARPGROUP
from warptile.slicing import SLICE_BYTES

SLICE = "float16"
"""Element type of the slices."""

INTERVALS = ((2048, 128), (256, 64), (0, 32))
"""K from which main products are promoted after so many elements along K, at the latest.

Of positive terms, whose truncations add up, the RMS error is up to 0.06 times the interval in units of 2^-24 |A| |B|,
whatever K is; that of a chain of multiply-adds is about 0.23 sqrt(K) (both on the emulator). Below `LEAST_K` no
interval makes up for what the slices round.
"""

LEAST_K = 48
"""From which K on results are no less accurate than those of a chain of multiply-adds."""

BK = tiles.ROW_BYTES // SLICE_BYTES
"""K of a stage."""

COLUMNS = 64
"""Columns of the blocks of a tile that is computed without slices (kernels/tile/unsplit_product.cuh)."""

MOST_LINES = 2**31 - 256
"""Rows of A or columns of B of all matrices of a batch: 32-bit coordinates, and a tile may reach past the last one."""

SETS_OF_ACCUMULATORS = 3
"""Of main products, of cross products, and those that main products are promoted to."""


class WgmmaSplit(WgmmaRung):
    """The rung that splits float32 operands into two float16 slices each."""

    competes = True
    estimates = True
    batches = True
    batch_invariant = True

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return self._ranked(problem, device)[0]

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.alternatives`."""
        return tuple(self._ranked(problem, device)[1:])

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: for each tile K in one piece, and in as many as there are SMs for, half and a quarter
        of that."""
        found = []
        for bm, bn, stages in self.sizes:
            config = {"BM": bm, "BN": bn, "BK": BK, "STAGES": stages, "SPLIT_K": 1, "GROUP": 8, "SMS": device.sms}
            units, most = _units(problem), _most_ctas(device) // max(blocks(problem, config), 1)
            most = 1 if keeps_order(problem) else max(min(most, units), 1)
            # As many units each as any of them has: none with fewer.
            splits = {ceil_div(units, ceil_div(units, max(most // share, 1))) for share in (1, 2, 4)} | {1}
            found += [{**config, "SPLIT_K": each} for each in sorted(splits)]
        return tuple(found)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        kept = problem.a.sliced and problem.b.sliced
        return split_cost.terms_us(problem, config, device.sms, interval=_interval(problem), passes=not kept)

    def compared_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float | None:
        """As `Rung.compared_us`: with the pass that splits."""
        passes = [each for each in _splits(problem) if not each.kept]
        return self.estimate_us(problem, config, device) + 1e3 * repacking_ms(passes)

    def _ranked(self, problem: Problem, device: DeviceLimits) -> list[Config]:
        """Candidates, the one of the least predicted time first."""
        return sorted(self.candidates(problem, device), key=lambda config: self.estimate_us(problem, config, device))

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, ("float32",), ("row", "col"), batches=True)
        reason = reason or keys_reason(config, self.keys)
        if reason is not None:
            return reason
        if problem.ieee:
            return "precision is 'ieee', which asks for float32 multiply-adds; leave it out"
        if problem.k == 0:
            return "K is 0: there is nothing to split"
        if problem.d.dtype.name != "float32":
            return f"D is {problem.d.dtype.name}; it takes float32"
        lines = max(each.all_lines for each in _splits(problem))
        if lines > MOST_LINES:
            return f"matrices of the batch have {lines} lines together; it numbers {MOST_LINES} at most"
        if config["BM"] % (ROWS * self.parts):
            return f"BM is {config['BM']}; {self.parts} warpgroups need a multiple of {ROWS * self.parts}"
        if config["BN"] % COLUMNS:
            return f"BN is {config['BN']}; what cannot be split is computed in blocks of {COLUMNS} columns"
        seen = split_view(problem).problem
        reason = tiles.tile_reason(seen, config) or grid_reason(problem, config) or stages_reason(config)
        if reason is not None:
            return reason
        reason = _split_reason(problem, config, device)
        if reason is not None:
            return reason
        needed = self._registers(seen, config, device) + tiles.OVERHEAD_REGISTERS
        if needed > self._most_registers:
            return f"a thread needs about {needed} registers and has {self._most_registers}; take a smaller tile"
        return tiles.shared_reason(self._shared_bytes(seen, config, device))

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        if problem.k < LEAST_K:
            return f"K is {problem.k}; below {LEAST_K} it is less accurate than a chain of multiply-adds"
        return None

    def _registers(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        return SETS_OF_ACCUMULATORS * super()._registers(seen, config, device)

    def _shared_bytes(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        subtiles = tiles.EpilogueSubtiles.of(seen, config, device)
        output = self.consumers * subtiles.buffers * subtiles.bytes
        return tiles.shared_bytes(config["STAGES"], 2 * tiles.stage_bytes(seen, config), output)

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view = split_view(problem)
        seen = view.problem
        return KernelSpec(
            problem,
            config,
            view,
            self._instance(seen, config),
            grid=(_ctas(problem, config), 1, 1),
            block=(self.threads, 1, 1),
            params=Params(self._members(view, config, device)),
            dynamic_shared_bytes=self._shared_bytes(seen, config, device),
            capability=tiles.CAPABILITY,
            kernel_workspaces=self._workspaces(seen, config),
            overlaps_previous=device.max_ctas is None,
        )

    def _workspaces(self, seen: Problem, config: Config) -> tuple[Workspace, ...]:
        if config["SPLIT_K"] == 1:
            return ()
        slots = _ctas(seen, config) * self.consumers
        each = tiles.accumulator_registers(seen, config["BM"] // self.parts, config["BN"]) * 4 * WARPGROUP
        return Workspace(PARTIAL_ACCUMULATORS, slots * each), Workspace(PARTIAL_FLAGS, slots * 4, zero=True)

    def _instance(self, seen: Problem, config: Config) -> Instance:
        types = (
            ("OPERATION", with_epilogue(tiles.operation_type(seen), seen)),
            ("TILE", tiles.tile_type(seen, config)),
        )
        values: tuple[tuple[str, int | bool], ...] = (
            ("STORE_BY_TMA", d_is_aligned(seen)), ("STORE_WIDTH", tiles.store_width(seen)),
        )  # fmt: skip
        values += (("INTERVAL", _interval(seen)), ("SPLITS_K", config["SPLIT_K"] > 1), ("BATCHED", seen.batch > 1))
        values += tuple((key, config[key]) for key in self.keys if key not in (*TILE_KEYS, "SPLIT_K", "SMS"))
        return Instance(self.file, self.template, types, values, (tiles.instruction(seen, config),))

    def _members(self, view: View, config: Config, device: DeviceLimits) -> tuple[tuple[str, Field], ...]:
        of_a, of_b = view.splits
        part_a, part_b = tiles.smem_tiles(view.problem, config)
        map_a, map_b = _slices_map(of_a, config["BM"]), _slices_map(of_b, config["BN"])
        rest_a = tensor_maps.rest_map(map_a, part_a, view.problem.m)
        rest_b = tensor_maps.rest_map(map_b, part_b, view.problem.n)
        splits = config["SPLIT_K"] > 1
        stores_by_tma = d_is_aligned(view.problem)
        subtile = tiles.EpilogueSubtiles.of(view.problem, config, device)
        stride_c, stride_d = (each.batch_stride if each is not None else 0 for each in (view.problem.c, view.problem.d))
        map_d = tensor_maps.output_map(view.problem, config, subtile) if stores_by_tma else map_a
        return (
            *gemm_members(view), ("map_a", map_a), ("map_a[1]", rest_a), ("map_b", map_b), ("map_b[1]", rest_b),
            ("map_d", map_d),
            *_source_members("source_a", of_a), *_source_members("source_b", of_b),
            ("partial_accumulators", Pointer(PARTIAL_ACCUMULATORS if splits else None)),
            ("counters", Pointer(PARTIAL_FLAGS if splits else None)),
            ("split_tiles", Scalar("s32", blocks(view.problem, config) if splits else 0)),
            ("batch", Scalar("s32", view.problem.batch)),
            ("batch_stride_c", Scalar("s64", stride_c)),
            ("batch_stride_d", Scalar("s64", stride_d)),
        )  # fmt: skip


def _interval(problem: Problem) -> int:
    """How much of K main products have in common before they are promoted."""
    return next(interval for least, interval in INTERVALS if problem.k >= least)


def _unit(problem: Problem) -> int:
    """What K is split into: whole stages, and whole intervals of promotion."""
    return max(_interval(problem), BK)


def _units(problem: Problem) -> int:
    return max(ceil_div(problem.k, _unit(problem)), 1)


def _most_ctas(device: DeviceLimits) -> int:
    """CTAs that may wait for each other."""
    return device.co_resident_ctas(1) if device.max_ctas is None else device.max_ctas


def _ctas(problem: Problem, config: Config) -> int:
    count = blocks(problem, config)
    return count * config["SPLIT_K"] if config["SPLIT_K"] > 1 else min(count, config["SMS"])


def _split_reason(problem: Problem, config: Config, device: DeviceLimits) -> str | None:
    """Why K of a tile cannot be split among CTAs so, or None."""
    splits = config["SPLIT_K"]
    if splits == 1:
        return None
    if keeps_order(problem):
        return f"SPLIT_K is {splits}; with batch_invariant=True K is not split: take SPLIT_K=1"
    if splits > _units(problem):
        return f"SPLIT_K is {splits}; K has {_units(problem)} parts of {_unit(problem)}"
    ctas, resident = _ctas(problem, config), device.co_resident_ctas(1)
    if ctas > resident:
        return (
            f"SPLIT_K is {splits}: its {ctas} CTAs wait for each other, and {device.name} certainly runs {resident} at "
            "a time: take fewer splits"
        )
    return None


def _splits(problem: Problem) -> tuple[Split, Split]:
    """How A and B are split."""
    of_a = split_of("A", problem.a, problem.m, problem.k, problem.batch)
    return of_a, split_of("B", problem.b, problem.n, problem.k, problem.batch)


def split_view(problem: Problem) -> View:
    """The problem as the kernel sees it: both operands K-major, of float16, in the memory of their slices."""
    of_a, of_b = _splits(problem)

    def slices(split: Split, major: str) -> Operand:
        of_matrix = split.matrix_lines * split.target_stride
        return Operand(DTYPES[SLICE], major, split.target_stride, MAX_ALIGNMENT_BYTES, batch_stride=of_matrix)

    seen = replace(problem, a=slices(of_a, "row"), b=slices(of_b, "col"))
    return View(seen, of_a.target, of_b.target, splits=(of_a, of_b))


def _slices_map(split: Split, extent: int) -> TensorMap:
    """The tensor map of both slices of an operand, and a box of ``extent`` lines of one of them."""
    line_bytes = split.target_stride * SLICE_BYTES
    return TensorMap(
        split.target,
        map_type(Operand(DTYPES[SLICE], "row", split.target_stride)),
        dims=(max(split.k, 1), split.all_lines, 2),
        strides_bytes=(line_bytes, split.all_lines * line_bytes),
        box=(tiles.ROW_BYTES // SLICE_BYTES, extent, 1),
        swizzle=tensor_maps.SWIZZLE,
        offset_bytes=split.slices_offset_bytes,
        l2_promotion="128B",
    )


def _source_members(name: str, split: Split) -> tuple[tuple[str, Field], ...]:
    """Members of a ``SplitSource`` (kernels/tile/split_accumulation.cuh)."""
    return (
        (f"{name}.data", Pointer(split.source)),
        (f"{name}.exponents", split.exponents_pointer),
        (f"{name}.line_stride", Scalar("s64", split.line_stride)),
        (f"{name}.k_stride", Scalar("s64", split.k_stride)),
        (f"{name}.matrix_stride", Scalar("s64", split.matrix_stride)),
        (f"{name}.matrix_lines", Scalar("s32", split.matrix_lines)),
    )


WGMMA_SPLIT = WgmmaSplit(
    "wgmma-split",
    "float32 as two scaled float16 slices: three products, the largest promoted",
    "wgmma-two-level",
    consumers=2,
    parts=2,
    stores=True,
    sizes=((128, 128, 3), (128, 64, 4)),
    keys=(*PERSISTENT_KEYS, "SPLIT_K"),
    dtypes=("float32",),
)
"""float32 on tensor cores."""
