"""wgmma-stream-k: CTAs share the K tiles of the last output tiles, and always add in the same order."""

from __future__ import annotations

import pytest

from covering import ALL, few
from tensor_product import ptx_once
from warptile.codegen.nvrtc import compile_ptx, compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import KNOWN, REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, DataRace
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma.stream_k import PARTIAL_ACCUMULATORS, PARTIAL_FLAGS, WGMMA_STREAM_K
from wgmma_product import Result, product, small

NAME = "wgmma-stream-k"


def problem(
    dtype: str = "bfloat16", out: str = "bfloat16", accumulator: str = "", size: tuple[int, int, int] = (4096,) * 3
) -> Problem:
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    return Problem.dense(*size, element, out=DTYPES[out], accumulator=sums, b_major="col")


def right(size: tuple[int, int, int], change: Config, **options: object) -> Result:
    config = {**small(NAME, str(options.get("dtype", "float16"))), **change}
    result = product(NAME, *size, config=config, **{"b_major": "col", **options})  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.guards_kept
    assert result.report.unfinished_copies == 0
    return result


HALF = {"dtype": "float16", "out": "float16"}
CASES: tuple[tuple[tuple[int, int, int], Config, dict[str, object]], ...] = (
    # Four tiles of three CTAs, all shared; seven of two, the first four of them whole.
    ((150, 120, 328), {"SMS": 3}, {**HALF, "schedule": "earliest"}),
    ((131, 420, 280), {"SMS": 2, "BN": 128}, {"dtype": "bfloat16", "beta": 2, "schedule": "random:1"}),
    # One tile of many CTAs, of which some have no K tile, and some a part in its middle.
    ((97, 61, 330), {"SMS": 4}, {**HALF, "beta": 2, "schedule": "random:2"}),
    ((97, 61, 130), {"SMS": 7}, {"dtype": "bfloat16", "out": "bfloat16", "schedule": "earliest"}),
    # Nothing to share: K is one tile, or there is none, or the last wave is full.
    ((150, 120, 30), {"SMS": 3}, {"dtype": "float16", "out": "float32", "schedule": "random:3"}),
    ((150, 120, 0), {"SMS": 3}, {**HALF, "beta": 3}),
    ((250, 64, 200), {"SMS": 2}, HALF),
    # TMA cannot store D; types whose operands are repacked or transposed first.
    ((193, 161, 197), {"SMS": 2, "BN": 128}, {**HALF, "gap": 2, "offset": 3, "beta": 2}),
    ((193, 161, 97), {"SMS": 4}, {"dtype": "tfloat32", "gap": 1, "offset": 1, "a_major": "col"}),
    ((260, 72, 331), {"SMS": 2, "BM": 256}, {"dtype": "int8", "beta": 3, "a_major": "col", "b_major": "row"}),
    ((131, 100, 300), {"SMS": 3}, {"dtype": "float8_e5m2", "accumulator": "float16", "out": "float16"}),
    ((131, 100, 300), {"SMS": 3}, {"dtype": "float8_e4m3", "accumulator": "float32_fast", "out": "bfloat16"}),
    ((140, 70, 2056), {"SMS": 3}, {"dtype": "bit1", "accumulator": "int32"}),
)  # fmt: skip


@pytest.mark.parametrize(("size", "change", "options"), few(CASES, 3))
def test_right_in_every_type(size: tuple[int, int, int], change: Config, options: dict[str, object]) -> None:
    """`product` asserts that flags are left zero."""
    right(size, change, **options)


def test_bits_do_not_depend_on_timing() -> None:
    """Float32 additions in another order would round differently somewhere in 22,500 elements."""
    found = {
        right(
            (150, 150, 710 if ALL else 390), {"SMS": 3}, dtype="float16", out="float32", schedule=schedule
        ).d.tobytes()
        for schedule in few(("latest", "latest", "earliest", "random:1", "random:2"), 3)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("instruction", "relaxed"),
    [
        ("st.release.gpu.global.u32", "st.relaxed.gpu.global.u32"),
        ("ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32"),
    ],
)
def test_flags_order_partial_accumulators(instruction: str, relaxed: str) -> None:
    config = small(NAME, SMS=2)
    size = (100, 60, 200)
    plan = right(size, {"SMS": 2}, **HALF).plan
    entry, ptx = ptx_once(translation_unit(plan.kernel), "sm_90a")
    assert ptx.count(instruction.encode()) >= 1
    wrong = ptx.replace(instruction.encode(), relaxed.encode())
    with pytest.raises(DataRace):
        product(NAME, *size, config=config, kernel=(entry, wrong), b_major="col", dtype="float16", out="float16")


@pytest.mark.parametrize(
    ("size", "sms", "shared"),
    [
        ((4096, 4096, 4096), 132, 512 - 2 * 132),  # the fourth wave has 116 tiles: shared with the third
        ((4096, 4096, 4096), 128, 0),  # four whole waves
        ((128, 256, 4096), 132, 1),
        ((8192, 8192, 64), 114, 2048 - 16 * 114),
    ],
)
def test_the_last_wave_and_the_one_before_it_are_shared(size: tuple[int, int, int], sms: int, shared: int) -> None:
    of = problem(size=size)
    config = {**WGMMA_STREAM_K.default_config(of), "SMS": sms}
    kernel = WGMMA_STREAM_K.resolve(of, config)
    assert WGMMA_STREAM_K.shared_tiles(of, config) == shared
    assert kernel.grid == (sms, 1, 1)
    sizes = {each.name: (each.bytes, each.zero) for each in kernel.workspaces}
    of_two_warpgroups = 128 * 256 * 4
    wanted = {PARTIAL_ACCUMULATORS: (sms * of_two_warpgroups, False), PARTIAL_FLAGS: (sms * 2 * 4, True)}
    assert sizes == (wanted if shared else {})


REASONS = [
    (problem("int8", "int32", "int32_saturating"), {}, "depend on the order of additions"),
    (problem(size=(4096, 4095, 4096)), {"BM": 256}, "take BM=128"),
    (problem("float16", "float16", "float16"), {"BN": 24}, "6 accumulators are handed over 4 at a time"),
    (problem(), {"SMS": 133}, "NVIDIA H200 runs 132 at a time"),
    (problem(), {"BM": 192}, "multiple of 128"),
    (problem(), {"STAGES": 1}, "at least 2"),
    (problem(), {"STAGES": 16}, "bytes of shared memory"),
    (problem("float8_e4m3"), {}, "rung='wgmma-two-level'"),
]


@pytest.mark.parametrize(("of", "change", "reason"), REASONS)
def test_what_cannot_be_taken_is_said(of: Problem, change: Config, reason: str) -> None:
    assert reason in (RUNGS[NAME].illegal(of, {**small(NAME, of.a.dtype.name), **change}) or "legal")


def test_ctas_that_wait_for_each_other_are_co_resident() -> None:
    of, h100 = problem(), KNOWN["NVIDIA H100 PCIe"]
    assert WGMMA_STREAM_K.default_config(of, h100)["SMS"] == 114
    assert "NVIDIA H100 PCIe runs 114" in (WGMMA_STREAM_K.illegal(of, WGMMA_STREAM_K.default_config(of), h100) or "")
    assert "runs 20 at a time" in (
        WGMMA_STREAM_K.illegal(of, WGMMA_STREAM_K.default_config(of), REFERENCE.occupying(20)) or ""
    )


def test_the_kernel_draws_the_same_line() -> None:
    of = problem("float16", "float16", "float16")
    within, beyond = small(NAME, BN=16), small(NAME, BN=24)
    assert WGMMA_STREAM_K.illegal(of, within) is None
    compile_ptx(translation_unit(WGMMA_STREAM_K.resolve(of, within)), "sm_90a")
    with pytest.raises(CompileError, match=r"static assert[^\n]*packets of four"):
        compile_source(translation_unit(WGMMA_STREAM_K.resolve(of, beyond)), "sm_90a")


@pytest.mark.parametrize(
    ("of", "number"),
    few(
        [
            (problem(), 0), (problem(size=(4096, 4095, 4096)), 0), (problem(out="float32"), 1),
            (problem("int8", "int32"), 2), (problem("float16", "float16", "float16", (4096, 4095, 4096)), 3),
        ],
        1,
    ),
)  # fmt: skip
def test_candidates_compile_without_spills(of: Problem, number: int) -> None:
    config = WGMMA_STREAM_K.candidates(of)[number]
    assert WGMMA_STREAM_K.illegal(of, config) is None
    compile_source(translation_unit(WGMMA_STREAM_K.resolve(of, config)), "sm_90a")
