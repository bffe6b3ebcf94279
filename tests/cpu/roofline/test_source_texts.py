"""T0's 4, 128 and 224 FLOP per byte, computed, and compared with what was counted."""

import pytest

from warptile import measured
from warptile.bench.profiling.ncu_metrics import SECTOR_BYTES as SECTOR
from warptile.bench.report.record_lookup import RecordLookup
from warptile.roofline.published_gpus import SHARED
from warptile.roofline.rung_points import points
from warptile.roofline.source_texts import FRAGMENT_LOADS, LOAD_ROWS, MMA, SECTOR_BYTES, SOURCES, guides, readings


def values(figure):
    return [round(each.value, 1) for each in readings() if each.figure == figure]


def test_every_figure_of_the_text_comes_out_of_one_reading():
    by_figure = {}
    for each in readings():
        by_figure.setdefault(each.figure, []).append(each.agrees)
    assert by_figure == {
        4: [True, False, False, False], 128: [True, False, False], 224: [True, False, False, False], 33: [True],
        87: [True],
    }  # fmt: skip


def test_the_values_by_hand():
    assert values(4) == [4.0, 8.0, 1.0, 16.0]
    assert values(128) == [128.0, 85.3, 64.0]
    assert values(224) == [224.7, 222.7, 203.1, 295.3]
    assert values(33) == [33.9]
    assert values(87) == [87.2]


def test_formulas_say_what_is_computed():
    for each in readings():
        numbers = each.formula.split(" (")[0] if each.formula.startswith("8192") else each.formula
        assert any(digit.isdigit() for digit in numbers), each
        assert each.source
        assert each.meaning
    assert set(SOURCES) == {"T0", "Armbruster", "Jia et al."}


def test_the_sectors_of_the_naive_kernel_are_those_that_were_counted():
    profile = RecordLookup().profile("wmma-naive")
    key = profile.problem
    mmas = key.m * key.n * key.k // MMA**3
    assert profile.counters["global_load_sectors"] == mmas * FRAGMENT_LOADS * LOAD_ROWS
    assert SECTOR_BYTES == SECTOR
    assert 2 * key.m * key.n * key.k / (profile.counters["global_load_sectors"] * SECTOR) == pytest.approx(4.0)


def test_the_data_path_reading_is_the_point_that_ships():
    (point,) = points(measured.summary(), names=("wmma-naive",))
    assert point.bound == SHARED
    assert point.intensities[SHARED] == pytest.approx(1.0, rel=0.01)  # the stores of D are the difference


def test_a_picture_gets_the_three_of_the_title():
    assert [name.split(":")[0] for name, _ in guides()] == ["4", "128", "224"]
    assert [value for _, value in guides()] == pytest.approx([4.0, 128.0, 224.7], abs=0.05)
