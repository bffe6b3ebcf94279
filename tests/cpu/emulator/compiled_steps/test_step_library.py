"""The library of machine code: from the cache at once, compiled only where a process runs long enough."""

import pytest

from warptile.emulator.compiled_steps import step_library


@pytest.fixture
def loader(monkeypatch, tmp_path):
    """A loader of a process whose cache is empty, and which loads instead of compiling and linking."""
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    compiled = []
    monkeypatch.setattr(step_library, "object_of", lambda machine, text: compiled.append(text) or b"code")
    monkeypatch.setattr(step_library, "linked", lambda machine, code: code)
    monkeypatch.setattr(step_library, "Library", lambda engine: engine)
    made = step_library._Loader()
    made.compiled = compiled
    return made


def test_a_short_run_compiles_nothing(loader):
    assert loader.get(wait=False) is None
    assert loader.get(wait=False) is None
    assert not loader.compiled


def test_a_long_run_compiles_once_and_keeps_it(loader, monkeypatch):
    assert loader.get(wait=False) is None
    monkeypatch.setattr(step_library, "PATIENCE_S", 0.0)
    loader.get(wait=False)
    assert loader.get(wait=True) == b"code"
    assert len(loader.compiled) == 1
    again = step_library._Loader()
    assert again.get(wait=False) == b"code"
    assert len(loader.compiled) == 1


def test_without_a_compiler_the_interpreter_goes_on(loader, monkeypatch):
    def refuse(text):
        raise RuntimeError("no target")

    monkeypatch.setattr(step_library, "target_of", refuse)
    assert loader.get(wait=True) is None
    assert not loader.compiled
