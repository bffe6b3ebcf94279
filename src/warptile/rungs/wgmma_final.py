"""wgmma-final: what it takes, its tunables, and its launch."""

from __future__ import annotations

from functools import lru_cache

from warptile.arch import H200
from warptile.isa import wgmma
from warptile.launch import Argument, Dim3, Pointer, Scalar
from warptile.problem import Problem
from warptile.rungs import wgmma_beside, wgmma_choice, wgmma_cost, wgmma_maps
from warptile.rungs import wgmma_classes as classes
from warptile.rungs import wgmma_output as output
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Rung, Workspace
from warptile.rungs.tensor_tiles import stages_reason
from warptile.rungs.wgmma_choice import MULTIPROCESSORS
from warptile.rungs.wgmma_neighbours import adapted
from warptile.rungs.wgmma_tiles import ROWS, WARPGROUP, accumulator_registers, common_reasons, stage_bytes

FINAL_KEYS = (
    "BM", "BN", "BK", "STAGES", "CONSUMERS", "PINGPONG", "CM", "CN", "GROUP", "ALONG_N", "OVERLAP", "STREAM", "SPLITS",
    "SWAP", "SMS",
)  # fmt: skip
PARTIAL, FLAGS_OF_PARTIAL = "partial sums", "flags of partial sums"
FLAGS = ("PINGPONG", "ALONG_N", "OVERLAP", "STREAM", "SWAP")
"""Keys that are 0 or 1."""

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1))

TURNED_WIDE, TURNED_BY_TURNS = 64, 96
"""Most sums of a thread whose D is stored by columns: of 32 bits, and where warpgroups take turns and operands do not
have 16 bits or TMA does not store D. With more of them the compiler runs out of registers."""

STREAM_REGISTERS, CLUSTER_REGISTERS, STREAM_WIDE_REGISTERS = 8, 4, 8
"""More of them where blocks hand sums on, where these blocks are in clusters as well, and where with STREAM D has 32
bits or is one of several."""

STREAM_CLUSTERED, STREAM_COPYING = 96, 120
"""Most sums of a thread with STREAM: in clusters of four, or in others where D has 32 bits or TMA cannot store it; and
in no cluster where TMA cannot store it."""

FRAGMENT_REGISTERS, READER_REGISTERS = 8, 6
"""More of them where A goes through registers: two fragments for each 64 rows, and where they begin in a stage."""

CONSUMER_REGISTERS, REGISTERS_BESIDE_STORERS = 240, 224
"""Of a thread that multiplies: ``CONSUMER_REGISTERS`` and ``CONSUMER_REGISTERS_BESIDE`` in wgmma/final.cuh."""

STORER_SAVES, STORER_COSTS = 6, 8
"""Registers that a thread needs less where a storer copies rows of D in its place, and more where it copies columns."""

COPY_REGISTERS = 12
"""More of them where it copies D itself, in a cluster: all of it, or the ends of rows, but those of 16 bits with
PINGPONG."""


def _final_shared(problem: Problem, config: Config) -> int:
    seen = tiles.view(problem, config).problem
    each = config["CONSUMERS"] * output.consumer_bytes(seen, config)
    return tiles.shared_bytes(config["STAGES"], stage_bytes(seen, config), each)


def _final_illegal(problem: Problem, config: Config) -> str | None:
    reason = (
        common_reasons(problem, config, FINAL_KEYS, FLAGS, batches=True)
        or _division_reason(config)
        or _cluster_reason(config)
    )
    if reason is not None:
        return reason
    seen = tiles.view(problem, config).problem
    return (
        _promotion_reason(seen, config)
        or tiles.shares_reason(seen, config)
        or _overlap_reason(seen, config)
        or _stream_reason(problem, config)
        or _registers_reason(seen, config)
        or tiles.shared_reason(_final_shared(problem, config))
    )


def _division_reason(config: Config) -> str | None:
    """Why the warpgroups cannot divide the work so, or None."""
    for key in FLAGS:
        if config[key] > 1:
            return f"{key} is {config[key]}; it is 0 or 1"
    if config["CONSUMERS"] > 2:
        return f"CONSUMERS is {config['CONSUMERS']}; one or two warpgroups multiply"
    if config["PINGPONG"] and config["CONSUMERS"] != 2:
        return "PINGPONG is 1 and CONSUMERS is not 2; two warpgroups take turns"
    if output.rows(config) % ROWS or not output.rows(config):
        return f"BM is {config['BM']}; each of {config['CONSUMERS']} warpgroups needs a multiple of {ROWS} rows"
    return stages_reason(config)


def _cluster_reason(config: Config) -> str | None:
    """Why there is no such cluster, or None."""
    if (config["CM"], config["CN"]) not in CLUSTERS:
        listed = ", ".join(f"{cm}x{cn}" for cm, cn in CLUSTERS)
        return f"CM, CN are {config['CM']}, {config['CN']}; clusters are {listed}"
    if config["CM"] * config["CN"] > config["SMS"]:
        return f"SMS is {config['SMS']}; a cluster has {config['CM'] * config['CN']} blocks"
    return None


def _overlap_reason(seen: Problem, config: Config) -> str | None:
    """Why a finished tile cannot be stored inside the next one's steps, or None."""
    if not config["OVERLAP"]:
        return None
    if config["PINGPONG"] or config["STREAM"] or config["SPLITS"] > 1:
        return "OVERLAP is 1; it goes with PINGPONG=0, STREAM=0, SPLITS=1"
    _, held, _ = output.panels(seen, config)
    if held == 0:
        return (
            f"OVERLAP is 1 and a thread has {output.sums(seen, config)} registers of sums; nothing of a finished tile "
            "fits beside them: take a smaller one"
        )
    steps = ceil_div(seen.k, config["BK"])
    if steps < held:
        return f"K is {seen.k}, {steps} steps of {config['BK']}; OVERLAP=1 stores in {held} steps"
    return None


def _stream_reason(problem: Problem, config: Config) -> str | None:
    """Why the depth of tiles cannot be shared, or None."""
    if not config["STREAM"] and config["SPLITS"] == 1:
        return None
    if config["PINGPONG"]:
        return "PINGPONG is 1; STREAM and SPLITS share the depth of cooperative tiles"
    if config["STREAM"] and config["SPLITS"] > 1:
        return f"STREAM is 1 and SPLITS is {config['SPLITS']}; one of them divides the depth"
    if problem.accumulator.name == "int32_saturating":
        return "sums saturate: they depend on their order, which STREAM and SPLITS change"
    registers = accumulator_registers(problem, output.rows(config), config["BN"])
    if registers % 4:
        return f"BN is {config['BN']}; a thread's {registers} registers of sums leave in packets of four"
    grid, steps = _final_grid(problem, config)[0], ceil_div(problem.k, config["BK"])
    if config["CM"] * config["CN"] == 4 and grid > wgmma_choice.FOURS:
        return f"{grid} blocks in clusters of four may find no place at one time; {wgmma_choice.FOURS} do"
    if grid > config["SMS"]:
        return (
            f"SPLITS is {config['SPLITS']}; {grid} blocks have to run at one time, on {config['SMS']} multiprocessors"
        )
    if steps < config["SPLITS"]:
        return f"SPLITS is {config['SPLITS']}; K has {steps} steps of {config['BK']}"
    return None


def _has_storers(seen: Problem, config: Config) -> bool:
    """Whether warps beside the producer copy finished tiles to D."""
    return bool(config["OVERLAP"]) and not classes.by_tma(seen, config)


def _promotion_reason(seen: Problem, config: Config) -> str | None:
    """Why sums of 8-bit floats cannot be promoted so, or None."""
    if tiles.promoted(seen) and config["BK"] % tiles.PROMOTED_DEPTH:
        depth = f"multiples of {tiles.PROMOTED_DEPTH}"
        return f"BK is {config['BK']}; with accumulate='float32' stages of 8-bit floats are {depth}"
    if tiles.promoted(seen) and min(config["CM"], config["CN"]) > 1:
        return "CM, CN are 2, 2; with accumulate='float32' of 8-bit floats the producer of such a cluster spills"
    return None


def _registers_reason(seen: Problem, config: Config) -> str | None:
    """Why a consumer's sums do not fit into its registers, or None."""
    sums = accumulator_registers(seen, output.rows(config), config["BN"])
    needed = output.sums(seen, config) + tiles.OVERHEAD_REGISTERS
    if tiles.any_start(seen, config):
        needed += FRAGMENT_REGISTERS * output.rows(config) // ROWS + READER_REGISTERS
    if config["OVERLAP"]:
        _, held, words = output.panels(seen, config)
        needed += held * words
    if config["STREAM"] or config["SPLITS"] > 1:
        needed += STREAM_REGISTERS + (CLUSTER_REGISTERS if config["CM"] * config["CN"] > 1 else 0)
    if config["STREAM"] and (seen.d.dtype.bits == 32 or seen.batch > 1):
        needed += STREAM_WIDE_REGISTERS
    if config["STREAM"]:
        clustered, copies = config["CM"] * config["CN"] > 1, not classes.by_tma(seen, config)
        wide = copies or seen.d.dtype.bits == 32 or min(config["CM"], config["CN"]) > 1
        most = STREAM_CLUSTERED if clustered and wide else STREAM_COPYING if copies else sums
        if sums > most:
            return f"STREAM is 1 and a thread has {sums} sums; {most} fit here: take a smaller tile"
    if config["SWAP"]:
        tight = config["PINGPONG"] and not (classes.stored_whole(seen) and seen.a.dtype.bits == 16)
        most = TURNED_WIDE if seen.d.dtype.bits == 32 else TURNED_BY_TURNS if tight else sums
        if sums > most:
            return (
                f"SWAP is 1 and a thread has {sums} sums; columns of {seen.d.dtype.name} are stored from {most} at "
                "most: take a smaller tile"
            )
    if config["STREAM"] and output.rows(config) > ROWS and not classes.by_tma(seen, config):
        return (
            f"STREAM is 1 and a warpgroup has {output.rows(config)} rows of a D that TMA cannot store: with more than "
            f"{ROWS} the compiler runs out of registers"
        )
    has = CONSUMER_REGISTERS
    if _has_storers(seen, config):
        has = REGISTERS_BESIDE_STORERS
        needed += STORER_COSTS if config["SWAP"] else -STORER_SAVES
    elif config["CM"] * config["CN"] > 1 and not classes.stored_whole(seen):
        in_turns = classes.in_classes(seen, config) and seen.d.dtype.bits == 16 and config["PINGPONG"]
        needed += 0 if in_turns else COPY_REGISTERS
    if needed > has:
        return f"a thread needs about {needed} registers and has {has}; take a smaller tile"
    return None


def _cuda_bool(value: object) -> str:
    return "true" if value else "false"


def _final_name(problem: Problem, config: Config) -> str:
    seen = tiles.view(problem, config).problem

    values = [config["STAGES"], config["CONSUMERS"], config["PINGPONG"], config["CM"], config["CN"]]
    values += [tiles.blocks_along_k(seen, config), config["GROUP"]]
    values.append(classes.CLASSES if classes.in_classes(seen, config) else 1)
    batched = seen.batch > 1
    shared = (batched and each.batch_stride == 0 for each in (seen.a, seen.b))
    switches = (config["ALONG_N"], config["OVERLAP"], config["STREAM"], config["SPLITS"] > 1, batched, *shared)
    any_start = tiles.any_start(seen, config)
    switches += (*_loaded_once(seen, config), any_start, bool(tiles.view(problem, config).beside))
    chosen = f"warptile::WgmmaConfig<{', '.join(map(str, values))}, {', '.join(map(_cuda_bool, switches))}>"
    store = f"{_cuda_bool(classes.by_tma(seen, config))}, {tiles.store_width(seen)}"
    maps = ", warptile::TensorMap" * ((classes.CLASSES - 1) * any_start)
    types = f"{tiles.operation_type(seen)}, {tiles.tile_type(seen, config)}, {chosen}"
    return f"warptile::wgmma_final<{types}, {store}{maps}>"


def _loaded_once(seen: Problem, config: Config) -> tuple[bool, bool]:
    """Whether A is loaded by one block alone and would fill L2, and whether B is: weights that few rows meet."""
    sizes = (extent * seen.k * seen.a.dtype.bits // 8 > H200.l2_bytes for extent in (seen.m, seen.n))
    others = (seen.n <= config["BN"] and config["CN"] == 1, seen.m <= config["BM"] and config["CM"] == 1)
    of_a, of_b = (large and alone and seen.batch == 1 for large, alone in zip(sizes, others, strict=True))
    return of_a, of_b


def _tiles(problem: Problem, config: Config) -> int:
    """Tiles of all D of the batch, those of a cluster counted as one."""
    seen = tiles.view(problem, config).problem
    columns = classes.columns(seen, config)
    each = ceil_div(seen.m, config["BM"] * config["CM"]) * ceil_div(columns, config["BN"] * config["CN"])
    return each * seen.batch


def _teams(problem: Problem, config: Config) -> int:
    """Clusters of the launch, each with its share of the tiles."""
    count = _tiles(problem, config)
    if config["SPLITS"] > 1:
        return count * config["SPLITS"]
    most = max(config["SMS"] // (config["CM"] * config["CN"]), 1)
    return most if config["STREAM"] else min(count, most)


def _streamed(problem: Problem, config: Config) -> int:
    """Tiles whose steps of depth are shared among all clusters: all of them when each is split, else those of the last
    wave, where it is not full, and of the one before it."""
    count, teams = _tiles(problem, config), _teams(problem, config)
    if config["SPLITS"] > 1:
        return count
    if not config["STREAM"] or count % teams == 0:
        return 0
    return count - max(count // teams - 1, 0) * teams


def _final_grid(problem: Problem, config: Config) -> Dim3:
    return (_teams(problem, config) * config["CM"] * config["CN"], 1, 1)


def _places(problem: Problem, config: Config) -> int:
    """Warpgroups that may hand over partial sums."""
    return _final_grid(problem, config)[0] * config["CONSUMERS"]


def _through_global(problem: Problem, config: Config) -> bool:
    """Whether blocks hand each other sums through global memory."""
    return _streamed(problem, config) > 0 and tiles.blocks_along_k(tiles.view(problem, config).problem, config) == 1


def _final_cluster(problem: Problem, config: Config) -> Dim3:
    seen = tiles.view(problem, config).problem
    return (config["CM"] * config["CN"] * tiles.blocks_along_k(seen, config), 1, 1)


def _final_workspaces(problem: Problem, config: Config) -> tuple[Workspace, ...]:
    view = tiles.view(problem, config)
    if view.beside:
        return (wgmma_beside.counters(view.problem, config),)
    if not _through_global(problem, config):
        return ()
    count = _places(problem, config)
    rows = config["BM"] // config["CONSUMERS"]
    each = accumulator_registers(problem, rows, config["BN"]) * 4 * WARPGROUP
    return Workspace(PARTIAL, count * each), Workspace(FLAGS_OF_PARTIAL, count * 4, zero=True)


def _final_parameters(problem: Problem, config: Config) -> tuple[Argument, ...]:
    sums, flags = (PARTIAL, FLAGS_OF_PARTIAL) if _through_global(problem, config) else (None, None)
    view = tiles.view(problem, config)
    maps = wgmma_maps.operand_maps(view, config)
    seen = view.problem
    strides = (each.batch_stride if each is not None else 0 for each in (seen.c, seen.d))
    batch = (Scalar("s32", seen.batch), *(Scalar("s64", stride) for stride in strides))
    beside = {copy.target: copy for copy in view.beside}
    lines = [beside.get(name) for name in (view.a, view.b)]
    sources = (Pointer(copy.source if copy else None) for copy in lines)
    pitches = (Scalar("s64", copy.source_stride * copy.unit_bytes if copy else 0) for copy in lines)
    flags = wgmma_beside.SLICES if beside else flags
    partial = (Scalar("s32", _streamed(problem, config)), Pointer(sums), Pointer(flags))
    return (*maps, *partial, *batch, *sources, *pitches, *wgmma_maps.other_class_maps(view, config))


WGMMA_FINAL = Rung(
    name="wgmma-final",
    family="wgmma",
    idea="one kernel for every type, layout and schedule, tuned",
    file="wgmma/final.cuh",
    previous="wgmma-pingpong",
    weigh=wgmma_cost.microseconds,
    adapted=lambda problem, config, tuned_for, sms: adapted(
        problem, config, tuned_for, _final_illegal, min(sms or MULTIPROCESSORS, MULTIPROCESSORS)
    ),
    default_on_fewer=lambda problem, sms: wgmma_choice.default(problem, _final_illegal, min(sms, MULTIPROCESSORS)),
    overlaps_previous=True,
    min_arch=90,
    only_arch=wgmma.ARCH,
    dtypes=tiles.DTYPES,
    default_config=lru_cache(maxsize=1024)(lambda problem: wgmma_choice.default(problem, _final_illegal)),
    candidates=lambda problem: wgmma_choice.candidates(problem, _final_illegal),
    illegal=_final_illegal,
    name_expression=_final_name,
    grid=_final_grid,
    threads=lambda problem, config: (WARPGROUP * (config["CONSUMERS"] + 1), 1, 1),
    dynamic_shared_bytes=_final_shared,
    capability=lambda problem, config: 90,
    cluster=_final_cluster,
    view=tiles.view,
    parameters=_final_parameters,
    workspaces=_final_workspaces,
    instructions=lambda problem, config: (tiles.instruction(problem, config),),
)
