"""Tensor maps: how TMA (Tensor Memory Accelerator) is told what a tensor in global memory looks like."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warptile.errors import DTypeError, LayoutError, UnsupportedError

TENSOR_MAP_TYPES = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "tf32": 4,
}  # fmt: skip
"""Element types of a tensor map and their bytes."""

SWIZZLE_BYTES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
"""Swizzle modes of a tensor map and the bytes of the rows that each permutes (isa/swizzle.py)."""

TENSOR_START_BYTES = 16
"""Alignment of the address of a tensor."""

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
"""Size and alignment of a tensor map as a kernel parameter (``CUtensorMap``)."""

_L2_PROMOTIONS = ("none", "64B", "128B", "256B")


@dataclass(frozen=True)
class TensorMap:
    """A kernel parameter that describes a tensor in global memory, and the box of it that one tensor copy moves.

    The fields and their limits are those of ``cuTensorMapEncodeTiled`` (CUDA Driver API, "Tensor Map Object
    Management"); dimensions go from the innermost outwards.

    Attributes:
        operand: whose memory it is.
        dtype: one of `TENSOR_MAP_TYPES`.
        dims: elements along each of one to five dimensions.
        strides_bytes: of every dimension but the innermost, whose elements follow each other.
        box: extent of the box along each dimension, in elements.
        element_strides: of each dimension, take every how many-th element of the box; () for 1 everywhere. The
            hardware ignores that of the innermost one.
        swizzle: how rows of the box are permuted in shared memory: one of `SWIZZLE_BYTES`.
        interleave: ``"none"``.
        oob_fill: what elements outside the tensor read as: ``"zero"`` or ``"nan"`` (of float types).
        offset_bytes: where in the operand the tensor starts.
        any_start: the tensor may start at any element: the map is that of `placed`.
        l2_promotion: granularity of requests to L2: ``"none"``, ``"64B"``, ``"128B"`` or ``"256B"``; no value
            depends on it.

    Raises:
        DTypeError: an unknown element type.
        LayoutError: a field outside the limits, naming field, value and limit.
        UnsupportedError: an interleaved layout.
    """

    operand: str
    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: str = "none"
    interleave: str = "none"
    oob_fill: str = "zero"
    offset_bytes: int = 0
    l2_promotion: str = "none"
    any_start: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in TENSOR_MAP_TYPES:
            raise DTypeError(f"{self._name}: dtype {self.dtype!r}; it takes {', '.join(TENSOR_MAP_TYPES)}")
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        if self.interleave != "none":
            raise UnsupportedError(f"{self._name}: interleave {self.interleave!r}; only interleave='none' is supported")
        refused = self._refused()
        if refused is not None:
            field, needed = refused
            raise LayoutError(f"{self._name}: {field} is {getattr(self, field)!r}; it takes {needed}")

    def _refused(self) -> tuple[str, str] | None:
        """The first field outside the limits, and what it takes; None where all are within."""
        rank = len(self.dims)
        if not 1 <= rank <= 5:
            return "dims", "one to five dimensions"
        if len(self.strides_bytes) != rank - 1:
            return "strides_bytes", f"{rank - 1}: one for every dimension but the innermost"
        if len(self.box) != rank:
            return "box", f"{rank} extents, as dims has"
        if len(self.element_strides) != rank:
            return "element_strides", f"{rank} strides, as dims has"
        if min(self.dims) < 1 or max(self.dims) > 1 << 32:
            return "dims", "extents of 1 to 2^32"
        for stride in self.strides_bytes:
            if not 0 <= stride < 1 << 40 or stride % 16:
                return "strides_bytes", "multiples of 16 below 2^40"
        if min(self.box) < 1 or max(self.box) > 256:
            return "box", "extents of 1 to 256"
        if min(self.element_strides) < 1 or max(self.element_strides) > 8:
            return "element_strides", "1 to 8"
        start = self.element_bytes if self.any_start else TENSOR_START_BYTES
        if self.offset_bytes < 0 or self.offset_bytes % start:
            return "offset_bytes", f"a multiple of {start}: the tensor starts at such an address"
        if self.swizzle not in SWIZZLE_BYTES:
            return "swizzle", f"one of {', '.join(SWIZZLE_BYTES)}"
        inner, span = self.box[0] * self.element_bytes, SWIZZLE_BYTES[self.swizzle]
        if inner % 16:
            return "box", f"an innermost extent of a multiple of 16 bytes; it has {inner}"
        if span and inner > span:
            return "box", f"at most {span} bytes innermost under swizzle {self.swizzle}; it has {inner}"
        fills = ("zero", "nan") if self.dtype[0] in "fbt" else ("zero",)
        if self.oob_fill not in fills:
            return "oob_fill", " or ".join(map(repr, fills)) + ("" if len(fills) > 1 else f" for {self.dtype}")
        if self.l2_promotion not in _L2_PROMOTIONS:
            return "l2_promotion", f"one of {', '.join(_L2_PROMOTIONS)}"
        return None

    def with_smaller_box(self, box: tuple[int, ...]) -> TensorMap:
        """The same map with a box that is nowhere larger, and whose rows are whole multiples of 16 bytes too. All other
        fields are known to be within their limits, and are not looked at again: plans make a few such maps each.

        Raises:
            LayoutError: another box.
        """
        fits = len(box) == len(self.box) and all(1 <= one <= other for one, other in zip(box, self.box, strict=True))
        if not fits or box[0] * self.element_bytes % TENSOR_START_BYTES:
            raise LayoutError(
                f"{self._name}: box is {box!r}; it takes extents of 1 to {self.box!r}, the innermost a multiple of "
                f"{TENSOR_START_BYTES} bytes"
            )
        smaller = object.__new__(TensorMap)
        vars(smaller).update(vars(self), box=box)
        return smaller

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return TENSOR_MAP_TYPES[self.dtype]

    def placed(self, address: int) -> tuple[TensorMap, int]:
        """The map of the tensor that starts at ``address``, and where it begins: as it is, and there; with
        ``any_start`` at the multiple of 16 bytes before it, its rows longer by the elements between. These lie in the
        same 16 bytes as the tensor's first: in the same allocation."""
        early = address % TENSOR_START_BYTES if self.any_start else 0
        if not early:
            return self, address
        longer = self.dims[0] + early // self.element_bytes
        return replace(self, dims=(longer, *self.dims[1:])), address - early

    @property
    def _name(self) -> str:
        return f"tensor map of {self.operand}"
