"""wgmma-overlap: finished tiles are stored during the next tile's mainloop, whatever the type and alignment of D."""

from __future__ import annotations

import pytest

from covering import few
from warptile.codegen.nvrtc import compile_ptx, compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import CompileError
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma.overlap import WGMMA_OVERLAP
from wgmma_product import product, small

NAME = "wgmma-overlap"


def problem(dtype: str = "bfloat16", out: str = "bfloat16", accumulator: str = "", n: int = 4096) -> Problem:
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    return Problem.dense(4096, n, 4096, element, out=DTYPES[out], accumulator=sums, b_major="col")


HALF = {"dtype": "float16", "out": "float16"}
CASES: tuple[tuple[tuple[int, int, int], Config, dict[str, object]], ...] = (
    # All four subtiles of a tile are held, and stored in as many iterations; several tiles of a CTA.
    ((300, 520, 280), {"BN": 256, "SMS": 2}, {**HALF, "schedule": "earliest"}),
    # Of 32-bit elements only two of eight fit beside the accumulators.
    ((259, 511, 140), {"BN": 256, "SMS": 2}, {"dtype": "bfloat16", "out": "float32", "schedule": "random:1"}),
    # K has fewer tiles than subtiles are held; and is shorter than a tile.
    ((300, 520, 100), {"BN": 256, "SMS": 3}, {**HALF, "beta": 2}),
    ((150, 300, 30), {"BN": 192, "SMS": 1}, {"dtype": "bfloat16", "out": "bfloat16", "schedule": "random:2"}),
    # TMA cannot store D: the warpgroup stores held subtiles itself. Prime extents; unaligned lines.
    ((307, 263, 200), {"BN": 128, "SMS": 2}, {**HALF, "offset": 3, "gap": 2, "beta": 2, "schedule": "earliest"}),
    ((193, 161, 97), {"SMS": 2}, {"dtype": "tfloat32", "gap": 1, "offset": 1, "a_major": "col"}),
    ((263, 130, 331), {"BM": 256, "SMS": 1}, {"dtype": "int8", "beta": 3, "a_major": "col", "b_major": "row"}),
    ((131, 200, 75), {"SMS": 2}, {"dtype": "uint8", "accumulator": "int32_saturating", "gap": 1}),
    ((140, 140, 75), {"SMS": 2}, {"dtype": "float8_e5m2", "accumulator": "float16", "out": "float16"}),
    ((140, 144, 0), {"SMS": 2}, {"dtype": "float8_e4m3", "accumulator": "float32_fast", "out": "bfloat16", "beta": 3}),
    ((140, 130, 328), {"SMS": 2}, {"dtype": "bit1", "accumulator": "int32", "gap": 1, "schedule": "random:3"}),
)  # fmt: skip


@pytest.mark.parametrize(("size", "change", "options"), few(CASES, 2))
def test_right_in_every_type(size: tuple[int, int, int], change: Config, options: dict[str, object]) -> None:
    config = {**small(NAME, str(options["dtype"])), **change}
    result = product(NAME, *size, config=config, **{"b_major": "col", **options})  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.guards_kept
    assert result.report.unfinished_copies == 0


@pytest.mark.parametrize(
    ("out", "tile", "held"),
    [
        ("bfloat16", (128, 256), (4, 4, 16)),
        ("bfloat16", (128, 192), (3, 3, 16)),
        ("bfloat16", (256, 128), (4, 4, 16)),
        ("float32", (128, 256), (8, 4, 16)),
        ("bfloat16", (256, 160), (10, 4, 8)),
    ],
)
def test_as_many_subtiles_are_held_as_registers_allow(
    out: str, tile: tuple[int, int], held: tuple[int, int, int]
) -> None:
    config = {**WGMMA_OVERLAP.default_config(problem(out=out)), "BM": tile[0], "BN": tile[1], "STAGES": 2}
    assert WGMMA_OVERLAP.held_subtiles(problem(out=out), config, REFERENCE) == held
    assert WGMMA_OVERLAP.illegal(problem(out=out), config) is None


def test_what_tma_stores_is_what_wgmma_store_stores() -> None:
    """The same sectors and no stores from registers: only the time of the stores differs."""
    counters = [
        product(name, 256, 256, 128, config=small(name, SMS=2), b_major="col", out="float16").report.counters
        for name in ("wgmma-store", NAME)
    ]
    for name in ("tma_store_sectors", "global_store_requests", "tensor_instructions", "shared_store_wavefronts"):
        assert counters[0][name] == counters[1][name]


REASONS = [
    (problem(), {"BM": 256, "BN": 192, "STAGES": 2}, "no finished subtile fits beside them"),
    (problem(), {"BM": 192}, "multiple of 128"),
    (problem(), {"STAGES": 1}, "at least 2"),
    (problem(), {"STAGES": 16}, "bytes of shared memory"),
    (problem("float8_e4m3"), {}, "rung='wgmma-two-level'"),
]


@pytest.mark.parametrize(("of", "change", "reason"), REASONS)
def test_what_cannot_be_taken_is_said(of: Problem, change: Config, reason: str) -> None:
    assert reason in (RUNGS[NAME].illegal(of, {**small(NAME, of.a.dtype.name), **change}) or "legal")


def test_the_kernel_draws_the_same_line() -> None:
    config = {**WGMMA_OVERLAP.default_config(problem()), "BM": 256, "STAGES": 2}
    within, beyond = {**config, "BN": 176}, {**config, "BN": 192}
    assert WGMMA_OVERLAP.illegal(problem(), within) is None
    compile_ptx(translation_unit(WGMMA_OVERLAP.resolve(problem(), within)), "sm_90a")
    assert WGMMA_OVERLAP.illegal(problem(), beyond)
    with pytest.raises(CompileError, match=r"static assert[^\n]*at least one finished subtile"):
        compile_source(translation_unit(WGMMA_OVERLAP.resolve(problem(), beyond)), "sm_90a")


@pytest.mark.parametrize(
    ("of", "number"),
    few(
        [
            (problem(), 0), (problem(n=4095), 0), (problem(out="float32"), 1), (problem(out="float32", n=4095), 0),
            (problem("int8", "int32"), 2), (problem("float16", "float16", "float16", n=4095), 1),
        ],
        1,
    ),
)  # fmt: skip
def test_candidates_compile_without_spills(of: Problem, number: int) -> None:
    config = WGMMA_OVERLAP.candidates(of)[number]
    assert WGMMA_OVERLAP.illegal(of, config) is None
    compile_source(translation_unit(WGMMA_OVERLAP.resolve(of, config)), "sm_90a")
