"""WMMA on the GPU and on the emulator, bit for bit: where fragments put each element, and how every type adds.

The same kernels (`wmma_cases`) run on both with inputs of every kind. A failure lists, per kind of input, how many
words differ, and the first of them with its row of A, column of B and element of C.
"""

import re

import numpy as np
import pytest

import wmma_cases
from warptile.arch import arch as find_arch
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.gpu import driver, loader
from warptile.launch.params import Pointer
from warptile.ptx import parse

pytestmark = pytest.mark.gpu

TILES = 16
"""Of each kind of input. One launch takes all kinds together."""

CAPABILITY = find_arch(driver.device_info().arch).capability if driver.available() else 90
CASES = wmma_cases.cases(CAPABILITY, thorough=True)
GROUPS = {}
for _case in CASES:
    GROUPS.setdefault("-".join(filter(None, (_case.shape.name, _case.shape.type, _case.operation))), []).append(_case)


@pytest.fixture(scope="module")
def compiled():
    """All kernels at once: the loaded cubin, and its PTX for the emulator."""
    text = wmma_cases.translation_unit(CASES)
    kernel = compile_source(Source(text, CASES[0].name, may_spill=True), driver.device_info().arch)
    return driver.Module(kernel.cubin), parse(kernel.ptx)


def run_on_gpu(module, case, buffers):
    """Like `wmma_cases.run_emulated`, on the device."""
    spec = wmma_cases.launch(case, len(buffers["a"]))
    memory = {name: driver.Allocation.from_array(array) for name, array in buffers.items()}
    try:
        assert {a.operand for a in spec.arguments if isinstance(a, Pointer)} == set(memory)
        packed = loader.PackedArguments(spec, {name: allocation.address for name, allocation in memory.items()})
        module.function(case.name).launch(spec, 0, packed.address)
        driver.synchronize()
        for name in wmma_cases.OUTPUTS:
            memory[name].to_host(buffers[name])
    finally:
        for allocation in memory.values():
            allocation.close()


def raw(case, buffers):
    """The bits of D, as (tiles, rows, columns)."""
    d = np.ascontiguousarray(wmma_cases.unpack(case, "d", buffers["d"]))
    return d.view(f"u{d.itemsize}")


def number(value):
    """Short and exact."""
    text = float(value).hex() if isinstance(value, float) else str(value)
    return re.sub(r"\.?0*(?=p)", "", text)


def differences(case, values, kinds, gpu, emulated, explained):
    """What to say about one case: fragments first, then words of D by kind of input.

    Operands are given for the first difference of each kind; ``explained`` remembers for which.
    """
    found = []
    for which in "abc":
        wrong = gpu[f"f{which}"] != emulated[f"f{which}"]
        if wrong.any():
            tile, lane, byte = (int(i) for i in np.argwhere(wrong)[0])
            found.append(f"{case.name}: fragment {which} differs first in tile {tile}, lane {lane}, byte {byte}")
    device, model = raw(case, gpu), raw(case, emulated)
    wrong = device != model
    for i, kind in enumerate(kinds):
        part = wrong[i * TILES : (i + 1) * TILES]
        if not part.any():
            continue
        line = f"{case.name}: {kind}: {int(part.sum())} of {part.size} words differ"
        if kind not in explained:
            explained.add(kind)
            tile, row, column = (int(x) for x in np.argwhere(part)[0] + (i * TILES, 0, 0))
            place = (tile, row, column)
            a, b = values["a"][tile, row].tolist(), values["b"][tile, :, column].tolist()
            c = number(values["c"][place].item())
            line += f"; D{place}: GPU {int(device[place]):#x}, emulator {int(model[place]):#x}, C {c}"
            line += f"\n  A {' '.join(map(number, a))}\n  B {' '.join(map(number, b))}"
        found.append(line)
    if (gpu["d"] != emulated["d"]).any() and not wrong.any():
        found.append(f"{case.name}: bytes between the rows of D differ")
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_fragments_and_sums_are_those_of_the_gpu(compiled, group):
    module, ptx = compiled
    arch = driver.device_info().arch
    found, explained = [], set()
    for case in GROUPS[group]:
        kinds = wmma_cases.kinds(case)
        with np.errstate(all="ignore"):
            stacks = [wmma_cases.inputs(case, kind, TILES) for kind in kinds]
            values = {which: np.concatenate([stack[which] for stack in stacks]) for which in "abc"}
            gpu = wmma_cases.operands(case, values)
            emulated = {name: array.copy() for name, array in gpu.items()}
            run_on_gpu(module, case, gpu)
            wmma_cases.run_emulated(ptx, case, emulated, arch)
        found += differences(case, values, kinds, gpu, emulated, explained)
    assert not found, "\n" + "\n".join(found)
