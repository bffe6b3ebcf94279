"""The baseline: cuBLASLt, asked for its best algorithms and timed on each.

cuBLASLt multiplies column-major matrices. A row-major D = A B is the column-major D^T = B^T A^T, so B goes in as the
library's first operand and A as its second: with B stored [K, N] neither is transposed ("NN" in BLAS words), with B
stored [N, K] the first is ("TN"), with A stored [K, M] the second is.

Documentation: cuBLAS, "Using the cuBLASLt API". Bindings: nvmath-python, `nvmath.bindings.cublasLt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from warptile.bench.protocol.measurements import ProblemKey
from warptile.errors import UnsupportedError

HEURISTICS = 24
"""How many algorithms the library is asked for; it may return fewer."""

WORKSPACE_BYTES = 64 * 2**20
"""Scratch memory the algorithms may use."""


ALIGNMENT_BYTES = 256
"""Where matrices begin unless something else is said, as the library assumes too."""


@dataclass(frozen=True)
class CublasTypes:
    """cuBLASLt's words for one combination of types (names of its enumerations' members), and whether sums of 8-bit
    floats may be short."""

    compute: str
    scale: str
    operand: str
    out: str
    fast: bool = False


def types_of(key: ProblemKey) -> CublasTypes:
    """cuBLASLt's types for a problem.

    Raises:
        UnsupportedError: cuBLASLt multiplies no such types.
    """
    found = TYPES.get((key.dtype, key.accumulator, key.out))
    if found is None:
        known = ", ".join("/".join(types) for types in TYPES)
        raise UnsupportedError(
            f"baseline: got {key.dtype}/{key.accumulator}/{key.out} (operand/accumulator/out), which has no cuBLASLt "
            f"baseline; it takes {known}, such as a key with dtype='float16', accumulator='float32', out='float16'"
        )
    return found


_F32, _F16, _BF16, _F64 = "CUDA_R_32F", "CUDA_R_16F", "CUDA_R_16BF", "CUDA_R_64F"
TYPES = {
    ("float16", "float32", "float16"): CublasTypes("COMPUTE_32F", _F32, _F16, _F16),
    ("float16", "float32", "float32"): CublasTypes("COMPUTE_32F", _F32, _F16, _F32),
    ("float16", "float16", "float16"): CublasTypes("COMPUTE_16F", _F16, _F16, _F16),
    ("bfloat16", "float32", "bfloat16"): CublasTypes("COMPUTE_32F", _F32, _BF16, _BF16),
    ("bfloat16", "float32", "float32"): CublasTypes("COMPUTE_32F", _F32, _BF16, _F32),
    ("float32", "float32", "float32"): CublasTypes("COMPUTE_32F", _F32, _F32, _F32),
    ("tfloat32", "float32", "float32"): CublasTypes("COMPUTE_32F_FAST_TF32", _F32, _F32, _F32),
    ("float64", "float64", "float64"): CublasTypes("COMPUTE_64F", _F64, _F64, _F64),
    ("int8", "int32", "int32"): CublasTypes("COMPUTE_32I", "CUDA_R_32I", "CUDA_R_8I", "CUDA_R_32I"),
    ("float8_e4m3", "float32", "bfloat16"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _BF16),
    ("float8_e4m3", "float32", "float16"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _F16),
    ("float8_e4m3", "float32", "float32"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _F32),
    ("float8_e4m3", "float32_fast", "bfloat16"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _BF16, fast=True),
    ("float8_e4m3", "float32_fast", "float16"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _F16, fast=True),
    ("float8_e4m3", "float32_fast", "float32"): CublasTypes("COMPUTE_32F", _F32, "CUDA_R_8F_E4M3", _F32, fast=True),
}
"""What cuBLASLt multiplies, by operand, accumulator and output types. Two e5m2 operands are not among it."""

_SCALE_NUMPY = {"CUDA_R_32F": "float32", "CUDA_R_16F": "float16", "CUDA_R_64F": "float64", "CUDA_R_32I": "int32"}


@dataclass(frozen=True)
class CublasLayout:
    """One matrix as cuBLASLt sees it: column-major, ``rows`` by ``columns``."""

    rows: int
    columns: int
    leading_dimension: int


def layouts(key: ProblemKey) -> tuple[CublasLayout, CublasLayout, CublasLayout]:
    """The library's first operand (our B), second operand (our A) and result, each as stored."""
    first = CublasLayout(key.k, key.n, key.k) if key.b_major == "col" else CublasLayout(key.n, key.k, key.n)
    second = CublasLayout(key.m, key.k, key.m) if key.a_major == "col" else CublasLayout(key.k, key.m, key.k)
    return first, second, CublasLayout(key.n, key.m, key.n)


def transposes(key: ProblemKey) -> tuple[bool, bool]:
    """Whether the library transposes its first operand (our B) and its second (our A)."""
    return key.b_major == "col", key.a_major == "col"


class CublasLt:
    """cuBLASLt on the current device. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        try:
            from nvmath.bindings import cublas, cublasLt
        except ImportError as error:
            raise UnsupportedError(
                "baseline cublaslt: nvmath-python is not installed; pip install 'warptile[bench]' adds it"
            ) from error
        self._lt: Any = cublasLt
        self._compute: Any = cublas.ComputeType
        self._handle: int = cublasLt.create()

    @property
    def version(self) -> str:
        """The library's version, such as ``cublasLt 13.1.0``."""
        number = int(self._lt.get_version())
        return f"cublasLt {number // 10000}.{number // 100 % 100}.{number % 100}"

    def close(self) -> None:
        """Give the handle back."""
        if self._handle:
            self._lt.destroy(self._handle)
            self._handle = 0

    def __enter__(self) -> CublasLt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def product(self, key: ProblemKey, alignment_bytes: int = ALIGNMENT_BYTES) -> CublasLtMatmul:
        """Ask for the algorithms of one problem whose matrices begin at multiples of ``alignment_bytes``.

        Raises:
            UnsupportedError: the library has no algorithm for it.
        """
        return CublasLtMatmul(self._lt, self._compute, self._handle, key, alignment_bytes)


class CublasLtMatmul:
    """One problem with its algorithms, the library's first choice first."""

    def __init__(
        self, lt: Any, compute: Any, handle: int, key: ProblemKey, alignment_bytes: int = ALIGNMENT_BYTES
    ) -> None:
        from nvmath import CudaDataType

        types = types_of(key)
        first, second, result = layouts(key)
        self.key = key
        self._lt = lt
        self._handle = handle
        self._scale = np.array([1, 0], dtype=_SCALE_NUMPY[types.scale])
        self._description = lt.matmul_desc_create(int(compute[types.compute]), int(CudaDataType[types.scale]))
        for attribute, transposed in zip(("TRANSA", "TRANSB"), transposes(key), strict=True):
            if transposed:
                self._set(attribute, 1)  # CUBLAS_OP_T
        if types.fast:
            self._set("FAST_ACCUM", 1)
        operand, out = int(CudaDataType[types.operand]), int(CudaDataType[types.out])
        self._first = lt.matrix_layout_create(operand, first.rows, first.columns, first.leading_dimension)
        self._second = lt.matrix_layout_create(operand, second.rows, second.columns, second.leading_dimension)
        self._result = lt.matrix_layout_create(out, result.rows, result.columns, result.leading_dimension)
        if key.batch > 1:
            for made, layout in ((self._first, first), (self._second, second), (self._result, result)):
                self._set_layout(made, "BATCH_COUNT", key.batch)
                self._set_layout(made, "STRIDED_BATCH_OFFSET", layout.columns * layout.leading_dimension)
        self._algorithms = self._ask(alignment_bytes)

    def _set(self, name: str, number: int) -> None:
        attribute = int(self._lt.MatmulDescAttribute[name])
        value = np.array([number], dtype=self._lt.get_matmul_desc_attribute_dtype(attribute))
        self._lt.matmul_desc_set_attribute(self._description, attribute, value.ctypes.data, value.nbytes)

    def _set_layout(self, layout: int, name: str, number: int) -> None:
        attribute = int(self._lt.MatrixLayoutAttribute[name])
        value = np.array([number], dtype=self._lt.get_matrix_layout_attribute_dtype(attribute))
        self._lt.matrix_layout_set_attribute(layout, attribute, value.ctypes.data, value.nbytes)

    def _ask(self, alignment_bytes: int) -> Any:
        preference = self._lt.matmul_preference_create()
        wanted: dict[str, Any] = {"MAX_WORKSPACE_BYTES": np.array([WORKSPACE_BYTES], dtype=np.uint64)}
        if alignment_bytes != ALIGNMENT_BYTES:
            wanted |= {f"MIN_ALIGNMENT_{name}_BYTES": np.array([alignment_bytes], dtype=np.uint32) for name in "ABCD"}
        for name, value in wanted.items():
            attribute = int(self._lt.MatmulPreferenceAttribute[name])
            self._lt.matmul_preference_set_attribute(preference, attribute, value.ctypes.data, value.nbytes)
        found = np.zeros(HEURISTICS, dtype=self._lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, dtype=np.int32)
        try:
            self._lt.matmul_algo_get_heuristic(
                self._handle, self._description, self._first, self._second, self._result, self._result,
                preference, HEURISTICS, found.ctypes.data, count.ctypes.data,
            )  # fmt: skip
        except self._lt.cuBLASLtError as error:
            raise UnsupportedError(f"baseline: cuBLASLt has no algorithm for {self.key}: {error}") from error
        finally:
            self._lt.matmul_preference_destroy(preference)
        usable = found[: int(count[0])]
        usable = usable[usable["state"] == 0]
        if len(usable) == 0:
            raise UnsupportedError(f"baseline: cuBLASLt returned no algorithm for {self.key}")
        return np.ascontiguousarray(usable)

    def __len__(self) -> int:
        return len(self._algorithms)

    def _algorithm(self, index: int) -> int:
        offset: int = self._algorithms.dtype.fields["algo"][1]
        return int(self._algorithms.ctypes.data) + index * int(self._algorithms.itemsize) + offset

    def name(self, index: int) -> str:
        """The algorithm's number, tile, stages, split of K and cluster, in the library's numbers."""
        words = []
        for label, member in (
            ("algo", "ID"), ("tile", "TILE_ID"), ("stages", "STAGES_ID"), ("splitk", "SPLITK_NUM"),
            ("cluster", "CLUSTER_SHAPE_ID"),
        ):  # fmt: skip
            attribute = int(self._lt.MatmulAlgoConfigAttribute[member])
            value = np.zeros(1, dtype=self._lt.get_matmul_algo_config_attribute_dtype(attribute))
            written = np.zeros(1, dtype=np.uint64)
            self._lt.matmul_algo_config_get_attribute(
                self._algorithm(index), attribute, value.ctypes.data, value.nbytes, written.ctypes.data
            )
            words.append(f"{label} {int(value[0])}")
        return f"heuristic {index}: " + ", ".join(words)

    def launch(self, index: int, a: int, b: int, d: int, workspace: int, stream: int) -> None:
        """D = A B with algorithm ``index``: device addresses of our row-major A, of B and of D, and of the scratch."""
        scale = self._scale.ctypes.data
        self._lt.matmul(
            self._handle, self._description,
            scale, b, self._first, a, self._second,
            scale + self._scale.itemsize, d, self._result, d, self._result,
            self._algorithm(index), workspace, WORKSPACE_BYTES, stream,
        )  # fmt: skip

    def close(self) -> None:
        """Give the descriptions back."""
        for layout in (self._first, self._second, self._result):
            self._lt.matrix_layout_destroy(layout)
        self._lt.matmul_desc_destroy(self._description)


@dataclass(frozen=True)
class FastestAlgorithm:
    """Which algorithm of a product is the fastest: milliseconds of one launch of it and of the first choice, if that
    one works."""

    index: int
    best_ms: float
    first_ms: float | None
    failed: tuple[str, ...]


def fastest(count: int, time_ms: Callable[[int], float]) -> FastestAlgorithm:
    """Time each of ``count`` algorithms; one that fails is left out and named.

    Two passes: all of them, then the best four again in turn, so that a hiccup or the order does not choose.

    Raises:
        UnsupportedError: every algorithm failed.
    """
    times: dict[int, float] = {}
    failed: list[str] = []
    for index in range(count):
        try:
            times[index] = time_ms(index)
        except Exception as error:
            failed.append(f"heuristic {index}: {error}")
    if not times:
        raise UnsupportedError(f"baseline: every algorithm failed: {'; '.join(failed)}")
    for index in sorted(times, key=lambda i: times[i])[:4]:
        times[index] = min(times[index], time_ms(index))
    best = min(times, key=lambda i: times[i])
    return FastestAlgorithm(best, times[best], times.get(0), tuple(failed))
