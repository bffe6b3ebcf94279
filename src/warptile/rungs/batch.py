"""Kernels that take a batch in one launch of CTAs, each with a tile of one matrix (kernels/tile/batch.cuh)."""

from __future__ import annotations

from dataclasses import replace

from warptile.launch.params import Field, Params, Scalar
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Instance, KernelSpec, gemm_members


def batch_members(seen: Problem) -> tuple[tuple[str, Field], ...]:
    """Members of ``BatchStrides``, of a problem as the kernel sees it: storage units from one matrix to the next."""

    def stride(operand: Operand | None) -> Scalar:
        units = operand.batch_stride // max(1, 8 // operand.dtype.bits) if operand is not None else 0
        return Scalar("s64", units)

    operands = {"a": seen.a, "b": seen.b, "c": seen.c, "d": seen.d}
    return tuple((f"strides.{name}", stride(operand)) for name, operand in operands.items())


def with_batch(instance: Instance, seen: Problem) -> Instance:
    """The instance for a problem as the kernel sees it. Those of batches are compiled apart."""
    values = {**dict(instance.values), "BATCHED": seen.batch > 1}
    return replace(instance, values=tuple(values.items()))


def for_batches(one: KernelSpec) -> KernelSpec:
    """The launch of a kernel whose parameters are those of every GEMM, then ``BatchStrides``."""
    seen = one.view.problem
    members = (*gemm_members(one.view), *batch_members(seen))
    return replace(one, instance=with_batch(one.instance, seen), params=Params(members))
