"""The Hopper rungs below wgmma-final: what each takes, its tunables, and its launch."""

from __future__ import annotations

from typing import ClassVar

from warptile.arrays.sparse import group_width
from warptile.device import REFERENCE, DeviceLimits
from warptile.isa import wgmma
from warptile.launch.params import Field, Params, Pointer
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.rung import Rung
from warptile.rungs.tensor_tiles import output_width, stages_reason
from warptile.rungs.tma import MBARRIER_BYTES
from warptile.rungs.wgmma import epilogue, tensor_maps, tiles
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.tiles import ROW_BYTES, ROWS, WARPGROUP, accumulator_registers, stage_bytes

TILE_KEYS = ("BM", "BN", "BK")
RING_KEYS = (*TILE_KEYS, "STAGES")
PERSISTENT_KEYS = (*RING_KEYS, "GROUP", "SMS")

MAX_REGISTERS = 255
METADATA_REGISTERS = 8
"""Two sets of words of metadata for 64 rows."""

REGISTERS_OF_TWO = 240
"""Of a thread of two consumer warpgroups beside a producer."""


class WgmmaRung(Rung):
    """What the Hopper rungs below wgmma-final share.

    Attributes:
        keys: its tunables.
        consumers: warpgroups that multiply.
        parts: consumer warpgroups that share a tile.
        producer: a warpgroup of its own loads tiles.
        persistent: a CTA takes one tile after the other.
        cluster: CTAs of a cluster, along M.
        stores: the epilogue stores by TMA, from shared memory.
        sparse: A is 2:4 sparse, its metadata beside it.
        overlaps: the kernel waits by itself for the launch before it (programmatic dependent launch). On a part of a
            GPU launches do not overlap: both would occupy their SMs at one time.
    """

    family: ClassVar[str] = "wgmma"
    min_arch = tiles.CAPABILITY
    only_arch = wgmma.ARCH

    def __init__(
        self,
        name: str,
        idea: str,
        previous: str,
        *,
        sizes: tuple[tuple[int, int, int], ...],
        keys: tuple[str, ...] = PERSISTENT_KEYS,
        consumers: int = 1,
        parts: int = 1,
        producer: bool = True,
        cluster: int = 1,
        stores: bool = False,
        sparse: bool = False,
        overlaps: bool = False,
        dtypes: tuple[str, ...] = tiles.DTYPES,
    ) -> None:
        """Args: ``sizes`` are BM, BN, STAGES of the candidates, the default first; others as the attributes."""
        self.name, self.idea, self.previous, self.sizes, self.keys = name, idea, previous, sizes, keys
        self.consumers, self.parts, self.producer, self.cluster = consumers, parts, producer, cluster
        self.persistent, self.stores, self.sparse, self.overlaps = "SMS" in keys, stores, sparse, overlaps
        self.dtypes = tuple(each for each in dtypes if not sparse or each != "bit1")

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARPGROUP * (self.consumers + self.producer)

    # --- configurations -------------------------------------------------------------------------------------------

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return self.candidates(problem, device)[0]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        row_bytes = ROW_BYTES * (2 if self.sparse else 1)
        fixed = {"BK": row_bytes * 8 // problem.a.dtype.bits, "GROUP": 8, "SMS": device.sms}
        found = ({"BM": bm, "BN": bn, "STAGES": stages, **fixed} for bm, bn, stages in self.sizes)
        return tuple({key: config[key] for key in self.keys} for config in found)

    # --- legality -------------------------------------------------------------------------------------------------

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = tiles.common_reasons(problem, config, self.keys, sparse=self.sparse)
        if reason is not None:
            return reason
        if config["BM"] % (ROWS * self.parts):
            return f"BM is {config['BM']}; {self.parts} warpgroups need a multiple of {ROWS * self.parts}"
        if "STAGES" in config and (reason := stages_reason(config)):
            return reason
        if self.cluster > config.get("SMS", self.cluster):
            return f"SMS is {config['SMS']}; a cluster has {self.cluster} CTAs"
        if self.sparse and problem.k == 0:
            return "K is 0: there is no metadata to read; take rung='mma-sparse'"
        if self.sparse and problem.k % group_width(problem.a.dtype):
            width = group_width(problem.a.dtype)
            return f"K is {problem.k}; a group of {problem.a.dtype.name} is {width} along K: a multiple of that"
        seen = tiles.view(problem, config).problem
        reason = self._accumulation_reason(seen, config, device)
        if reason is not None:
            return reason
        needed = self._registers(seen, config, device) + tiles.OVERHEAD_REGISTERS
        if needed > self._most_registers:
            return f"a thread needs about {needed} registers and has {self._most_registers}; take a smaller tile"
        return tiles.shared_reason(self._shared_bytes(seen, config, device))

    @property
    def _most_registers(self) -> int:
        """Registers that a consumer's thread can have."""
        return REGISTERS_OF_TWO if self.consumers == 2 else MAX_REGISTERS

    def _accumulation_reason(self, seen: Problem, config: Config, device: DeviceLimits) -> str | None:
        """Why accumulators of this type cannot be added up, or None."""
        if tiles.two_level(seen):
            return (
                "float32 accumulation of 8-bit floats takes two levels, which this rung does not have: take "
                "accumulate='float32_fast' or 'float16', or rung='wgmma-two-level' or 'wgmma-final'"
            )
        return None

    def _registers(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        """Registers of a thread for accumulators, and for what else it keeps beside them."""
        rows = config["BM"] // self.parts
        metadata = METADATA_REGISTERS * rows // ROWS if self.sparse else 0
        return int(accumulator_registers(seen, rows, config["BN"])) + metadata

    def _with_cluster(self, config: Config) -> Config:
        """The configuration with the cluster in it, as maps of operands need it."""
        return {**config, "CM": self.cluster}

    def _shared_bytes(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        """Shared memory of a CTA."""
        each = stage_bytes(seen, config)
        if not self.producer:
            return each + MBARRIER_BYTES
        output = self.consumers * epilogue.staging_bytes(seen, config, device) if self.stores else 0
        turns = self.consumers * MBARRIER_BYTES
        return tiles.shared_bytes(config["STAGES"], each, output) + turns

    # --- the launch -----------------------------------------------------------------------------------------------

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view = tiles.view(problem, config)
        seen = view.problem
        subtile = tiles.EpilogueSubtiles.of(seen, config, device)
        return KernelSpec(
            problem,
            config,
            view,
            self._instance(seen, config),
            grid=(self._ctas(seen, config), 1, 1),
            block=(self.threads, 1, 1),
            params=Params((*tensor_maps.epilogue_maps(seen, config, subtile), *self._members(view, config, device))),
            cluster=(self.cluster, 1, 1),
            dynamic_shared_bytes=self._shared_bytes(seen, config, device),
            capability=tiles.CAPABILITY,
            overlaps_previous=self.overlaps and device.max_ctas is None,
        )

    def _ctas(self, seen: Problem, config: Config) -> int:
        """One for each tile, or as many as stay."""
        if not self.persistent:
            return blocks(seen, config)
        clusters = ceil_div(seen.m, config["BM"] * self.cluster) * ceil_div(seen.n, config["BN"])
        return min(clusters, config["SMS"] // self.cluster) * self.cluster

    def _instance(self, seen: Problem, config: Config) -> Instance:
        types = (
            ("OPERATION", with_epilogue(tiles.operation_type(seen), seen)),
            ("TILE", tiles.tile_type(seen, config)),
        )
        values: tuple[tuple[str, int | bool], ...]
        if self.stores:
            values = (("STORE_BY_TMA", d_is_aligned(seen)), ("STORE_WIDTH", tiles.store_width(seen)))
        else:
            values = (("STORE_PAIRS", output_width(seen) >= 2),)
        if self.sparse:
            values += (("STAGE_EPILOGUE", tiles.stages_epilogue(seen, config)),)
        values += tuple((key, config[key]) for key in self.keys if key not in (*TILE_KEYS, "SMS"))
        return Instance(self.file, self.template, types, values, (tiles.instruction(seen, config),))

    def _members(self, view: View, config: Config, device: DeviceLimits) -> tuple[tuple[str, Field], ...]:
        """Members of the kernel's parameter struct."""
        clustered = self._with_cluster(config)
        subtile = tiles.EpilogueSubtiles.of(view.problem, clustered, device)
        map_a, map_b, map_d = tensor_maps.operand_maps(view, clustered, subtile)
        members: tuple[tuple[str, Field], ...] = (*gemm_members(view), ("map_a", map_a), ("map_b", map_b))
        if self.stores:
            members += (("map_d", map_d),)
        if self.sparse:
            members += (("metadata", Pointer("E")),)
        return members


LARGE_TILES = ((128, 256, 4), (256, 128, 4), (128, 192, 4), (128, 128, 5))
"""BM, BN, STAGES of rungs in which two warpgroups share a tile."""

WGMMA_RUNGS: tuple[Rung, ...] = (
    WgmmaRung(
        "wgmma-tma",
        "wgmma: a warpgroup multiplies both operands straight from shared memory",
        "mma-tma-swizzled",
        keys=TILE_KEYS,
        producer=False,
        sizes=((128, 128, 1), (64, 256, 1), (64, 128, 1), (128, 64, 1)),
    ),
    WgmmaRung(
        "wgmma-specialized",
        "warp specialization: a producer warp, a consumer warpgroup, mbarriers",
        "wgmma-tma",
        keys=RING_KEYS,
        sizes=((128, 128, 5), (64, 256, 4), (128, 192, 4), (64, 128, 6)),
    ),
    WgmmaRung(
        "wgmma-cooperative",
        "two consumer warpgroups share a 128 x 256 tile; register reallocation",
        "wgmma-specialized",
        keys=RING_KEYS,
        consumers=2,
        parts=2,
        sizes=LARGE_TILES,
    ),
    WgmmaRung(
        "wgmma-persistent",
        "persistent CTAs with a tile scheduler and L2-friendly rasterization",
        "wgmma-cooperative",
        consumers=2,
        parts=2,
        sizes=LARGE_TILES,
    ),
    WgmmaRung(
        "wgmma-multicast",
        "clusters of two CTAs: TMA multicast loads the shared B tile once",
        "wgmma-persistent",
        consumers=2,
        parts=2,
        cluster=2,
        sizes=LARGE_TILES,
    ),
    WgmmaRung(
        "wgmma-store",
        "epilogue through stmatrix and TMA store, overlapped with the next mainloop",
        "wgmma-persistent",
        consumers=2,
        parts=2,
        stores=True,
        sizes=LARGE_TILES,
    ),
    WgmmaRung(
        "wgmma-pingpong",
        "ping-pong: one consumer stores its tile while the other multiplies",
        "wgmma-store",
        consumers=2,
        stores=True,
        sizes=((128, 128, 5), (64, 256, 4), (128, 192, 4), (64, 128, 7)),
    ),
)
"""The wgmma family in ladder order, up to wgmma-final."""

WGMMA_DEPENDENT_LAUNCH = WgmmaRung(
    "wgmma-dependent-launch",
    "programmatic dependent launch: the prologue overlaps the previous kernel",
    "wgmma-store",
    consumers=2,
    parts=2,
    stores=True,
    overlaps=True,
    sizes=LARGE_TILES,
)
"""Programmatic dependent launch."""

WGMMA_SPARSE = WgmmaRung(
    "wgmma-sparse",
    "2:4 sparsity: compressed A plus metadata, twice the K extent per wgmma",
    "wgmma-final",
    consumers=2,
    parts=2,
    stores=True,
    sparse=True,
    overlaps=True,
    sizes=((256, 128, 3), (128, 256, 2), (128, 192, 3), (128, 128, 4), (256, 192, 2)),
)
"""2:4 weights."""
