"""The ladder as data: what each rung takes, and its launch."""

from dataclasses import replace

import pytest

from simt_product import problem
from warptile.codegen.headers import KERNELS
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.rungs import RUNGS, families, rung
from warptile.rungs.legality import blocks, operand_reason

LADDER = list(RUNGS.values())


def accumulator_of(each):
    return "float16" if each.name == "simt-half2" else None


def test_the_ladder_has_its_families_in_order():
    assert families() == ("simt", "wmma", "mma", "wgmma")
    assert list(RUNGS)[:4] == ["simt-naive", "simt-shared", "simt-warptile", "simt-half2"]
    assert list(RUNGS)[14:] == [
        "mma-naive",
        "mma-vectorized",
        "mma-swizzled",
        "mma-double-buffer",
        "mma-multistage",
        "mma-final",
        "mma-sparse",
        "mma-tma",
        "mma-tma-swizzled",
        "wgmma-tma",
        "wgmma-specialized",
        "wgmma-cooperative",
        "wgmma-persistent",
        "wgmma-multicast",
        "wgmma-store",
        "wgmma-pingpong",
        "wgmma-overlap",
        "wgmma-stream-k",
        "wgmma-two-level",
        "wgmma-split",
        "wgmma-dependent-launch",
        "wgmma-final",
        "wgmma-sparse",
    ]


@pytest.mark.parametrize("each", LADDER, ids=lambda each: each.name)
def test_a_kernel_may_start_early_if_it_waits_for_the_launch_before(each):
    element = each.dtypes[0]
    given = problem(128, 64, 64, element, accumulator=accumulator_of(each))
    given = replace(given, a=replace(given.a, sparse=each.sparse))
    waits = "griddepcontrol_wait();" in (KERNELS / each.file).read_text()
    assert each.resolve(given, each.default_config(given)).overlaps_previous == waits


def test_an_unknown_rung_is_refused_with_the_nearest():
    with pytest.raises(UnsupportedError, match=r"rung: got 'simt-fast'.*Did you mean rung='simt-.*RUNGS"):
        rung("simt-fast")


@pytest.mark.parametrize("each", LADDER, ids=list(RUNGS))
def test_a_rung_names_a_file_a_predecessor_and_known_types(each):
    assert (KERNELS / each.file).is_file()
    names = list(RUNGS)
    before = names[names.index(each.name) - 1] if each.name != names[0] else None
    # Sparsity and multicast are steps aside: the next rung builds on the one before them. Five rungs start from
    # wgmma-store, each with one idea; wgmma-final does at the ladder's sizes what wgmma-overlap does.
    ideas = ("wgmma-overlap", "wgmma-stream-k", "wgmma-two-level", "wgmma-dependent-launch")
    aside = {"mma-tma": "mma-final", "wgmma-store": "wgmma-persistent", "wgmma-final": "wgmma-overlap"}
    aside |= dict.fromkeys(ideas, "wgmma-store")
    assert each.previous == aside.get(each.name, before)
    assert set(each.dtypes) <= set(DTYPES)
    assert rung(each.name) is each


@pytest.mark.parametrize("each", [r for r in LADDER if r.family == "simt"], ids=lambda r: r.name)
@pytest.mark.parametrize("b_major", ["row", "col"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (193, 161, 97), (4096, 4096, 4096), (4095, 8, 1), (3, 50257, 768)])
def test_the_default_configuration_is_legal_and_covers_d(each, shape, b_major):
    for element in each.dtypes:
        given = problem(*shape, element, b_major=b_major, accumulator=accumulator_of(each))
        config = each.default_config(given)
        assert each.illegal(given, config) is None
        kernel = each.resolve(given, config)
        assert kernel.grid == (blocks(given, config), 1, 1)
        assert blocks(given, config) * config["BM"] * config["BN"] >= given.m * given.n
        assert 32 <= kernel.threads <= 1024


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"d": "int32"}, "D is int32; from a float32 accumulator it writes float16, bfloat16, float32"),
        ({"accumulator": "float64"}, "the accumulator is float64; for float32 it has float32"),
    ],
)
def test_types_that_do_not_go_together(change, reason):
    given = problem(8, 8, 8, "float32")
    if "d" in change:
        given = replace(given, d=replace(given.d, dtype=DTYPES[change["d"]]))
    else:
        given = replace(given, accumulator=DTYPES[change["accumulator"]])
    assert operand_reason(given, ("float32",)) == reason


def test_layouts_that_no_kernel_reads():
    given = problem(8, 8, 8, "float32")
    given = replace(given, a=replace(given.a, major="col"))
    assert operand_reason(given, ("float32",)) == "A is col-major; it needs row-major"


def test_c_and_d_of_two_types():
    given = problem(8, 8, 8, "float32", with_c=True)
    given = replace(given, d=replace(given.d, dtype=DTYPES["float16"]))
    assert operand_reason(given, ("float32",)) == "C is float32 and D is float16; they need one type"


def test_a_grid_has_an_end():
    given = problem(2**31 - 1, 2**20, 1, "float32")
    naive = RUNGS["simt-naive"]
    assert "a grid has at most 2147483647 blocks" in (naive.illegal(given, {"BM": 8, "BN": 32}) or "")
    # One row of tiles fewer than the limit allows: 2**31 - 1 rows in tiles of 8, 8 columns in one tile.
    assert naive.illegal(problem(2**31 - 1, 8, 1, "float32"), {"BM": 8, "BN": 32}) is None


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("simt-naive", {"BM": 8}, "the configuration has BM; it needs BM, BN"),
        ("simt-naive", {"BM": 8, "BN": 0}, "BN is 0; it must be at least 1"),
        ("simt-naive", {"BM": 64, "BN": 32}, "BM * BN is 2048 threads; a block has at most 1024"),
        ("simt-shared", {"BM": 32, "BN": 32, "BK": 256}, "without opting in a block has 49152"),
        ("simt-half2", {}, "the configuration has nothing; it needs BM, BN, BK, WM, WN, TM, TN"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(name, config, reason):
    given = problem(
        64, 64, 64, "float16" if name == "simt-half2" else "float32", accumulator=accumulator_of(rung(name))
    )
    assert reason in (rung(name).illegal(given, config) or "")


def test_half2_takes_only_a_float16_accumulator():
    given = problem(8, 8, 8, "float16")
    half2 = rung("simt-half2")
    assert half2.illegal(given, half2.default_config(given)) == (
        "the accumulator is float32; for float16 it has float16"
    )


@pytest.mark.parametrize(
    ("n", "gap", "width"),
    [(160, 0, 4), (162, 0, 2), (161, 0, 1), (161, 3, 1), (160, 1, 1), (160, 4, 4)],
)
def test_vectors_are_as_wide_as_alignment_and_n_allow(n, gap, width):
    warptile = rung("simt-warptile")
    given = problem(64, n, 64, "float32", gap=gap)
    values = dict(warptile.resolve(given, warptile.default_config(given)).instance.values)
    assert (values["B_WIDTH"], values["D_WIDTH"]) == (width, width)


def test_more_registers_than_there_are():
    warptile = rung("simt-warptile")
    given = problem(4096, 4096, 4096, "float32")
    config = {**warptile.default_config(given), "MIN_BLOCKS": 4}
    assert "4 blocks of 256 threads leave it 64" in (warptile.illegal(given, config) or "")


def test_a_group_of_blocks_is_counted_in_32_bits():
    warptile = rung("simt-warptile")
    given = problem(1, 2**31 - 1, 1, "float32")
    config = warptile.default_config(given)
    assert warptile.illegal(given, config) is None
    assert "a group has fewer than 2**32" in (warptile.illegal(given, {**config, "GROUP": 2**10}) or "")
