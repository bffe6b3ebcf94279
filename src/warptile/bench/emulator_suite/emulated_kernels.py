"""The kernels of ``warptile bench --suite emulator``: what is compiled, launched and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator import EmulationReport, emulate
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, Dim3, LaunchSpec
from warptile.ptx.instruction import PtxModule

FOLDER = Path(__file__).parent / "kernels"
ARCH = "sm_90a"
RUNG, RUNG_SIZE = "wgmma-specialized", 512
"""The rung of the ladder that stands for TMA and wgmma, and the extents of its problem."""

Array = NDArray[Any]


@dataclass(frozen=True)
class EmulatedKernel:
    """One launch, ready to be emulated again and again.

    Attributes:
        name: of the kernel.
        module: its PTX, parsed.
        spec: the launch; it names its operands.
        operands: content of the buffers before the launch.
        accesses: which of them are written.
        expected: what each of some buffers holds afterwards.
        tolerance: of the largest difference, relative to the largest expected value.
    """

    name: str
    module: PtxModule
    spec: LaunchSpec
    operands: Mapping[str, Array]
    accesses: Mapping[str, Access]
    expected: Mapping[str, Array] = field(default_factory=dict)
    tolerance: float = 1e-4

    def run(self, checks: frozenset[str], *, interpreted: bool = False) -> EmulationReport:
        """Emulate the launch once, on copies of the buffers.

        Args:
            checks: names of the checks that are made.
            interpreted: as of `emulate`.

        Raises:
            AssertionError: the result is wrong.
        """
        operands = {name: array.copy() for name, array in self.operands.items()}
        report = emulate(
            self.module, self.spec, operands, accesses=self.accesses, arch=ARCH, checks=checks, interpreted=interpreted
        )
        for name, wanted in self.expected.items():
            found = operands[name].astype(np.float64)
            worst = np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30)
            assert worst <= self.tolerance, f"{self.name}: {name} differs from NumPy by {worst:.2g}"
        return report


def names() -> list[str]:
    """The kernels in the order of the table."""
    return list(_KERNELS)


def emulated_kernel(name: str) -> EmulatedKernel:
    """One kernel of the suite, compiled."""
    return _KERNELS[name]()


def _random(*shape: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def _of_file(
    name: str,
    grid: Dim3,
    block: Dim3,
    arguments: tuple[Argument, ...],
    operands: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    shared_bytes: int = 0,
    tolerance: float = 1e-4,
) -> EmulatedKernel:
    from warptile.runtime.kernel_file import read_kernel

    kernel = read_kernel(FOLDER / f"{name}.cu", ARCH)
    accesses = {
        each: Access(writes=True, complete=Rows(1, operands[each].size, operands[each].itemsize, operands[each].nbytes))
        for each in expected
    }
    spec = LaunchSpec(kernel.entry, grid, block, arguments, dynamic_shared_bytes=shared_bytes)
    return EmulatedKernel(name, kernel.module, spec, operands, accesses, expected, tolerance)


def _reduction() -> EmulatedKernel:
    count = 1 << 20
    x = _random(count)
    return _of_file(
        "reduction", (64, 1, 1), (256, 1, 1), (Pointer("x"), Pointer("total"), Scalar("s32", count)),
        {"x": x, "total": np.zeros(1, np.float32)}, {"total": x.sum(dtype=np.float64, keepdims=True)},
    )  # fmt: skip


def _softmax() -> EmulatedKernel:
    rows, columns = 256, 1024
    x = _random(rows, columns)
    powers = np.exp(x.astype(np.float64))
    return _of_file(
        "softmax", (rows, 1, 1), (256, 1, 1), (Pointer("x"), Pointer("y"), Scalar("s32", columns)),
        {"x": x, "y": np.zeros_like(x)}, {"y": powers / powers.sum(axis=1, keepdims=True)}, shared_bytes=4 * columns,
    )  # fmt: skip


def _sgemm() -> EmulatedKernel:
    m, n, k = 256, 256, 256
    a, b = _random(m, k), _random(k, n)
    return _of_file(
        "sgemm", (n // 64, m // 64, 1), (128, 1, 1),
        (Pointer("a"), Pointer("b"), Pointer("c"), Scalar("s32", n), Scalar("s32", k)),
        {"a": a, "b": b, "c": np.zeros((m, n), np.float32)}, {"c": a.astype(np.float64) @ b},
    )  # fmt: skip


def _attention() -> EmulatedKernel:
    heads, length, width = 4, 256, 64
    generator = np.random.default_rng(2)
    q, k, v = (generator.standard_normal((heads, length, width)).astype(np.float32) for _ in range(3))
    scores = np.exp(q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) / 8)
    return _of_file(
        "attention", (length // 64, heads, 1), (64, 1, 1),
        (Pointer("q"), Pointer("k"), Pointer("v"), Pointer("o"), Scalar("s32", length)),
        {"q": q, "k": k, "v": v, "o": np.zeros_like(q)}, {"o": scores / scores.sum(axis=2, keepdims=True) @ v},
    )  # fmt: skip


def _wmma() -> EmulatedKernel:
    m, n, k = 256, 256, 256
    a, b = _random(m, k, dtype=np.float16), _random(k, n, dtype=np.float16)
    return _of_file(
        "wmma", (n // 64, m // 64, 1), (128, 1, 1),
        (Pointer("a"), Pointer("b"), Pointer("d"), Scalar("s32", n), Scalar("s32", k)),
        {"a": a, "b": b, "d": np.zeros((m, n), np.float32)}, {"d": a.astype(np.float64) @ b.astype(np.float64)},
    )  # fmt: skip


def _transpose() -> EmulatedKernel:
    rows, columns = 500, 700
    x = _random(rows, columns)
    return _of_file(
        "transpose", (-(-columns // 32), -(-rows // 32), 1), (32, 8, 1),
        (Pointer("x"), Pointer("y"), Scalar("s32", rows), Scalar("s32", columns)),
        {"x": x, "y": np.zeros((columns, rows), np.float32)}, {"y": x.T}, tolerance=0,
    )  # fmt: skip


def _histogram() -> EmulatedKernel:
    count = 1 << 18
    x = np.random.default_rng(3).integers(0, 256, count, dtype=np.uint8)
    return _of_file(
        "histogram", (16, 1, 1), (256, 1, 1), (Pointer("x"), Pointer("bins"), Scalar("s32", count)),
        {"x": x, "bins": np.zeros(256, np.uint32)}, {"bins": np.bincount(x, minlength=256)}, tolerance=0,
    )  # fmt: skip


def _wgmma() -> EmulatedKernel:
    from warptile.codegen.translation_unit import translation_unit
    from warptile.dtypes import dtype
    from warptile.planning.plan import make_plan
    from warptile.problem import Operand, Problem
    from warptile.ptx import parse
    from warptile.runtime.execute import KERNELS, output_access

    size, half, single = RUNG_SIZE, dtype("float16"), dtype("float32")
    matrix = Operand(half, "row", size, 16)
    problem = Problem(size, size, size, matrix, matrix, None, Operand(single, "row", size, 16), single)
    plan = make_plan(problem, rung=RUNG, arch=ARCH)
    kernel = KERNELS.ptx(translation_unit(plan.kernel), ARCH)
    a, b = _random(size, size, dtype=np.float16), _random(size, size, dtype=np.float16)
    d = np.zeros((size, size), np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    buffers = {"A": a, "B": b, "D": d}
    return EmulatedKernel(
        RUNG, parse(kernel.ptx.decode()), plan.launch(kernel.entry, 1, 0), buffers, {"D": output_access(plan)},
        {"D": expected},
    )  # fmt: skip


_KERNELS: dict[str, Callable[[], EmulatedKernel]] = {
    "reduction": _reduction, "softmax": _softmax, "transpose": _transpose, "histogram": _histogram, "sgemm": _sgemm,
    "attention": _attention, "wmma": _wmma, RUNG: _wgmma,
}  # fmt: skip
