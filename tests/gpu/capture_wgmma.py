"""Run every probe of wgmma on the GPU and write its answers: ``python3 tests/gpu/capture_wgmma.py --out DIR``.

``wgmma_h200.json`` is the test data of ``tests/cpu/emulator/test_captured_wgmma.py``: a checksum of each case.
``words_wgmma.npz`` has the words themselves, for finding out what the hardware does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import captured
import suites
from probes import Words
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver, loader
from wgmma_probes import SEED, SUITES, GroupProbe


class Gpu:
    """Probes as kernels on the device."""

    def __init__(self, probes: tuple[GroupProbe, ...]) -> None:
        text = "\n".join(probe.cuda() for probe in probes)
        kernel = compile_source(Source(text, probes[0].entry, may_spill=True), driver.device_info().arch)
        self._module = driver.Module(kernel.cubin)

    def run(self, probe: GroupProbe, source: Words, blocks: int) -> Words:
        """As `GroupProbe.emulated`."""
        spec = probe.launch(blocks)
        found = np.full((blocks, spec.block[0] * probe.result_registers), 0xDEADBEEF, np.uint32)
        with (
            driver.Allocation.from_array(np.ascontiguousarray(source)) as given,
            driver.Allocation.from_array(found) as target,
        ):
            packed = loader.PackedArguments(spec, {"source": given.address, "target": target.address})
            function = self._module.function(probe.entry)
            function.launch(spec, 0, packed.address)
            driver.synchronize()
            target.to_host(found)
        return found


def capture(folder: Path, suite: str) -> None:
    """All probes of one suite."""
    driver.enter()
    probes = SUITES[suite]
    gpu = Gpu(probes)
    answers: dict[str, np.ndarray] = {}
    try:
        for probe in probes:
            answers[probe.name] = probe.answers(gpu.run)
    finally:
        suites.write(folder, suite, answers)


def main() -> None:
    """Capture all suites, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", choices=SUITES)
    arguments = parser.parse_args()
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.suite is not None:
        capture(folder, arguments.suite)
        return
    found = suites.run_each(__file__, list(SUITES), folder)
    kept = {
        suite: {name: captured.hexadecimal(captured.checksums(words, 1)) for name, words in answers.items()}
        for suite, answers in found.items()
    }
    suites.write_json(folder / "wgmma_h200.json", {**suites.about(), "seed": SEED, "suites": kept})
    words = {f"{suite}__{name}": each for suite, answers in found.items() for name, each in answers.items()}
    np.savez_compressed(folder / "words_wgmma.npz", **words)


if __name__ == "__main__":
    main()
