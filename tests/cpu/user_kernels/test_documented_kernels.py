"""The Python that docs/emulator.md shows runs as it stands, and the pytest fixture that it shows finds bugs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warptile as wt

DOCUMENT = Path(__file__).parents[3] / "docs" / "emulator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
TESTS = [block for block in BLOCKS if "def test_" in block]
SCRIPTS = [block for block in BLOCKS if block not in TESTS]


@pytest.mark.parametrize("block", SCRIPTS, ids=range(len(SCRIPTS)))
def test_a_block_of_python_runs(block, capsys):
    exec(compile(block, str(DOCUMENT), "exec"), {"__name__": "documented"})
    assert "Findings: none" in capsys.readouterr().out


def run_pytest(folder, *options):
    command = [sys.executable, "-m", "pytest", "-p", "warptile.pytest_plugin", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


BUGGY = """
import numpy as np, pytest, warptile as wt

def test_racy(warptile_emulator):
    x = np.zeros(64, np.int32)
    wt.kernel(KERNELS.replace("__syncthreads();", ""), "reverse", backend="gpu")[1, 64](x.copy(), x)

@pytest.mark.warptile_emulator(checks=[])
def test_unchecked(warptile_emulator):
    test_racy(warptile_emulator)

@pytest.mark.warptile_emulator(raises=False)
def test_collected(warptile_emulator):
    test_racy(warptile_emulator)
    test_racy(warptile_emulator)
    assert [each.findings[0].kind for each in warptile_emulator.reports] == ["DataRace"] * 2

@pytest.mark.warptile_emulator(modle="common")
def test_misspelt(warptile_emulator):
    pass
"""


def test_the_fixture(tmp_path):
    documented = "\n\n".join(TESTS)
    (tmp_path / "test_documented.py").write_text(documented)
    source = re.search(r'KERNELS = """.*?"""', documented, re.S)[0]
    (tmp_path / "test_buggy.py").write_text(BUGGY + source)
    done = run_pytest(tmp_path, "-v", "--warptile-schedules=latest,random:1")
    verdicts = dict(re.findall(r"^(\S+::\S+) (PASSED|FAILED|ERROR)", done.stdout, re.M))
    assert {name: verdict for name, verdict in verdicts.items() if verdict != "PASSED"} == {
        f"test_buggy.py::test_{name}[{schedule}]": verdict
        for name, verdict in (("racy", "FAILED"), ("misspelt", "ERROR"))
        for schedule in ("latest", "random:1")
    }
    assert len(verdicts) == 8 + 8, done.stdout
    assert "DataRace: write-read race on shared memory" in done.stdout
    assert "put __syncthreads() between the two accesses" in done.stdout
    assert "got modle; it takes keywords: arch, schedule, explore, checks" in done.stdout


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--warptile-schedules=latest,random:x", "--warptile-schedules: got 'random:x'; it takes latest, earliest and"),
        ("--warptile-arch=sm_1", "--warptile-arch: got 'sm_1'; it takes sm_75, "),
    ],
)
def test_options_that_no_test_could_run_under_end_the_run(option, said, tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(warptile_emulator):\n    pass\n")
    done = run_pytest(tmp_path, "-q", option)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stdout + done.stderr


def test_without_the_fixture_nothing_of_warptile_is_loaded(tmp_path):
    (tmp_path / "test_own.py").write_text("import sys\ndef test_own():\n    assert 'numpy' not in sys.modules\n")
    assert run_pytest(tmp_path, "-q").returncode == 0


def test_the_context_without_pytest():
    source = "__global__ void one(int* x) { x[threadIdx.x] = 1; }"
    x = np.zeros(32, np.int32)
    with wt.emulated(arch="sm_80", schedule="random:3") as launches:
        wt.kernel(source, backend="gpu")[1, 32](x)
        with pytest.raises(wt.EmulationError):
            wt.kernel(source)[1, 64](x)
    assert [(each.arch, each.ok) for each in launches.reports] == [("sm_80", True), ("sm_80", False)]
    assert not wt.kernel(source, backend="emulator")[1, 64](x).ok
    with pytest.raises(wt.UnsupportedError, match="got 'rces'"), wt.emulated(checks=["rces"]):
        pass
