"""The source of triton_softmax.ptx (Triton 3.6.0, target sm_90, 4 warps, BLOCK 1024)."""

import triton
import triton.language as tl


@triton.jit
def softmax(out, x, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + column, mask=column < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + column, (e / tl.sum(e, 0)).to(out.dtype.element_ty), mask=column < n)
