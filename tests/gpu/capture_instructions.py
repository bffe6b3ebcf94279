"""Run every probe on the GPU and write its answers: ``python3 tests/gpu/capture_instructions.py --out DIR``.

``instructions_h200.npz`` and ``.json`` are the test data of ``tests/cpu/test_captured_*.py``. ``words_*.npz`` has more
of the same, word by word, for finding out what the hardware does: more tiles of tensor instructions, and of scalar
instructions those where the emulator differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import captured
from probes import Probe, Words, translation_unit
from scalar_probes import SCALAR_PROBES
from tensor_probes import TENSOR_PROBES
from warptile.bench.protocol import environment
from warptile.codegen.nvrtc import compile_source, compiler_version
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver, loader

MORE_TILES = 10
"""Of each kind in ``words_tensor.npz``."""

KERNELS_PER_MODULE = 100


class Gpu:
    """Probes as kernels on the device."""

    def __init__(self, probes: list[Probe]) -> None:
        self._functions = {}
        self._modules = []
        arch = driver.device_info().arch
        for first in range(0, len(probes), KERNELS_PER_MODULE):
            some = probes[first : first + KERNELS_PER_MODULE]
            kernel = compile_source(Source(translation_unit(some), some[0].entry, may_spill=True), arch)
            self._modules.append(driver.Module(kernel.cubin))
            for probe in some:
                self._functions[probe.entry] = self._modules[-1].function(probe.entry)

    def run(self, probe: Probe, rows: Words) -> Words:
        """As `Probe.emulated`."""
        found = np.zeros((len(rows), probe.output_words), np.uint32)
        spec = probe.launch(len(rows))
        with (
            driver.Allocation.from_array(np.ascontiguousarray(rows)) as source,
            driver.Allocation.from_array(found) as target,
        ):
            packed = loader.PackedArguments(spec, {"source": source.address, "target": target.address})
            self._functions[probe.entry].launch(spec, 0, packed.address)
            driver.synchronize()
            target.to_host(found)
        return found


def header() -> dict[str, object]:
    """Where and how the vectors were made."""
    about = environment.describe(None)
    return {
        "gpu": driver.device_info().name,
        "arch": driver.device_info().arch,
        "driver": about.driver,
        "compiler": compiler_version(),
        "date": environment.now(),
        "git_hash": environment.git_hash(),
    }


def main() -> None:
    """Capture, and compare with the emulator on the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    driver.enter()
    capture(folder)


def capture(folder: Path) -> None:
    """All probes of both lists."""
    tensors = {tensor.name: tensor for tensor in TENSOR_PROBES}
    scalars = {scalar.name: scalar for scalar in SCALAR_PROBES}
    assert len(tensors) == len(TENSOR_PROBES), "two probes of one name"
    assert len(scalars) == len(SCALAR_PROBES), "two probes of one name"
    gpu = Gpu([each.probe for each in (*tensors.values(), *scalars.values())])
    vectors, more, differing, scalar_sums = {}, {}, {}, []
    for name, tensor in tensors.items():
        vectors[name] = captured.kept(tensor, captured.tensor_answers(tensor, gpu.run))
        more[name] = captured.tensor_answers(tensor, gpu.run, tiles=MORE_TILES)
    for name, scalar in scalars.items():
        answers = captured.scalar_answers(scalar, gpu.run)
        if scalar.by_checksum:
            scalar_sums.append(captured.kept_of_scalar(scalar, answers))
        else:
            vectors[name] = captured.kept_of_scalar(scalar, answers)
        try:
            same = np.array_equal(answers, captured.scalar_answers(scalar, Probe.emulated))
        except Exception as error:
            print(f"{name}: the emulator says {type(error).__name__}: {error}")
            same = False
        if not same:
            differing[name] = answers
    np.savez_compressed(folder / "instructions_h200.npz", scalars=np.stack(scalar_sums), **vectors)
    np.savez_compressed(folder / "words_tensor.npz", **more)
    np.savez_compressed(folder / "words_scalar.npz", **differing)
    about = {
        **header(),
        "seed": captured.SEED,
        "tiles_of_each_kind": captured.TILES,
        "scalars": [n for n, scalar in scalars.items() if scalar.by_checksum],
    }
    (folder / "instructions_h200.json").write_text(json.dumps(about, indent=1) + "\n")
    print(
        f"{len(tensors)} tensor and {len(scalars)} scalar instructions; the emulator differs in {len(differing)} scalar"
    )


if __name__ == "__main__":
    main()
