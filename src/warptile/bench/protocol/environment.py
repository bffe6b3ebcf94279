"""What a measurement ran on: versions, and clocks, power and temperature sampled while it ran."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from warptile.bench.protocol.measurements import Environment, Samples, Spread

QUERY = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
"""What one sample holds, in nvidia-smi's words: MHz, MHz, W, degrees Celsius."""


@dataclass(frozen=True)
class Sample:
    """One reading, at ``at_s`` of the monotonic clock."""

    at_s: float
    sm_clock_mhz: float
    memory_clock_mhz: float
    power_w: float
    temperature_c: float


Reader = Callable[[], tuple[float, float, float, float]]


def nvml_reader() -> Reader | None:
    """Reads the first GPU through NVML's Python binding, or None where that is not installed."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
    except nvml.NVMLError:
        return None

    def read() -> tuple[float, float, float, float]:
        return (
            float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
            float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        )

    return read


def smi(fields: Sequence[str]) -> list[str] | None:
    """Fields of the first GPU as nvidia-smi prints them, or None where it cannot be run."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    first = done.stdout.strip().splitlines()
    return [value.strip() for value in first[0].split(",")] if first else None


def smi_reader() -> Reader | None:
    """Reads the first GPU by running nvidia-smi (about 50 ms a sample), or None where it does not answer."""

    def read() -> tuple[float, float, float, float]:
        values = smi(QUERY)
        if values is None:
            raise OSError("nvidia-smi stopped answering")
        clock, memory, power, temperature = (float(value) for value in values)
        return clock, memory, power, temperature

    try:
        read()
    except (OSError, ValueError):
        return None
    return read


def summarize(samples: Sequence[Sample]) -> Samples | None:
    """Spreads over some samples, or None when there are none."""
    if not samples:
        return None
    return Samples(
        sm_clock_mhz=Spread.of(s.sm_clock_mhz for s in samples),
        memory_clock_mhz=Spread.of(s.memory_clock_mhz for s in samples),
        power_w=Spread.of(s.power_w for s in samples),
        temperature_c=Spread.of(s.temperature_c for s in samples),
        count=len(samples),
    )


class Sampler:
    """Reads the GPU's state every ``period_s`` on a thread of its own, from entering to leaving its block."""

    def __init__(self, reader: Reader | None = None, period_s: float = 0.05) -> None:
        self._reader = reader or nvml_reader() or smi_reader()
        self._period_s = period_s
        self._stop = threading.Event()
        self._samples: list[Sample] = []
        self._thread: threading.Thread | None = None
        self.error: str | None = None if self._reader else "neither NVML nor nvidia-smi answered: no clocks, no power"

    def __enter__(self) -> Sampler:
        if self._reader is not None:
            self._thread = threading.Thread(target=self._loop, args=(self._reader,), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _loop(self, reader: Reader) -> None:
        while not self._stop.is_set():
            try:
                values = reader()
            except Exception as error:
                self.error = f"sampling stopped: {error}"
                return
            self._samples.append(Sample(time.monotonic(), *values))
            self._stop.wait(self._period_s)

    def since(self, start_s: float) -> Samples | None:
        """Spreads over the samples taken since ``start_s`` of `time.monotonic`."""
        return summarize([sample for sample in tuple(self._samples) if sample.at_s >= start_s])


def version_of(*distributions: str) -> str:
    """Version of the first of some distributions that is installed, or ``"none"``."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def git_hash(folder: Path | None = None) -> str:
    """Commit of the source tree, with ``+`` when tracked files differ from it; ``"unknown"`` outside a checkout."""
    where = folder or Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(where), *arguments], capture_output=True, text=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    return f"{commit}+" if git("status", "--porcelain", "--untracked-files=no") else commit


def processor_name() -> str:
    """What this machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def describe_processor() -> Environment:
    """This machine without its GPU, for measurements of the processor."""
    return Environment(
        gpu="none",
        driver="none",
        cuda=version_of("nvidia-cuda-runtime", "cuda-toolkit"),
        nvrtc=version_of("nvidia-cuda-nvrtc"),
        baseline_library=f"NumPy {version_of('numpy')}, llvmlite {version_of('llvmlite')}",
        python=platform.python_version(),
        processor=processor_name(),
    )


def describe(samples: Samples | None, baseline_library: str | None = None) -> Environment:
    """This machine, with what was sampled while the measurement ran."""
    found = smi(("name", "driver_version", "power.limit")) or ["no GPU", "none", ""]
    try:
        power_cap_w: float | None = float(found[2])
    except ValueError:
        power_cap_w = None
    return Environment(
        gpu=found[0],
        driver=found[1],
        cuda=version_of("nvidia-cuda-runtime", "cuda-toolkit"),
        nvrtc=version_of("nvidia-cuda-nvrtc"),
        baseline_library=baseline_library,
        python=platform.python_version(),
        power_cap_w=power_cap_w,
        samples=samples,
    )
