"""2:4 structured sparsity: of every four neighbours along K two are stored with their positions; the others are zero.

Tensor cores multiply such weights with ``mma.sp``: A holds only the kept values, half of K, and *metadata* picks the
rows of B that they multiply. 16- and 8-bit types keep 2 of 4, float32 (multiplied as TF32) 1 of 2.

**Metadata** is a nibble for each group. For 2 of 4 it holds the two positions: ``first | second << 2`` with
``first < second``, so one of 0x4, 0x8, 0xC, 0x9, 0xD, 0xE. For 1 of 2 it is 0x4 (the first is kept) or 0xE (the
second). `SparseMatrix.metadata` has a row of bytes for each row of the matrix, group 2i in the low half of byte i,
group 2i + 1 in the high half (PTX ISA, "Matrix multiply-accumulate operation using mma.sp": ordered metadata).

**Packed metadata** is the same in the order of the instruction's operand: for each k-block of 64 dense bytes,
for each 32 rows (16 rows of an 8-bit type), the 32-bit word of each lane. A warp's load is then 128 bytes in a row. It
is also the order of CUTLASS, and so of torch's semi-structured tensors, padded to whole k-blocks and rows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.frameworks import Framework, framework_of
from warptile.arrays.no_operator import NoOperator
from warptile.dtypes import DTYPES, DType
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError

ELEMENTS = ("float16", "bfloat16", "float32", "int8", "uint8", "float8_e4m3", "float8_e5m2")
"""Element types of which ``mma.sp`` has an instruction with 16 x 8 results; float32 goes in as TF32."""

STEP_BYTES = 64
"""Dense bytes of K in one instruction of the largest shape: m16n8k32 of f16, k16 of tf32, k64 of 8-bit types."""

LEGAL = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)
"""Metadata of a group of four, for the kept places (0,1), (0,2), (0,3), (1,2), (1,3), (2,3)."""

LEGAL_OF_TWO = (0x4, 0xE)
PADDING = 0x44
"""Two groups that keep their first positions: padding of metadata outside the matrix."""

METADATA = "metadata of a"
"""What a call knows packed metadata by, beside the operands of its epilogue."""


def group_width(element: DType) -> int:
    """Neighbours of which half are kept: 4, or 2 for 32-bit elements."""
    return 2 if element.bits == 32 else 4


def packed_rows(element: DType) -> int:
    """Rows whose metadata fills one word of each lane: 32, or 16 for 8-bit elements, which have twice the groups."""
    return 16 if element.bits == 8 else 32


def packed_shape(m: int, k: int, element: DType) -> tuple[int, int]:
    """Shape of packed metadata in 32-bit words: (k-blocks, words of a k-block)."""
    return -(-k * element.bits // 8 // STEP_BYTES), -(-m // packed_rows(element)) * 32


@dataclass(frozen=True, eq=False)
class SparseMatrix(NoOperator):
    """An M x K matrix of which half of the elements are stored: what `sparsify` makes and `warptile.matmul` takes.

    Attributes:
        values: (M, K / 2), the kept elements of each row in order; NumPy or torch.
        metadata: (M, ceil(groups / 2)) bytes, on the same device: see the module's text.
    """

    values: Any
    metadata: Any
    product: ClassVar[str] = "warptile.matmul(sparse, b)"

    def __post_init__(self) -> None:
        element = self.element
        if len(self.values.shape) != 2:
            raise ShapeError(f"values: got shape {tuple(self.values.shape)}; a SparseMatrix has (M, K / 2)")
        m, k = self.shape
        if k % group_width(element):
            raise ShapeError(f"values: a row holds {k // 2}; groups of {element.name} need an even number")
        needed = (m, _metadata_bytes(k, element))
        if tuple(self.metadata.shape) != needed or array_view.view(self.metadata, "metadata").dtype.name != "uint8":
            raise ShapeError(
                f"metadata: got {self.metadata.dtype} of shape {tuple(self.metadata.shape)}; for values of shape "
                f"{tuple(self.values.shape)} it is uint8 of shape {needed}: sparsify(w) makes both"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(M, K) of the dense matrix."""
        return int(self.values.shape[0]), 2 * int(self.values.shape[1])

    @property
    def dtype(self) -> Any:
        """Element type, as the framework of `values` calls it."""
        return self.values.dtype

    @property
    def element(self) -> DType:
        """Element type, as warptile calls it."""
        return _element(self.values, "values")

    @property
    def T(self) -> SparseMatrix:
        """There is none: metadata are of rows.

        Raises:
            UnsupportedError: always, with the call that multiplies by the transposed matrix.
        """
        raise UnsupportedError(
            f"a SparseMatrix of shape {self.shape} has no transpose, as it is sparse along its rows; with such weights "
            "w (N, K) and x (M, K), matmul(w, x.T).T is x @ w.T; or give w.to_dense()"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of values and metadata: 9/16 of the dense matrix's, 5/8 of an 8-bit one's."""
        return int(self.values.nbytes) + int(self.metadata.nbytes)

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, dtype={self.dtype}, nbytes={self.nbytes})"

    def to_dense(self) -> Any:
        """The whole matrix, zeros included.

        Returns:
            (M, K), of the framework and on the device of `values`.
        """
        framework = framework_of(self.values)
        (m, k), width = self.shape, group_width(self.element)
        kept = framework.words(self.values).reshape(m, k // width, width // 2)
        nibbles = _nibbles(framework, self.metadata, k // width)
        first, second = nibbles & 3, nibbles >> 2
        if width == 2:
            first = first >> 1
        dense = framework.zeros(kept, (m, k // width, width))
        for place in range(width):
            column = framework.where(first == place, kept[..., 0], 0)
            if width == 4:
                column = framework.where(second == place, kept[..., 1], column)
            dense[..., place] = column
        return framework.like(dense.reshape(m, k), self.values)

    def packed(self) -> Any:
        """Packed metadata: int32, (k-blocks, words of a k-block), of the same framework.

        They are made once. Where torch says that `metadata` have been written to since, they are packed again into the
        same memory, which captured graphs read. NumPy does not say so of its arrays: other metadata need another
        `SparseMatrix`.
        """
        state = _state(self.metadata)
        made: tuple[Any, Any] | None = self.__dict__.get("_made")
        if made is None or made[0] != state:
            found = self._packed()
            if made is not None and made[1].device == found.device:
                found = made[1].copy_(found)
            made = self.__dict__["_made"] = state, found
        return made[1]

    def _packed(self) -> Any:
        m, k = self.shape
        framework, element = framework_of(self.values), self.element
        steps, words = packed_shape(m, k, element)
        a_step, blocks = _bytes_a_step(element), words // 32
        whole = framework.full(self.metadata, (blocks * packed_rows(element), steps * a_step), PADDING)
        whole[:m, : self.metadata.shape[1]] = self.metadata
        by_lane = framework.permuted(whole.reshape(_row_order(element, blocks, steps)), _LANE_AXES[a_step])
        return framework.int32(by_lane.reshape(steps * words * 4)).reshape(steps, words)

    # --- torch -------------------------------------------------------------------------------------------------------

    def to_cutlass(self) -> tuple[Any, Any]:
        """Values and reordered metadata as CUTLASS and torch's ``SparseSemiStructuredTensorCUTLASS`` hold them.

        Returns:
            The values, and the metadata of int16 elements (int32 for 8-bit types) and shape (M, columns).

        Raises:
            ShapeError: M is no multiple of 32 (16 for 8-bit types) or K of 64 bytes.
        """
        m, k = self.shape
        element = self.element
        rows, step = packed_rows(element), STEP_BYTES * 8 // element.bits
        if m % rows or k % step:
            raise ShapeError(
                f"CUTLASS stores {element.name} in whole blocks of {rows} x {step}; this matrix is {m} x {k}: "
                f"pad it with zeros to {-(-m // rows) * rows} x {-(-k // step) * step} first"
            )
        meta = framework_of(self.values).integers(self.packed(), 4 if element.bits == 8 else 2)
        return self.values, meta.reshape(m, 2 * k // step)

    @classmethod
    def from_cutlass(cls, values: Any, meta: Any) -> SparseMatrix:
        """The inverse of `to_cutlass`: metadata is brought back into rows.

        Args:
            values: (M, K / 2), the kept elements.
            meta: reordered metadata, as `to_cutlass` returns it.

        Returns:
            The matrix, which shares the values.

        Raises:
            ShapeError: the two do not belong together.
            LayoutError: metadata that is no ordered metadata.
        """
        element, framework = _element(values, "values"), framework_of(values)
        m, k = int(values.shape[0]), 2 * int(values.shape[1])
        steps, words = packed_shape(m, k, element)
        rows, step = packed_rows(element), STEP_BYTES * 8 // element.bits
        if m % rows or k % step or meta.nbytes != steps * words * 4:
            raise ShapeError(
                f"meta: got {meta.nbytes} bytes beside values of shape {tuple(values.shape)}; CUTLASS stores "
                f"{element.name} in whole blocks of {rows} x {step}, here with {steps * words * 4} bytes of metadata"
            )
        a_step, blocks = _bytes_a_step(element), words // 32
        order = _row_order(element, blocks, steps)
        axes = _LANE_AXES[a_step]
        by_lane = framework.octets(meta).reshape([order[axis] for axis in axes])
        by_row = framework.permuted(by_lane, tuple(int(i) for i in np.argsort(axes))).reshape(m, steps * a_step)
        _check_ordered(framework, by_row, k, element)
        return cls(values, by_row)

    @classmethod
    def from_torch(cls, tensor: Any) -> SparseMatrix:
        """From ``torch.sparse.to_sparse_semi_structured(w)``, of either backend.

        CUTLASS's two tensors are read directly. cuSPARSELt's metadata has no public layout: such a tensor is made dense
        by torch first, which multiplies it with the identity.

        Args:
            tensor: the semi-structured tensor.

        Returns:
            The matrix; read from CUTLASS's form it shares the values.

        Raises:
            LayoutError: not a semi-structured tensor, or one that holds only its transpose.
        """
        if not hasattr(tensor, "packed") or not hasattr(tensor, "meta"):
            raise LayoutError(
                f"got a {type(tensor).__name__}; from_torch takes torch.sparse.to_sparse_semi_structured(w), "
                "and sparsify(w) a dense tensor"
            )
        if tensor.packed is None:
            raise LayoutError("the tensor holds only its transpose's form; give from_torch(tensor.t()) or its original")
        if tensor.meta is not None and tensor.meta.ndim == 2:
            return cls.from_cutlass(tensor.packed, tensor.meta)
        return sparsify(tensor.to_dense(), exact=True)

    def to_torch(self) -> Any:
        """As torch's ``SparseSemiStructuredTensorCUTLASS``.

        Returns:
            The tensor, which shares the values.

        Raises:
            LayoutError: the values are not in torch's memory.
            ShapeError: as `to_cutlass`.
        """
        if framework_of(self.values).name != "torch":
            raise LayoutError("values: got a NumPy array; sparsify(torch.from_numpy(w)) gives a matrix for to_torch()")
        values, meta = self.to_cutlass()
        torch = sys.modules["torch"]
        return torch.sparse.SparseSemiStructuredTensorCUTLASS(
            torch.Size(self.shape),
            packed=values,
            meta=meta,
            packed_t=None,
            meta_t=None,
            compressed_swizzled_bitmask=None,
        )


def _state(metadata: Any) -> Any:
    """What changes when metadata are written to, as far as their framework says."""
    try:
        return metadata.data_ptr(), metadata._version
    except (AttributeError, RuntimeError):  # none of torch's; a tensor of its inference mode
        return None


def sparsify(w: Any, *, exact: bool = False) -> SparseMatrix:
    """Weights as a `SparseMatrix`, for ``warptile.matmul(sparsify(w), x)``.

    Args:
        w: (M, K), K being the reduction: NumPy, torch on the CPU or a GPU, or JAX (brought to the host).
            float16, bfloat16, int8, uint8, float8: 2 of 4 kept; float32, multiplied as TF32: 1 of 2.
        exact: nothing may be lost: ``w`` must be sparse already. By default the largest magnitudes of each group are
            kept, of equal ones the first; a NaN counts as infinitely large.

    Returns:
        The kept values and their metadata, of the framework and on the device of ``w``.

    Raises:
        ShapeError: not a matrix, or K is no multiple of the group.
        DTypeError: an element type that ``mma.sp`` does not multiply.
        LayoutError: ``exact``, and a group has more values than may be kept; the message names the first.
    """
    source = array_view.view(w, "w")
    if source.framework not in ("numpy", "torch", "jax"):
        raise UnsupportedError(
            f"w: got a {source.framework} array; sparsify takes NumPy and torch, such as sparsify(torch.from_dlpack(w))"
        )
    if source.framework == "jax":
        w = np.asarray(w)
    element = _element(w, "w")
    if source.ndim != 2:
        raise ShapeError(f"w: got shape {source.shape}; sparsify takes one matrix (M, K), such as w.reshape(-1, K)")
    (m, k), width = source.shape, group_width(element)
    if k % width:
        raise ShapeError(
            f"w: K is {k}; {width // 2} of {width} {element.name} need a multiple of {width}: pad w (and x) with "
            f"{width - k % width} columns of zeros"
        )
    framework = framework_of(w)
    groups = w.reshape(m, k // width, width)
    if exact:
        _check_sparse(framework, groups, element)
    first, second, nibbles = _chosen(framework, framework.magnitude(groups))
    words = framework.words(groups)
    kept = framework.zeros(words, (m, k // width, width // 2))
    for slot, place in enumerate((first, second)[: width // 2]):
        column = words[..., 0]
        for other in range(1, width):
            column = framework.where(place == other, words[..., other], column)
        kept[..., slot] = column
    return SparseMatrix(framework.like(kept.reshape(m, k // 2), w), _bytes_of(framework, nibbles))


# --- metadata ------------------------------------------------------------------------------------------------------


def _element(array: Any, name: str) -> DType:
    seen = array_view.view(array, name)
    element = seen.dtype
    if element.name not in ELEMENTS:
        raise DTypeError(
            f"{name}: got {element.name}; mma.sp multiplies {', '.join(ELEMENTS)}, such as "
            f"{array_view.cast(name, seen.framework, DTYPES['float16'])}"
        )
    return element


def _metadata_groups(k: int, element: DType) -> int:
    return k // group_width(element)


def _metadata_bytes(k: int, element: DType) -> int:
    """Bytes of a row's metadata: half a byte a group."""
    return -(-_metadata_groups(k, element) // 2)


def _bytes_a_step(element: DType) -> int:
    """Bytes of metadata of one row in one step: 8 groups of 16- and 32-bit elements, 16 groups of 8-bit ones."""
    return STEP_BYTES * 8 // element.bits // group_width(element) // 2


def _row_order(element: DType, blocks: int, steps: int) -> tuple[int, ...]:
    """Extents of row-wise metadata, cut as its lanes want it. The lane number is 4 g + t.

    * 4 bytes a row and step: (block, selector, upper rows, g, step, half, byte). Lane 4 g + 2 selector + half holds two
      bytes of row g and, above them, two of row g + 8, of the 16 rows that the selector stands for.
    * 8 bytes: (block, upper rows, g, step, half, byte). Lane 4 g + 2 half + upper holds four bytes of one row.
    """
    if _bytes_a_step(element) == 4:
        return blocks, 2, 2, 8, steps, 2, 2
    return blocks, 2, 8, steps, 2, 4


_LANE_AXES = {4: (4, 0, 3, 1, 5, 2, 6), 8: (3, 0, 2, 4, 1, 5)}
"""The axes of `_row_order` in packed order, by the bytes of a row and step: step, block, lane, bytes of its word."""


def _chosen(framework: Framework, magnitude: Any) -> tuple[Any, Any, Any]:
    """Places of the kept elements of each group, lower first, and the group's nibble."""
    width = magnitude.shape[-1]
    if width == 2:
        place = framework.byte(magnitude[..., 1] > magnitude[..., 0])
        return place, place, place * (0xE - 0x4) + 0x4
    kept = []
    for i in range(width):
        # An element comes after those that are larger, and after those before it that are as large.
        before = [framework.byte(magnitude[..., j] >= magnitude[..., i]) for j in range(i)]
        behind = [framework.byte(magnitude[..., j] > magnitude[..., i]) for j in range(i + 1, width)]
        kept.append(framework.byte(sum(before + behind) < 2))
    first = framework.where(kept[0] == 1, 0, framework.where(kept[1] == 1, 1, 2))
    second = framework.where(kept[3] == 1, 3, framework.where(kept[2] == 1, 2, 1))
    first, second = framework.byte(first), framework.byte(second)
    return first, second, first | second << 2


def _bytes_of(framework: Framework, nibbles: Any) -> Any:
    """Two groups a byte, the first in the low half; a group that is missing at the end keeps its first places."""
    m, groups = nibbles.shape
    even = framework.full(nibbles, (m, groups + groups % 2), PADDING & 0x0F)
    even[:, :groups] = nibbles
    return even[:, 0::2] | even[:, 1::2] << 4


def _nibbles(framework: Framework, metadata: Any, groups: int) -> Any:
    """The inverse of `_bytes_of`."""
    pairs = framework.full(metadata, (*metadata.shape, 2), 0)
    pairs[..., 0] = metadata & 0x0F
    pairs[..., 1] = metadata >> 4
    return pairs.reshape(metadata.shape[0], 2 * metadata.shape[1])[:, :groups]


def _check_sparse(framework: Framework, groups: Any, element: DType) -> None:
    width = group_width(element)
    count = sum(framework.byte(groups[..., place] != 0) for place in range(width))
    found = framework.first(count > width // 2)
    if found is None:
        return
    row, group = found
    values = ", ".join(f"{float(value):g}" for value in groups[row, group])
    raise LayoutError(
        f"w: row {row}, k {group * width} to {group * width + width - 1} holds ({values}), of which "
        f"{int(count[row, group])} are not zero; a {width // 2}:{width} matrix has at most {width // 2} there: "
        "sparsify(w) without exact=True keeps the largest"
    )


def _check_ordered(framework: Framework, metadata: Any, k: int, element: DType) -> None:
    legal = LEGAL_OF_TWO if element.bits == 32 else LEGAL
    nibbles = _nibbles(framework, metadata, _metadata_groups(k, element))
    known = sum(framework.byte(nibbles == code) for code in legal)
    found = framework.first(known == 0)
    if found is not None:
        row, group = found
        raise LayoutError(
            f"meta: row {row}, group {group} holds 0x{int(nibbles[row, group]):X}; ordered metadata of {element.name} "
            f"is one of {', '.join(f'0x{code:X}' for code in legal)}"
        )
