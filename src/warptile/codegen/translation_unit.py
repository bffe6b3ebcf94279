"""From a resolved kernel to one translation unit and the name of the instantiation in it."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa.wrappers.wgmma import wrapper
from warptile.rungs.kernel_spec import KernelSpec, epilogue_source

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


def translation_unit(kernel: KernelSpec) -> Source:
    """The source of a resolved kernel: its template's file and the ``Config`` that instantiates it.

    Headers of element types come first and only when used: they are the slowest part of a compilation. Then come the
    epilogue, and the wrappers of those instructions of which only the ones that are used are written.
    """
    problem = kernel.problem
    used = {kernel.view.problem.a.dtype.cuda, problem.d.dtype.cuda, problem.accumulator.cuda}
    epilogue = epilogue_source(kernel.view.problem)
    if epilogue is not None:
        used |= epilogue.cuda_types
    headers = [f"#include <{header}>" for name, header in TYPE_HEADERS.items() if name in used]
    instance = kernel.instance
    wrappers = ['#include "ptx/wgmma.cuh"', *map(wrapper, instance.instructions)] if instance.instructions else []
    fused = [] if epilogue is None else [epilogue.text()]
    text = "\n".join([*headers, *fused, *wrappers, f'#include "{instance.file}"', instance.text, ""])
    return Source(text, instance.name_expression, instance.may_spill or epilogue is not None)
