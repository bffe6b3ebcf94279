"""A kernel by the interpreter and compiled, with everything compared."""

import numpy as np

from emulation import compiled as module_of
from warptile.emulator import emulate
from warptile.emulator.compiled_steps import compiled_program
from warptile.emulator.compiled_steps.step_library import library
from warptile.errors import EmulationError
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec

THREADS = 96


def compile_at_once(monkeypatch):
    """Every launch is compiled at once, however small."""
    assert library(wait=True) is not None
    monkeypatch.setattr(compiled_program, "MANY_LANES", 0)


def both(text, name, arguments, *, outputs, grid=2, block=THREADS, complete=False, **options):
    """Emulate by the interpreter and compiled, compare everything, and return the compiled report and its arrays."""
    entry, module = module_of(text, name, "sm_90a")
    results = []
    for interpreted in (True, False):
        operands = {str(i): each.copy() for i, each in enumerate(arguments) if isinstance(each, np.ndarray)}
        spec = LaunchSpec(
            entry, (grid, 1, 1), (block, 1, 1),
            tuple(Pointer(str(i)) if isinstance(each, np.ndarray) else each for i, each in enumerate(arguments)),
        )  # fmt: skip
        accesses = {
            str(i): Access(
                writes=True,
                complete=Rows(1, arguments[i].size, arguments[i].itemsize, arguments[i].nbytes) if complete else None,
            )
            for i in outputs
        }
        try:
            report = emulate(
                module, spec, operands, accesses=accesses, arch="sm_90a", interpreted=interpreted, **options
            )
        except EmulationError as error:
            report = (type(error), str(error), error.location)
        results.append((report, operands))
    (expected, wanted), (report, found) = results
    assert report == expected
    for each in wanted:
        assert wanted[each].tobytes() == found[each].tobytes(), each
    return report, found
