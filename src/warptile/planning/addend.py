"""D = beta * C: what is left of D = alpha * A @ B + beta * C where K or alpha is zero; and a result without elements.

A and B are no parameters of this launch: an empty array may have a null pointer, and with alpha = 0 BLAS does not read
them. No rung is planned for it, and tensor maps (which cannot describe an empty tensor) are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from warptile.device import DeviceLimits
from warptile.launch.params import Params, Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.planning.explanation import headline, labelled
from warptile.problem import Problem
from warptile.rungs.kernel_spec import SCALE_TYPE, Instance, KernelSpec, View, epilogue_members

FILE = "simt/addend.cuh"
THREADS = 256
MAX_CTAS = 4096
"""Most CTAs of a launch: many times the SMs of a GPU; beyond that, a thread computes several groups."""

GROUP_BYTES, LARGEST_GROUP = 16, 8
"""Bytes of D that a thread stores at once, and the most elements of them."""

_CUDA_SCALE = {"f32": "float", "f64": "double", "s32": "int"}


@dataclass(frozen=True)
class Addend:
    """The launch that makes D of C alone.

    Attributes:
        problem: what is computed; its A and B are never read.
        device: the GPU, or the part of it that the launch may occupy.
    """

    problem: Problem
    device: DeviceLimits

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    @cached_property
    def kernel(self) -> KernelSpec:
        """All that a launch needs."""
        problem = self.problem
        c, d, accumulator = problem.c, problem.d, problem.accumulator.name
        scale = SCALE_TYPE[accumulator]
        size = d.dtype.bits // 8
        width = min(GROUP_BYTES // size, LARGEST_GROUP)
        groups = problem.m * -(-problem.n // width) * problem.batch
        return KernelSpec(
            problem,
            {},
            View(problem),
            Instance(
                FILE,
                "addend",
                (
                    ("SCALE", _CUDA_SCALE[scale]),
                    ("OUT", d.dtype.cuda),
                    *((("EPILOGUE", "Epilogue"),) if problem.epilogue is not None else ()),
                ),
                (
                    ("SATURATED", accumulator == "int32_saturating"),
                    ("THREADS", THREADS),
                    ("WIDTH", width),
                    ("ALIGNED", d.alignment_bytes >= width * size),
                ),
            ),
            grid=(min(-(-groups // THREADS), MAX_CTAS, self.device.max_ctas or MAX_CTAS), 1, 1),
            block=(THREADS, 1, 1),
            params=Params(
                (
                    *epilogue_members(problem),
                    ("c", Pointer(None if c is None else "C")),
                    ("d", Pointer("D")),
                    ("m", Scalar("s32", problem.m)),
                    ("n", Scalar("s32", problem.n)),
                    ("batch", Scalar("s32", problem.batch)),
                    ("ldc", Scalar("s64", 0 if c is None else c.leading_dimension)),
                    ("ldd", Scalar("s64", d.leading_dimension)),
                    ("batch_stride_c", Scalar("s64", 0 if c is None else c.batch_stride)),
                    ("batch_stride_d", Scalar("s64", d.batch_stride)),
                    ("beta", Scalar(scale, 0)),
                )
            ),
        )

    def launch(
        self, entry: str, alpha: float = 1, beta: float = 0, numbers: Mapping[str, float] | None = None
    ) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``; alpha plays no part.

        Raises:
            DTypeError: beta is not a whole number of 32 bits and the accumulator is an integer.
        """
        return self.kernel.launch(entry, 0, 0 if self.problem.c is None else beta, numbers)

    @property
    def computed(self) -> str:
        """What is computed, in a line."""
        problem = self.problem
        shape = f"D[{problem.m}, {problem.n}]"
        times = f", {problem.batch} times" if problem.batch > 1 else ""
        value = "0" if problem.c is None else f"beta * C[{problem.m}, {problem.n}]"
        return f"{shape} = {value}, {problem.d.dtype.name}, computed in {problem.accumulator.name}{times}"

    def explain(self) -> str:
        """What is computed, and by which launch, as readable text."""
        fused = self.problem.epilogue
        return "\n".join(
            [
                headline(self.computed),
                *([] if fused is None else [labelled("epilogue", str(fused))]),
                labelled("kernel", "addend: K or alpha is 0, so there is no A @ B; A and B are not read"),
                labelled("launch", f"{self.kernel.ctas} CTAs of {THREADS} threads, {self.arch}"),
            ]
        )


@dataclass(frozen=True)
class Nothing:
    """A result without an element: there is nothing to launch.

    Attributes:
        problem: one matrix of the batch.
        result_shape: shape of the result as the caller sees it.
    """

    problem: Problem
    result_shape: tuple[int, ...]

    @property
    def computed(self) -> str:
        """What is computed, in a line."""
        return f"D has shape {self.result_shape} and no element"

    def explain(self) -> str:
        """What is computed, as readable text."""
        return headline(f"{self.computed}: nothing is launched")
