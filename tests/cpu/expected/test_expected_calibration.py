"""The calibration that ships: made from the committed records, and as good as documents say."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from warptile.bench.campaign import fit_times
from warptile.bench.report.record_lookup import RecordLookup
from warptile.expected.time_constants import TimeConstants, shipped

MODEL = shipped()
AGAIN = "the ladder records have changed: python -m warptile.bench.campaign.fit_times, then make docs"


@pytest.fixture(scope="module")
def lookup():
    return RecordLookup()


@pytest.fixture(scope="module")
def cells(lookup):
    return [(cell, sustained) for cell, sustained in lookup.ladder_cells() if fit_times.usable(cell)]


@pytest.fixture(scope="module")
def measured(cells):
    return fit_times.launches(cells, MODEL.work)


def test_every_constant_has_a_source():
    assert list(MODEL.sources) == list(TimeConstants.__struct_fields__)
    assert all(MODEL.sources.values())
    assert {name for name, source in MODEL.sources.items() if source == fit_times.FITTED} == set(fit_times.FREE)
    assert all(value > 0 for value in msgspec.structs.astuple(MODEL.constants))


def test_the_work_is_what_the_records_counted(cells, lookup):
    assert fit_times.kernels([cell for cell, _ in cells], lookup) == MODEL.work, AGAIN


def test_given_constants_are_what_they_claim_to_be(lookup):
    given = fit_times.sampled(lookup)
    for name in TimeConstants.__struct_fields__:
        if name not in fit_times.FREE:
            assert getattr(MODEL.constants, name) == getattr(given, name), AGAIN


def test_the_residuals_are_those_of_the_records(measured):
    found = fit_times.residuals(fit_times.errors(measured, MODEL.constants))
    assert msgspec.structs.astuple(found) == pytest.approx(msgspec.structs.astuple(MODEL.fitted), rel=0.02), AGAIN
    assert found.median <= 0.05
    assert found.tenth <= 0.1
    assert found.worst <= 0.15


def test_another_step_changes_nothing(measured):
    """The constants are those of a fit that has ended: a further step lowers the loss by less than a hundredth."""
    again = fit_times.fit(measured, MODEL.constants, steps=1)
    for name in fit_times.FREE:
        assert getattr(again, name) == pytest.approx(getattr(MODEL.constants, name), rel=0.05), name


def test_a_size_that_was_left_out_is_predicted_about_as_well(measured):
    others = [each for each in measured if each.size != 8192]
    refitted = fit_times.fit(others, MODEL.constants, steps=6)
    left_out = fit_times.errors([each for each in measured if each.size == 8192], refitted)
    assert np.median(np.abs(left_out)) < 0.07
    assert MODEL.sizes_left_out.median < 0.06
    assert MODEL.rungs_left_out.median < 0.06


def test_a_fit_finds_constants_again(measured):
    """Of launches that take exactly what other constants say."""
    changed = {"load_clocks": 1.2, "wgmma_share": 0.9, "instruction_pj": 1.1}
    truth = msgspec.structs.replace(
        MODEL.constants, **{name: getattr(MODEL.constants, name) * factor for name, factor in changed.items()}
    )
    made = []
    for each in measured:
        said = fit_times.time_of(each.launch, truth, sustained=each.sustained)
        clock = said.clock_mhz if each.clock_mhz is not None else None
        made.append(replace(each, time_us=said.time_ms * 1e3, clock_mhz=clock))
    found = fit_times.fit(made, MODEL.constants)
    assert np.abs(fit_times.errors(made, found)).max() < 0.01
    for name in changed:
        assert math.log(getattr(found, name) / getattr(truth, name)) == pytest.approx(0, abs=0.03), name
