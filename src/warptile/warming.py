"""`warptile.warm`: kernels compiled ahead of time, so that first calls need not wait for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from numbers import Integral
from typing import Any

from warptile.api import plan as plan_of
from warptile.arrays.operands import OUTPUTS
from warptile.arrays.options import element_named, whole_number
from warptile.calls.matmul_plan import MatmulPlan
from warptile.device import KNOWN, DeviceLimits
from warptile.device import usual as usual_device
from warptile.dtypes import DType, dtype
from warptile.errors import ArgumentError, ArgumentTypeError, DTypeError, NoDeviceError, UnsupportedError
from warptile.planning.addend import Addend, Nothing
from warptile.planning.plan import Plan
from warptile.planning.shipped_kernels import shipped_dtypes, shipped_plans
from warptile.problem import Problem
from warptile.runtime.compile_ahead import Progress, WarmReport, compile_ahead
from warptile.runtime.execute import has_gpu, planned

MAJORS = ("row", "col")
EXAMPLE = "warptile.warm([(4096, 14336, 4096)], dtypes=['bfloat16'])"


@dataclass(frozen=True)
class Target:
    """What is compiled for.

    Attributes:
        device: the GPU's limits.
        gpu: its model, whose tuned configurations count.
    """

    device: DeviceLimits
    gpu: str | None


def warm(
    problems: Iterable[Any] | None = None,
    *,
    dtypes: Any = None,
    out_dtype: Any = None,
    a_major: str = "row",
    b_major: str = "row",
    with_c: bool = False,
    arch: str | None = None,
    device: str | int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> WarmReport:
    """Compile kernels into the cache on disk, in parallel, so that neither this process nor a later one waits for them.

    Without ``problems``, the kernels that the shipped plans use on this GPU; else those that `matmul` will use for
    each problem, repacking passes included. Nothing is computed, and no GPU is needed where ``arch`` or ``device``
    says what to compile for. An interrupt loses only the compilations that are under way.

    Args:
        problems: each one a shape (M, N, K); or arrays (a, b) or (a, b, c) as `matmul` takes them; or a plan of
            `warptile.plan`, which has all other options.
        dtypes: types of A and B: one, or several, as names or frameworks' dtypes. Of the shipped kernels, all by
            default; needed with shapes; not with arrays and plans.
        out_dtype: type of D, for shapes; by default that of `matmul`.
        a_major: ``"row"`` for A as (M, K) in row-major order, ``"col"`` for the transpose of such a (K, M), for
            shapes.
        b_major: the same of B: (K, N), or the transpose of an (N, K), as weights of a linear layer usually are.
        with_c: C is added (beta is not zero), for shapes.
        arch: architecture to compile for, such as ``"sm_90a"``: for the reference GPU of that architecture.
            ``WARPTILE_ARCH`` stands in for it where there is no GPU.
        device: model of a GPU, such as ``"NVIDIA H100 PCIe"``, or the CUDA ordinal of one that is here. By default the
            GPU that is here.
        jobs: compilations at a time, one for each core by default.
        progress: called after each kernel with the number that is done, the number of all, and a `WarmKernel`.

    Returns:
        The kernels that were compiled, found in the cache, and failed.

    Raises:
        ArgumentError: ``arch`` and ``device`` both, shapes without ``dtypes``, ``jobs`` or an extent below 1.
        ArgumentTypeError: a problem that is none of these, or an argument of the wrong type.
        DTypeError: no such type, or one that `matmul` does not multiply.
        UnsupportedError: no such architecture or GPU model, a problem that no kernel takes, or a cache that cannot be
            written to.
        NoDeviceError: there is no GPU, and neither ``arch`` nor ``device`` says what to compile for.
        WarptileError: of arrays, as `matmul`.
    """
    count = whole_number(jobs, "jobs")
    for name, major in (("a_major", a_major), ("b_major", b_major)):
        if major not in MAJORS:
            raise ArgumentError(f"{name}: got {major!r}; it takes 'row' or 'col', such as {name}='col'")
    elements = _elements(dtypes)
    out = element_named(out_dtype, "out_dtype")
    target = target_of(arch, device)
    if problems is None:
        if out is not None or (a_major, b_major, with_c) != ("row", "row", False):
            raise ArgumentError(f"out_dtype, a_major, b_major and with_c describe shapes; give them, such as {EXAMPLE}")
        return compile_ahead(_shipped(target.device, elements), target.device, count, progress)
    given = list(_each(problems))
    if elements is None and any(_is_shape(each) for each in given):
        raise ArgumentError(f"dtypes: shapes need the type of their operands, such as {EXAMPLE}")
    plans: list[Plan | Addend] = []
    for each in given:
        if _is_shape(each):
            m, n, k = map(int, each)
            for element in elements or ():
                problem = _problem(m, n, k, element, out, a_major, b_major, with_c)
                plans.append(planned(problem, target))
        else:
            plans += _of_arrays(each, target)
    return compile_ahead(plans, target.device, count, progress)


def target_of(arch: str | None, device: str | int | None) -> Target:
    """What to compile for.

    Raises:
        ArgumentError, ArgumentTypeError, UnsupportedError, NoDeviceError: as `warm`.
    """
    if arch is not None and device is not None:
        raise ArgumentError("arch and device were given; give one of them, such as warptile.warm(arch='sm_90a')")
    if isinstance(device, str):
        if device not in KNOWN:
            near = get_close_matches(device, KNOWN, n=1, cutoff=0.3)
            raise UnsupportedError(
                f"device: got {device!r}; {f'did you mean {near[0]!r}?' if near else f'it takes {list(KNOWN)}'}"
            )
        return Target(KNOWN[device], device)
    if arch is None and device is None and not has_gpu():
        arch = os.environ.get("WARPTILE_ARCH") or None
        if arch is None:
            raise NoDeviceError(
                "there is no NVIDIA GPU with a driver here; say what to compile for, such as "
                "warptile.warm(arch='sm_90a') or `warptile cache warm --arch sm_90a`"
            )
    if arch is not None:
        if not isinstance(arch, str):
            raise ArgumentTypeError(f"arch: got {arch!r}; it takes a name, such as arch='sm_90a'")
        found = usual_device(arch)
        return Target(found, found.name)
    if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
        raise ArgumentTypeError(f"device: got {device!r}; it takes a model or an ordinal, such as device='NVIDIA H200'")
    if not has_gpu():
        raise NoDeviceError(
            f"device={device}: there is no NVIDIA GPU with a driver here; name a model, such as device='NVIDIA H200'"
        )
    from warptile.gpu import driver

    info = driver.device_info(device)
    return Target(info.limits, info.name)


def _elements(dtypes: Any) -> tuple[DType, ...] | None:
    """The operand types that were named, each once."""
    if dtypes is None:
        return None
    several = dtypes if isinstance(dtypes, (list, tuple, set, frozenset)) else (dtypes,)
    found = dict.fromkeys(element_named(each, "dtypes") for each in several)
    elements = tuple(each for each in found if each is not None)
    for each in elements:
        if each.name not in OUTPUTS:
            raise DTypeError(f"dtypes: matmul does not multiply {each.name}; it takes {', '.join(OUTPUTS)}")
    if not elements:
        raise ArgumentError("dtypes: got no type; leave it out for all, or name some, such as dtypes=['bfloat16']")
    return elements


def _shipped(device: DeviceLimits, elements: tuple[DType, ...] | None) -> Iterator[Plan]:
    missing = sorted(each.name for each in elements or () if each not in shipped_dtypes())
    if missing:
        known = ", ".join(each.name for each in shipped_dtypes())
        raise UnsupportedError(
            f"dtypes: no kernels ship for {', '.join(missing)}, only for {known}; name problems, such as "
            f"{EXAMPLE.replace('bfloat16', missing[0])}"
        )
    return shipped_plans(device, elements)


def _each(problems: Any) -> Iterator[Any]:
    """The problems, one by one."""
    if isinstance(problems, MatmulPlan) or not isinstance(problems, Iterable) or _is_shape(problems):
        raise ArgumentTypeError(f"problems: got {problems!r}; it takes a list of them, such as {EXAMPLE}")
    yield from problems


def _is_shape(given: Any) -> bool:
    """Whether this is (M, N, K)."""
    return isinstance(given, Sequence) and len(given) == 3 and all(isinstance(each, Integral) for each in given)


def _problem(
    m: int, n: int, k: int, element: DType, out: DType | None, a_major: str, b_major: str, with_c: bool
) -> Problem:
    for name, extent in (("M", m), ("N", n), ("K", k)):
        if extent < 1:
            raise ArgumentError(f"problems: {name} of {(m, n, k)} is {extent}; extents are at least 1, as in {EXAMPLE}")
    names = OUTPUTS[element.name]
    if out is not None and out.name not in names:
        raise DTypeError(
            f"out_dtype: got {out.name}; of {element.name} operands it is {' or '.join(names)}, such as "
            f"out_dtype={names[0]!r}"
        )
    return Problem.dense(
        m, n, k, element, out=out or dtype(names[0]), accumulator=dtype(element.accumulators[0]), a_major=a_major,
        b_major=b_major, with_c=with_c,
    )  # fmt: skip


def _of_arrays(given: Any, target: Target) -> list[Plan | Addend]:
    """The plans of the GEMMs of arrays, or of a plan that was made for them, on the target."""
    made = given
    if isinstance(given, tuple) and len(given) in (2, 3):
        made = plan_of(*given, backend=None if has_gpu() else "emulator")
    if not isinstance(made, MatmulPlan):
        raise ArgumentTypeError(
            f"problems: got {given!r}; each one is a shape (M, N, K), arrays (a, b) or a plan, such as {EXAMPLE}"
        )
    return [_on_target(each.chosen, target) for each in made.gemms if not isinstance(each.chosen, Nothing)]


def _on_target(chosen: Plan | Addend, target: Target) -> Plan | Addend:
    """What was chosen for one GPU, as it is chosen for the target."""
    if isinstance(chosen, Addend):
        return replace(chosen, device=target.device)
    if chosen.device == target.device:
        return chosen
    rung, config = (chosen.rung.name, chosen.config) if chosen.origin == "given" else (chosen.asked, None)
    return planned(chosen.problem, target, rung=rung, config=config, max_sms=chosen.device.max_ctas)
