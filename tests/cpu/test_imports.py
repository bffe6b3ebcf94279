"""Who may import whom, and what importing the package costs."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import warptile

PACKAGE = Path(warptile.__file__).parent
ROOT = PACKAGE.parents[1]

ORDER = (
    ("errors", "dtypes"),
    ("arch", "isa", "arrays", "launch"),
    ("frameworks", "sparse"),
    ("problem", "operands", "reference"),
    ("rungs",),
    ("predict", "predict_wgmma", "batches"),
    ("plan",),
    ("source",),
    ("headers", "cache", "compile", "shipped", "tuned"),
    ("gpu", "ptx"),
    ("emulator",),
    ("execute", "device_product"),
    ("matmul", "ladder", "doctor"),
    ("tune", "tune_gpu"),
    ("bench",),
    ("cli",),
)
"""A module imports from its own group and from those before it, never from a later one."""

NEVER = {
    "gpu": {"ptx", "emulator"},
    "ptx": {"gpu", "arch", "isa", "arrays", "problem", "rungs", "predict", "plan", "source", "compile", "cache"},
    "emulator": {"gpu", "arrays", "problem", "operands", "rungs", "predict", "plan", "source", "compile", "cache"},
    "isa": {"arch", "launch", "arrays"},
}
"""Imports that the order would allow and the design does not: the two executors stand apart, and neither PTX nor the
emulator knows that there are rungs."""

LEVEL = {name: level for level, group in enumerate(ORDER) for name in group}


def imports_of(source: str) -> set[str]:
    """Top-level parts of warptile that a source imports, wherever in the source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "warptile":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("warptile."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("warptile.")}
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are absolute"
    return found


def violations(part: str, imported: set[str]) -> list[str]:
    wrong = [name for name in imported if name in LEVEL and LEVEL[name] > LEVEL[part]]
    return sorted(wrong + [name for name in imported & NEVER.get(part, set()) if name not in wrong])


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"give {part} a place in ORDER"
    assert violations(part, imports_of(path.read_text())) == []


def test_a_backward_import_is_seen():
    assert violations("plan", imports_of("def f():\n    from warptile.emulator import emulate\n")) == ["emulator"]
    assert violations("gpu", imports_of("import warptile.ptx.parser\n")) == ["ptx"]
    assert violations("emulator", imports_of("from warptile import rungs, errors\n")) == ["rungs"]
    assert violations("cli", imports_of("from warptile import bench\n")) == []


def fresh(code):
    """Run code in a new interpreter, with this package on its path."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    ).stdout


def test_importing_loads_no_heavy_package():
    loaded = set(fresh("import sys, warptile; print(*sys.modules)").split())
    assert "warptile" in loaded
    heavy = {"numpy", "cuda", "torch", "numba", "ml_dtypes", "click", "rich", "msgspec"}
    assert heavy & {name.split(".")[0] for name in loaded} == set()


def test_importing_is_quick():
    code = "import time; t = time.perf_counter(); import warptile; print(time.perf_counter() - t)"
    assert min(float(fresh(code)) for _ in range(3)) < 0.1


def test_a_public_function_is_not_hidden_by_its_module():
    code = "import warptile.plan, warptile.matmul, warptile as wt; print(callable(wt.plan), callable(wt.matmul))"
    assert fresh(code).split() == ["True", "True"]
    code = "import warptile as wt; wt.matmul; import warptile.plan; print(callable(wt.plan), callable(wt.matmul))"
    assert fresh(code).split() == ["True", "True"]


def test_every_public_name_is_there():
    for name in warptile.__all__:
        assert getattr(warptile, name) is not None
    assert set(warptile.__all__) == set(dir(warptile))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        warptile.nothing_like_it  # noqa: B018


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert warptile.__version__ == project["version"]
