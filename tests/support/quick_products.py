"""The emulator's results by NumPy, for tests of what is around a GEMM: gradients, transforms, compiled programs.

All else stays: operands are checked, arranged and planned as ever; only that no kernel is compiled and emulated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grouped_products import ranges
from warptile.arrays import array_view
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT
from warptile.planning.grouped_plan import GroupedPlan
from warptile.rungs.wgmma.grouped import ENDS
from warptile.runtime.execute import EmulatorBackend


def install(monkeypatch) -> list[tuple[int, int, int]]:
    """Replace the emulator's runs.

    Returns:
        M, N and K of every GEMM from now on, batches as one.
    """
    made: list[tuple[int, int, int]] = []

    def run(self, plan, operands, indices, alpha, beta, numbers=None):
        found = {name: _strided(view) for name, view in operands.items()}
        if isinstance(plan, GroupedPlan):
            made.append(_grouped(plan.grouped, found))
            return
        d = found["D"]
        wide = np.int64 if d.dtype.kind in "iu" else np.float64
        result = np.zeros(d.shape, wide)
        if "A" in found:
            a, b = found["A"].astype(wide), found["B"].astype(wide)
            result = alpha * (a @ b)
            made.append((a.shape[-2], b.shape[-1], a.shape[-1]))
        if "C" in found:
            result = result + beta * found["C"].astype(wide)
        if plan.problem.epilogue is None:
            d[...] = result.astype(d.dtype)
        else:
            _epilogue(plan.problem.epilogue.program, result, found, numbers or {})

    monkeypatch.setattr(EmulatorBackend, "run", run)
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    return made


def _grouped(problem, found):
    """Multiply groups; returns M, N and K of them together."""
    a, b, d = found["A"].astype(np.float64), found["B"].astype(np.float64), found["D"]
    ends = found[ENDS].view(f"i{problem.offset_bits // 8}")
    for group, part in enumerate(ranges(ends.tolist())):
        if problem.along == "rows":
            d[part] = (a[part] @ b[group]).astype(d.dtype)
        else:
            d[group] = (a[:, part] @ b[part]).astype(d.dtype)
    return a.shape[0], b.shape[-1], a.shape[1]


_REDUCED = {"add": (np.sum, 0), "maximum": (np.max, -np.inf), "minimum": (np.min, np.inf)}


def _epilogue(program, result, found, numbers):
    """Write the outputs of an epilogue of ``result``, matrix by matrix; of a reduction all in the first partial."""
    reductions, program = program.output_reductions, replace(program, reductions=())
    names = {name: f"{OPERAND} {name}" for name in program.operands}
    for index in np.ndindex(result.shape[:-2]):
        operands = {name: found[key][index] for name, key in names.items() if key in found} | dict(numbers)
        outputs = program.evaluate(result[index], operands)
        for number, each in enumerate(outputs):
            target = found["D" if number == 0 else f"{OUTPUT} {number}"][index]
            how = reductions[number]
            if how is None:
                target[...] = each.astype(target.dtype)
            else:
                function, neutral = _REDUCED[how.operation]
                target[...] = neutral
                target[:1] = function(each, axis=-2 if how.over == "rows" else -1)


def _strided(view):
    """The memory of a view as a NumPy array of its own type: torch may be what is tested."""
    low, _ = view.byte_range()
    start = array_view.host_bytes(view)[view.pointer - low :]
    words = start.view(f"u{view.element_bytes}") if view.size else np.zeros(0, f"u{view.element_bytes}")
    strides = tuple(stride * view.element_bytes for stride in view.strides)
    strided = np.lib.stride_tricks.as_strided(words, view.shape, strides)
    return strided.view(array_view.numpy_dtype(view.dtype))
