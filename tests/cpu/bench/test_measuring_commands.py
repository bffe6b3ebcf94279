"""`warptile tune`, `bench` and `profile`: on a pretended GPU, on the emulator, and where there is none."""

import json
import re

import pytest

from covering import covering
from pretended_gpu import PretendedGpu
from warptile.bench.html_report import page_data
from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.records import decode
from warptile.cli import bench as bench_command
from warptile.cli.main import NO_GPU, USAGE, run
from warptile.gpu import driver
from warptile.planning.plan import config_text
from warptile.planning.tuned_table import config_for
from warptile.rungs import RUNGS

SMALL = ["-m", "64", "-n", "64", "-k", "64"]


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WARPTILE_AUTOTUNE", raising=False)
    monkeypatch.setattr("warptile.tuning.gpu_search.compile_all", lambda *arguments, **options: {})
    monkeypatch.setattr(Sampler, "__enter__", lambda self: self)
    monkeypatch.setattr(Sampler, "__exit__", lambda self, *error: None)
    return PretendedGpu().install(monkeypatch)


def test_tuning_prints_a_table_with_the_best_marked_and_keeps_it(gpu, capsys):
    gpu.time_ms = lambda rung, config: 0.5 if config["GROUP"] == 16 and config["BM"] == 128 else 1.0
    assert run(["tune", "simt-warptile", *SMALL, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["rung"], document["reused"]) == ("warptile.tune/1", "simt-warptile", False)
    best = document["entries"][0]
    assert best["winner"]
    assert len(document["entries"]) >= 5
    launches = gpu.launches
    assert run(["tune", "simt-warptile", *SMALL]) == 0
    text = capsys.readouterr().out
    assert gpu.launches == launches  # known: nothing was measured
    assert "known before" in text
    assert sum(line.count(" best ") for line in text.splitlines()) == 1
    problem = next(iter(gpu.plans.values())).problem
    assert config_text(config_for(RUNGS["simt-warptile"], problem, "NVIDIA H200")) == config_text(best["config"])
    assert run(["tune", "simt-warptile", *SMALL, "--fresh", "--limit", "2"]) == 0
    assert gpu.launches > launches


def test_tuning_that_finds_nothing_right_fails(gpu, capsys):
    gpu.wrong.add("simt-warptile")
    assert run(["tune", "simt-warptile", *SMALL, "--limit", "2"]) == 1
    assert "wrong result" in capsys.readouterr().out


def test_an_interrupted_tuning_exits_as_such_and_goes_on(gpu, capsys):
    def stop(rung, config):
        if gpu.launches > 40:
            raise KeyboardInterrupt
        return 1.0

    gpu.time_ms = stop
    assert run(["tune", "simt-warptile", *SMALL]) == 130
    gpu.time_ms = lambda rung, config: 1.0
    assert run(["tune", "simt-warptile", *SMALL]) == 0
    assert "measured" in capsys.readouterr().out


def test_bench_says_what_every_round_agrees_on(gpu, capsys):
    gpu.time_ms = lambda rung, config: {"wmma-naive": 4.0, "wmma-shared": 0.25}.get(rung, 0.5)
    arguments = ["bench", "--size", "64", "--rung", "wmma-naive", "--rung", "wmma-shared", "--rung", "wmma-block"]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("wmma")}
    assert "0.125x" in lines["wmma-naive"]
    assert "slower" in lines["wmma-naive"]
    assert "faster" in lines["wmma-shared"]
    assert "no difference" in lines["wmma-block"]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [len(cell["rounds"]) for cell in document["cells"]] == [3] * 6


def test_bench_keeps_a_record_that_a_report_shows(gpu, tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert run(["bench", "--size", "64", "--rung", "wmma-naive", "--save", str(path)]) == 0
    assert "shows it" in capsys.readouterr().err
    record = decode(path.read_bytes(), path.name)
    assert (record.kind, record.command) == ("ladder", "warptile bench --suite ladder --size 64 --rung wmma-naive")
    assert {cell.rung for cell in record.cells} == {"wmma-naive"}
    assert all(cell.time_ms for cell in record.cells)
    assert record.baselines
    assert page_data.from_runs([path]).rungs == ("wmma-naive",)


def test_bench_fails_when_a_rung_is_wrong(gpu, capsys):
    gpu.wrong.add("wmma-naive")
    assert run(["bench", "--size", "64", "--rung", "wmma-naive"]) == 1
    assert "wrong result" in capsys.readouterr().out


def test_bench_knows_its_baselines(capsys):
    assert run(["bench", "--baseline", "mkl"]) == USAGE
    assert "it takes cublaslt, torch" in capsys.readouterr().err
    assert run(["bench", "--baseline", "torhc"]) == USAGE
    assert "did you mean torch?" in capsys.readouterr().err
    assert set(bench_command.LADDERS) == {"ladder", "sizes"}


@pytest.mark.skipif(driver.available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["tune"], "Without one, `warptile tune --suite squares --compile-only` compiles"),
        (["bench"], "Without one, `warptile bench --suite planning` times plans"),
        (["bench", "--suite", "calls"], "`warptile bench --suite emulator` emulation"),
        (["profile", "simt-naive", "--backend", "gpu"], "backend='emulator' works without one"),
    ],
)
def test_without_a_gpu_the_exit_code_says_so_and_the_message_what_runs(arguments, without, capsys):
    assert run(arguments) == NO_GPU
    said = capsys.readouterr().err
    assert "NoDeviceError" in said
    assert without in " ".join(said.split())


def test_a_profile_from_the_emulator_has_the_lines_of_the_kernel(capsys):
    size = ["-m", "32", "-n", "32", "-k", "16"]
    assert run(["profile", "simt-naive", *size, "--backend", "emulator", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["backend"] == "emulator"
    lines = document["lines"]
    assert sum(line["warp_instructions"] for line in lines) == document["counters"]["warp_instructions"]
    sectors = document["counters"]["global_load_sectors"] + document["counters"]["global_store_sectors"]
    assert sum(line["global_sectors"] for line in lines) == sectors > 0
    loads = max(lines, key=lambda line: line["global_sectors"])
    assert loads["file"] == "simt/naive.cuh"
    assert "a_element" in loads["text"]


def test_a_profile_is_printed_as_a_table(capsys):
    size = ["-m", "32", "-n", "32", "-k", "16"]
    assert run(["profile", "simt-naive", *size, "--backend", "emulator", "--top", "3"]) == 0
    text = capsys.readouterr().out
    assert "counted by the emulator" in text
    assert sum("simt/naive.cuh:" in line for line in text.splitlines()) <= 3
    assert "global_load_sectors" in text


def test_an_unknown_rung_is_refused(capsys):
    for command in (["profile"], ["tune"], ["bench", "--rung"], ["ladder", "--rung"]):
        assert run([*command, "nope"]) == USAGE
        assert "it takes simt-naive, " in capsys.readouterr().err
        assert run([*command, "wgmma-finel"]) == USAGE
        assert "got 'wgmma-finel'; did you mean wgmma-final" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "width"),
    covering(
        (["tune", "simt-warptile"], ["bench", "--size", "64", "--rung", "wmma-double-buffer"]), (80, 120), pairs=()
    ),
)
def test_tables_of_measurements_fit(gpu, monkeypatch, capsys, arguments, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*arguments, *(SMALL if arguments[0] == "tune" else ())]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "TFLOP/s" in text


def test_a_profile_fits_80_columns_and_cuts_source_alone(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["profile", "simt-shared", "-m", "32", "-n", "32", "-k", "32", "--backend", "emulator"]) == 0
    text, _, notes = capsys.readouterr().out.partition("\n\n")
    rows = [line for line in text.splitlines() if line.startswith("simt/shared.cuh:")]
    assert len(rows) > 10
    assert max(map(len, text.splitlines())) <= 80
    assert all(re.fullmatch(r"[\d,.]+", line.split()[-1]) for line in rows)
    assert "Not shown in this width: global sectors, shared wavefronts, ideal" in notes
