"""``torch.ops.warptile.grouped_mm``: groups of rows with weights of their own, called like ``torch._grouped_mm``.

float16 and bfloat16 on Hopper, and on the emulator, are multiplied in one launch (`warptile.matmul_grouped`), which
reads ``offs`` on the GPU. Of other types, and on other GPUs, every group is a GEMM of its own whose extent is read on
the host: **offsets in GPU memory are waited for** there. Give ``offs`` in host memory where that hurts.

The groups are those of the operand that two-dimensional tensors share, as in torch:

| a | b | groups | result |
|---|---|---|---|
| (M, K) | (G, K, N) | of rows | (M, N) |
| (G, M, K) | (K, N) | of columns | (M, N) |
| (M, K) | (K, N) | of k | (G, M, N) |
| (G, M, K) | (G, K, N) | one matrix each, no ``offs`` | (G, M, N) |

Each of them has gradients that are others of them. Rows and columns behind the last group hold anything, as torch's do:
do not use them, nor gradients of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from warptile.api import matmul
from warptile.errors import DTypeError, ShapeError, UnsupportedError
from warptile.grouped_call import matmul_grouped, takes
from warptile.torch.gradients import below_autograd, is_recorded, recorded, refuse_gradients
from warptile.torch.library import LIBRARY, implement, overload, plain
from warptile.torch.results import result_type, torch_type

_EXAMPLE = "grouped_mm(a, b, torch.tensor([3, 8])) with a of shape (8, K) and b of shape (2, K, N)"


def _shape(a: Any, b: Any, offs: Any, bias: Any) -> tuple[Any, ...]:
    """Shape of the result.

    Raises:
        ShapeError, DTypeError, UnsupportedError: arguments that do not fit each other.
    """
    if bias is not None:
        raise UnsupportedError(
            "bias: grouped_mm adds none, as torch._grouped_mm; leave it out and add it to the result"
        )
    if a.dim() not in (2, 3) or b.dim() not in (2, 3):
        raise ShapeError(
            f"a has shape {tuple(a.shape)} and b has shape {tuple(b.shape)}; each needs two axes or three, such as "
            f"{_EXAMPLE}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"a has shape {tuple(a.shape)} and b has shape {tuple(b.shape)}: the last axis of a ({a.shape[-1]}) must "
            f"equal the second last axis of b ({b.shape[-2]}), such as {_EXAMPLE}"
        )
    if a.dim() == b.dim() == 3:
        if offs is not None or a.shape[0] != b.shape[0]:
            raise ShapeError(
                f"a has shape {tuple(a.shape)} and b has shape {tuple(b.shape)}: with three axes each they are as many "
                f"matrices each, and there are no offs"
            )
        return a.shape[0], a.shape[1], b.shape[2]
    if offs is None or offs.dim() != 1:
        raise ShapeError(
            f"offs: got {None if offs is None else tuple(offs.shape)}; it takes the end of each group, a tensor with "
            f"one axis, such as {_EXAMPLE}"
        )
    if offs.dtype not in (torch.int32, torch.int64):
        raise DTypeError(f"offs: got {offs.dtype}; it takes torch.int32 or torch.int64: offs.int()")
    groups = a.shape[0] if a.dim() == 3 else b.shape[0] if b.dim() == 3 else offs.shape[0]
    if offs.shape[0] != groups:
        raise ShapeError(f"offs: got {offs.shape[0]} ends for {groups} groups; it has one for each, such as {_EXAMPLE}")
    return (groups, a.shape[-2], b.shape[-1]) if a.dim() == b.dim() else (a.shape[-2], b.shape[-1])


def _ranges(offs: Any, extent: int) -> Iterator[slice]:
    """Where each group is, read on the host.

    Raises:
        UnsupportedError: the offsets would have to be waited for while a CUDA graph is captured.
        ShapeError: they do not rise from 0 to at most ``extent``.
    """
    if offs.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnsupportedError(
            "offs: it is on a GPU, and reading it waits for that GPU, which the capture of a CUDA graph does not "
            "allow; give offs.cpu(), made before the capture"
        )
    ends = offs.tolist()
    start = 0
    for end in ends:
        if not start <= end <= extent:
            raise ShapeError(
                f"offs: got {ends}; the ends of groups rise, from 0 to at most {extent}, such as {_EXAMPLE}"
            )
        yield slice(start, end)
        start = end


def _grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    shape = _shape(a, b, offs, bias)
    a, b = plain(a), plain(b)
    if offs is None:
        return matmul(a, b, out_dtype=out_dtype)
    dtype = result_type(a, b, out_dtype)
    extent = a.shape[-1] if a.dim() == b.dim() else shape[a.dim() - 2]
    if takes(a, dtype) and not (a.is_cuda and not offs.is_cuda and torch.cuda.is_current_stream_capturing()):
        return _in_one_launch(a, b, offs, extent, dtype)
    d = a.new_empty(shape, dtype=dtype)
    done = 0
    for group, part in enumerate(_ranges(offs, extent)):
        done = part.stop
        if a.dim() == b.dim():
            matmul(a[:, part], b[part], out=d[group])
        elif b.dim() == 3:
            matmul(a[part], b[group], out=d[part])
        else:
            matmul(a[group], b[:, part], out=d[:, part])
    if a.dim() != b.dim():
        behind = d[done:] if b.dim() == 3 else d[:, done:]
        behind.zero_()
    return d


def _in_one_launch(a: Any, b: Any, offs: Any, extent: int, dtype: Any) -> Any:
    if not offs.is_cuda:
        for _ in _ranges(offs, extent):  # in host memory they are checked
            pass
        offs = offs.to(a.device, non_blocking=True)
    if a.dim() < 3:
        return matmul_grouped(a, b, offs, out_dtype=dtype)
    # Groups of columns are groups of rows of the transposed product.
    return matmul_grouped(b.mT, a.mT, offs, out_dtype=dtype).mT.contiguous()


def _grouped_mm_fake(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    return a.new_empty(_shape(a, b, offs, bias), dtype=result_type(a, b, out_dtype))


class GroupedFunction(torch.autograd.Function):
    """Records a grouped GEMM for backward passes."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, offs: Any, compute: Any) -> Any:
        """``compute()``, which multiplies; it runs with gradients disabled."""
        refuse_gradients(a, "grouped_mm(a.detach(), b.detach(), offs)")
        needed = ctx.needs_input_grad
        ctx.save_for_backward(a if needed[1] else None, b if needed[0] else None, offs)
        ctx.dtype = a.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a and b, each a grouped GEMM."""
        a, b, offs = ctx.saved_tensors
        g = grad.to(ctx.dtype)
        grad_a = GROUPED_MM(g, b.mT, offs) if ctx.needs_input_grad[0] else None
        grad_b = GROUPED_MM(a.mT, g, offs) if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, None, None


_record: Any = super(torch.autograd.Function, GroupedFunction).apply


def _grouped_mm_autograd(keyset: Any, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    def compute() -> Any:
        return below_autograd(GROUPED_MM, keyset, a, b, offs, bias, out_dtype)

    if is_recorded(a, b):
        return recorded(_record, a, b, offs, compute)
    return compute()


def grouped_call(a: Any, b: Any, offsets: Any, out_dtype: Any = None) -> Any:
    """`warptile.matmul_grouped` by the operator."""
    return GROUPED_MM(a, b, offsets, None, torch_type(out_dtype))


GROUPED_MM = overload("grouped_mm")
implement("grouped_mm", _grouped_mm, _grouped_mm_fake)
LIBRARY.impl("grouped_mm", _grouped_mm_autograd, "Autograd", with_keyset=True)
