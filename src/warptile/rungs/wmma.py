"""The WMMA rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar

from warptile.arch import MAX_THREADS
from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.rung import Rung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    MAX_STATIC_SHARED_BYTES,
    elements_per_unit,
    output_width,
    resource_reason,
    stages_reason,
    unit_bytes,
    width,
)
from warptile.rungs.wmma_tiles import (
    FRAGMENTS,
    WmmaResources,
    capability,
    common_reasons,
    output_reason,
    pad_reason,
    sets_reason,
    tiling_reason,
    vector_reason,
)

SHAPE_KEYS = ("FM", "FN", "FK")
TILE_KEYS = ("BM", "BN", "BK", "WM", "WN", *SHAPE_KEYS)
PADDED_KEYS = (*TILE_KEYS, "PAD")
RING_KEYS = (*PADDED_KEYS, "STAGES")
FINAL_KEYS = (*RING_KEYS, "SETS", "GROUP", "ZIGZAG", "MIN_BLOCKS")


# --- sizes --------------------------------------------------------------------------------------------------------


def _shape(problem: Problem) -> dict[str, int]:
    fm, fn, fk = FRAGMENTS[problem.a.dtype.name][0] if problem.a.dtype.name in FRAGMENTS else (16, 16, 16)
    return {"FM": fm, "FN": fn, "FK": fk}


def _pad(problem: Problem) -> int:
    """16 bytes in elements: 8 halves."""
    return 128 // problem.a.dtype.bits


def _bk(problem: Problem, row_bytes: int = 64) -> int:
    """``row_bytes`` of K in elements: 32 halves for 64 bytes."""
    return row_bytes * 8 // problem.a.dtype.bits


def _tile(problem: Problem, bm: int = 128, bn: int = 128, wm: int = 64, wn: int = 32) -> dict[str, int]:
    return {"BM": bm, "BN": bn, "BK": _bk(problem), "WM": wm, "WN": wn, **_shape(problem)}


def _padded(problem: Problem) -> dict[str, int]:
    return {**_tile(problem), "PAD": _pad(problem)}


def _ring(problem: Problem, stages: int) -> dict[str, int]:
    return {**_padded(problem), "STAGES": stages}


def _final(problem: Problem, *sizes: int, k_bytes: int, stages: int, sets: int = 2) -> dict[str, int]:
    choice = {**_tile(problem, *sizes), "BK": _bk(problem, k_bytes), "PAD": _pad(problem)}
    return {**choice, "STAGES": stages, "SETS": sets, "GROUP": 8, "ZIGZAG": 1, "MIN_BLOCKS": 1}


# --- template arguments -------------------------------------------------------------------------------------------


def _operation(problem: Problem, config: Config) -> str:
    types = f"{problem.a.dtype.cuda}, {problem.accumulator.cuda}, {problem.d.dtype.cuda}"
    column_major = "true" if problem.b.major == "col" else "false"
    return f"warptile::Operation<{types}, {column_major}, {config['FM']}, {config['FN']}, {config['FK']}>"


def _tile_type(problem: Problem, config: Config) -> str:
    k_units = config["BK"] // elements_per_unit(problem)
    return f"warptile::Tile<{config['BM']}, {config['BN']}, {k_units}, {config['WM']}, {config['WN']}>"


def _widths(problem: Problem) -> str:
    each = unit_bytes(problem)
    return f"warptile::Widths<{width(problem.a, each)}, {width(problem.b, each)}, {output_width(problem)}>"


# --- legality -----------------------------------------------------------------------------------------------------


def _naive_as_tile(config: Config) -> dict[str, int]:
    """The naive rung's CTA tile: a warp tile is one fragment, with the K extent of one fragment."""
    return {**config, "BK": config["FK"], "WM": config["FM"], "WN": config["FN"]}


def _naive_reason(config: Config) -> str | None:
    reason = tiling_reason(_naive_as_tile(config))
    threads = config["BM"] // config["FM"] * (config["BN"] // config["FN"]) * 32
    if reason is None and threads > MAX_THREADS:
        return f"BM x BN is {threads // 32} fragments, one a warp; a block has at most {MAX_THREADS // 32} warps"
    return reason


# --- configurations -----------------------------------------------------------------------------------------------

FINAL_SIZES = (
    (64, 64, 32, 32, 64, 4, 2),
    (64, 128, 32, 64, 64, 4, 2),
    (128, 128, 64, 32, 64, 4, 2),
    (128, 128, 64, 64, 64, 4, 2),
    (128, 128, 64, 64, 128, 3, 2),
    (128, 256, 64, 64, 64, 4, 2),
    (256, 128, 64, 64, 64, 4, 2),
    (128, 256, 64, 64, 128, 3, 2),
    (256, 128, 64, 64, 128, 3, 2),
)
"""This project's nine configurations of wmma-final: BM, BN, WM, WN, bytes of K (64: 32 halves), STAGES, SETS."""

DEFAULT_CHOICES = {8: 0.75, 7: 0.75, 5: 0.75, 2: 0.75, 0: 0.0}
"""Default choices among the nine, best first, each with the share of the SMs that its tiles must keep busy."""


def nine(problem: Problem) -> tuple[Config, ...]:
    """The nine configurations of wmma-final that are always tried, for the problem's types."""
    return tuple(
        _final(problem, *sizes, k_bytes=k_bytes, stages=stages, sets=sets)
        for *sizes, k_bytes, stages, sets in FINAL_SIZES
    )


def _naive_candidates(problem: Problem) -> tuple[Config, ...]:
    shape = _shape(problem)
    return tuple({"BM": shape["FM"] * m, "BN": shape["FN"] * n, **shape} for m, n in ((2, 2), (1, 1), (1, 4), (4, 4)))


TILE_SIZES = ((128, 128, 64, 32), (128, 128, 64, 64), (128, 128, 32, 64), (128, 64, 32, 32), (64, 64, 32, 32))
"""Tiles that rungs without a list of their own try: BM, BN, WM, WN."""


# --- rungs --------------------------------------------------------------------------------------------------------


PADDED = Mechanism(pad_elements=8)
"""``cp.async`` into padded rows."""


class WmmaRung(Rung):
    """What the WMMA rungs share: one CTA for each tile of D, tiles of CTA, warp and fragment.

    Attributes:
        keys: its tunables; the kernel takes those behind the tile's as compile-time values.
        vectors: it loads operands in vectors.
        dynamic: its stages are in dynamic shared memory.
    """

    family: ClassVar[str] = "wmma"
    dtypes = tuple(FRAGMENTS)
    keys: tuple[str, ...] = TILE_KEYS
    vectors = True
    dynamic = False

    def __init__(
        self,
        name: str,
        idea: str,
        previous: str,
        *,
        keys: tuple[str, ...] = TILE_KEYS,
        stages: int = 0,
        min_arch: int = 80,
        vectors: bool = True,
        dynamic: bool = False,
        mechanism: Mechanism = PADDED,
    ) -> None:
        self.name, self.idea, self.previous, self.min_arch = name, idea, previous, min_arch
        self.keys, self.vectors, self.dynamic = keys, vectors, dynamic
        self._stages, self.mechanism = stages, mechanism

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        config = {**_tile(problem), "PAD": _pad(problem), "STAGES": self._stages}
        return {key: config[key] for key in self.keys}

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The default with other CTA and warp tiles."""
        base = self.default_config(problem, device)
        return tuple({**base, "BM": bm, "BN": bn, "WM": wm, "WN": wn} for bm, bn, wm, wn in TILE_SIZES)

    def resources(self, problem: Problem, config: Config) -> WmmaResources:
        """What a CTA of a configuration takes of an SM."""
        return WmmaResources(problem, config, fragment_sets=2 if "STAGES" in config else 1)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            common_reasons(problem, config, self.keys)
            or tiling_reason(config)
            or (pad_reason(problem, config) if "PAD" in self.keys else None)
            or (stages_reason(config) if "STAGES" in self.keys else None)
            or (vector_reason(problem, config) if self.vectors else None)
            or resource_reason(
                self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES if self.dynamic else MAX_STATIC_SHARED_BYTES
            )
        )

    def tile(self, config: Config) -> Config:
        """The configuration as a tile of CTA, K, and warp."""
        return config

    def instance(self, problem: Problem, config: Config) -> Instance:
        """The template and its configuration."""
        types = [
            ("OPERATION", with_epilogue(_operation(problem, config), problem)),
            ("TILE", _tile_type(problem, self.tile(config))),
        ]
        if self.vectors:
            types.append(("WIDTHS", _widths(problem)))
        values = dict(config)
        if "PAD" in values:
            values["PAD"] //= elements_per_unit(problem)
        return Instance(
            self.file,
            self.template,
            tuple(types),
            tuple((key, values[key]) for key in self.keys if key not in TILE_KEYS),
        )

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view = View(problem)
        resources = self.resources(problem, self.tile(config))
        return KernelSpec(
            problem,
            config,
            view,
            self.instance(problem, config),
            grid=(blocks(problem, config), 1, 1),
            block=(resources.threads, 1, 1),
            params=Params(gemm_members(view)),
            dynamic_shared_bytes=resources.shared_bytes if self.dynamic else 0,
            capability=capability(problem),
        )


class WmmaNaive(WmmaRung):
    """A warp computes one fragment; operands come from global memory."""

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return _naive_candidates(problem)[0]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return _naive_candidates(problem)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return common_reasons(problem, config, self.keys) or _naive_reason(config)

    def tile(self, config: Config) -> Config:
        """A warp tile is one fragment, with the K extent of one fragment."""
        return _naive_as_tile(config)


class WmmaShared(WmmaRung):
    """One padded tile, of fixed size."""

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return (self.default_config(problem, device),)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = common_reasons(problem, config, self.keys)
        if reason is not None:
            return reason
        fixed = self.default_config(problem, device)
        for key in ("BM", "BN", "BK", "WM", "WN", "PAD"):
            if config[key] != fixed[key]:
                return f"{key} is {config[key]}; this rung's only tile has {key}={fixed[key]} (wmma-block takes others)"
        return None

    def instance(self, problem: Problem, config: Config) -> Instance:
        """The kernel knows its tile."""
        return Instance(self.file, self.template, (("OPERATION", with_epilogue(_operation(problem, config), problem)),))


class WmmaFinal(WmmaRung):
    """All of it, tuned."""

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The first of the default choices that is legal and keeps enough SMs busy.

        Large tiles are ranked by shared-memory traffic: 1 / WM + 1 / WN a multiply-add for fragments, 1 / BM + 1 / BN
        for stages, and more with 64 bytes of K, whose padded rows have bank conflicts, than with 128.
        """
        choices = nine(problem)
        for index, share in DEFAULT_CHOICES.items():
            config = choices[index]
            if self.illegal(problem, config, device) is None and blocks(problem, config) >= share * device.sms:
                return config
        return choices[0]

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The nine, then every tile, K extent and number of stages that is legal, then other groups for the nine."""
        found = list(nine(problem))
        extents, warps = (64, 128, 192, 256), (32, 64, 96, 128)
        for bm, bn, wm, wn, k_bytes, stages in product(extents, extents, warps, warps, (32, 64, 128), (2, 3, 4, 5)):
            if 2 <= bm * bn // (wm * wn) <= 16:
                sets = 1 if wm * wn > 64 * 64 else 2
                found.append(_final(problem, bm, bn, wm, wn, k_bytes=k_bytes, stages=stages, sets=sets))
        found += [{**config, "MIN_BLOCKS": 2} for config in list(found)]
        for change in ({"GROUP": 1}, {"GROUP": 4}, {"GROUP": 16}, {"ZIGZAG": 0}, {"SETS": 1}):
            found += [{**config, **change} for config in nine(problem)]
        unique = {tuple(config.items()): config for config in found}
        return tuple(config for config in unique.values() if self.illegal(problem, config, device) is None)

    def resources(self, problem: Problem, config: Config) -> WmmaResources:
        """What a CTA of a configuration takes of an SM."""
        return WmmaResources(problem, config, whole_rows=True, fragment_sets=2 if config["SETS"] == 2 else 0)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            common_reasons(problem, config, FINAL_KEYS)
            or (None if config["ZIGZAG"] in (0, 1) else f"ZIGZAG is {config['ZIGZAG']}; it is 0 or 1")
            or tiling_reason(config)
            or sets_reason(config)
            or pad_reason(problem, config)
            or stages_reason(config)
            or vector_reason(problem, config)
            or output_reason(problem, config)
            or resource_reason(self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES)
        )


WMMA_RUNGS: tuple[Rung, ...] = (
    WmmaNaive(
        "wmma-naive",
        "one warp per 16 x 16 fragment, operands straight from global memory",
        "simt-half2",
        keys=("BM", "BN", *SHAPE_KEYS),
        vectors=False,
        min_arch=70,
        mechanism=Mechanism(staged=False, vector=False, asynchronous=False),
    ),
    WmmaShared(
        "wmma-shared",
        "128 x 128 block tile in padded shared memory, several fragments per warp",
        "wmma-naive",
        keys=PADDED_KEYS,
        vectors=False,
        min_arch=70,
        mechanism=Mechanism(vector=False, asynchronous=False, pad_elements=8, loads_in_flight=(4, 2)),
    ),
    WmmaRung(
        "wmma-block",
        "CTA, warp and fragment tile sizes as template parameters, unpadded",
        "wmma-shared",
        vectors=False,
        min_arch=70,
        mechanism=Mechanism(vector=False, asynchronous=False, loads_in_flight=(4, 3)),
    ),
    WmmaRung(
        "wmma-vectorized",
        "vectorized (16-byte) loads from global memory",
        "wmma-block",
        min_arch=70,
        mechanism=Mechanism(asynchronous=False),
    ),
    WmmaRung(
        "wmma-async",
        "cp.async: copies from global to shared memory bypass registers",
        "wmma-vectorized",
        mechanism=Mechanism(),
    ),
    WmmaRung(
        "wmma-padded",
        "16 bytes of padding after each shared-memory row: no bank conflicts",
        "wmma-async",
        keys=PADDED_KEYS,
    ),
    WmmaRung(
        "wmma-multistage",
        "multistage pipeline: copies run several k-blocks ahead of the math",
        "wmma-padded",
        keys=RING_KEYS,
        stages=2,
    ),
    WmmaRung(
        "wmma-double-buffer",
        "double-buffered fragments: shared-memory loads overlap the math",
        "wmma-multistage",
        keys=RING_KEYS,
        stages=2,
    ),
    WmmaRung(
        "wmma-dynamic-smem",
        "dynamic shared memory beyond 48 KB: more stages",
        "wmma-double-buffer",
        keys=RING_KEYS,
        stages=4,
        dynamic=True,
    ),
    WmmaFinal(
        "wmma-final",
        "overlap across stages, vector epilogue, L2-friendly order, tuned tiles",
        "wmma-dynamic-smem",
        keys=FINAL_KEYS,
        dynamic=True,
        mechanism=replace(PADDED, overlaps_stages=True),
    ),
)
"""The WMMA family in ladder order."""
