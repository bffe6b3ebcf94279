"""Cost model of wgmma-final: predicted microseconds of a launch, by limiting resource.

* SMs: the timeline of the busiest one. MMAs and shared memory (128 bytes a clock: TMA writes each operand once,
  ``wgmma`` reads A once for each part of the columns, and B once for every 64 rows) limit what its consumers do in a
  mainloop iteration; lines from L2, and the time from releasing a stage to having it refilled, what its producer does.
  Each tile adds its epilogue, during which the producer goes on, unless the next mainloop hides it; a tile with split K
  adds a reduction among CTAs.
* DRAM: operands once, the part of repeated loads that misses L2, and D.
* power: energy over the power limit. At the limit a GPU lowers its clock.

The prediction is a norm of these, slightly above the largest, plus the launch and repacking. What the formulas leave
out is learned from the same measurements (`warptile.rungs.wgmma.correction`). Constants are fitted to records of
surveys, for each GPU model: `warptile.rungs.wgmma.model`.

A row of 128 bytes that does not begin at a multiple of 128 bytes lies in two lines of L2, which costs nearly twice as
much: the largest single effect on problems of odd sizes. Rows of a tile begin so where the pitch of the operand is no
multiple of 128 bytes, and, of an N-major B, where the columns of a tile are none: `loads`. Zeros that TMA fills in
outside of an operand take all SMs together several times as long as lines that it loads.

Formulas take one launch, or many at once as arrays; and NumPy's arrays or, to fit the constants, torch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from warptile.device import REFERENCE

Number = Any
"""A number or an array of them: of one launch, or of many at once."""

SCHEDULES = ("basic", "overlap", "ping-pong", "split", "cluster split", "stream-K")
"""Schedules whose fixed costs differ, in the order of ``launch_us``."""

TYPES = ("16 bits", "16 bits, f16 accumulators", "8-bit floats", "tf32", "int8", "8-bit floats, two levels")
"""Types whose MMAs differ, in the order of ``mma_clocks``."""

LINE_BYTES, SECTOR_BYTES = 128, 32
FEW_ACCUMULATORS = 160
"""Registers of a thread up to which a producer in a cluster has more of them (``WgmmaConfig`` of the kernel)."""
SMS = REFERENCE.multiprocessors
"""SMs of the GPUs that were measured: features of other GPUs are relative to it."""


@dataclass(frozen=True)
class Launches:
    """What predictions depend on, of one launch or of many. Extents and operands as the kernel sees them.

    Attributes:
        bm, bn, bk, stages, consumers, cm, cn, splits, sms: tunables.
        swap, overlap, pingpong, stream: 1 or 0.
        cluster_k: CTAs of a cluster that split K.
        held: share of an epilogue that overlaps with the next mainloop.
        m, n, k, batch: extents.
        tiles: of D, those of a cluster counted as one.
        of_a, of_b: matrices of A and of B in memory.
        pitch_a, pitch_b, pitch_d: bytes from one row (or column) in memory to the next.
        a_by_k, b_by_k: whether operands are K-major, 1 or 0.
        d_by_column: whether columns of D are contiguous.
        unaligned_a: whether A is loaded through registers.
        by_tma: whether TMA stores D; d_aligned: without residue classes.
        residues: whether rows are split into residue classes.
        store_width: elements of D that one access stores without TMA.
        element_bits, d_bits: of operands and of D.
        with_c: whether C is read, 1 or 0.
        type: place in `TYPES`.
        repacking_us: of operands that are repacked before or beside the product.
        filled: 1 if TMA fills with zeros what tiles have outside of operands, as in all kernels that were once surveyed
            (`warptile.bench.campaign.surveyed_launches`); 0 if in those alone that cannot load parts of tiles.
    """

    bm: Number
    bn: Number
    bk: Number
    stages: Number
    consumers: Number
    cm: Number
    cn: Number
    splits: Number
    sms: Number
    swap: Number
    overlap: Number
    pingpong: Number
    stream: Number
    cluster_k: Number
    held: Number
    m: Number
    n: Number
    k: Number
    batch: Number
    tiles: Number
    of_a: Number
    of_b: Number
    pitch_a: Number
    pitch_b: Number
    pitch_d: Number
    a_by_k: Number
    b_by_k: Number
    d_by_column: Number
    unaligned_a: Number
    by_tma: Number
    d_aligned: Number
    residues: Number
    store_width: Number
    element_bits: Number
    d_bits: Number
    with_c: Number
    type: Number
    repacking_us: Number
    filled: Number = 0.0


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the parts of a launch cost on one GPU model. Clocks are of one SM at ``clock_mhz``.

    Attributes:
        clock_mhz: what clocks are counted in.
        launch_us: by schedule, between two launches of a stream.
        start_clocks: of the first loads of a CTA.
        refill_clocks: from the release of a stage to its operands, without the loads themselves.
        mma_clocks: by type, of an instruction of 64 x 2 x 32 bytes; least_mma_clocks: of any.
        column_factor: of MMAs, by BN / 8.
        two_level_clocks: of adding 128 x 128 first-level accumulators to the second.
        fragment_clocks: of loading 64 rows of an unaligned A for an MMA-K block.
        step_clocks: of a mainloop iteration, beside all else.
        line_clocks: of loading a line into shared memory.
        l2_lines_per_clock: of all SMs together.
        zero_lines_per_clock: that TMA fills outside of operands, of all SMs together.
        line_share: of what a load of a whole line costs; the rest is that of its four sectors.
        m_major_a, n_major_b, swapped: factors of MMAs with such operands.
        cluster_clocks: of an iteration in a cluster.
        tile_clocks, out_bytes_per_clock: of an epilogue.
        column_major_d, straddling_d, split_sector_d, wide_d: factors of storing D by columns; if rows are no multiples
            of 128 bytes, or of 32; of 32 bits.
        register_clocks, store_warp_clocks: of storing 128 elements without TMA, by log2 of the store's width.
        hidden_clocks: what an overlapped epilogue still costs; turn: a warpgroup's mainloop in ping-pong, of both's.
        meeting_clocks, cluster_meeting_clocks, stream_clocks: of CTAs that exchange partial accumulators.
        partial_bytes_per_clock, cluster_partial_bytes_per_clock, l2_partial_bytes_per_clock: of exchanging them, by a
            CTA and by all.
        split_factor, stream_factor: of iterations in such schedules.
        dram_bytes_per_us: bandwidth; missed, stream_missed: shares of repeated loads that miss L2.
        watts, flop_pj, shared_pj, l2_pj, dram_pj: what the power limit leaves, and picojoules, by type, of a 16-bit
            multiply or add, and of a byte moved.
        repacking: factor of predicted repacking.
        norm, iteration_norm, timeline_norm: how well resources hide each other: the greater, the better.
    """

    clock_mhz: float
    launch_us: tuple[float, ...]
    start_clocks: float
    refill_clocks: float
    mma_clocks: tuple[float, ...]
    least_mma_clocks: float
    column_factor: tuple[float, ...]
    two_level_clocks: float
    fragment_clocks: float
    step_clocks: float
    line_clocks: float
    l2_lines_per_clock: float
    zero_lines_per_clock: float
    line_share: float
    m_major_a: float
    n_major_b: float
    swapped: float
    cluster_clocks: float
    tile_clocks: float
    out_bytes_per_clock: float
    column_major_d: float
    straddling_d: float
    split_sector_d: float
    wide_d: float
    register_clocks: tuple[float, ...]
    store_warp_clocks: tuple[float, ...]
    hidden_clocks: float
    turn: float
    meeting_clocks: float
    cluster_meeting_clocks: float
    stream_clocks: float
    partial_bytes_per_clock: float
    cluster_partial_bytes_per_clock: float
    l2_partial_bytes_per_clock: float
    split_factor: float
    stream_factor: float
    dram_bytes_per_us: float
    missed: float
    stream_missed: float
    watts: float
    flop_pj: tuple[float, ...]
    shared_pj: float
    l2_pj: float
    dram_pj: float
    repacking: float
    norm: float
    iteration_norm: float
    timeline_norm: float


@dataclass(frozen=True)
class Predicted:
    """Predictions of launches, uncorrected.

    Attributes:
        sm_us, dram_us, power_us: by resource.
        launch_us, repacking_us: added to the rest.
        total_us: in all.
        mma_clocks, shared_clocks, fill_clocks, refill_clocks: of a mainloop iteration: of the consumers by MMAs and by
            shared memory, of the producer by loads and by waiting.
        compute_clocks, memory_clocks: what both come to.
        epilogue_clocks: of a tile.
        k_tiles: iterations of a CTA for a tile.
        waves: tiles of the busiest CTA.
        ctas: of the launch.
        loaded_us: of all loads from L2.
        filled_us: of all zeros.
    """

    sm_us: Number
    dram_us: Number
    power_us: Number
    launch_us: Number
    repacking_us: Number
    total_us: Number
    mma_clocks: Number
    shared_clocks: Number
    fill_clocks: Number
    refill_clocks: Number
    compute_clocks: Number
    memory_clocks: Number
    epilogue_clocks: Number
    k_tiles: Number
    waves: Number
    ctas: Number
    loaded_us: Number
    filled_us: Number


def predict(launches: Launches, costs: Any, xp: Any) -> Predicted:
    """Predictions of launches.

    Args:
        launches: each attribute an array, or a number that all share.
        costs: `Costs`, with arrays in the place of tuples.
        xp: the module of the arrays, NumPy or torch.
    """
    x, c = launches, costs
    split, stream, overlap, pingpong = x.splits > 1, x.stream > 0, x.overlap > 0, x.pingpong > 0
    in_cluster = x.cluster_k > 1
    k_tile_bytes = x.bk * x.element_bits / 8
    cluster = x.cm * x.cn
    k_tiles = xp.clip(xp.ceil(x.k / x.bk), 1, None)
    most = xp.clip(xp.floor(x.sms / cluster), 1, None)
    waves = xp.ceil(x.tiles / most)
    clusters = xp.where(split, x.tiles * x.splits, xp.where(stream, most, xp.minimum(x.tiles, most)))
    ctas = clusters * cluster

    # a mainloop iteration
    mma_k_blocks = k_tile_bytes / 32
    parts = column_parts(x, xp)
    columns = x.bn // parts  # of an instruction
    each = _above(columns / 2 * c.mma_clocks[x.type] * c.column_factor[columns // 8], c.least_mma_clocks, 4.0, xp)
    factor = xp.where(x.a_by_k == 0, c.m_major_a, 1.0) * xp.where(x.b_by_k == 0, c.n_major_b, 1.0)
    mma = x.bm / 64 * parts * mma_k_blocks * each * factor * xp.where(x.swap > 0, c.swapped, 1.0)
    mma = mma + xp.where(x.type == 5, x.bm * x.bn / 2**16 * mma_k_blocks * c.two_level_clocks, 0.0)
    mma = mma + x.unaligned_a * x.bm / 64 * mma_k_blocks * c.fragment_clocks
    moved = ((1 + parts) * x.bm + (x.bm / 64 + 1) * x.bn) * k_tile_bytes
    shared = moved / 128
    compute = _above(mma, shared, c.iteration_norm, xp) + c.step_clocks
    compute = compute * xp.where(stream, c.stream_factor, xp.where(split, c.split_factor, 1.0))
    of_a, of_b = loads(x, xp)
    lines_a, lines_b = (c.line_share * of.lines + (1 - c.line_share) * of.sectors / 4 for of in (of_a, of_b))
    more_a, more_b = lines_a * LINE_BYTES / (x.bm * k_tile_bytes), lines_b * LINE_BYTES / (x.bn * k_tile_bytes)
    fill = (lines_a + lines_b) * c.line_clocks
    down = xp.ceil(x.m / (x.bm * x.cm))
    inside_a = x.m / (down * x.bm * x.cm)
    inside_b = xp.minimum(x.n * down * x.batch / (x.tiles * x.bn * x.cn), 1.0 + 0 * x.n)
    loaded_lines = inside_a * lines_a / x.cn + inside_b * lines_b / x.cm
    zero_lines = ((1 - inside_a) * x.bm / x.cn + (1 - inside_b) * x.bn / x.cm) * k_tile_bytes / LINE_BYTES
    zero_lines = zero_lines * xp.where(fills_boxes(x, xp), 1.0, x.filled)
    of_all = loaded_lines / c.l2_lines_per_clock + zero_lines / c.zero_lines_per_clock
    of_all = of_all * xp.minimum(ctas, SMS + 0 * ctas)
    refill = (c.refill_clocks + fill) / (x.stages - 1)
    memory = _above(_above(fill, of_all, c.iteration_norm, xp), refill, c.iteration_norm, xp)
    memory = memory + xp.where(cluster > 1, c.cluster_clocks, 0.0)

    # an epilogue
    width = log2_of_width(x.store_width, xp)
    elements = x.bm * x.bn
    by_register = xp.where(overlap, c.store_warp_clocks[width], c.register_clocks[width]) * elements / 128
    storing = xp.where(x.by_tma == 1, elements * x.d_bits / 8 / c.out_bytes_per_clock, by_register)
    storing = storing * xp.where(x.d_by_column == 1, c.column_major_d, 1.0)
    grid_d = grid_of_d(x, xp)
    storing = storing * xp.where(grid_d < LINE_BYTES, c.straddling_d, 1.0)
    storing = storing * xp.where(grid_d < SECTOR_BYTES, c.split_sector_d, 1.0)
    epilogue = c.tile_clocks + storing * xp.where(x.d_bits == 32, c.wide_d, 1.0)

    # the busiest SM: its consumers, and its producer, which goes on during epilogues
    split_tiles = xp.ceil(k_tiles / x.splits)
    partial = elements * 4
    at_once = (1 - x.held) * epilogue
    tiles_each = xp.where(split, 1.0, xp.where(stream, x.tiles / most, waves))
    stored = xp.where(split, epilogue / x.splits, xp.where(overlap, c.hidden_clocks + at_once, epilogue))
    meeting = xp.where(
        in_cluster,
        c.cluster_meeting_clocks + partial / c.cluster_partial_bytes_per_clock,
        c.meeting_clocks
        + 2 * partial / c.partial_bytes_per_clock
        + 2 * x.tiles * x.splits * partial / c.l2_partial_bytes_per_clock,
    )
    last = xp.where(overlap, epilogue - at_once, 0.0)
    last = xp.where(stream, c.stream_clocks + 2 * partial / c.partial_bytes_per_clock, xp.where(split, meeting, last))
    looped, fetched = split_tiles * compute, split_tiles * memory
    straight = _above(tiles_each * (looped + stored), tiles_each * fetched + stored, c.timeline_norm, xp) + last
    turns = _above(waves * looped, xp.ceil(waves / 2) * (looped * c.turn + epilogue), 2 * c.timeline_norm, xp)
    turns = _above(turns, waves * fetched, 2 * c.timeline_norm, xp) + epilogue
    sm_us = (xp.where(pingpong, turns, straight) + c.start_clocks) / c.clock_mhz

    # the whole GPU
    k_bytes = x.k * x.element_bits / 8
    once = (x.m * x.of_a * more_a**0.25 + x.n * x.of_b * more_b**0.25) * k_bytes
    loaded = x.tiles * k_tiles * cluster * loaded_lines * LINE_BYTES
    filled = x.tiles * k_tiles * cluster * zero_lines
    d_bytes = x.m * x.n * x.batch * x.d_bits / 8 * (1 + x.with_c)
    missed = xp.where(stream, c.stream_missed, c.missed) * xp.clip(loaded - once, 0, None)
    dram = once + missed + d_bytes * xp.where(x.pitch_d % SECTOR_BYTES != 0, 1.5, 1.0)
    flops = x.tiles * cluster * elements * k_tiles * x.bk * 2.0
    picojoules = (
        flops * c.flop_pj[x.type] * x.element_bits / 16
        + x.tiles * cluster * k_tiles * moved * c.shared_pj
        + (loaded + d_bytes) * c.l2_pj
        + dram * c.dram_pj
    )
    dram_us, power_us = dram / c.dram_bytes_per_us, picojoules * 1e-6 / c.watts
    launch_us, repacking_us = c.launch_us[schedule_of(x, xp)], x.repacking_us * c.repacking
    return Predicted(
        sm_us, dram_us, power_us, launch_us, repacking_us,
        together([sm_us, dram_us, power_us], c.norm, xp) + launch_us + repacking_us,
        mma, shared, fill, refill, compute, memory, epilogue, split_tiles, tiles_each, ctas,
        loaded / LINE_BYTES / c.l2_lines_per_clock / c.clock_mhz, filled / c.zero_lines_per_clock / c.clock_mhz,
    )  # fmt: skip


def fills_boxes(x: Launches, xp: Any) -> Any:
    """Whether the kernel loads whole boxes at the ends of operands, so that TMA fills them up: in clusters whose
    producer has few registers (``LOADS_PARTS`` of ``WgmmaFinal``)."""
    of_thread = x.bm * x.bn / 128 / xp.where(x.pingpong > 0, 1.0, x.consumers)
    of_thread = of_thread * xp.where(x.type == 1, 0.5, xp.where(x.type == 5, 2.0, 1.0))
    few = (x.overlap > 0) | (of_thread > FEW_ACCUMULATORS)
    return (x.cm * x.cn > 1) & (x.consumers > 1) & few


@dataclass(frozen=True)
class Loads:
    """What a mainloop iteration loads of an operand from L2, in the mean over tiles: lines, and sectors of them."""

    lines: Number
    sectors: Number


def loads(launches: Launches, xp: Any) -> tuple[Loads, Loads]:
    """Of A and of B. An A that a kernel loads through registers counts as if no row lay in two lines."""
    x = launches
    k_tile_bytes = x.bk * x.element_bits / 8
    grid_a = xp.where(x.unaligned_a > 0, LINE_BYTES + 0 * x.pitch_a, grid(x.pitch_a, xp))
    of_a = _rows(x.bm * k_tile_bytes / LINE_BYTES, LINE_BYTES + 0 * x.bm, grid_a, xp)
    by_n = (x.b_by_k == 0) & (x.element_bits == 16)
    tile_grid = xp.where(by_n & (x.n > x.bn), grid(2 * x.bn, xp), LINE_BYTES)
    grid_b = xp.minimum(grid(x.pitch_b, xp), tile_grid + 0 * x.pitch_b)
    whole = xp.where(by_n, x.bk * xp.floor(x.bn / 64), x.bn * k_tile_bytes / LINE_BYTES)
    last = xp.where(by_n, 2 * loaded_columns(x.bn, xp) - LINE_BYTES * xp.floor(x.bn / 64), 0.0)
    panels, panel = _rows(whole, LINE_BYTES + 0 * whole, grid_b, xp), _rows(x.bk, xp.clip(last, 1, None), grid_b, xp)
    lines = panels.lines + xp.where(last > 0, panel.lines, 0.0)
    return of_a, Loads(lines, panels.sectors + xp.where(last > 0, panel.sectors, 0.0))


def _rows(rows: Number, row_bytes: Number, row_grid: Number, xp: Any) -> Loads:
    """Of rows of at most 128 bytes that begin at any multiple of ``row_grid`` bytes of a line, each as often."""
    places = LINE_BYTES / row_grid
    crossing = places - 1 - xp.floor((LINE_BYTES - row_bytes) / row_grid)
    within = xp.ceil(row_bytes / SECTOR_BYTES)
    between = (within + xp.ceil((row_bytes + 16) / SECTOR_BYTES)) / 2
    return Loads(rows * (1 + crossing / places), rows * xp.where(row_grid < SECTOR_BYTES, between, within))


def grid(offset_bytes: Number, xp: Any) -> Number:
    """The multiple of 16 bytes, 128 at most, at which rows begin that are so far apart."""
    return xp.where(
        offset_bytes % 128 == 0, 128, xp.where(offset_bytes % 64 == 0, 64, xp.where(offset_bytes % 32 == 0, 32, 16))
    )


def grid_of_d(launches: Launches, xp: Any) -> Number:
    """`grid` of what tiles store of D."""
    x = launches
    by_column = x.d_by_column == 1
    along, tile = xp.where(by_column, x.m, x.n), xp.where(by_column, x.bm, x.bn)
    return xp.minimum(grid(x.pitch_d, xp), xp.where(along > tile, grid(tile * x.d_bits / 8, xp), LINE_BYTES))


def loaded_columns(bn: Number, xp: Any) -> Number:
    """Columns of a tile of an N-major B that are loaded: `warptile.rungs.wgmma.tiles.SmemTile.last_row_units`."""
    return xp.where(bn % 64 == 8, bn, xp.ceil(bn / 16) * 16)


def column_parts(launches: Launches, xp: Any) -> Number:
    """Parts of a tile's columns, each of one warpgroup: `warptile.rungs.wgmma.tiles.column_parts`."""
    x = launches
    return xp.where((x.consumers == 2) & (x.pingpong == 0) & (x.bm // 64 % 2 == 1), 2, 1)


def schedule_of(launches: Launches, xp: Any) -> Number:
    """Place in `SCHEDULES`."""
    x = launches
    split = xp.where(x.cluster_k > 1, 4, 3)
    whole = xp.where(x.stream > 0, 5, xp.where(x.overlap > 0, 1, xp.where(x.pingpong > 0, 2, 0)))
    return xp.where(x.splits > 1, split, whole)


def log2_of_width(width: Number, xp: Any) -> Number:
    """Of a store's width in elements, at most 3."""
    return xp.where(width >= 8, 3, xp.where(width >= 4, 2, xp.where(width >= 2, 1, 0)))


def together(times: Sequence[Number], norm: Number, xp: Any) -> Number:
    """Slightly more than the longest time."""
    most = times[0]
    for each in times[1:]:
        most = xp.maximum(most, each)
    return most * sum((each / most) ** norm for each in times) ** (1 / norm)


def _above(one: Number, other: Number, norm: Number, xp: Any) -> Number:
    """`together`, of two."""
    other = other + 0 * one
    most, least = xp.maximum(one, other), xp.minimum(one, other)
    return most * (1 + (least / most) ** norm) ** (1 / norm)


def terms_us(found: Predicted) -> Mapping[str, float]:
    """Microseconds of one launch by resource, the SMs' by what limits a mainloop iteration; ``launch`` is added."""
    if found.compute_clocks >= found.memory_clocks:
        bound = "tensor" if found.mma_clocks >= found.shared_clocks else "shared"
    else:
        bound = "latency" if found.refill_clocks > found.fill_clocks else "l2"
    terms = {bound: found.sm_us, "dram": found.dram_us, "power": found.power_us, "launch": found.launch_us}
    return {name: float(each) for name, each in terms.items()}
