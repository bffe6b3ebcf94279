"""wgmma-dependent-launch: right like wgmma-store, and nothing is touched before the launch ahead of it has ended."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from covering import covering, few
from tensor_product import compiled_once, ptx_once
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import DataRace, MbarrierMisuse, UninitializedRead
from warptile.problem import Problem
from warptile.rungs import RUNGS
from wgmma_product import ok, product, small

NAME = "wgmma-dependent-launch"
RUNG = RUNGS[NAME]
SIZE = (193, 161, 97)
TYPES = (
    ("float16", "float32", "float16"),
    ("bfloat16", "float32", "float32"),
    ("tfloat32", "float32", "float32"),
    ("int8", "int32", "int32"),
    ("uint8", "int32_saturating", "int32"),
    ("float8_e4m3", "float32_fast", "bfloat16"),
    ("float8_e5m2", "float16", "float16"),
)


@pytest.mark.parametrize(
    ("types", "a_major", "b_major", "gap", "beta", "schedule"),
    few(
        covering(
            TYPES, ("row", "col"), ("row", "col"), (0, 1, 7), (0, 3), ("latest", "earliest", "random:1"), pairs=()
        ),
        3,
    ),
    ids=str,
)  # fmt: skip
def test_every_type_and_layout(
    types: tuple[str, str, str], a_major: str, b_major: str, gap: int, beta: int, schedule: str
) -> None:
    dtype, accumulator, out = types
    result = ok(
        NAME, *SIZE, dtype=dtype, accumulator=accumulator, out=out, a_major=a_major, b_major=b_major, alpha=-2,
        beta=beta, gap=gap, offset=gap, schedule=schedule,
    )  # fmt: skip
    assert result.plan.kernel.overlaps_previous


@pytest.mark.parametrize("size", few([(1, 1, 1), (1, 70, 0), (70, 1, 33), (300, 200, 1)], 2))
def test_hardly_any_rows_columns_or_k(size: tuple[int, int, int]) -> None:
    ok(NAME, *size, beta=2, offset=8, gap=7, b_major="col")


def test_bits() -> None:
    ok(NAME, 131, 70, 328, dtype="bit1", out="int32", b_major="col", beta=3, gap=1)


def of(size: tuple[int, int, int] = (512, 512, 512), out: str = "float16", d_alignment: int = 16) -> Problem:
    dense = Problem.dense(
        *size, DTYPES["float16"], out=DTYPES[out], accumulator=DTYPES["float32"], b_major="col", with_c=True
    )
    return replace(dense, d=replace(dense.d, alignment_bytes=d_alignment))


@pytest.mark.parametrize("instruction", ["griddepcontrol.wait"])
@pytest.mark.parametrize("gap", [0, 1])
def test_operands_are_touched_only_after_the_wait(instruction: str, gap: int) -> None:
    given = product(NAME, 70, 72, 64, out="float16", gap=gap).plan
    entry, ptx = ptx_once(translation_unit(given.kernel), "sm_90a")
    text = ptx.decode()
    assert text.count(f"{instruction};") == 1
    mutant = text.replace(f"{instruction};", f"// {instruction};")
    with pytest.raises(DataRace, match=r"griddepcontrol\.wait"):
        product(NAME, 70, 72, 64, out="float16", gap=gap, kernel=(entry, mutant.encode()))


def test_the_prologue_is_ahead_of_the_wait_and_the_trigger_behind_the_last_store() -> None:
    _, ptx = ptx_once(translation_unit(RUNG.resolve(of(), RUNG.default_config(of()))), "sm_90a")
    text = ptx.decode()
    wait, trigger = text.index("griddepcontrol.wait;"), text.index("griddepcontrol.launch_dependents;")
    assert text.count("prefetch.tensormap", 0, wait) == 3
    assert text.count("mbarrier.init", 0, wait) == text.count("mbarrier.init") > 0
    assert "cp.async.bulk.tensor" not in text[:wait]
    assert text.rindex("cp.async.bulk.tensor.2d.global") < trigger < text.rindex("cp.async.bulk.wait_group.read 0")


def test_the_barriers_of_the_pipeline_are_initialised_for_everyone() -> None:
    entry, ptx = ptx_once(translation_unit(RUNG.resolve(of((193, 161, 200)), small(NAME))), "sm_90a")
    text = ptx.decode()
    start = re.search(r"^\s*(bar\.sync|barrier\.sync)\S*\s+0", text, re.M)
    assert start is not None
    mutant = f"{text[: start.start(1)]}// {text[start.start(1) :]}"
    with pytest.raises((DataRace, MbarrierMisuse, UninitializedRead)):
        product(NAME, 193, 161, 200, out="float16", with_c=True, b_major="col", kernel=(entry, mutant.encode()))


def test_a_part_of_a_gpu_does_not_overlap_launches() -> None:
    config = small(NAME)
    assert RUNG.resolve(of(), config).overlaps_previous
    assert RUNG.resolve(of(), config).launch("kernel").overlaps_previous
    assert not RUNG.resolve(of(), config, REFERENCE.occupying(3)).overlaps_previous
    assert not RUNGS["wgmma-store"].resolve(of(), config).overlaps_previous


@pytest.mark.parametrize(("d_alignment", "out"), few(covering((16, 4), ("float16", "float32"), pairs=()), 1))
def test_every_candidate_that_is_legal_compiles_without_spills(out: str, d_alignment: int) -> None:
    given = of((4096, 4096, 4096), out, d_alignment)
    legal = [config for config in RUNG.candidates(given) if RUNG.illegal(given, config) is None]
    assert legal
    for config in few(legal, 1):
        compiled_once(translation_unit(RUNG.resolve(given, config)), "sm_90a")


def test_it_is_as_legal_as_wgmma_store() -> None:
    store = RUNGS["wgmma-store"]
    for config in (*store.candidates(of()), {**store.default_config(of()), "BM": 64}, {}):
        assert RUNG.illegal(of(), config) == store.illegal(of(), config)
