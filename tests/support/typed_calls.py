"""A user's functions with types: `make check` has mypy --strict read them, and tests call them."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

import warptile as wt

Matrix = npt.NDArray[np.float32]


def gated(acc: object) -> object:
    """An epilogue of two columns of the product."""
    up, gate = wt.halves(acc)
    return up * gate


def plans(a: Matrix, b: Matrix, scales: Matrix) -> dict[str, wt.MatmulPlan]:
    """A plan of each kind under the one type that a program names."""
    small: npt.NDArray[np.int8] = a.astype(np.int8)
    found: dict[str, wt.MatmulPlan] = {
        "one GEMM": wt.plan(a, b, backend="emulator"),
        "two GEMMs": wt.plan(a, b, epilogue=gated, backend="emulator"),
        "scales": wt.plan(small, b.astype(np.int8), scale_a=scales, backend="emulator"),
        "no element": wt.plan(a[:0], b, backend="emulator"),
        "nothing multiplied": wt.plan(a[:, :0], b[:0], backend="emulator"),
    }
    return found


def described(held: Iterable[wt.MatmulPlan]) -> list[tuple[int, int, int, str, int]]:
    """What all plans say of themselves."""
    return [
        (each.problem.m, each.problem.n, each.problem.k, each.backend.name, len(each.explain().splitlines()))
        for each in held
    ]


def repeated(held: wt.MatmulPlan, a: Matrix, b: Matrix) -> Matrix:
    """A plan is a function of arrays."""
    multiply: Callable[[Matrix, Matrix], Matrix] = held
    return multiply(a, b)
