"""Who may import whom, and what importing the package costs."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable

import pytest

import warptile
from package_sources import PACKAGE, imports_of, nodes_in

ROOT = PACKAGE.parents[1]

ORDER = (
    ("errors", "decoding", "dtypes", "folders", "quantization"),
    ("arch", "isa", "launch", "native"),
    ("figures",),
    ("epilogue",),
    ("device", "problem", "slicing"),
    ("arrays",),
    ("verify",),
    ("rungs",),
    ("codegen",),
    ("planning",),
    ("expected",),
    ("gpu", "ptx"),
    ("emulator",),
    ("replay",),
    ("runtime",),
    ("torch_route", "calls"),
    (
        "api", "group_scales", "grouped_call", "linear_call", "measured", "ladder", "doctor", "warming", "roofline",
        "jax",
    ),
    ("tuning",),
    ("torch",),
    ("distributed",),
    ("bench",),
    ("user_kernels",),
    ("programs",),
    ("learn", "pytest_plugin"),
    ("cli",),
)  # fmt: skip
"""A module imports from its own group and from those before it, never from a later one."""

PRODUCTS = {"problem", "arrays", "verify", "rungs", "planning"}
"""Parts that know of GEMMs."""

NEVER = {
    "gpu": {"ptx", "emulator", "isa", "dtypes"} | PRODUCTS,
    "ptx": {"gpu", "arch", "device", "isa", "launch", "dtypes", "codegen"} | PRODUCTS,
    "emulator": {"gpu", "dtypes"} | PRODUCTS,
    "codegen": {"planning", "arrays", "verify", "arch", "device"},
    "isa": {"arch", "device", "launch"},
    "figures": {"arch", "launch", "dtypes"},
    "launch": {"arch", "device", "isa", "dtypes"},
}
"""Imports that the order would allow and the design does not. The two executors stand apart and know launches, not
GEMMs: the GPU one takes compiled kernels (`warptile.codegen.nvrtc`), the emulator PTX; it keeps machine code of its own
in the cache."""

ONLY = {
    "gpu": {"warptile.codegen.nvrtc"},
    "emulator": {"warptile.codegen.cache"},
    "codegen": {"warptile.rungs.kernel_spec"},
}
"""Of a part that imports from ``codegen`` or ``rungs``, the modules that it may name there."""

UPWARD = {"torch_route": {"torch"}}
"""The one way up: a call on tensors that torch has to see imports the room for torch when it is made."""

LIBCUDA = "cuda.bindings.driver"
"""The bindings of libcuda, which `warptile.gpu.driver` alone calls."""

LEVEL = {name: level for level, group in enumerate(ORDER) for name in group}


def parts_of(imports: Iterable[ast.AST]) -> set[str]:
    """Top-level parts of warptile that imports name."""
    found = set()
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.module == "warptile":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("warptile."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("warptile.")}
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are absolute"
    return found


def modules_of(imports: Iterable[ast.AST]) -> set[str]:
    """Full names of modules, and of what is taken from them, that imports name."""
    found = set()
    for node in imports:
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def violations(part: str, imported: set[str]) -> list[str]:
    wrong = [name for name in imported if name in LEVEL and LEVEL[name] > LEVEL[part]]
    return sorted(wrong + [name for name in imported & NEVER.get(part, set()) if name not in wrong])


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"give {part} a place in ORDER"
    assert violations(part, parts_of(imports_of(path)) - UPWARD.get(part, set())) == []


def test_a_backward_import_is_seen():
    assert violations("planning", parts_of(nodes_in("def f():\n    from warptile.emulator import emulate\n"))) == [
        "emulator"
    ]
    assert violations("gpu", parts_of(nodes_in("import warptile.ptx.parser\n"))) == ["ptx"]
    assert violations("emulator", parts_of(nodes_in("from warptile import rungs, errors\n"))) == ["rungs"]
    assert violations("gpu", parts_of(nodes_in("from warptile.rungs.kernel_spec import KernelSpec\n"))) == ["rungs"]
    assert violations("cli", parts_of(nodes_in("from warptile import bench\n"))) == []


@pytest.mark.parametrize("part", ONLY)
def test_a_part_takes_of_those_below_it_only_what_it_needs(part):
    used = set()
    for path in (PACKAGE / part).rglob("*.py"):
        below = {name for name in modules_of(imports_of(path)) if name.split(".")[:2] in SHARED}
        used |= {".".join(name.split(".")[:3]) for name in below if name.split(".")[1] != part}
    assert used == ONLY[part]


SHARED = (["warptile", "codegen"], ["warptile", "rungs"])


def test_only_the_driver_calls_libcuda():
    users = {str(path.relative_to(PACKAGE)) for path in FILES if LIBCUDA in modules_of(imports_of(path))}
    assert users == {"gpu/driver.py", "programs/device_calls.py"}, "the latter takes names of errors from them"
    loaders = {str(path.relative_to(PACKAGE)) for path in FILES if 'CDLL("libcuda' in path.read_text()}
    assert loaders == {"runtime/execute.py"}, "which looks whether it can be loaded, and calls nothing of it"


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


def test_no_module_has_the_name_of_a_public_function():
    modules = {path.stem for path in PACKAGE.glob("*.py")} | {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert modules & set(warptile.__all__) == set()


def test_every_public_name_is_there():
    for name in warptile.__all__:
        assert getattr(warptile, name) is not None
    assert set(warptile.__all__) == set(dir(warptile))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        warptile.nothing_like_it  # noqa: B018


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert warptile.__version__ == project["version"]
