"""The table of tensor-parallel GEMMs: which figure stands where."""

from warptile.bench.feature_suites.tensor_parallel import ALONE, IN_GRAPH, OURS, OVERLAPPED, ROWS
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.bench.report import tensor_parallel_tables
from warptile.bench.report.record_lookup import RecordLookup

LAST = ROWS[-1].name


def measured(*names):
    times = [CallTime(name=name, rounds_us=(9.0, at + 1.0, at + 0.0)) for at, name in enumerate(names, 10)]
    return FeatureTimes(row=LAST, times=(*times, CallTime(name="torch, fused", failed="on rank 0: none")))


def test_the_gemm_alone_stands_first_and_graphs_are_columns_of_their_own():
    row = measured(OURS, OURS + IN_GRAPH, OVERLAPPED, ALONE, ALONE + IN_GRAPH)
    names = tensor_parallel_tables.participants([row])
    assert names == [ALONE, OURS, OVERLAPPED, "torch, fused"]
    assert tensor_parallel_tables.row_cells(row, names, "") == (LAST, "13.0", "10.0", "12.0", "–")
    assert tensor_parallel_tables.row_cells(row, names, IN_GRAPH) == (LAST, "14.0", "11.0", "–", "–")


def test_the_committed_record_has_every_row():
    text = tensor_parallel_tables.table(RecordLookup())
    for row in ROWS:
        assert text.count(f"| {row.name} |") == 2
    assert "2 GPUs, us" in text


def test_without_a_record_the_table_says_how_to_make_one():
    assert "torchrun" in tensor_parallel_tables.table(RecordLookup([]))
