"""Runs the kernels of tests/wrong_kernels on a GPU and counts in how many runs each twin gives a wrong result.

python3 tests/gpu/wrong_kernels_on_gpu.py --out FOLDER

Each twin runs in a process of its own, as some fault and some never end; it is killed after a while. Those that may
hang, by what their comment says, come last, so that they do not take time from the others. Writes
``wrong_kernels.json``, which belongs in tests/data.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import numpy as np

from warptile.errors import DeviceError
from warptile.gpu import driver, loader
from wrong_kernel import WrongResult, compiled
from wrong_kernel_cases import CASES

RUNS = 200
SECONDS = 45
SECONDS_IF_IT_MAY_HANG = 20
PROCESSES = 8

Twin = tuple[str, bool]
"""A kernel's name, and whether it is the corrected one."""


def count_wrong(name: str, correct: bool) -> dict[str, object]:
    """Run one twin `RUNS` times."""
    case = next(case for case in CASES if case.name == name)
    kernel = compiled(case.source(correct))
    launch = case.launch(kernel.entry, correct)
    wrong = 0
    try:
        for _ in range(RUNS):
            memory = {key: driver.Allocation.from_array(array) for key, array in launch.operands.items()}
            loaded = loader.load(kernel)  # anew: one of them keeps flags in its module
            loaded.launch(launch.spec, {key: allocation.address for key, allocation in memory.items()})
            driver.synchronize()
            d = memory["D"].to_host(np.empty_like(launch.operands["D"]))
            for resource in (loaded, *memory.values()):
                resource.close()
            try:
                launch.check(d)
            except WrongResult:
                wrong += 1
    except DeviceError as error:
        return {"error": error.driver_name or str(error)}
    return {"wrong": wrong}


def in_a_process(name: str, correct: bool, seconds: float) -> dict[str, object]:
    """The same, survived."""
    command = [sys.executable, __file__, "--name", name, *(["--correct"] if correct else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "does not end"}
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    found: dict[str, object] = json.loads(lines[-1])
    return found


def in_processes(twins: list[Twin], seconds: float) -> list[tuple[Twin, dict[str, object]]]:
    """Some twins at a time."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = list(pool.map(lambda twin: in_a_process(*twin, seconds), twins))
    return list(zip(twins, found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--name")
    parser.add_argument("--correct", action="store_true")
    given = parser.parse_args()
    if given.name:
        print(json.dumps(count_wrong(given.name, given.correct)), flush=True)
        return
    gpu = driver.device_info().name
    names = {case.name for case in CASES if given.only in case.name}
    twins = [(case.name, correct) for case in CASES for correct in (False, True) if case.name in names]
    hanging = re.compile(r"\bhangs?\b")
    may_hang = [(case.name, False) for case in CASES if case.name in names and hanging.search(case.header["On a GPU"])]
    results: dict[str, dict[str, object]] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    for some, seconds in (
        ([twin for twin in twins if twin not in may_hang], SECONDS),
        (may_hang, SECONDS_IF_IT_MAY_HANG),
    ):
        start = time.monotonic()
        for (name, correct), result in in_processes(some, seconds):
            results.setdefault(name, {})["corrected" if correct else "wrong"] = result
            print(name, "corrected" if correct else "wrong", result)
        print(f"{len(some)} twins in {time.monotonic() - start:.0f} s", flush=True)
        record = {"gpu": gpu, "runs": RUNS, "kernels": results}
        (given.out / "wrong_kernels.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
