"""Records: they come back as they were written, damage is an error with a name, and the newest answers."""

import math

import msgspec
import pytest
from recorded import all_records, cell, ladder_record

from warptile.bench import records
from warptile.bench.measurements import Round, Spread
from warptile.bench.records import RecordError, committed, decode, encode, load_folder, measured, newest
from warptile.bench.workloads import F16_F16, F16_F32


@pytest.mark.parametrize("record", all_records(), ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was_written(record, tmp_path):
    assert decode(encode(record), "it") == record
    path = records.write(record, tmp_path)
    assert path.name == f"{record.id}.json"
    assert load_folder(tmp_path) == (record,)


def test_a_record_is_named_after_its_kind_gpu_and_date():
    assert ladder_record().id == "ladder-h200-20261120T120000"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"schema": "warptile.record.ladder/2"}', encode(ladder_record()).replace(b'"regime"', b'"mood"')],
    ids=["empty", "cut off", "another schema", "another field"],
)
def test_a_damaged_record_is_an_error_that_names_it(raw):
    with pytest.raises(RecordError, match=r"record broken\.json: .*warptile\.bench\.campaign"):
        decode(raw, "broken.json")


def test_the_figures_of_a_cell_are_medians_of_its_rounds():
    one = cell(rounds=(Round(1.0, 0.5), Round(2.0, 1.5), Round(4.0, 1.0)))
    assert one.time_ms == 2.0
    assert one.tflops == pytest.approx(2 * 4096**3 / 2.0e-3 / 1e12)
    assert one.baseline_ms == 1.0
    # ratios are per round: 0.5 / 1, 1.5 / 2, 1 / 4
    assert one.ratio == Spread(0.25, 0.5, 0.75)


def test_a_cell_without_rounds_has_no_figures():
    one = cell(rounds=())
    assert (one.time_ms, one.tflops, one.baseline_tflops, one.ratio) == (None, None, None, None)


def test_a_spread_refuses_nan():
    with pytest.raises(AssertionError, match="NaN"):
        Spread.of([1.0, math.nan])


def test_measured_is_of_exactly_this_problem():
    record = ladder_record()
    found = measured("wmma-final", 4096, 4096, 4096, "float16", among=[record])
    assert found is not None
    assert found.tflops == pytest.approx(2 * 4096**3 / found.time_ms / 1e9)
    assert (found.gpu, found.date, found.record) == ("NVIDIA H200", "2026-11-20", record.id)
    assert measured("wmma-final", 4096, 4096, 4095, "float16", among=[record]) is None
    assert measured("wmma-final", 4096, 4096, 4096, "bfloat16", among=[record]) is None
    assert measured("wmma-final", 4096, 4096, 4096, "float16", b_major="col", among=[record]) is None
    assert measured("no-such-rung", 4096, 4096, 4096, "float16", among=[record]) is None


def test_measured_is_the_newest_that_has_figures():
    old, new = ladder_record("2026-11-20T12:00:00Z"), ladder_record("2026-11-21T12:00:00Z")
    faster = cell("wmma-final", F16_F32, time_ms=0.125)
    new = msgspec.structs.replace(new, cells=(faster,))
    failed = msgspec.structs.replace(ladder_record("2026-11-22T12:00:00Z"), cells=(cell(rounds=(), failed="wrong"),))
    found = measured("wmma-final", 4096, 4096, 4096, "float16", among=[old, new, failed])
    assert found is not None
    assert found.time_ms == 0.125


def test_measured_can_ask_for_the_accumulator():
    record = msgspec.structs.replace(
        ladder_record(), cells=(cell(group=F16_F32, time_ms=0.5), cell(group=F16_F16, time_ms=0.25))
    )
    by_accumulator = {
        accumulator: measured("wmma-final", 4096, 4096, 4096, "float16", accumulator=accumulator, among=[record])
        for accumulator in ("float32", "float16", None)
    }
    assert [by_accumulator[a].time_ms for a in ("float32", "float16", None)] == [0.5, 0.25, 0.5]


def test_newest_of_a_kind():
    old, new = ladder_record("2026-11-20T12:00:00Z"), ladder_record("2026-11-21T12:00:00Z")
    assert newest(records.LadderRecord, [old, new]) is new
    assert newest(records.TuningRecord, [old, new]) is None


def test_the_committed_records_can_be_read():
    dates = [record.date for record in committed()]
    assert dates == sorted(dates)
