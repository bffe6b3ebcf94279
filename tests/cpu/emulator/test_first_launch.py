"""The first emulated launch on a machine."""

import os
import subprocess
import sys

from warptile.emulator import first_launch

ASK = "from warptile.emulator import first_launch as f; f.say_what_takes_long(); f.say_what_takes_long()"


def said(**variables):
    run = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env={**os.environ, **variables}
    )
    return run.stdout + run.stderr


def test_it_says_once_what_takes_long(tmp_path):
    new = said(NUMBA_CACHE_DIR=str(tmp_path))
    assert new == "the emulator compiles parts of itself, once on this machine: some 30 s\n"


def test_later_launches_say_nothing(tmp_path, monkeypatch):
    loop = first_launch.access_history.rows
    monkeypatch.setattr(type(loop.stats), "cache_path", str(tmp_path))
    name = f"access_history.rows-{loop.py_func.__code__.co_firstlineno}.py{sys.version_info.major}.nbi"
    (tmp_path / name).touch()
    records = []
    monkeypatch.setattr(first_launch._log, "warning", records.append)
    first_launch.say_what_takes_long.__wrapped__()
    assert records == []
    (tmp_path / name).unlink()
    first_launch.say_what_takes_long.__wrapped__()
    assert len(records) == 1
