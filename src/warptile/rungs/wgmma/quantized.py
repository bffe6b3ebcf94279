"""wgmma-quantized: weights of 4 or 8 bits, dequantized in registers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from warptile.device import REFERENCE, DeviceLimits
from warptile.isa import wgmma
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.quantization import BLOCK_K, BLOCK_ROWS, PADDED_ROWS, Quantization, row_blocks
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import ceil_div, grid_reason, keeps_order, keys_reason, operand_reason
from warptile.rungs.repack import repacked
from warptile.rungs.rung import Rung
from warptile.rungs.tensor_tiles import round_up, stages_reason
from warptile.rungs.tma import operand_map
from warptile.rungs.wgmma import epilogue, quantized_cost, tensor_maps, tiles
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.stream_k import PACKET_REGISTERS, PARTIAL_ACCUMULATORS, PARTIAL_FLAGS
from warptile.rungs.wgmma.tiles import ROWS, WARPGROUP

KEYS = ("BM", "BN", "BK", "STAGES", "CONSUMERS", "SPLIT_K", "STREAM", "GROUP", "SMS")
"""Its tunables. BM is of weights, the rows of D^T, and BN of rows of D. With STREAM, all CTAs share the K tiles of the
last tiles evenly."""

HEIGHTS, COLUMNS = (2 * PADDED_ROWS, PADDED_ROWS), (8, 16, 32, 48, 64, 96, 128, 192)
"""BM and BN that plans choose from."""

SMALLEST = {"BM": 128, "BN": 8, "BK": BLOCK_K, "STAGES": 2, "CONSUMERS": 2, "SPLIT_K": 1, "STREAM": 0,
            "GROUP": 8, "SMS": 1}  # fmt: skip
"""A configuration that takes every problem."""

ALTERNATIVES = 5
"""Predictions that a plan shows beside its own."""

MOST_STAGES = {4: 6, 8: 4}
"""Of plans, by bits of a code: more of them delay the first, for what all CTAs load at once arrives together."""

WIDEST_WITH_TWO_STAGES = 128
"""BN of plans that have no room for more stages."""

CONSUMERS = 2
"""Of plans: with more of them a thread has fewer registers, and the same work takes more instructions."""

MAX_CONSUMERS = 4

LEAST_K_TILES = 4
"""Of a split of K."""

FRAGMENT_REGISTERS, FRAGMENT_REGISTERS_OF_WIDE, OVERHEAD_REGISTERS, STREAM_REGISTERS = 34, 16, 30, 16
"""Of a thread, for each 64 rows: two sets of fragments and codes, of four k-blocks, or from `WIDE` columns on of one;
for addresses, scales and loop state; and with STREAM more of them."""

WIDE = 64
"""As in kernels/wgmma/quantized.cuh."""

REGISTERS = {1: 255, 2: 232, 3: 128, 4: 96}
"""Registers of a consumer's thread by CONSUMERS: with two they are reallocated."""

STREAMED_ACCUMULATORS = 64
"""Most accumulators of a thread with STREAM, and of one whose epilogue reads C where D has 32 bits or codes have 8.
With more the compiler runs out of registers."""


class WgmmaQuantized(Rung):
    """The rung for weights of 4 or 8 bits: B is a `warptile.QuantizedWeights`."""

    name = "wgmma-quantized"
    family: ClassVar[str] = "wgmma"
    idea = "4- and 8-bit weights: dequantized in registers, the operand that wgmma takes from there"
    previous = "wgmma-final"
    min_arch = tiles.CAPABILITY
    only_arch = wgmma.ARCH
    dtypes = ("bfloat16", "float16")
    persistent = True
    quantized = True
    batch_invariant = True
    estimates = True

    # --- configurations -------------------------------------------------------------------------------------------

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return _ranked(self, problem, device)[0]

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.alternatives`."""
        return _ranked(self, problem, device)[1 : 1 + ALTERNATIVES]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        if problem.b.quantized is None:
            return (SMALLEST,)  # as good as any: `illegal` says why
        rows, most = BLOCK_ROWS * row_blocks(problem.n), next((n for n in COLUMNS if n >= problem.m), COLUMNS[-1])
        sizes = ((bm, bn) for bm in HEIGHTS for bn in COLUMNS if rows % bm == 0 and most // 4 <= bn <= most)
        found = [self._config(problem, *each, device) for each in sizes]
        found = [each for each in found if each["STAGES"] > 2 or each["BN"] <= WIDEST_WITH_TWO_STAGES]
        if keeps_order(problem):
            return tuple(found)
        streamed = [_with_stages(problem, {**each, "SPLIT_K": 1, "STREAM": 1}, device) for each in found]
        return (*found, *(each for each in streamed if _shared_tiles(problem, each)))

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return quantized_cost.terms_us(problem, config, device.sms)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return quantized_cost.terms_us(problem, config, device.sms)

    def _config(self, problem: Problem, bm: int, bn: int, device: DeviceLimits) -> Config:
        """Tiles of a size, with as many splits of K as there are SMs for, and stages as fit."""
        config = {
            "BM": bm, "BN": bn, "BK": BLOCK_K, "STAGES": 2, "CONSUMERS": CONSUMERS,
            "SPLIT_K": 1, "STREAM": 0, "GROUP": 8, "SMS": device.sms,
        }  # fmt: skip
        count, k_tiles = _tiles(problem, config), ceil_div(problem.k, BLOCK_K)
        most = device.co_resident_ctas(1) if device.max_ctas is None else device.max_ctas
        splits = 1 if keeps_order(problem) else max(min(most // max(count, 1), k_tiles // LEAST_K_TILES), 1)
        config["SPLIT_K"] = max(ceil_div(k_tiles, ceil_div(max(k_tiles, 1), splits)), 1)  # no split has fewer K tiles
        return _with_stages(problem, config, device)

    # --- legality -------------------------------------------------------------------------------------------------

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, ("float32",), ("row", "col"), quantized=True)
        reason = reason or keys_reason({name: value + (name == "STREAM") for name, value in config.items()}, KEYS)
        if reason is not None:
            return reason
        if problem.k == 0:
            return "K is 0: there is nothing to dequantize"
        if config["BK"] != BLOCK_K:
            return f"BK is {config['BK']}; weights are packed in blocks of {BLOCK_K} along K"
        if config["CONSUMERS"] > MAX_CONSUMERS or config["BM"] % (ROWS * config["CONSUMERS"]):
            return (
                f"CONSUMERS is {config['CONSUMERS']} and BM is {config['BM']}; 1 to {MAX_CONSUMERS} warpgroups share "
                f"BM in whole blocks of {ROWS} rows"
            )
        if BLOCK_ROWS * row_blocks(problem.n) % config["BM"]:
            return (
                f"BM is {config['BM']} and weights are padded to {BLOCK_ROWS * row_blocks(problem.n)} rows; it must "
                f"divide them: take BM={PADDED_ROWS}"
            )
        seen = quantized_view(problem).problem
        reason = tiles.tile_reason(seen, config) or grid_reason(seen, config) or stages_reason(config)
        return reason or _split_reason(problem, config, device) or _resources_reason(seen, config, device)

    # --- the launch -----------------------------------------------------------------------------------------------

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view = quantized_view(problem)
        seen = view.problem
        subtile = tiles.EpilogueSubtiles.of(seen, config, device)
        return KernelSpec(
            problem,
            config,
            view,
            self._instance(seen, config),
            grid=(_ctas(problem, config), 1, 1),
            block=(WARPGROUP * (config["CONSUMERS"] + 1), 1, 1),
            params=Params((*tensor_maps.epilogue_maps(seen, config, subtile), *_members(view, config, subtile))),
            dynamic_shared_bytes=_shared_bytes(seen, config, device),
            capability=tiles.CAPABILITY,
            kernel_workspaces=_workspaces(seen, config),
            overlaps_previous=device.max_ctas is None,
        )

    def _instance(self, seen: Problem, config: Config) -> Instance:
        packed = _format(seen)
        types = (
            ("OPERATION", with_epilogue(tiles.operation_type(seen), seen)),
            ("TILE", tiles.tile_type(seen, config)),
        )
        values: tuple[tuple[str, int | bool], ...] = (
            ("BITS", packed.bits),
            ("GROUP_IN_BLOCK", packed.group_in_block),
            ("ZERO_POINT", packed.zero_point),
            ("STAGES", config["STAGES"]),
            ("CONSUMERS", config["CONSUMERS"]),
            ("GROUP", config["GROUP"]),
            ("SPLITS_K", config["SPLIT_K"] > 1),
            ("STREAM_K", _shared_tiles(seen.swapped, config) > 0),
            ("WEIGHTS_READ_ONCE", seen.n <= config["BN"]),
            ("READS_C", seen.c is not None),
            ("STORE_BY_TMA", d_is_aligned(seen)),
            ("STAGE_EPILOGUE", tiles.stages_epilogue(seen, config)),
            ("STORE_WIDTH", tiles.store_width(seen)),
        )
        return Instance(self.file, self.template, types, values, (tiles.instruction(seen, config),))


@lru_cache(maxsize=1024)
def _ranked(rung: WgmmaQuantized, problem: Problem, device: DeviceLimits) -> tuple[Config, ...]:
    """Candidates, the one of the least predicted time first; where none is legal, all of them."""
    found = rung.candidates(problem, device)
    legal = [config for config in found if rung.illegal(problem, config, device) is None] or found
    if len(legal) == 1:
        return tuple(legal)
    return tuple(sorted(legal, key=lambda config: rung.estimate_us(problem, config, device)))


def quantized_view(problem: Problem) -> View:
    """The problem as the kernel sees it, D^T = W X^T: weights are its A, and its B is repacked where TMA cannot load
    it."""
    seen = problem.swapped
    if not tiles.needs_repacking(seen.b, is_a=False):
        return View(seen, "B", "A")
    operand, repack = repacked("A", seen.b, seen.k, seen.n)
    return View(replace(seen, b=operand), "B", repack.target, (repack,))


def _format(seen: Problem) -> Quantization:
    packed = seen.a.quantized
    assert packed is not None, seen
    return packed


def _tiles(problem: Problem, config: Config) -> int:
    """Tiles of D."""
    return ceil_div(problem.n, config["BM"]) * ceil_div(problem.m, config["BN"])


def _ctas(problem: Problem, config: Config) -> int:
    count = _tiles(problem, config)
    if config["STREAM"]:
        return config["SMS"]
    return count * config["SPLIT_K"] if config["SPLIT_K"] > 1 else min(count, config["SMS"])


def _shared_tiles(problem: Problem, config: Config) -> int:
    """Tiles whose K tiles all CTAs share with STREAM: those of the last wave, where it is not full, and of the wave
    before it."""
    count, ctas = _tiles(problem, config), _ctas(problem, config)
    if not config["STREAM"] or count % ctas == 0:
        return 0
    return count - max(count // ctas - 1, 0) * ctas


def _with_stages(problem: Problem, config: dict[str, int], device: DeviceLimits) -> dict[str, int]:
    """The configuration with as many stages as fit, up to `MOST_STAGES`."""
    fits = [
        n
        for n in range(2, MOST_STAGES[_format(problem.swapped).bits] + 1)
        if _fits(problem, {**config, "STAGES": n}, device)
    ]
    return {**config, "STAGES": fits[-1] if fits else 2}


def _split_reason(problem: Problem, config: Config, device: DeviceLimits) -> str | None:
    """Why K of a tile cannot be split among CTAs so, or None."""
    if config["STREAM"] > 1 or (config["STREAM"] and config["SPLIT_K"] > 1):
        return f"STREAM is {config['STREAM']} and SPLIT_K is {config['SPLIT_K']}; STREAM is 0 or, with SPLIT_K=1, 1"
    if config["SPLIT_K"] == 1 and not config["STREAM"]:
        return None
    if keeps_order(problem):
        return (
            f"SPLIT_K is {config['SPLIT_K']} and STREAM is {config['STREAM']}; with batch_invariant=True "
            "K is not split: take SPLIT_K=1, STREAM=0"
        )
    k_tiles, ctas, resident = ceil_div(problem.k, BLOCK_K), _ctas(problem, config), device.co_resident_ctas(1)
    if k_tiles < config["SPLIT_K"]:
        return f"SPLIT_K is {config['SPLIT_K']}; K has {k_tiles} tiles of {BLOCK_K}"
    if ctas > resident:
        return (
            f"SPLIT_K={config['SPLIT_K']}, STREAM={config['STREAM']}: its {ctas} CTAs wait for each other; "
            f"{device.name} certainly runs {resident} at a time: take fewer splits or SMS={resident}"
        )
    registers = tiles.accumulator_registers(problem, config["BM"] // config["CONSUMERS"], config["BN"])
    if config["STREAM"] and registers > STREAMED_ACCUMULATORS:
        return f"STREAM is 1 and a thread has {registers} accumulators; at most {STREAMED_ACCUMULATORS} fit"
    if registers % PACKET_REGISTERS:
        return f"BN is {config['BN']}; a thread's {registers} accumulators are reduced {PACKET_REGISTERS} at a time"
    return None


def _resources_reason(seen: Problem, config: Config, device: DeviceLimits) -> str | None:
    """Why registers or shared memory do not suffice, or None."""
    rows = config["BM"] // config["CONSUMERS"]
    fragments = FRAGMENT_REGISTERS if config["BN"] < WIDE else FRAGMENT_REGISTERS_OF_WIDE
    needed = tiles.accumulator_registers(seen, rows, config["BN"]) + fragments * rows // ROWS
    needed += OVERHEAD_REGISTERS + config["STREAM"] * STREAM_REGISTERS
    has = REGISTERS[config["CONSUMERS"]]
    if needed > has:
        return f"a thread needs about {needed} registers and has {has}; take a smaller tile or fewer CONSUMERS"
    accumulators = tiles.accumulator_registers(seen, rows, config["BN"])
    large = seen.d.dtype.bits == 32 or _format(seen).bits == 8
    if seen.c is not None and large and config["SPLIT_K"] == 1 and accumulators > STREAMED_ACCUMULATORS:
        return f"C is added and a thread has {accumulators} accumulators; at most {STREAMED_ACCUMULATORS} fit here"
    return tiles.shared_reason(_shared_bytes(seen, config, device))


def _fits(problem: Problem, config: Config, device: DeviceLimits) -> bool:
    return tiles.shared_reason(_shared_bytes(quantized_view(problem).problem, config, device)) is None


def _shared_bytes(seen: Problem, config: Config, device: DeviceLimits) -> int:
    """Shared memory of a CTA: ``WgmmaQuantized``."""
    weights = round_up(config["BM"] // BLOCK_ROWS * _format(seen).block_bytes, 1024)
    output = config["CONSUMERS"] * epilogue.staging_bytes(seen, config, device) if config["SPLIT_K"] == 1 else 0
    return tiles.shared_bytes(config["STAGES"], weights + tiles.smem_tiles(seen, config)[1].bytes, output)


def _workspaces(seen: Problem, config: Config) -> tuple[Workspace, ...]:
    if not _split_tiles(seen, config):
        return ()
    slots = _ctas(seen.swapped, config) * config["CONSUMERS"]
    each = tiles.accumulator_registers(seen, config["BM"] // config["CONSUMERS"], config["BN"]) * 4 * WARPGROUP
    return Workspace(PARTIAL_ACCUMULATORS, slots * each), Workspace(PARTIAL_FLAGS, slots * 4, zero=True)


def _split_tiles(seen: Problem, config: Config) -> int:
    """Tiles of which several CTAs share K."""
    problem = seen.swapped
    return _tiles(problem, config) if config["SPLIT_K"] > 1 else _shared_tiles(problem, config)


def _members(view: View, config: Config, subtile: tiles.EpilogueSubtiles) -> tuple[tuple[str, Field], ...]:
    """Members of ``WgmmaQuantizedParams``."""
    seen = view.problem
    part = tiles.smem_tiles(seen, config)[1]
    lines = (seen.k, seen.n) if part.k_major else (seen.n, seen.k)
    map_b = operand_map(view.b, seen.b, lines, (part.row_units, part.lines), tensor_maps.SWIZZLE)
    map_d = tensor_maps.output_map(seen, config, subtile) if d_is_aligned(seen) else map_b
    splits = _split_tiles(seen, config)
    return (
        *gemm_members(view),
        ("map_b", map_b),
        ("map_d", map_d),
        ("partial_accumulators", Pointer(PARTIAL_ACCUMULATORS if splits else None)),
        ("flags", Pointer(PARTIAL_FLAGS if splits else None)),
        ("row_blocks", Scalar("s32", row_blocks(seen.m))),
        ("stream_k_tiles", Scalar("s32", splits)),
    )


WGMMA_QUANTIZED = WgmmaQuantized()
"""4- and 8-bit weights."""
