"""wgmma-final: what it takes, its tunables, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from operator import itemgetter
from typing import ClassVar

from warptile.device import REFERENCE, DeviceLimits
from warptile.isa import wgmma
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.tensor_map import TensorMap
from warptile.launch.workspace import Workspace
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import ceil_div, grid_reason, keeps_order
from warptile.rungs.rung import Extents, Rung
from warptile.rungs.tensor_tiles import stages_reason
from warptile.rungs.wgmma import (
    adapt,
    block_scales,
    candidates,
    epilogue,
    estimates,
    fused_repack,
    residue_classes,
    tensor_maps,
    tiles,
)
from warptile.rungs.wgmma.candidates import Illegal
from warptile.rungs.wgmma.model import model_of
from warptile.rungs.wgmma.sizes import Alike, Clusters, Sizes, clusters_of, sizes_of
from warptile.rungs.wgmma.stream_k import PARTIAL_ACCUMULATORS, PARTIAL_FLAGS
from warptile.rungs.wgmma.tile_shapes import TUNABLES
from warptile.rungs.wgmma.tiles import ROWS, WARPGROUP

FLAGS = ("PINGPONG", "ALONG_N", "OVERLAP", "STREAM", "SWAP")
"""Keys that are 0 or 1."""

OF_KERNEL = tuple(name for name in TUNABLES if name != "SMS")
"""Keys that a kernel depends on."""

_of_kernel = itemgetter(*OF_KERNEL)

ALTERNATIVES = 5
"""Predictions that a plan shows beside its own."""

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))

SWAPPED_PINGPONG = 96
"""Most accumulators of a thread with SWAP and PINGPONG if operands do not have 16 bits or TMA does not store D. With
more of them the compiler runs out of registers."""

STREAM_REGISTERS, CLUSTER_REGISTERS, STREAM_WIDE_REGISTERS = 8, 4, 8
"""Further registers with STREAM or SPLITS, of these in clusters, and with STREAM where D has 32 bits or is one of a
batch."""

STREAM_CLUSTERED, STREAM_WITHOUT_TMA = 96, 120
"""Most accumulators of a thread with STREAM: in clusters of four, or in others where D has 32 bits or TMA cannot store
it; and without clusters where TMA cannot store it."""

FRAGMENT_REGISTERS, READER_REGISTERS = 8, 6
"""Further registers where A is loaded through registers: two fragments for each 64 rows, and their stage addresses."""

CONSUMER_REGISTERS, CONSUMER_REGISTERS_WITH_STORE_WARPS = 240, 224
"""Registers of a consumer thread without and with epilogue store warps: as in wgmma/final/config.cuh."""

STORE_WARP_SAVES, STORE_WARP_COSTS = 6, 8
"""Registers that a consumer thread saves where epilogue store warps store rows of D, and needs where they store
columns."""

EPILOGUE_REGISTERS, REGISTERS_OF_TENSOR = 8, 4
"""Further registers of an epilogue's expression, and of each tensor that it reads, where a finished tile is stored at
once. Where the epilogue overlaps with the next mainloop, a held tile has half of the registers of its accumulators."""

STORE_REGISTERS = 12
"""Further registers of a consumer in a cluster that stores D without TMA: all of it, or the ends of rows."""

MOST_ALONG_BOTH, PINGPONG_WIDE, PRODUCER_OF_PANELS = 160, 176, 160
"""Most accumulators of a thread in clusters: along both M and N with PINGPONG or three blocks of rows; with PINGPONG if
D has 32 bits; and with PINGPONG, or three blocks in clusters of four, if A or B has panels, whose producer keeps more
state."""

PINGPONG_MOST = 192
"""Most accumulators of a thread with PINGPONG where D has 32 bits, or with SWAP in clusters."""

EIGHTS, PINGPONG_EIGHTS, UNALIGNED_EIGHTS = 104, 128, 144
CLUSTERED_EIGHTS, OVERLAPPED_EIGHTS = 84, 52
"""Most accumulators of a thread where BN is no multiple of 16: with SWAP if D has 32 bits, and so with PINGPONG; with
PINGPONG in clusters if TMA does not store D; and with SWAP in clusters, or with OVERLAP, if D has 32 bits and TMA does
not store it."""

LOADED_PANELS = 52
"""Most accumulators of a thread with SWAP where an unaligned A is contiguous along M, D has 32 bits, and TMA does not
store it."""

TWO_BLOCKS = 128
SWAPPED_OF_TWO, SWAPPED_HALVES_OF_TWO, PANELS_OF_TWO = 120, 92, 176
"""Rows of a warpgroup in two blocks; and the most accumulators of a thread then if TMA does not store D: with SWAP if
D has 16 bits, the same with pairs of 16-bit accumulators, and without SWAP if A or B has panels."""

CLUSTERED_OF_TWO = 160
"""The same in a cluster where A has panels, whatever stores D."""

THREE_BLOCKS = 192
MOST_OF_THREE, SWAPPED_OF_THREE, SWAPPED_OF_THREE_WITHOUT_TMA = 168, 144, 96
"""Rows of a warpgroup in three blocks; and the most accumulators of a thread then: without TMA stores of D, with SWAP,
with both."""


PARTIALS, NO_PARTIALS = (
    (Pointer(PARTIAL_ACCUMULATORS), Pointer(PARTIAL_FLAGS)),
    (Pointer(None), Pointer(None)),
)
NO_SOURCE = Pointer(None), Scalar("s64", 0)
NO_SHARDS = ("shard_rows", Scalar("s32", 0)), ("first_shard", Scalar("s32", 0))
"""Members of the parameter struct that are always the same: of splits that meet in global memory or do not, of an
operand that the kernel does not repack, and of an A that is there."""


# --- legality -----------------------------------------------------------------------------------------------------


def _division_reason(config: Config) -> str | None:
    """Why CONSUMERS and PINGPONG do not divide the tile, or None."""
    for key in FLAGS:
        if config[key] > 1:
            return f"{key} is {config[key]}; it is 0 or 1"
    if config["CONSUMERS"] > 2:
        return f"CONSUMERS is {config['CONSUMERS']}; there are one or two consumer warpgroups"
    if config["PINGPONG"] and config["CONSUMERS"] != 2:
        return "PINGPONG is 1 and CONSUMERS is not 2; two warpgroups take turns"
    return stages_reason(config)


def _cluster_reason(config: Config) -> str | None:
    """Why there is no such cluster, or None."""
    if (config["CM"], config["CN"]) not in CLUSTERS:
        listed = ", ".join(f"{cm}x{cn}" for cm, cn in CLUSTERS)
        return f"CM, CN are {config['CM']}, {config['CN']}; clusters are {listed}"
    if config["CM"] * config["CN"] > config["SMS"]:
        return f"SMS is {config['SMS']}; a cluster has {config['CM'] * config['CN']} CTAs"
    return None


def _subtile_reason(seen: Problem, config: Config, subtile: tiles.EpilogueSubtiles) -> str | None:
    """Why D cannot be stored in subtiles of the tile, or None: rows of them have 16 bytes at least."""
    if subtile.box[0] * subtile.element_bytes >= MAX_ALIGNMENT_BYTES:
        return None
    return (
        f"BN is {config['BN']}, of which a warpgroup stores {subtile.bn} columns; of {seen.d.dtype.name} it must be "
        f"a multiple of {MAX_ALIGNMENT_BYTES // subtile.element_bytes}"
    )


def _overlap_reason(seen: Problem, config: Config, held: int) -> str | None:
    """Why the epilogue of a tile cannot overlap the next tile's mainloop, or None."""
    if not config["OVERLAP"]:
        return None
    if config["PINGPONG"] or config["STREAM"] or config["SPLITS"] > 1:
        return "OVERLAP is 1; it goes with PINGPONG=0, STREAM=0, SPLITS=1"
    if held == 0:
        registers = epilogue.accumulator_registers(seen, config)
        return (
            f"OVERLAP is 1 and a thread has {registers} accumulator registers, which leave none to hold a finished "
            "tile: take a smaller one"
        )
    k_tiles = ceil_div(seen.k, config["BK"])
    if k_tiles < held:
        return f"K is {seen.k}, {k_tiles} tiles of {config['BK']}; OVERLAP=1 stores during {held} of them"
    return None


def _split_reason(problem: Problem, config: Config, accumulators: int) -> str | None:
    """Why K of a tile cannot be split among CTAs so, or None."""
    if not config["STREAM"] and config["SPLITS"] == 1:
        return None
    if config["PINGPONG"]:
        return "PINGPONG is 1; STREAM and SPLITS split K of cooperative tiles"
    if config["STREAM"] and config["SPLITS"] > 1:
        return f"STREAM is 1 and SPLITS is {config['SPLITS']}; one of them splits K"
    name = "STREAM" if config["STREAM"] else "SPLITS"
    if problem.accumulator.name == "int32_saturating":
        return "saturating accumulators depend on the order of additions, which STREAM and SPLITS change"
    if keeps_order(problem):
        return (
            f"{name} is {config[name]}, which splits K of a tile, and of which tiles depends on M; with "
            f"batch_invariant=True it is {0 if config['STREAM'] else 1}"
        )
    if accumulators % 4:
        return f"BN is {config['BN']}; a thread's {accumulators} accumulator registers are reduced four at a time"
    k_tiles = ceil_div(problem.k, config["BK"])
    if k_tiles < config["SPLITS"]:
        return f"SPLITS is {config['SPLITS']}; K has {k_tiles} tiles of {config['BK']}"
    return None


def _residency_reason(view: View, config: Config, cluster_k: int, ctas: int, device: DeviceLimits) -> str | None:
    """Why CTAs that wait for each other may not all be resident, or None."""
    if not config["STREAM"] and config["SPLITS"] == 1 and not view.fused_repacks:
        return None
    cluster = config["CM"] * config["CN"] * cluster_k
    resident = device.co_resident_ctas(cluster)
    if ctas > resident:
        what = "STREAM" if config["STREAM"] else f"SPLITS={config['SPLITS']}" if config["SPLITS"] > 1 else "OVERLAP"
        return (
            f"{what}: its {ctas} CTAs wait for each other; {device.name} certainly runs {resident} at a time"
            f"{f' in clusters of {cluster}' if cluster > 1 else ''}: take SMS={resident} or fewer splits"
        )
    return None


def _two_level_reason(seen: Problem, config: Config) -> str | None:
    """Why accumulation of 8-bit floats cannot have two levels, or None."""
    if tiles.two_level(seen) and config["BK"] % tiles.TWO_LEVEL_K:
        unit = f"a multiple of {tiles.TWO_LEVEL_K}"
        return f"BK is {config['BK']}; with accumulate='float32' of 8-bit floats it must be {unit}"
    if tiles.two_level(seen) and min(config["CM"], config["CN"]) > 1:
        return "CM, CN are 2, 2; with accumulate='float32' of 8-bit floats the producer of such a cluster spills"
    return None


def _registers_reason(seen: Problem, config: Config, sizes: Sizes) -> str | None:
    """Why a consumer's accumulators do not fit into its registers, or None."""
    accumulators, clustered = sizes.accumulators, config["CM"] * config["CN"] > 1
    needed = epilogue.accumulator_registers(seen, config) + tiles.OVERHEAD_REGISTERS
    needed += block_scales.registers(seen, config)
    if sizes.unaligned_a:
        needed += FRAGMENT_REGISTERS * sizes.rows // ROWS + READER_REGISTERS
    if config["OVERLAP"]:
        needed += sizes.held * sizes.held_registers
    elif seen.epilogue is not None:
        needed += EPILOGUE_REGISTERS + REGISTERS_OF_TENSOR * len(seen.epilogue.tensors)
    if config["STREAM"] or config["SPLITS"] > 1:
        needed += STREAM_REGISTERS + (CLUSTER_REGISTERS if clustered else 0)
    if config["STREAM"] and (seen.d.dtype.bits == 32 or seen.batch > 1):
        needed += STREAM_WIDE_REGISTERS
    if config["STREAM"]:
        wide = not sizes.by_tma or seen.d.dtype.bits == 32 or min(config["CM"], config["CN"]) > 1
        most = STREAM_CLUSTERED if clustered and wide else accumulators if sizes.by_tma else STREAM_WITHOUT_TMA
        if accumulators > most:
            return f"STREAM is 1 and a thread has {accumulators} accumulators; {most} fit here: take a smaller tile"
    tight = not (sizes.d_is_aligned and seen.a.dtype.bits == 16)
    if config["SWAP"] and config["PINGPONG"] and tight and accumulators > SWAPPED_PINGPONG:
        return (
            f"SWAP and PINGPONG are 1 and a thread has {accumulators} accumulators; {SWAPPED_PINGPONG} fit here: take "
            "a smaller tile"
        )
    if config["STREAM"] and sizes.rows > ROWS and not sizes.by_tma:
        return (
            f"STREAM is 1 and a warpgroup has {sizes.rows} rows of a D that TMA cannot store; with more than {ROWS} "
            "the compiler runs out of registers"
        )
    has = CONSUMER_REGISTERS
    if config["OVERLAP"] and not sizes.by_tma:  # epilogue store warps store finished tiles
        has = CONSUMER_REGISTERS_WITH_STORE_WARPS
        needed += STORE_WARP_COSTS if config["SWAP"] else -STORE_WARP_SAVES
    elif clustered and not sizes.d_is_aligned:
        needed += STORE_REGISTERS
    if needed > has:
        return f"a thread needs about {needed} registers and has {has}; take a smaller tile"
    return None


def _spilling_reason(seen: Problem, config: Config, sizes: Sizes) -> str | None:
    """Why the compiler would run out of registers although accumulators fit, or None: found by compiling."""
    rows, accumulators = sizes.rows, sizes.accumulators
    cluster, aligned = config["CM"] * config["CN"], sizes.d_is_aligned
    limits: list[tuple[int, str]] = []
    if min(config["CM"], config["CN"]) > 1 and (config["PINGPONG"] or rows == THREE_BLOCKS):
        limits.append((MOST_ALONG_BOTH, "in a cluster along both M and N"))
    if cluster > 1 and config["PINGPONG"] and seen.d.dtype.bits == 32:
        limits.append((PINGPONG_WIDE, f"of {seen.d.dtype.name} in a cluster with PINGPONG=1"))
    wide, in_turns, eights = seen.d.dtype.bits == 32, bool(config["PINGPONG"]), bool(config["BN"] % 16)
    if in_turns and (wide or (config["SWAP"] and cluster > 1)):
        limits.append((PINGPONG_MOST, f"of {seen.d.dtype.name} with PINGPONG=1, SWAP={config['SWAP']}"))
    if eights and config["SWAP"] and wide:
        most = PINGPONG_EIGHTS if in_turns else EIGHTS
        limits.append((most, f"of {seen.d.dtype.name} with SWAP=1 and BN={config['BN']}"))
    if eights and config["SWAP"] and wide and not aligned and (cluster > 1 or config["OVERLAP"]):
        where = f"with SWAP=1, OVERLAP={config['OVERLAP']} and BN={config['BN']} in clusters of {cluster}"
        limits.append((OVERLAPPED_EIGHTS if config["OVERLAP"] else CLUSTERED_EIGHTS, where))
    panels = sizes.unaligned_a and not tiles.k_major(seen.a, is_a=True)
    if panels and config["SWAP"] and wide and not aligned:
        limits.append((LOADED_PANELS, "with SWAP=1 where an unaligned A is contiguous along M"))
    if eights and in_turns and cluster > 1 and not aligned:
        where = f"in a cluster with PINGPONG=1 and BN={config['BN']} if TMA does not store D"
        limits.append((UNALIGNED_EIGHTS, where))
    k_major = tiles.k_major(seen.a, is_a=True) and tiles.k_major(seen.b, is_a=False)
    if cluster > 1 and not k_major and (config["PINGPONG"] or (rows == THREE_BLOCKS and cluster > 2)):
        limits.append((PRODUCER_OF_PANELS, "in such a cluster where K is not contiguous in A and B"))
    if rows == TWO_BLOCKS and not aligned and config["SWAP"] and not wide:
        most = SWAPPED_HALVES_OF_TWO if seen.accumulator.bits == 16 else SWAPPED_OF_TWO
        limits.append((most, f"of {seen.d.dtype.name} with SWAP=1 if TMA does not store D"))
    if rows == TWO_BLOCKS and cluster > 1 and not tiles.k_major(seen.a, is_a=True):
        limits.append((CLUSTERED_OF_TWO, "in a cluster where K is not contiguous in A"))
    if rows == TWO_BLOCKS and not aligned and not config["SWAP"] and not k_major:
        limits.append((PANELS_OF_TWO, "where K is not contiguous in A and B and TMA does not store D"))
    if rows == THREE_BLOCKS and config["SWAP"]:
        limits.append((SWAPPED_OF_THREE if aligned else SWAPPED_OF_THREE_WITHOUT_TMA, f"with SWAP=1 and {rows} rows"))
    elif rows == THREE_BLOCKS and not aligned:
        limits.append((MOST_OF_THREE, f"of {rows} rows that TMA does not store"))
    for most, where in limits:
        if accumulators > most:
            return f"a thread has {accumulators} accumulators; {most} fit {where}: take a smaller tile"
    if rows > ROWS and config["SWAP"] and sizes.unaligned_a:
        return f"SWAP is 1 and a warpgroup loads {rows} rows of an unaligned A; {ROWS} fit: take a smaller tile"
    return None


class _Kernel:
    """A configuration but for its SMs, and a problem that stands for all that are `Alike`: what does not depend on
    extents is worked out once for all of them."""

    def __init__(self, alike: Alike, tunables: tuple[int, ...], cluster_k: int) -> None:
        self._seen, self._config = alike.problem, dict(zip(OF_KERNEL, tunables, strict=True))
        self._cluster_k = cluster_k

    @cached_property
    def tile_reason(self) -> str | None:
        """Why there is no such tile, or None."""
        return tiles.tile_reason(self._seen, self._config)

    @cached_property
    def sizes(self) -> Sizes:
        """Of a tile that there is."""
        return sizes_of(self._seen, self._config, self._cluster_k)

    @cached_property
    def output_reason(self) -> str | None:
        """Why its sums cannot be added up or stored, or None."""
        seen, config = self._seen, self._config
        return (
            _two_level_reason(seen, config)
            or block_scales.reason(seen, config)
            or _subtile_reason(seen, config, self.sizes.subtile)
        )

    @cached_property
    def resources_reason(self) -> str | None:
        """Why it does not fit into an SM, or None."""
        seen, config, sizes = self._seen, self._config, self.sizes
        return (
            _registers_reason(seen, config, sizes)
            or _spilling_reason(seen, config, sizes)
            or tiles.shared_reason(sizes.shared_bytes)
        )


_kernel = lru_cache(maxsize=1024)(_Kernel)


class _Configured:
    """A configuration for a problem on a device. A plan asks several times: whether it is legal when it chooses and
    when it takes what was chosen, and how it is launched."""

    def __init__(self, problem: Problem, tunables: tuple[tuple[str, int], ...], device: DeviceLimits) -> None:
        self._problem, self.config, self.device = problem, dict(tunables), device

    @cached_property
    def view(self) -> View:
        """The problem as the kernel sees it."""
        return tiles.view(self._problem, self.config)

    @cached_property
    def alike(self) -> tuple[Alike, tuple[int, ...], int]:
        """What its kernel depends on."""
        seen = self.view.problem
        return Alike(seen), _of_kernel(self.config), tiles.cluster_k(seen, self.config, self.device)

    @cached_property
    def kernel(self) -> _Kernel:
        """What follows from the configuration whatever the extents."""
        return _kernel(*self.alike)

    @cached_property
    def clusters(self) -> Clusters:
        """Of the launch."""
        return clusters_of(self.view.problem, self.config)

    @cached_property
    def reason(self) -> str | None:
        """Why the kernel cannot run so, or None."""
        problem, config = self._problem, self.config
        return (
            tiles.type_reason(problem, batches=True, final=True)
            or tiles.tunables_reason(config, TUNABLES, FLAGS)
            or self.kernel.tile_reason
            or grid_reason(problem, config)
            or _division_reason(config)
            or _cluster_reason(config)
            or self.kernel.output_reason
            or self._extents_reason()
            or self.kernel.resources_reason
        )

    def _extents_reason(self) -> str | None:
        problem, config, sizes = self._problem, self.config, self.kernel.sizes
        return (
            _overlap_reason(self.view.problem, config, sizes.held)
            or _split_reason(problem, config, sizes.accumulators)
            or _residency_reason(self.view, config, sizes.cluster_k, self.clusters.ctas, self.device)
        )


_configured = lru_cache(maxsize=64)(_Configured)


# --- the launch ---------------------------------------------------------------------------------------------------


def _loaded_once(seen: Problem, config: Config, device: DeviceLimits) -> tuple[bool, bool]:
    """Whether A is loaded by one CTA alone and would fill L2, and whether B is: weights of skinny GEMMs."""
    sizes = (extent * seen.k * seen.a.dtype.bits // 8 > device.l2_bytes for extent in (seen.m, seen.n))
    others = (seen.n <= config["BN"] and config["CN"] == 1, seen.m <= config["BM"] and config["CM"] == 1)
    of_a, of_b = (large and alone and seen.batch == 1 for large, alone in zip(sizes, others, strict=True))
    return of_a, of_b


def _workspaces(configured: _Configured, through_global: bool) -> tuple[Workspace, ...]:
    view, config, accumulators = configured.view, configured.config, configured.kernel.sizes.accumulators
    if view.fused_repacks:
        return (fused_repack.counters(view.problem, config),)
    if not through_global:
        return ()
    count = configured.clusters.ctas * config["CONSUMERS"]
    partials = Workspace(PARTIAL_ACCUMULATORS, count * accumulators * 4 * WARPGROUP)
    return partials, Workspace(PARTIAL_FLAGS, count * 4, zero=True)


def _members(
    view: View, config: Config, subtile: tiles.EpilogueSubtiles, split_tiles: int, through_global: bool
) -> tuple[tuple[str, Field], ...]:
    """Members of ``WgmmaFinalParams``."""
    seen = view.problem
    map_a, map_b, map_d = tensor_maps.operand_maps(view, config, subtile)
    residues = tensor_maps.other_residue_class_maps(view, config)
    partials, flags = NO_PARTIALS
    if view.fused_repacks:
        flags = Pointer(fused_repack.SLICES)
    elif through_global:
        partials, flags = PARTIALS
    stride_c, stride_d = (each.batch_stride if each is not None else 0 for each in (seen.c, seen.d))
    fused = {each.target: each for each in view.fused_repacks}
    part_a, part_b = tiles.smem_tiles(seen, config)
    last = tensor_maps.last_panel_map(map_b, part_b)
    maps_b = [map_b, *([last] if last is not None else []), tensor_maps.rest_map(map_b, part_b, seen.n)]
    maps_a = [map_a, *(residues or [tensor_maps.rest_map(map_a, part_a, seen.m)])]
    members: list[tuple[str, Field]] = [*gemm_members(view), *_array("map_b", maps_b), ("map_d", map_d)]
    members += _array("map_a", maps_a)
    members += [
        ("partial_accumulators", partials),
        ("flags", flags),
        ("stream_k_tiles", Scalar("s32", split_tiles)),
        ("batch", Scalar("s32", seen.batch)),
        ("batch_stride_c", Scalar("s64", stride_c)),
        ("batch_stride_d", Scalar("s64", stride_d)),
    ]
    for letter, name in (("a", view.a), ("b", view.b)):
        repack = fused.get(name)
        source, pitch = NO_SOURCE
        if repack is not None:
            source, pitch = Pointer(repack.source), Scalar("s64", repack.source_stride * repack.unit_bytes)
        members += [(f"source_{letter}", source), (f"source_pitch_{letter}", pitch)]
    return (*members, *NO_SHARDS)


def _array(name: str, maps: Sequence[TensorMap]) -> list[tuple[str, Field]]:
    return [(f"{name}[{index}]" if index else name, each) for index, each in enumerate(maps)]


class WgmmaFinal(Rung):
    """One kernel for every type, layout and schedule of Hopper's tensor cores."""

    name = "wgmma-final"
    family: ClassVar[str] = "wgmma"
    idea = "every type, layout and schedule in one tuned kernel"
    previous = "wgmma-overlap"
    min_arch = 90
    only_arch = wgmma.ARCH
    dtypes: tuple[str, ...] = tiles.DTYPES
    estimates = True
    persistent = True
    batches = True
    batch_invariant = True

    # --- configurations -------------------------------------------------------------------------------------------

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The configuration of the least predicted time."""
        return _default(self, problem, device)[0]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return candidates.candidates(problem, illegal_on(device), device)

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.alternatives`."""
        return tuple(islice(candidates.ranked(problem, illegal_on(device), device), 1, 1 + ALTERNATIVES))

    def kernel_examples(self, like: Problem, device: DeviceLimits = REFERENCE) -> tuple[tuple[Problem, Config], ...]:
        """As `Rung.kernel_examples`."""
        if tiles.type_reason(like, batches=True, final=True) is not None:
            return ()
        return tuple(candidates.kernel_examples(like, illegal_on(device), device))

    def adapt(
        self,
        problem: Problem,
        config: Config,
        tuned_for: Extents,
        device: DeviceLimits = REFERENCE,
        tuned_on: DeviceLimits = REFERENCE,
    ) -> Config:
        """As `Rung.adapt`."""
        return adapt.adapted(problem, config, tuned_for, illegal_on(device), device, tuned_on)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        chosen, time_us = _default(self, problem, device)
        return time_us if config == chosen else estimates.estimate_us(problem, config, device)

    def changed_since_searches(self, problem: Problem) -> bool:
        """As `Rung.changed_since_searches`: sums are promoted while the next stage is multiplied."""
        return tiles.two_level(problem)

    def searched_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.searched_us`."""
        if not self.changed_since_searches(problem):
            return super().searched_us(problem, config, device)
        return estimates.surveyed_us(replace(problem, epilogue=None), config, device)

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return estimates.terms_us(problem, config, device)

    def model_basis(self, device: DeviceLimits) -> str:
        """As `Rung.model_basis`."""
        fitted = model_of(device.name).fitted
        return f"by a cost model fitted to {fitted.quality.problems} problems on an {fitted.gpu}"

    def model_error(self, device: DeviceLimits) -> float | None:
        """As `Rung.model_error`."""
        fitted = model_of(device.name).fitted
        return fitted.quality.error_90 if fitted.gpu == device.name else None

    # --- legality -------------------------------------------------------------------------------------------------

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return _configured(problem, tuple(config.items()), device).reason

    # --- the launch -----------------------------------------------------------------------------------------------

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        configured = _configured(problem, tuple(config.items()), device)
        view, sizes, clusters = configured.view, configured.kernel.sizes, configured.clusters
        seen = view.problem
        through_global = clusters.split_tiles > 0 and sizes.cluster_k == 1
        if seen.epilogue is not None and not (through_global or sizes.unaligned_a or sizes.by_residue_class):
            # Whole warps evaluate the epilogue for accumulator fragments, whose rows are in order.
            view = replace(view, problem=replace(seen, epilogue=replace(seen.epilogue, in_quads=True)))
        maps = tensor_maps.epilogue_maps(seen, config, sizes.subtile)
        members = _members(view, config, sizes.subtile, clusters.split_tiles, through_global)
        once = _loaded_once(seen, config, device)
        return KernelSpec(
            problem,
            config,
            view,
            _instance(self.file, self.template, *configured.alike, once, bool(view.fused_repacks)),
            grid=(clusters.ctas, 1, 1),
            block=(WARPGROUP * (config["CONSUMERS"] + 1), 1, 1),
            params=Params((*maps, *members)),
            cluster=(config["CM"] * config["CN"] * sizes.cluster_k, 1, 1),
            dynamic_shared_bytes=sizes.shared_bytes,
            capability=tiles.CAPABILITY,
            kernel_workspaces=_workspaces(configured, through_global),
            overlaps_previous=device.max_ctas is None,
        )


@lru_cache(maxsize=1024)
def _instance(
    file: str, template: str, alike: Alike, tunables: tuple[int, ...], cluster_k: int, once: tuple[bool, bool],
    fused_repack: bool,
) -> Instance:  # fmt: skip
    """The kernel of a `_Kernel`. Flags that are off, and numbers that are 1, are as ``WgmmaFinalDefaults`` has them.

    Args:
        file, template: of the rung.
        alike, tunables, cluster_k: `_Configured.alike`.
        once: whether A, and B, is evicted first from L2.
        fused_repack: operands are repacked by the kernel itself.
    """
    seen, sizes = alike.problem, _kernel(alike, tunables, cluster_k).sizes
    config, batched = dict(zip(OF_KERNEL, tunables, strict=True)), seen.batch > 1
    values = {
        "STAGES": config["STAGES"],
        "CONSUMERS": config["CONSUMERS"],
        "PINGPONG": bool(config["PINGPONG"]),
        "CLUSTER_M": config["CM"],
        "CLUSTER_N": config["CN"],
        "CLUSTER_K": cluster_k,
        "GROUP": config["GROUP"],
        "RESIDUE_CLASSES": residue_classes.RESIDUE_CLASSES if sizes.by_residue_class else 1,
        "RASTER_ALONG_N": bool(config["ALONG_N"]),
        "OVERLAP_EPILOGUE": bool(config["OVERLAP"]),
        "STREAM_K": bool(config["STREAM"]),
        "SPLIT_K": config["SPLITS"] > 1,
        "BATCHED": batched,
        "BROADCAST_A": batched and seen.a.batch_stride == 0,
        "BROADCAST_B": batched and seen.b.batch_stride == 0,
        "EVICT_FIRST_A": once[0],
        "EVICT_FIRST_B": once[1],
        "UNALIGNED_A": sizes.unaligned_a,
        "FUSED_REPACK": fused_repack,
        # Without a C the other schedules compile in half of the time too; but ptxas then makes other machine code of
        # their mainloop, which has not been timed. An overlapped one stays the same.
        "READS_C": seen.c is not None or not (config["OVERLAP"] or seen.epilogue),
        "STORE_BY_TMA": sizes.by_tma,
        "STAGE_EPILOGUE": tiles.stages_epilogue(seen, config),
        "STORE_WIDTH": tiles.store_width(seen),
    }
    stated = tuple((name, value) for name, value in values.items() if value is True or (value and value != 1))
    return Instance(
        file,
        template,
        (("OPERATION", with_epilogue(tiles.operation_type(seen), seen)), ("TILE", tiles.tile_type(seen, config))),
        stated,
        (tiles.instruction(seen, config),),
        defaults="WgmmaFinalDefaults",
    )


@lru_cache(maxsize=1024)
def _default(rung: WgmmaFinal, problem: Problem, device: DeviceLimits) -> tuple[Config, float]:
    """The configuration of the least predicted time, and that time in microseconds: plans ask for both."""
    return candidates.timed_default(problem, illegal_on(device), device)


WGMMA_FINAL = WgmmaFinal()
"""The last rung."""


@lru_cache(maxsize=64)
def illegal_on(device: DeviceLimits) -> Illegal:
    """Its legality on a GPU, one function for each: what is worked out once for it is found again."""
    return partial(WGMMA_FINAL.illegal, device=device)
