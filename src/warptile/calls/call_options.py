"""What a caller of `warptile.matmul` says beside the arrays: as bound calls are found by it, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from warptile.arrays.operands import Product, arrange
from warptile.arrays.options import beta_of, flag, number, scale_factor, tunables, whole_number
from warptile.arrays.packed_operands import stored
from warptile.epilogue.epilogue_program import Program
from warptile.planning.plan import takes_column_major_a
from warptile.rungs import rung as rung_named
from warptile.runtime.execute import Backend, choose_backend
from warptile.torch_route import SAID

OPTIONS = (
    "alpha", "beta", "out_dtype", "accumulate", "precision", "epilogue", "scale_a", "scale_b", "rung", "config",
    "max_sms", "backend", "batch_invariant",
)  # fmt: skip
"""Keywords of `matmul` that are no arrays, in the order of the tuple that its calls are found by."""


_UNSAID = {"alpha": 1, "batch_invariant": False}


def options_of(**given: Any) -> tuple[Any, ...]:
    """The tuple that a call of `matmul` with these keywords is found by; what is not given is as by default."""
    return tuple(given.get(name, _UNSAID.get(name)) for name in OPTIONS)


def said_of(**given: Any) -> tuple[Any, ...]:
    """The same of a call with an epilogue, which is found by its identity and operands too."""
    return tuple(given.get(name, _UNSAID.get(name)) for name in SAID)


@dataclass(frozen=True)
class CallOptions:
    """What a caller says beside the arrays, checked.

    Attributes:
        alpha: factor of the product, with the scales of float8 operands in it.
        beta: factor of C.
        beta_given: it was given; else it follows from whether there is a C.
        out_dtype, accumulate, precision, rung, max_sms, batch_invariant: as given.
        config: names and whole numbers, or None.
        backend: where it runs.
    """

    alpha: float
    beta: float
    beta_given: bool
    out_dtype: Any
    accumulate: Any
    precision: str | None
    rung: str | None
    config: dict[str, int] | None
    max_sms: int | None
    backend: Backend
    batch_invariant: bool

    @staticmethod
    def checked(
        a: Any, c: Any, alpha: Any, beta: Any, scale_a: Any, scale_b: Any, out_dtype: Any, accumulate: Any,
        precision: Any, rung: Any, config: Any, max_sms: Any, backend: Any, batch_invariant: Any,
    ) -> CallOptions:  # fmt: skip
        """The arguments of `matmul`, each in one form. What depends on other operands is checked by `arrange`."""
        left = stored(a)
        scale = scale_factor(scale_a, "scale_a", left) * scale_factor(scale_b, "scale_b", left)
        if rung is not None:
            rung_named(rung)
        return CallOptions(
            number(alpha, "alpha") * scale, beta_of(beta, c), beta is not None, out_dtype, accumulate, precision, rung,
            tunables(config, rung), whole_number(max_sms, "max_sms"), choose_backend(backend, left),
            flag(batch_invariant, "batch_invariant"),
        )  # fmt: skip

    def arranged(
        self, a: Any, b: Any, c: Any, out: Any, *, copy: bool = True, program: Program | None = None,
        operands: Mapping[str, Any] | None = None,
    ) -> Product:  # fmt: skip
        """The operands in layouts that the rung takes, or the one that the plan will choose."""
        product = arrange(
            a, b, c, out, alpha=self.alpha, beta=self.beta, out_dtype=self.out_dtype, accumulate=self.accumulate,
            precision=self.precision, copy=copy, program=program, operands=operands,
        )  # fmt: skip
        if self.batch_invariant:
            product = replace(product, problem=replace(product.problem, batch_invariant=True))
        problem = product.problem
        if problem.a.major == "row" or takes_column_major_a(problem, self.rung, self.backend.device):
            return product
        return product.with_row_major_a(copy=copy)
