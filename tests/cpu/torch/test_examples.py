"""The programs in examples/, in their tiny modes."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import quick_products

torch = pytest.importorskip("torch", reason="torch is not installed")

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("WARPTILE_COMPILE", "wait")
    return quick_products.install(monkeypatch)


def loaded(name, monkeypatch):
    """A program as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(capsys, monkeypatch):
    def run(name, *arguments):
        """What a program prints, as JSON."""
        loaded(name, monkeypatch).main(["--tiny", *arguments])
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_gpt2_learns_the_same_by_torch_and_by_warptile(run, quick):
    expected = run("train_gpt2", "--backend", "torch", "--steps", "30")["backends"]["torch"]
    assert quick == []
    document = run("train_gpt2", "--backend", "warptile", "--steps", "30")
    found = document["backends"]["warptile"]
    gemms_of_a_step = (4 * 2 + 1) * 3  # four layers in each of two blocks, and the output layer; forward and backward
    assert len(quick) == 30 * gemms_of_a_step
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert found["losses"][-1] < found["losses"][0]
    assert found["step_ms"] > 0
    assert len(found["turns_ms"]) == 2  # the first of three turns is not timed
    assert document["size"]["vocabulary"] == 97


def test_llama_decodes_the_same_by_torch_and_by_warptile(run, quick):
    found = run("decode_llama")
    assert [each["batch"] for each in found["batches"]] == [1, 3]
    assert all(each["relative_difference"] < 1e-5 for each in found["batches"])
    gemms_of_a_step = 7 * 2 + 1
    assert len(quick) == 2 * 2 * gemms_of_a_step


@pytest.mark.parametrize("name", ["train_gpt2", "decode_llama"])
def test_the_full_size_needs_a_gpu(name, capsys, monkeypatch):
    with pytest.raises(SystemExit):
        loaded(name, monkeypatch).main([])
    assert "--tiny" in capsys.readouterr().err
