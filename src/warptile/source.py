"""From a rung, a problem and a configuration to one translation unit and the kernel in it to instantiate."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa.wgmma_wrappers import wrapper
from warptile.problem import Problem
from warptile.rungs.rung import Config, Rung

TYPE_HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
"""CUDA's header of each storage type that is not built into the language."""


@dataclass(frozen=True)
class Source:
    """What the compiler is given.

    Attributes:
        text: CUDA C++; its headers are found in CUDA's include folder and in the package's ``kernels`` folder.
        name_expression: the C++ name of the kernel's instantiation, for NVRTC's name expressions.
        may_spill: a spill is part of this kernel's lesson, and no build failure.
        may_serialise: what ptxas says of wgmma that it serialises, or of a setmaxnreg that it ignores, is none either.
    """

    text: str
    name_expression: str
    may_spill: bool = False
    may_serialise: bool = False


def translation_unit(rung: Rung, problem: Problem, config: Config) -> Source:
    """The source of ``rung`` for ``problem`` in ``config``, which must be legal (``rung.illegal`` returns None).

    Headers of element types come first and only when used: they are the slowest part of a compilation. Then come the
    wrappers of those instructions of which only the ones that are used are written.
    """
    used = {problem.a.dtype.cuda, problem.d.dtype.cuda, problem.accumulator.cuda}
    headers = [f"#include <{header}>" for name, header in TYPE_HEADERS.items() if name in used]
    instructions = rung.instructions(problem, config)
    wrappers = ['#include "ptx/wgmma.cuh"', *map(wrapper, instructions)] if instructions else []
    text = "\n".join([*headers, *wrappers, f'#include "{rung.file}"', ""])
    return Source(text, rung.name_expression(problem, config), rung.may_spill)
