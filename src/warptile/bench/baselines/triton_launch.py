"""A Triton kernel with a GEMM's arguments that does next to nothing: what Triton's launcher costs the host.

Importing this needs Triton.
"""

from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _first_row(a, b, d, m, n, k, a_stride, b_stride, d_stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of the first rows of A and B, as far as a block reaches."""
    columns = tl.arange(0, BLOCK)
    inside = (columns < n) & (columns < k) & (m > 0)
    tl.store(d + columns, tl.load(a + columns, inside) + tl.load(b + columns, inside), inside)


def empty_gemm(a: Any, b: Any, d: Any) -> None:
    """Launch one CTA on torch tensors (M, K), (K, N) and (M, N), with the arguments that a GEMM has."""
    (m, k), n = a.shape, b.shape[1]
    _first_row[(1,)](a, b, d, m, n, k, a.stride(0), b.stride(0), d.stride(0), BLOCK=64)
