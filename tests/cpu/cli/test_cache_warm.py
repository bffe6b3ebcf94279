"""`warptile cache warm`: compiles, says what it did within 80 columns, and as JSON."""

import json

import pytest

from warptile import warming
from warptile.cli.main import run
from warptile.runtime.compile_ahead import WarmKernel, WarmReport


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("WARPTILE_ARCH", raising=False)
    return tmp_path / "cache"


SHAPE = ["cache", "warm", "--arch", "sm_90a", "--shape", "64x64x64", "--dtype", "f32"]


def test_kernels_are_compiled_once_and_then_found(cache, capsys):
    assert run([*SHAPE, "--json", "--jobs", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "warptile.warm/1"
    assert (document["device"], document["arch"], document["folder"]) == ("NVIDIA H200", "sm_90a", str(cache))
    assert (document["compiled"], document["cached"], document["failed"]) == (1, 0, 0)
    [kernel] = document["kernels"]
    assert (kernel["dtype"], kernel["state"], kernel["error"]) == ("float32", "compiled", None)
    assert run(SHAPE) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].split()[1:] == ["float32", "0", "1", "0"]
    assert max(map(len, said.out.splitlines())) <= 80
    assert "1 kernel in " in said.err
    assert run(["cache", "ls", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 1


def test_failures_are_said_once_each_and_give_exit_code_1(monkeypatch, tmp_path, capsys):
    failed = [WarmKernel("wgmma-final", "bfloat16", {}, "failed", 0.1, "NVRTC cannot be loaded")] * 3
    report = WarmReport("NVIDIA H200", "sm_90a", tmp_path, 1.0, tuple(failed))
    monkeypatch.setattr(warming, "warm", lambda *given, **options: report)
    assert run(["cache", "warm", "--arch", "sm_90a"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "3 failed: NVRTC cannot be loaded"


def test_an_interrupt_gives_its_exit_code(monkeypatch):
    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(warming, "warm", interrupted)
    assert run(["cache", "warm", "--arch", "sm_90a"]) == 130


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--shape", "64x64", "--dtype", "f32"], 2, "such as 4096x14336x4096"),
        (["--shape", "64x0x64", "--dtype", "f32"], 2, "such as 4096x14336x4096"),
        (["--shape", "64x64x64"], 2, "--shape needs --dtype"),
        (["--b-major", "col"], 2, "go with --shape"),
        (["--dtype", "bf17", "--arch", "sm_90a"], 2, "did you mean"),
        (["--jobs", "0"], 2, "jobs"),
        (["--arch", "sm_1"], 4, "sm_1"),
        (["--device", "H200"], 4, "did you mean 'NVIDIA H200'"),
        ([], 3, "--arch sm_90a"),
    ],
)
def test_what_it_does_not_take_is_answered_with_what_it_does(monkeypatch, cache, capsys, arguments, code, message):
    monkeypatch.setattr(warming, "has_gpu", lambda: False)
    assert run(["cache", "warm", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert not cache.exists()
