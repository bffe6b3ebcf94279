"""What warptile needs, what this machine has of it, and the fix for what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warptile.arch import ARCHES, REFERENCE_ARCH
from warptile.codegen import headers
from warptile.codegen.cache import Cache
from warptile.errors import DeviceError, NoDeviceError, WarptileError

State = Literal["ok", "missing", "problem"]

SCHEMA = "warptile.doctor/1"

EXTRAS = {
    "bench": (("nvmath-python", "nvmath"),),
    "torch": (("torch", "torch"),),
    "plot": (("matplotlib", "matplotlib"),),
}
"""Optional extras: distribution and module of each part. ``sass`` is looked for as programs."""

_SASS_TOOLS = ("nvdisasm", "cuobjdump")
_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        state: ``"ok"``; ``"missing"``, something optional that is not here; ``"problem"``, what must be fixed.
        detail: what was found.
        fix: what to do about it; empty when ok.
    """

    name: str
    state: State
    detail: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert (self.state == "ok") == (not self.fix), self


def check_nvrtc() -> Finding:
    """Whether NVRTC loads, and compiles for the reference architecture."""
    from warptile.codegen.nvrtc import compiler_version, supported_arches

    try:
        version, arches = compiler_version(), supported_arches()
    except WarptileError as error:
        return Finding("nvrtc", "problem", str(error).split(";")[0], headers.INSTALL)
    if REFERENCE_ARCH.rstrip("a") not in arches:
        return Finding(
            "nvrtc", "problem", f"{version} does not compile for {REFERENCE_ARCH}: {', '.join(arches)}", headers.INSTALL
        )
    return Finding("nvrtc", "ok", f"{version}, {arches[0]} to {arches[-1]}")


def check_headers() -> Finding:
    """Whether one folder has all CUDA headers that the kernels include."""
    from warptile.codegen.nvrtc import nvrtc_release

    try:
        folder = headers.cuda_include_folder(nvrtc_release()[0])
    except WarptileError as error:
        return Finding("headers", "problem", str(error).rsplit("; install", 1)[0], headers.INSTALL)
    return Finding("headers", "ok", str(folder))


def check_compile() -> Finding:
    """Whether a kernel with all the headers really compiles, without the cache."""
    from warptile.codegen.nvrtc import compile_source
    from warptile.codegen.translation_unit import Source

    text = (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>\n"
        "namespace warptile { __global__ void doctor(float* d) { *d = 1.0f; } }\n"
    )
    try:
        kernel = compile_source(Source(text, "warptile::doctor"), REFERENCE_ARCH, cache=None)
    except WarptileError as error:
        return Finding("compile", "problem", str(error), headers.INSTALL)
    return Finding("compile", "ok", f"{REFERENCE_ARCH}: {len(kernel.ptx)} bytes of PTX, {len(kernel.cubin)} of cubin")


def check_gpu() -> Finding:
    """Driver and GPU. None is no problem: the emulator computes then."""
    from warptile.gpu import driver

    try:
        device = driver.device_info()
    except NoDeviceError as error:
        return Finding(
            "gpu",
            "missing",
            str(error).split(";")[0],
            "install NVIDIA's driver, 580 or newer, on a machine with a GPU; without one the emulator computes",
        )
    except DeviceError as error:
        return Finding(
            "gpu", "problem", str(error), "run nvidia-smi; restart the driver or the machine if it fails too"
        )
    driver_cuda = f"driver for CUDA {device.driver_cuda[0]}.{device.driver_cuda[1]}"
    what = f"{device.name}, {device.arch}, {device.multiprocessors} multiprocessors, {driver_cuda}"
    if device.driver_cuda < (13, 0):
        return Finding("gpu", "problem", what, "update the driver to 580 or newer: cubins of NVRTC 13 need CUDA 13.0")
    if device.arch not in ARCHES and device.arch.rstrip("a") not in ARCHES:
        return Finding(
            "gpu", "problem", what, f"use a GPU of {', '.join(ARCHES)}, or WARPTILE_BACKEND=emulator on this one"
        )
    return Finding("gpu", "ok", what)


def counters_permitted(parameters: Path = _PARAMETERS, status: Path = _STATUS) -> bool | None:
    """Whether this process may read the GPU's performance counters; None where the driver does not say.

    The driver's ``RmProfilingAdminOnly`` reserves them for ``CAP_SYS_ADMIN`` (or, newer, ``CAP_PERFMON``). Source:
    NVIDIA, "Permission issue with Performance Counters" (ERR_NVGPUCTRPERM).
    """
    try:
        setting = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", parameters.read_text("utf-8"), re.M)
    except OSError:
        return None
    if setting is None:
        return None
    if setting[1] == "0":
        return True
    try:
        effective = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status.read_text("utf-8"), re.M)
    except OSError:
        effective = None
    held = int(effective[1], 16) if effective else 0
    return bool(held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1)


def check_counters() -> Finding:
    """Whether ``warptile profile`` can read hardware counters: Nsight Compute, and the driver's permission."""
    permitted = counters_permitted()
    program = shutil.which("ncu")
    if permitted is None:
        return Finding(
            "counters", "missing", "no NVIDIA driver that says so",
            "counters of a GPU need one; `warptile profile` counts on the emulator until then",
        )  # fmt: skip
    if not permitted:
        return Finding(
            "counters", "missing", "the driver keeps performance counters for administrators (ERR_NVGPUCTRPERM)",
            "run as root, or put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into "
            "/etc/modprobe.d/nvidia.conf and restart; in a container, add --cap-add=SYS_ADMIN",
        )  # fmt: skip
    if program is None:
        return Finding(
            "counters", "missing", "permitted, but ncu is not on the PATH", "install Nsight Compute and add it to PATH"
        )
    return Finding("counters", "ok", f"permitted; {program}")


def check_cache() -> Finding:
    """Whether compiled kernels can be kept."""
    cache = Cache()
    reason = cache.problem()
    if reason:
        detail, _, fix = reason.partition("; ")
        return Finding("cache", "problem", detail, fix or "set WARPTILE_CACHE_DIR to a folder of your own")
    try:
        count = sum(1 for _ in cache.list())
    except (WarptileError, OSError) as error:
        return Finding("cache", "problem", str(error), "set WARPTILE_CACHE_DIR to a folder of your own")
    return Finding("cache", "ok", f"{cache.folder}, {count} kernels")


def check_extra(extra: str) -> Finding:
    """Whether the parts of an optional extra are installed."""
    name = f"extra {extra}"
    fix = f"python3 -m pip install 'warptile[{extra}]'"
    if extra == "sass":
        absent = [tool for tool in _SASS_TOOLS if headers.program(tool) is None]
        found = [str(headers.program(tool)) for tool in _SASS_TOOLS if tool not in absent]
    else:
        absent = [project for project, module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
        found = [f"{project} {_version(project)}" for project, _ in EXTRAS[extra] if project not in absent]
    if absent:
        return Finding(name, "missing", f"not installed: {', '.join(absent)}", fix)
    return Finding(name, "ok", ", ".join(found))


def _version(project: str) -> str:
    try:
        return importlib.metadata.version(project)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def check_python() -> Finding:
    """The interpreter and warptile itself."""
    return Finding("python", "ok", f"Python {platform.python_version()} on {platform.machine()}")


def examine() -> tuple[Finding, ...]:
    """Look at everything. One broken part does not hide the others."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", check_python),
        ("nvrtc", check_nvrtc),
        ("headers", check_headers),
        ("compile", check_compile),
        ("gpu", check_gpu),
        ("counters", check_counters),
        ("cache", check_cache),
        *((f"extra {extra}", lambda extra=extra: check_extra(extra)) for extra in (*EXTRAS, "sass")),
    ]
    return tuple(_guarded(name, check) for name, check in checks)


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    # A broken third-party package may raise anything at import; the doctor must still speak about the rest.
    except Exception as error:
        return Finding(
            name, "problem", f"{type(error).__name__}: {error}", "reinstall: python3 -m pip install warptile"
        )


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing must be fixed; optional parts may be missing."""
    return all(finding.state != "problem" for finding in findings)
