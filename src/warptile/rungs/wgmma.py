"""The Hopper rungs below wgmma-final: what each takes, its tunables, and its launch."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa import wgmma
from warptile.launch import Argument, Dim3
from warptile.problem import Problem
from warptile.rungs import wgmma_maps
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.rung import Config, Rung
from warptile.rungs.tensor_tiles import output_width, stages_reason
from warptile.rungs.wgmma_classes import stored_whole
from warptile.rungs.wgmma_tiles import ROW_BYTES, ROWS, WARPGROUP, accumulator_registers, stage_bytes
from warptile.sparse import group_width

TILE_KEYS = ("BM", "BN", "BK")
RING_KEYS = (*TILE_KEYS, "STAGES")
STAYING_KEYS = (*RING_KEYS, "GROUP", "SMS")

MULTIPROCESSORS = 132
"""Blocks that stay: one on each multiprocessor of the reference GPU."""

MAX_REGISTERS = 255
METADATA_REGISTERS = 8
"""Two sets of words of metadata for 64 rows."""

REGISTERS_OF_TWO = 240
"""Of a thread of two warpgroups that multiply beside one that does not."""


@dataclass(frozen=True)
class Kind:
    """What tells one of these rungs from another.

    Attributes:
        keys: its tunables.
        consumers: warpgroups that multiply.
        parts: warpgroups that share a tile.
        producer: a warpgroup of its own asks for tiles.
        stays: blocks take one tile after the other.
        cluster: blocks of a cluster, below each other.
        stores: it stores by TMA, from shared memory.
        sparse: A is stored by half, its metadata beside it.
    """

    keys: tuple[str, ...]
    consumers: int = 1
    parts: int = 1
    producer: bool = True
    stays: bool = False
    cluster: int = 1
    stores: bool = False
    sparse: bool = False

    def threads(self) -> int:
        """Threads of a block."""
        return WARPGROUP * (self.consumers + self.producer)

    def seen_config(self, config: Config) -> Config:
        """The configuration with the cluster in it, as maps of operands need it."""
        return {**config, "CM": self.cluster}

    def shared_bytes(self, problem: Problem, config: Config) -> int:
        """Shared memory of a block."""
        each = stage_bytes(tiles.view(problem, config).problem, config)
        if not self.producer:
            return each + tiles.MBARRIER_BYTES
        panels = tiles.Output.of(tiles.view(problem, config).problem, config)
        output = self.consumers * panels.buffers * panels.bytes if self.stores else 0
        turns = self.consumers * tiles.MBARRIER_BYTES
        return tiles.shared_bytes(config["STAGES"], each, output) + turns

    def illegal(self, problem: Problem, config: Config) -> str | None:
        """Why this rung cannot run the problem, or None."""
        reason = tiles.common_reasons(problem, config, self.keys, sparse=self.sparse)
        if reason is not None:
            return reason
        rows = config["BM"] // self.parts
        if config["BM"] % (ROWS * self.parts):
            return f"BM is {config['BM']}; {self.parts} warpgroups need a multiple of {ROWS * self.parts}"
        if "STAGES" in config and (reason := stages_reason(config)):
            return reason
        if self.cluster > config.get("SMS", self.cluster):
            return f"SMS is {config['SMS']}; a cluster has {self.cluster} blocks"
        if self.sparse and problem.k == 0:
            return "K is 0: there is no metadata to read; take rung='mma-sparse'"
        if self.sparse and problem.k % group_width(problem.a.dtype):
            width = group_width(problem.a.dtype)
            return f"K is {problem.k}; a group of {problem.a.dtype.name} is {width} along K: a multiple of that"
        seen = tiles.view(problem, config).problem
        if tiles.promoted(seen):
            return "sums of 8-bit floats are short: accumulate='float32_fast' or 'float16', or rung='wgmma-final'"
        if reason := tiles.shares_reason(seen, self.seen_config(config)):
            return reason
        needed = accumulator_registers(seen, rows, config["BN"]) + tiles.OVERHEAD_REGISTERS
        needed += METADATA_REGISTERS * rows // ROWS if self.sparse else 0
        most = REGISTERS_OF_TWO if self.consumers == 2 else MAX_REGISTERS
        if needed > most:
            return f"a thread needs about {needed} registers and has {most}; take a smaller tile"
        return tiles.shared_reason(self.shared_bytes(problem, config))

    def grid(self, problem: Problem, config: Config) -> Dim3:
        """Blocks: one for each tile, or as many as stay."""
        seen = tiles.view(problem, config).problem
        if not self.stays:
            return (blocks(seen, config), 1, 1)
        teams = ceil_div(seen.m, config["BM"] * self.cluster) * ceil_div(seen.n, config["BN"])
        return (min(teams, config["SMS"] // self.cluster) * self.cluster, 1, 1)

    def parameters(self, problem: Problem, config: Config) -> tuple[Argument, ...]:
        """The tensor maps."""
        found = wgmma_maps.operand_maps(tiles.view(problem, config), self.seen_config(config))
        return found if self.stores else found[:2]

    def name_expression(self, kernel: str, problem: Problem, config: Config) -> str:
        """The C++ name of the instantiation."""
        seen = tiles.view(problem, config).problem
        arguments = [tiles.operation_type(seen), tiles.tile_type(seen, config)]
        if self.stores:
            arguments += ["true" if stored_whole(seen) else "false", str(tiles.store_width(seen))]
        else:
            arguments.append("true" if output_width(seen) >= 2 else "false")
        arguments += [str(config[key]) for key in self.keys if key not in (*TILE_KEYS, "SMS")]
        return f"warptile::{kernel}<{', '.join(arguments)}>"


def _rung(
    name: str, idea: str, previous: str, kind: Kind, sizes: tuple[int, int], stages: int, *others: tuple[int, int, int]
) -> Rung:
    """A rung whose usual tile is ``sizes`` with ``stages`` stages; ``others`` are further BM, BN, STAGES."""
    kernel = name.replace("-", "_")

    def config(problem: Problem, bm: int, bn: int, count: int) -> Config:
        row_bytes = ROW_BYTES * (2 if kind.sparse else 1)
        values = {
            "BM": bm, "BN": bn, "BK": row_bytes * 8 // problem.a.dtype.bits, "STAGES": count, "GROUP": 8,
            "SMS": MULTIPROCESSORS,
        }  # fmt: skip
        return {key: values[key] for key in kind.keys}

    def candidates(problem: Problem) -> tuple[Config, ...]:
        return tuple(config(problem, *each) for each in ((*sizes, stages), *others))

    def default_on_fewer(problem: Problem, sms: int) -> Config:
        return {**config(problem, *sizes, stages), "SMS": min(sms, MULTIPROCESSORS)}

    return Rung(
        name=name,
        family="wgmma",
        idea=idea,
        file=f"wgmma/{kernel.removeprefix('wgmma_')}.cuh",
        previous=previous,
        min_arch=tiles.CAPABILITY,
        only_arch=wgmma.ARCH,
        dtypes=tuple(each for each in tiles.DTYPES if not kind.sparse or each != "bit1"),
        sparse=kind.sparse,
        overlaps_previous=kind.sparse,
        default_config=lambda problem: config(problem, *sizes, stages),
        default_on_fewer=default_on_fewer if kind.stays else None,
        candidates=candidates,
        illegal=kind.illegal,
        name_expression=lambda problem, chosen: kind.name_expression(kernel, problem, chosen),
        grid=kind.grid,
        threads=lambda problem, chosen: (kind.threads(), 1, 1),
        dynamic_shared_bytes=kind.shared_bytes,
        capability=lambda problem, chosen: tiles.CAPABILITY,
        cluster=lambda problem, chosen: (kind.cluster, 1, 1),
        view=tiles.view,
        parameters=kind.parameters,
        instructions=lambda problem, chosen: (tiles.instruction(problem, chosen),),
    )


COOPERATIVE = ((256, 128, 4), (128, 192, 4), (128, 128, 5))

WGMMA_RUNGS: tuple[Rung, ...] = (
    _rung(
        "wgmma-tma",
        "the copy engine brings whole tiles, swizzled; a warpgroup multiplies them where they lie",
        "mma-final",
        Kind(TILE_KEYS, producer=False),
        (128, 128),
        1,
        (64, 256, 1),
        (64, 128, 1),
        (128, 64, 1),
    ),
    _rung(
        "wgmma-specialized",
        "a warp that only asks for tiles, a warpgroup that only multiplies, a ring of stages between them",
        "wgmma-tma",
        Kind(RING_KEYS),
        (128, 128),
        5,
        (64, 256, 4),
        (128, 192, 4),
        (64, 128, 6),
    ),
    _rung(
        "wgmma-cooperative",
        "two warpgroups share a tile twice as large; registers move to where the sums are",
        "wgmma-specialized",
        Kind(RING_KEYS, consumers=2, parts=2),
        (128, 256),
        4,
        *COOPERATIVE,
    ),
    _rung(
        "wgmma-persistent",
        "a block stays and takes tile after tile, in an order that L2 likes",
        "wgmma-cooperative",
        Kind(STAYING_KEYS, consumers=2, parts=2, stays=True),
        (128, 256),
        4,
        *COOPERATIVE,
    ),
    _rung(
        "wgmma-multicast",
        "clusters of two blocks: what both need of B is read once",
        "wgmma-persistent",
        Kind(STAYING_KEYS, consumers=2, parts=2, stays=True, cluster=2),
        (128, 256),
        4,
        *COOPERATIVE,
    ),
    _rung(
        "wgmma-store",
        "stmatrix and TMA store the finished tile while the next one is multiplied",
        "wgmma-persistent",
        Kind(STAYING_KEYS, consumers=2, parts=2, stays=True, stores=True),
        (128, 256),
        4,
        *COOPERATIVE,
    ),
    _rung(
        "wgmma-pingpong",
        "two warpgroups take turns on tiles of their own: one stores while the other multiplies",
        "wgmma-store",
        Kind(STAYING_KEYS, consumers=2, stays=True, stores=True),
        (128, 128),
        5,
        (64, 256, 4),
        (128, 192, 4),
        (64, 128, 7),
    ),
)
"""The wgmma family in ladder order, up to wgmma-final."""

WGMMA_SPARSE = _rung(
    "wgmma-sparse",
    "2:4 sparsity: A at half its size and metadata, twice the depth in one instruction",
    "wgmma-final",
    Kind(STAYING_KEYS, consumers=2, parts=2, stays=True, stores=True, sparse=True),
    (256, 128),
    3,
    (128, 256, 2),
    (128, 192, 3),
    (128, 128, 4),
    (256, 192, 2),
)
"""2:4 weights."""
