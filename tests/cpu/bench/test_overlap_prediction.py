"""The arithmetic of overlap, against a few numbers worked out by hand."""

import pytest

from warptile.bench.report import overlap_prediction
from warptile.bench.report.overlap_prediction import NETWORK, NVLINK, predicted
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup


def test_an_all_gather_of_two_ranks():
    found = predicted((1000, 2000, 4000), 2, 100.0, scatters=False)
    assert found.gemm_us == pytest.approx(2 * 1000 * 2000 * 4000 / 2 / 100e12 * 1e6)  # 80 us
    assert found.transfer_us == pytest.approx(1000 * 4000 * 2 / 2 / NVLINK.value * 1e6)  # half of A
    assert found.one_after_the_other == pytest.approx(1 + found.transfer_us / 80)
    assert found.overlapped == 1, "8.9 us are less than half of 80 us"


def test_a_transfer_that_is_too_long_is_followed_by_the_last_part_of_the_gemm():
    found = predicted((1000, 20, 4000), 4, 100.0, scatters=False)
    assert found.overlapped == pytest.approx((found.transfer_us + found.gemm_us / 4) / found.gemm_us)
    assert found.overlapped < found.one_after_the_other


def test_a_reduce_scatter_moves_rows_of_d_and_two_hosts_have_a_network_between_them():
    one_host = predicted((1000, 2000, 4000), 8, 100.0, scatters=True)
    assert one_host.transfer_us == pytest.approx(1000 * 2000 * 2 * 7 / 8 / NVLINK.value * 1e6)
    two = predicted((1000, 2000, 4000), 16, 100.0, scatters=True)
    assert two.transfer_us == pytest.approx(
        max(1000 * 2000 * 2 / 16 / NETWORK.value, 1000 * 2000 * 2 * 15 / 16 / NVLINK.value) * 1e6
    )


def test_without_a_record_there_is_no_prediction():
    assert overlap_prediction.table(RecordLookup([]), scatters=False) == NO_RECORD + "\n"
