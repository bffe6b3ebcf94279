"""What `warptile.plan` returns, whatever the call: kernels chosen for arrays of one shape, type and layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from warptile.arrays.batches import batched
from warptile.arrays.jax_arrays import gpu_views
from warptile.calls.binding import bind, bind_fused
from warptile.calls.call_options import CallOptions
from warptile.calls.chosen_kernel import Chosen
from warptile.calls.packed_call import PACKED, PACKED_LEFT, Stored, stored_as
from warptile.calls.plan_fit import check_addend, check_fits, check_operands
from warptile.calls.running import run
from warptile.epilogue.epilogue_program import Program
from warptile.errors import LayoutError, ShapeError
from warptile.planning.addend import Nothing
from warptile.planning.explanation import labelled
from warptile.planning.plan import Plan
from warptile.problem import Problem
from warptile.runtime.execute import Backend
from warptile.torch_route import shown_to_dynamo, traced_plan

if TYPE_CHECKING:
    from warptile.runtime.call_cache import CallCache


class MatmulPlan(ABC):
    """The GEMMs that `warptile.matmul` launches for arrays of one shape, type and layout, chosen once: `warptile.plan`.

    Call it with such arrays again and again; ``print(plan.explain())`` says what was chosen and why. A plan equals no
    other one. Threads may share it, and processes with the same GPU by pickling.
    """

    @property
    @abstractmethod
    def gemms(self) -> tuple[GemmPlan, ...]:
        """What a call launches, in this order: one GEMM, or two with `warptile.halves` and `warptile.pairs`. The last
        one writes the result."""

    @property
    @abstractmethod
    def operands(self) -> tuple[str, ...]:
        """Keywords that each call gives beside ``out``: operands of the epilogue, and scales that were given to the
        plan, unless they are numbers that ``alpha`` takes."""

    @property
    def plan(self) -> Chosen:
        """How the result is computed: problem, rung, configuration and prediction of the last GEMM. An `Addend` where
        nothing is multiplied (K or alpha is 0), `Nothing` where the result has no element."""
        return self.gemms[-1].chosen

    @property
    def problem(self) -> Problem:
        """What a launch computes: M, N, K, types and layouts; of a batch that is not one launch, those of a part."""
        return self.plan.problem

    @property
    def backend(self) -> Backend:
        """Where it runs."""
        return self.gemms[-1].call.backend

    @property
    def copies(self) -> tuple[str, ...]:
        """What has to be copied before a launch, and why."""
        return tuple(dict.fromkeys(each for gemm in self.gemms for each in gemm.copied))

    @abstractmethod
    def explain(self) -> str:
        """The kernel, why it was chosen, what bounds it, what was rejected, and what is copied.

        Returns:
            Lines of text.
        """

    def __repr__(self) -> str:
        rungs = " and ".join(each.chosen.rung.name for each in self.gemms if isinstance(each.chosen, Plan))
        return f"<plan of {self.plan.computed}{rungs and f', by {rungs}'}; print(plan.explain()) says why>"

    @abstractmethod
    def __call__(self, a: Any, b: Any, /, c: Any = None, *, out: Any = None, **operands: Any) -> Any:
        """Multiply arrays like those that the plan was made for.

        Args:
            a, b, c, out: as of `warptile.matmul`.
            operands: what `operands` names; all other options are the plan's.

        Returns:
            As `warptile.matmul`.

        Raises:
            ShapeError: another shape or type than the plan's, a scale is missing, or a ``c`` for a plan that was made
                without.
            LayoutError: another layout, or memory aligned less than the plan's kernel needs.
            EpilogueError: an operand of the epilogue is missing.
            ArgumentTypeError: a keyword that the plan does not take.
        """


@dataclass(frozen=True, eq=False, repr=False)
class GemmPlan(MatmulPlan):
    """A held plan of one GEMM.

    Attributes:
        chosen: problem, rung, configuration, prediction and what was rejected; as `MatmulPlan.plan`.
        batch: leading axes of the result.
        copied: what has to be copied before a launch, and why.
        call: factors, types and backend.
        apart: why one launch does not take the whole batch; None where it does.
        program: the epilogue, or None.
        names: its operands.
        calls: what calls of the plan have bound, by the type of ``a``.
    """

    chosen: Chosen
    batch: tuple[int, ...]
    copied: tuple[str, ...]
    call: CallOptions
    apart: str | None = None
    program: Program | None = None
    names: tuple[str, ...] = ()
    calls: dict[type, CallCache] = field(default_factory=dict)

    @property
    def gemms(self) -> tuple[GemmPlan, ...]:
        """Itself."""
        return (self,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Those of the epilogue."""
        return self.names

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "calls": {}}  # addresses of kernels and machine code, which are this process's

    def explain(self) -> str:
        """As `MatmulPlan.explain`."""
        lines = [self.chosen.explain(), labelled("backend", f"{self.backend.name}, {self.backend.arch}")]
        if self.batch and not isinstance(self.chosen, Nothing):
            count = self.chosen.problem.batch
            each = "each matrix" if count == 1 else f"every {count} matrices"
            launches = "one launch for all" if self.apart is None else f"one launch for {each}: {self.apart}"
            lines.append(labelled("batch", f"{self.batch}: {launches}"))
        lines += [labelled("copy", sentence) for sentence in self.copied]
        return "\n".join(lines)

    def __call__(self, a: Any, b: Any, /, c: Any = None, *, out: Any = None, **epilogue_tensors: Any) -> Any:
        """As `MatmulPlan`."""
        calls = self.calls.get(a.__class__)
        if calls is not None and not epilogue_tensors:
            found = calls.repeat(a, b, c, out, ())
            if found is not None:
                return found
        packed = b.__class__ in PACKED or a.__class__ in PACKED_LEFT
        memory = stored_as(a, b, c, out) if packed else Stored((a, b, c, out))
        calls, beside = self.calls.get(memory.arrays[0].__class__), {**epilogue_tensors, **memory.beside}
        if calls is not None and (beside or self.program is not None):
            found = calls.repeat_fused(memory.arrays, memory.key, None, beside)
            if found is not None:
                return found
        elif calls is not None and packed:
            found = calls.repeat(*memory.arrays, memory.key)
            if found is not None:
                return found
        check_addend(c, self.call.beta, beta_given=self.call.beta_given)
        check_operands(self.operands, epilogue_tensors)
        on_gpu = gpu_views(a, b, c, self.backend.name) if out is None and self.program is None else None
        if on_gpu is not None:
            found = self._called(memory, on_gpu, {}, through_host=False)
            if found is not None:
                return found
        return self._called(memory, (a, b, c), epilogue_tensors)

    def _called(
        self,
        memory: Stored,
        read: tuple[Any, Any, Any],
        operands: Mapping[str, Any],
        *,
        through_host: bool = True,
    ) -> Any:
        """A call that is not bound yet.

        Args:
            memory: the arrays in memory.
            read, through_host: as of `_matmul`.
            operands: the epilogue's.

        Returns:
            As `_matmul`.
        """
        arrays, beside = memory.arrays, {**operands, **memory.beside}
        product = self._fixed.arranged(*read, arrays[3], copy=through_host, program=self.program, operands=operands)
        given = product.problem
        if isinstance(self.chosen, Nothing) and product.batch != self.batch:
            raise ShapeError(
                f"this plan is for a batch of {self.batch} and the arrays are one of {product.batch}; "
                f"make another with warptile.plan(a, b)"
            )
        if self.chosen.problem.batch > 1:
            given, apart = batched(product)
            if apart is not None and given.batch != self.chosen.problem.batch:
                raise LayoutError(
                    f"this plan is for a batch of {self.chosen.problem.batch} in one launch, and {apart}; "
                    f"make another with warptile.plan(a, b)"
                )
        check_fits(self.chosen.problem, given)
        found = None
        if self.program is None and not beside:
            found = bind(self.calls, arrays, memory.key, product, self.chosen, self.call, of_plan=True)
        else:
            found_by = memory.key, None, beside
            bind_fused(self.calls, arrays, found_by, product, self.chosen, self.call, of_plan=True)
        return run(self.chosen, product, self.call) if found is None and through_host else found

    @property
    def _fixed(self) -> CallOptions:
        """The call with the rung that was chosen."""
        return replace(self.call, rung=self.chosen.rung.name) if isinstance(self.chosen, Plan) else self.call


shown_to_dynamo(GemmPlan.__call__, traced_plan)
