"""The suite tp: what takes turns on two ranks, and what each rank is told."""

import pytest

import two_ranks
from two_ranks import answers

torch = pytest.importorskip("torch", reason="torch is not installed")

import quick_products  # noqa: E402
from warptile.bench.feature_suites import tensor_parallel  # noqa: E402
from warptile.bench.feature_suites.tensor_parallel import ALONE, OURS, OVERLAPPED, Ranks, TensorParallelRow  # noqa: E402
from warptile.cli import _tensor_parallel  # noqa: E402
from warptile.errors import UnsupportedError  # noqa: E402


def measured(rank):
    quick_products.install(pytest.MonkeyPatch())
    ranks = Ranks(torch, "cpu", torch.distributed.new_group())
    return [
        tensor_parallel.measure(ranks, TensorParallelRow(call, 8, 16, 32), rounds=2)
        for call in ("all-gather", "reduce-scatter", "all-reduce")
    ]


def test_participants_take_turns_on_all_ranks(tmp_path, capsys):
    first, second = answers(two_ranks.run(measured, tmp_path))
    assert first == second, "times are those of the slowest rank"
    for row in first:
        assert [each.name for each in row.times][:3] == [OURS, OVERLAPPED, ALONE]
        ran = {each.name: len(each.rounds_us) for each in row.times}
        assert ran[OURS] == ran[OVERLAPPED] == ran[ALONE] == ran["NCCL, torch.matmul"] == 2
        failed = [each for each in row.times if each.name == "torch, fused"]
        assert all("on rank 0: " in each.failed for each in failed), "they are for GPUs"
        _tensor_parallel.draw(row)
    assert "all-reduce 8x16x32, bf16" in capsys.readouterr().out


def test_rows_are_those_of_layers():
    assert len({row.name for row in tensor_parallel.ROWS}) == len(tensor_parallel.ROWS)
    assert tensor_parallel.ROWS[0].name == "all-gather 8192x14336x4096"


def test_without_torchrun_the_error_says_how_to_start_it(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(UnsupportedError, match="torchrun --nproc-per-node 2 -m warptile"):
        tensor_parallel.here()
