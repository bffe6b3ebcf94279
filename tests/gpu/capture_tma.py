"""Run every case of bulk and tensor copies on the GPU: ``python3 tests/gpu/capture_tma.py --out DIR``.

``tma_h200.json`` is the test data of ``tests/cpu/emulator/test_captured_tma.py``: a checksum of each case's answer, and
of the odd cases, each in a process of its own, the driver's error. ``words_tma.npz`` has the answers themselves.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import captured
import suites
from tma_probes import ODD, SEED, SUITES, Case, Words, translation_unit
from warptile.codegen.nvrtc import compile_source
from warptile.errors import DeviceError
from warptile.gpu import driver, loader

ODD_SECONDS = 30
"""After so many an odd case is taken for one that hangs."""


class Gpu:
    """The kernels on the device."""

    def __init__(self) -> None:
        kernel = compile_source(translation_unit(), driver.device_info().arch)
        self._module = driver.Module(kernel.cubin)

    def run(self, case: Case) -> Words:
        """As `Case.emulated`."""
        operands, spec = case.operands(), case.launch()
        held = {name: driver.Allocation.from_array(array) for name, array in operands.items()}
        try:
            packed = loader.PackedArguments(spec, {name: each.address for name, each in held.items()})
            function = self._module.function(spec.entry)
            function.launch(spec, 0, packed.address)
            driver.synchronize()
            return held[case.answer].to_host(operands[case.answer])
        finally:
            for each in held.values():
                each.close()


def capture(folder: Path, suite: str) -> None:
    """All cases of one suite; what the driver refuses is told and left out."""
    driver.enter()
    gpu = Gpu()
    answers: dict[str, np.ndarray] = {}
    for case in SUITES[suite]:
        try:
            answers[case.name] = gpu.run(case)
        except DeviceError as error:
            print(f"{case.name}: {error}")
            if "context is lost" in str(error):
                break
    suites.write(folder, suite, answers)


def odd(folder: Path, name: str) -> None:
    """One odd case."""
    driver.enter()
    try:
        answer = Gpu().run(ODD[name])
    except DeviceError as error:
        print(f"error {error.driver_name}")
        return
    np.save(folder / f"odd_{list(ODD).index(name)}.npy", answer)
    print("answered")


def run_odd(folder: Path) -> tuple[dict[str, str], dict[str, Words]]:
    """How every odd case ends, and the answers of those that give one."""

    def one(name: str) -> str:
        command = [sys.executable, __file__, "--out", str(folder), "--odd", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ODD_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "hangs"
        said = done.stdout.strip().splitlines()
        return said[-1] if said else done.stderr[-300:]

    with ThreadPoolExecutor(4) as pool:
        ends = dict(zip(ODD, pool.map(one, ODD), strict=True))
    answers = {}
    for number, name in enumerate(ODD):
        path = folder / f"odd_{number}.npy"
        if path.exists():
            answers[name] = np.load(path)
            path.unlink()
        print(f"{name}: {ends[name]}", flush=True)
    return ends, answers


def main() -> None:
    """Capture all suites, each in a process of its own, then the odd cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", choices=SUITES)
    parser.add_argument("--odd", choices=ODD)
    arguments = parser.parse_args()
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.suite is not None:
        capture(folder, arguments.suite)
        return
    if arguments.odd is not None:
        odd(folder, arguments.odd)
        return
    compile_source(translation_unit(), driver.device_info().arch)  # kept for the processes
    found = suites.run_each(__file__, list(SUITES), folder)
    words = {f"{suite}__{name}": answer for suite in found for name, answer in found[suite].items()}
    np.savez_compressed(folder / "words_tma.npz", **words)
    kept = {
        suite: {name: captured.hexadecimal(captured.checksums(words[None], 1)) for name, words in answers.items()}
        for suite, answers in found.items()
    }
    content = {**suites.about(), "seed": SEED, "suites": kept}
    suites.write_json(folder / "tma_h200.json", content)
    ends, answers = run_odd(folder)
    for name, answer in answers.items():
        ends[name] += " " + captured.hexadecimal(captured.checksums(answer[None], 1))
    suites.write_json(folder / "tma_h200.json", {**content, "odd": ends})
    np.savez_compressed(folder / "words_tma.npz", **words, **{f"odd__{name}": a for name, a in answers.items()})


if __name__ == "__main__":
    main()
