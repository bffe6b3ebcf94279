"""Empty and tiny GEMMs for the tests of both folders: which cases, their operands, and what the result must be."""

from dataclasses import dataclass

import numpy as np

import warptile as wt
from warptile.arrays.operands import arrange
from warptile.dtypes import DTYPES
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference

TYPES = ("float16", "bfloat16", "float32", "tfloat32", "float64", "float8_e4m3", "float8_e5m2", "int8", "uint8")
EXTENTS = (0, 1, 2, 3, 5, 7, 9, 65, 129, 130)
EMPTY = ((0, 5, 7), (5, 0, 7), (0, 0, 7), (129, 65, 0), (5, 0, 0), (0, 7, 0), (0, 0, 0))
"""M, N, K with every combination of zeros."""

BETAS = (None, 0.0, -2.0)
LAYOUTS = ("row", "col", "gaps", "strided")


@dataclass(frozen=True)
class Case:
    """One GEMM: extents, element type, layouts of A, B and C, beta (None without C), and leading axes."""

    m: int
    n: int
    k: int
    dtype: str
    a_layout: str = "row"
    b_layout: str = "row"
    beta: float | None = None
    batch: tuple[int, ...] = ()

    @property
    def options(self):
        """Keywords of `matmul` beside c and beta."""
        return {"precision": "tf32"} if self.dtype == "tfloat32" else {}

    def operands(self):
        """A, B and C (or None) as NumPy arrays in row-major order."""
        element = DTYPES[self.dtype]
        out = {"int8": "int32", "uint8": "int32", "tfloat32": "float32"}.get(self.dtype, self.dtype)
        out = DTYPES["bfloat16" if out.startswith("float8") else out]
        generator = np.random.default_rng(self.m * 169 + self.n * 13 + self.k)
        a = random_operand((*self.batch, self.m, self.k), element, generator)
        b = random_operand((*self.batch, self.k, self.n), element, generator)
        c = None if self.beta is None else random_operand((*self.batch, self.m, self.n), out, generator)
        return a, b, c

    def check(self, d, a, b, c):
        """Assert that ``d`` (NumPy) is alpha=1 times the product plus beta * C."""
        beta = self.beta or 0
        assert d.shape == (*self.batch, self.m, self.n)
        for index in np.ndindex(*self.batch):
            one = None if c is None else c[index]
            problem = arrange(a[index], b[index], one, beta=beta, **self.options).problem
            expected = reference(problem, a[index], b[index], one, beta=beta)
            ratio = error_ratio(d[index], expected)
            assert is_correct(ratio), (self, index, ratio)


def tiny_cases():
    """Cases in which every two values of any two parameters meet: the orthogonal array of strength two over integers
    modulo 11, whose rows are (i, j, i + j, i + 2j, ...); a parameter with fewer values repeats some."""
    prime = 11

    def value(values, i, j, factor):
        return values[(i + factor * j) % prime % len(values)]

    return [
        Case(
            EXTENTS[i % len(EXTENTS)],
            EXTENTS[j % len(EXTENTS)],
            value(EXTENTS, i, j, 1),
            value(TYPES, i, j, 2),
            value(LAYOUTS, i, j, 3),
            value(LAYOUTS, i, j, 4),
            value(BETAS, i, j, 5),
        )
        for i in range(prime)
        for j in range(prime)
    ]


def laid_out(x, layout):
    """The same numbers in another layout: NumPy or torch."""
    if layout == "row" or x.ndim < 2:
        return x
    if layout == "col":
        return _contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    rows, columns = x.shape[-2:]
    wide = _zeros(x, (*x.shape[:-1], 2 * columns + 3))
    inside = wide[..., 1 : columns + 1] if layout == "gaps" else wide[..., 1 : 2 * columns + 1 : 2]
    if columns and rows:
        inside[...] = x
    return inside


def _contiguous(x):
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


def _zeros(x, shape):
    return np.zeros(shape, x.dtype) if isinstance(x, np.ndarray) else x.new_zeros(shape)


def as_torch(torch, x, device="cpu"):
    """A NumPy array as a tensor of the same type, through its bytes."""
    if x is None:
        return None
    name = {"float8_e4m3fn": "float8_e4m3fn"}.get(x.dtype.name, x.dtype.name)
    words = torch.from_numpy(np.ascontiguousarray(x).view(f"i{x.itemsize}").copy())
    return words.to(device).view(getattr(torch, name))


def as_numpy(torch, tensor):
    """The inverse of `as_torch`."""
    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(words).cpu().numpy().view(str(tensor.dtype).removeprefix("torch."))


def run(case, backend, torch=None, device="cpu", *, planned=True):
    """Multiply with NumPy or with torch, by a plan if ``planned``, else by `matmul`; assert the result.

    Returns:
        The plan, or None.
    """
    a, b, c = case.operands()
    given = (a, b, c) if torch is None else tuple(as_torch(torch, x, device) for x in (a, b, c))
    left, right = laid_out(given[0], case.a_layout), laid_out(given[1], case.b_layout)
    options = {**case.options, "backend": backend}
    if case.beta is not None:
        options["beta"] = case.beta
    plan = wt.plan(left, right, given[2], **options) if planned else None
    d = plan(left, right, given[2]) if plan else wt.matmul(left, right, given[2], **options)
    case.check(d if torch is None else as_numpy(torch, d), a, b, c)
    return plan
