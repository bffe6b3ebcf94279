"""wgmma-dequantized: quantized weights for many rows, written out by a pass before wgmma-final."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Field, Params, Pointer
from warptile.launch.tensor_map import TensorMap
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.legality import operand_reason
from warptile.rungs.operand_dequantization import Dequantization
from warptile.rungs.rung import Extents
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.final import WGMMA_FINAL, WgmmaFinal


class WgmmaDequantized(WgmmaFinal):
    """wgmma-final behind the dequantizing pass: plans take it where that is predicted to be faster than dequantizing
    in registers, which is done again for each tile of rows."""

    name = "wgmma-dequantized"
    idea = "4- and 8-bit weights, dequantized once by a pass before the GEMM"
    previous = "wgmma-quantized"
    dtypes = ("bfloat16", "float16")
    quantized = True
    competes = True
    batches = False
    template = WGMMA_FINAL.template
    file = WGMMA_FINAL.file

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`."""
        return super().default_config(dense(problem), device)

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return super().candidates(dense(problem), device)

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.alternatives`."""
        return super().alternatives(dense(problem), device)

    def kernel_examples(self, like: Problem, device: DeviceLimits = REFERENCE) -> tuple[tuple[Problem, Config], ...]:
        """None: the kernels are those of wgmma-final."""
        return ()

    def adapt(
        self, problem: Problem, config: Config, tuned_for: Extents, device: DeviceLimits = REFERENCE,
        tuned_on: DeviceLimits = REFERENCE,
    ) -> Config:  # fmt: skip
        """As `Rung.adapt`."""
        return super().adapt(dense(problem), config, tuned_for, device, tuned_on)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return super().estimate_us(dense(problem), config, device)

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return super().estimate_terms_us(dense(problem), config, device)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, ("float32",), ("row", "col"), quantized=True)
        reason = reason or super().illegal(dense(problem), config, device)
        if reason is not None:
            return reason
        view = tiles.view(dense(problem), config)
        if view.repacks or view.fused_repacks:
            return (
                f"rows of A are aligned to {problem.a.alignment_bytes} bytes and would be repacked by a pass of their "
                "own: align them to 16, such as a.contiguous() with K a multiple of 8, or take rung='wgmma-quantized'"
            )
        return None

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        kernel = super().resolve(dense(problem), config, device)
        made = _dequantization(problem)
        view = kernel.view
        names = {"B": made.target}
        view = replace(view, a=names.get(view.a, view.a), b=names.get(view.b, view.b), dequantizations=(made,))
        members = tuple((name, _of(field, names)) for name, field in kernel.params.members)
        return replace(kernel, problem=problem, view=view, params=Params(members))


def dense(problem: Problem) -> Problem:
    """The problem with dequantized weights."""
    if problem.b.quantized is None:
        return problem
    return replace(problem, b=Operand(problem.b.dtype, "col", _dequantization(problem).target_stride))


def _dequantization(problem: Problem) -> Dequantization:
    assert problem.b.quantized is not None, problem
    return Dequantization("B", problem.n, problem.k, problem.b.quantized, problem.b.dtype)


def _of(field: Field, names: dict[str, str]) -> Field:
    """A member that names other memory."""
    if isinstance(field, Pointer | TensorMap) and field.operand in names:
        return replace(field, operand=names[field.operand])
    return field


WGMMA_DEQUANTIZED = WgmmaDequantized()
"""4- and 8-bit weights for many rows."""
