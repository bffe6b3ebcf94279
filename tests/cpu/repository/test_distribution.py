"""What a user installs: the package with its kernels and tables, and nothing of the repository around it."""

import contextlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from setuptools import build_meta

import warptile

PACKAGE = Path(warptile.__file__).parent
ROOT = PACKAGE.parents[1]

MOST_BYTES = 2_400_000
"""Code, kernels, lessons and figures; no records."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, made by the build backend itself from a copy, as building writes beside the sources."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("tests", "records", "docs"):
        (copy / name).mkdir()
        (copy / name / "left_out.py").write_text("")
        (copy / name / "left_out.json").write_text("{}")
    with contextlib.chdir(copy), (copy / "log").open("w") as log, contextlib.redirect_stdout(log):
        made = build_meta.build_wheel(str(out))
    return out / made


@pytest.fixture(scope="module")
def names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_a_wheel_is_small(wheel):
    assert wheel.name.startswith(f"warptile-{warptile.__version__}-py3-none-any")
    assert os.path.getsize(wheel) <= MOST_BYTES


def test_a_wheel_has_every_file_of_the_package(names):
    inside = {name for name in names if name.startswith("warptile/")}
    present = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == present


@pytest.mark.parametrize(
    "pattern",
    [
        "py.typed",
        "kernels/*/*.cuh",
        "data/*.json",
        "isa/*.json",
        "emulator/arithmetic/*.json",
        "figures/*.css",
        "figures/*.js",
        "bench/html_report/*.html",
        "bench/html_report/*.css",
        "bench/html_report/*.js",
        "kernels/wgmma/final.cuh",
    ],
)
def test_a_wheel_has_what_is_no_python(names, pattern):
    wanted = {f"warptile/{path.relative_to(PACKAGE)}" for path in PACKAGE.glob(pattern)}
    assert wanted
    assert wanted <= names


def test_a_wheel_has_nothing_of_the_repository_around_the_package(names):
    assert {name.split("/")[0] for name in names} == {"warptile", f"warptile-{warptile.__version__}.dist-info"}
    assert not [name for name in names if "left_out" in name or "/tests/" in name or "records/" in name]


def test_a_wheel_says_what_it_is(wheel, names):
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert f"\nVersion: {warptile.__version__}\n" in text
    assert "\nRequires-Python: >=3.11\n" in text
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    assert b"warptile = warptile.cli.main:main" in zipfile.ZipFile(wheel).read(entry_points)


def test_a_wheel_shows_recorded_results_and_says_that_records_are_in_a_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = "\n".join(
        (
            "from warptile import measured",
            "from warptile.bench.protocol import records",
            "print(len(measured.summary().results))",
            "records.committed()",
        )
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert int(run.stdout) > 100
    assert "RecordError: records: this needs a checkout of warptile" in run.stderr


def test_an_installed_package_writes_the_report_from_its_summary(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "warptile.cli.main", "report"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "This installation has no records" in (tmp_path / "report.html").read_text()
