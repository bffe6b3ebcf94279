"""An epilogue in CUDA C++: the struct ``Epilogue`` that a translation unit defines, and its members for the host.

Nothing of the user's text is in it: steps are numbered, and so are operands.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from warptile.dtypes import DTYPES, DType
from warptile.epilogue.epilogue_program import (
    ACCUMULATOR,
    BLOCKS_OF_A,
    BLOCKS_OF_B,
    CAST,
    CONSTANT,
    UNIFORM,
    Step,
    is_block_scale,
)
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT, Fused, Layout, Partials, StoredD
from warptile.epilogue.operations import FLAG, OPERATIONS, integer_range
from warptile.launch.params import Field, Pointer, Scalar

HEADERS = (
    "epilogue/block_scales.cuh", "epilogue/functions.cuh", "epilogue/operands.cuh", "epilogue/reductions.cuh",
)  # fmt: skip

SHORT = {"gelu": "gelu_for_16_bits({0})"}
"""Functions with a shorter form where all outputs have 16 bits."""

ROUNDED = {
    "add": "rounded_sum({0}, {1})", "subtract": "rounded_difference({0}, {1})", "multiply": "rounded_product({0}, {1})",
}  # fmt: skip
"""Operations that the compiler does not fuse with each other. Which products it fuses with sums may differ from kernel
to kernel, and so the last bit of D."""

REDUCTIONS = {"add": "SumOf", "maximum": "LargestOf", "minimum": "SmallestOf"}
"""Of kernels/epilogue/reductions.cuh, by the operation of a reduction."""

FLOATS = ("float16", "float32", "float32_fast", "float64")
"""Accumulators whose alpha has the type that an epilogue computes in."""

COMPUTE = {"float64": "double"}
"""Type that an epilogue computes in, by the accumulator's; float for all others."""


def _stride_kind(stride: int) -> str:
    return {0: "REPEATED", 1: "CONTIGUOUS"}.get(stride, "STRIDED")


class EpilogueSource:
    """The text of an epilogue and the members of its struct, for one accumulator type.

    Args:
        fused: the epilogue, as the kernel sees it.
        accumulator: name of the accumulator's type.
        d: D, as the kernel sees it.
        reads_c: there is a C, which is added to alpha times the accumulator before anything else.
        rounded: each operation is rounded by itself: `ROUNDED`.
    """

    def __init__(
        self, fused: Fused, accumulator: str, d: StoredD, *, reads_c: bool, rounded: bool
    ) -> None:  # fmt: skip
        self._fused, self._rounded = fused, rounded
        self._extents = d.extents
        self._staged, self._kept = fused.staged(d), fused.kept(d)
        self._short = all(bits == 16 for bits in (d.dtype.bits, *(each.dtype.bits for each in fused.outputs)))
        self.compute = COMPUTE.get(accumulator, "float")
        program = fused.program
        layouts = fused.layouts
        self._tensors = [each for each in program.tensors if each[0] in layouts]
        self._scales = self._scales_as_seen()
        # Of each tensor that is read for elements of D its number in the struct.
        self._read = [i for i, (name, _) in enumerate(fused.tensors) if name not in self._scales.values()]
        self._numbers = list(fused.numbers)
        self._seeds = set(program.seeds)
        # What multiplies the accumulator by a value that does not depend on it, and by alpha with that.
        index = None if reads_c or accumulator not in FLOATS else program.factor_of_accumulator
        self._factor = None if index is None else program.steps[index]

    def _scales_as_seen(self) -> dict[str, str]:
        """Names of scales of blocks of the kernel's A and B, by its step."""
        sides = [BLOCKS_OF_A, BLOCKS_OF_B]
        seen = sides[::-1] if self._fused.swapped else sides
        scales = self._fused.program.block_scales
        return {side: scales[given][0] for side, given in zip(sides, seen, strict=True) if given in scales}

    @property
    def cuda_types(self) -> set[str]:
        """C++ types of operands and of casts: their headers are needed."""
        casts = {DTYPES[str(step.value)].cuda for step in self._fused.program.steps if step.name == CAST}
        return casts | {each.cuda for each in self._fused.dtypes}

    # --- members ---

    def members(self) -> tuple[tuple[str, Field], ...]:
        """Members of the struct in order; numbers are 0 until the launch, named as `number_member` says."""
        found: list[tuple[str, Field]] = []
        for name, layout in self._fused.tensors:
            found += _members(f"epilogue.{name}", Pointer(f"{OPERAND} {name}"), layout)
        for name in self._numbers:
            found.append((number_member(name), Scalar(self._number_type(name), 0)))
            if self._number_type(name) == "f32":  # eight bytes each, so that no padding depends on what follows
                found.append((f"{number_member(name)}.padding", Scalar("u32", 0)))
        for index, output in enumerate(self._fused.outputs, 1):
            name, data = f"epilogue.output {index}", Pointer(f"{OUTPUT} {index}")
            if isinstance(output, Partials):
                blocks, line = output.shape(*self._extents, self._fused.block)
                found += [
                    (name, data),
                    (f"{name}.line", Scalar("s64", line)),
                    (f"{name}.matrix_stride", Scalar("s64", blocks * line)),
                ]
            else:
                found += _members(name, data, output)
        return tuple(found)

    def _number_type(self, name: str) -> str:
        return "u64" if name in self._seeds else "f64" if self.compute == "double" else "f32"

    # --- text ---

    def text(self) -> str:
        """The definition of ``warptile::Epilogue``."""
        tensors = {name: index for index, (name, _) in enumerate(self._fused.tensors)}
        numbers = {name: index for index, name in enumerate(self._numbers)}
        types = [self._tensor_type(name, layout) for name, layout in self._fused.tensors]
        lines = [
            *(f'#include "{header}"' for header in HEADERS),
            "namespace warptile {",
            "struct Epilogue {",
            f"    using COMPUTE = {self.compute};",
            "    static constexpr bool FUSED = true;",
            f"    static constexpr bool MULTIPLIES_BY_ALPHA = {str(self._factor is not None).lower()};",
        ]
        lines += [f"    using T{index} = {each};" for index, each in enumerate(types)]
        lines += [f"    T{index} t{index};" for index in range(len(types))]
        lines += [f"    {self._number_member_type(name)} n{index};" for name, index in numbers.items()]
        lines += [f"    {self._output_type(output)} o{index};" for index, output in enumerate(self._fused.outputs, 1)]
        lines += self._block_scales(tensors)
        lines += self._loaded()
        lines += [f"    static constexpr int COLUMN_BYTES = {self._column_bytes()};"]
        lines += self._staging(tensors)
        lines += self._load()
        lines += self._load_beside()
        lines += self._apply(tensors, numbers)
        lines += self._prefetch()
        lines += self._select_matrix(len(types))
        lines += ["};", "}  // namespace warptile"]
        return "\n".join(lines)

    def _number_member_type(self, name: str) -> str:
        if name in self._seeds:
            return "EpilogueNumber<unsigned long long>"
        return "EpilogueNumber<double>" if self.compute == "double" else "EpilogueNumber<float>"

    def _block(self, name: str) -> tuple[int, int]:
        """Rows and columns, as the kernel sees them, of the block of D for which a tensor has one element."""
        rows, columns = next((r, c) for tensor, r, c in self._tensors if tensor == name)
        return (columns, rows) if self._fused.swapped else (rows, columns)

    def _tensor_type(self, name: str, layout: Layout) -> str:
        block = self._block(name)
        if name in self._scales.values():
            lines = block[0] if self._scales.get(BLOCKS_OF_A) == name else block[1]
            pairs = layout.column_stride == 1 and 8 * layout.alignment_bytes >= 2 * layout.dtype.bits
            return f"BlockScales<{layout.dtype.cuda}, {lines}, {str(pairs).lower()}>"
        row, column = _stride_kind(layout.row_stride), _stride_kind(layout.column_stride)
        rows, columns = block
        return f"EpilogueTensor<{layout.dtype.cuda}, {row}, {column}, {rows}, {columns}, {layout.alignment_bytes}>"

    def _output_type(self, output: Layout | Partials) -> str:
        if isinstance(output, Partials):
            flags = ", ".join(str(each).lower() for each in (output.over_columns, self._fused.in_quads))
            return f"EpiloguePartials<{output.dtype.cuda}, {REDUCTIONS[output.operation]}, {flags}>"
        row, column = _stride_kind(output.row_stride), _stride_kind(output.column_stride)
        return f"EpilogueOutput<{output.dtype.cuda}, {row}, {column}, {output.alignment_bytes}>"

    def _block_scales(self, tensors: dict[str, int]) -> list[str]:
        """What the mainloop reads: scales of blocks of the kernel's A and B."""
        found = [f"    static constexpr bool BLOCK_SCALED = {str(bool(self._scales)).lower()};"]
        for side, letter in ((BLOCKS_OF_A, "a"), (BLOCKS_OF_B, "b")):
            index = tensors.get(self._scales.get(side, ""))
            kind, value = ("NoBlockScales", "{}") if index is None else (f"T{index}", f"t{index}")
            found.append(f"    __device__ __forceinline__ {kind} scales_of_{letter}() const {{ return {value}; }}")
        return found if self._scales else found[:1]

    def _staging(self, tensors: dict[str, int]) -> list[str]:
        """What a kernel needs that moves matrices laid out as D is by itself: those that are read for elements of D,
        and the output that is computed with them."""
        staged = [tensors[name] for name in self._staged]
        lines = [
            f"    static constexpr int STAGED = {len(staged)}, KEPT = {int(self._kept is not None)};",
            "    template <int WIDTH>",
            "    struct Kept {",
            "        static constexpr bool KEEPS = KEPT > 0;",
        ]
        if self._kept is not None:
            lines.append(f"        {self._kept[1].dtype.cuda} elements[WIDTH];")
        lines.append("    };")
        has_batch = [f"(set == {number} && t{index}.matrix_stride != 0)" for number, index in enumerate(staged)]
        return [
            *lines,
            "    template <int SET, int WIDTH>",
            "    __device__ __forceinline__ static auto& staged(Loaded<WIDTH>& loaded) {",
            *(f"        if constexpr (SET == {number}) return loaded.t{index};" for number, index in enumerate(staged)),
            "    }",
            "    __device__ __forceinline__ bool staged_has_batch(int set) const {",
            f"        return {' || '.join(has_batch) or 'false'};",
            "    }",
        ]

    def _loaded(self) -> list[str]:
        """What is read for WIDTH elements: members of one struct, so that it can be read ahead."""
        members = [f"        EpilogueElements<T{i}::ELEMENT, T{i}::template COUNT<WIDTH>> t{i};" for i in self._read]
        return ["    template <int WIDTH>", "    struct Loaded {", *members, "    };"]

    def _column_bytes(self) -> int:
        """What is read for a column of D where all that is read is the same along rows or along columns; else -1."""
        read = [layout for i, (_, layout) in enumerate(self._fused.tensors) if i in self._read]
        if any(each.row_stride and each.column_stride for each in read):
            return -1
        return sum(each.dtype.bits // 8 for each in read if each.column_stride)

    def _load(self) -> list[str]:
        loads = ", ".join(f"t{i}.template load<WIDTH>(row, column, inside)" for i in self._read)
        return [
            "    template <int WIDTH>",
            "    __device__ __forceinline__ Loaded<WIDTH> load(int row, int column, int inside) const {",
            f"        return {{{loads}}};",
            "    }",
        ]

    def _load_beside(self) -> list[str]:
        """As `_load`, where those of a row above or of columns to the left are known."""
        loads = ", ".join(
            f"t{i}.template load_beside<WIDTH, WHOLE, HAS_ABOVE, HAS_LEFT>(above.t{i}, left.t{i}, row, column, inside)"
            for i in self._read
        )
        return [
            "    template <int WIDTH, bool WHOLE, bool HAS_ABOVE, bool HAS_LEFT>",
            "    __device__ __forceinline__ Loaded<WIDTH> load_beside(const Loaded<WIDTH>& above,",
            "                                                         const Loaded<WIDTH>& left, int row, int column,",
            "                                                         int inside) const {",
            f"        return {{{loads}}};",
            "    }",
        ]

    def _prefetch(self) -> list[str]:
        """What brings the operands of a part of D into L2; with SOME_STAGED those that are not staged."""
        staged = set(self._staged)
        names = {index: name for index, (name, _) in enumerate(self._fused.tensors)}
        return [
            "    template <int ROWS, int COLUMNS, bool SOME_STAGED>",
            "    __device__ __forceinline__ void prefetch(int row, int column, int m, int n, int thread,",
            "                                             int threads) const {",
            *(
                f"        {'if (!SOME_STAGED) ' if names[i] in staged else ''}"
                f"t{i}.template prefetch<ROWS, COLUMNS>(row, column, m, n, thread, threads);"
                for i in self._read
            ),
            "    }",
        ]

    def _apply(self, tensors: dict[str, int], numbers: dict[str, int]) -> list[str]:
        """The expression, for WIDTH elements of a row of the kernel's D."""
        program = self._fused.program
        stores = []
        for index in range(1, len(program.outputs)):
            store = f"o{index}.template store<WIDTH>(further{index}, row, column, inside);"
            if self._kept is None or index != self._kept[0]:
                stores.append(f"        {store}")
                continue
            stores += [
                "        if constexpr (KEPT_ELEMENTS::KEEPS) {",
                "#pragma unroll",
                f"            for (int i = 0; i < WIDTH; ++i) kept.elements[i] = further{index}[i];",
                "        } else {",
                f"            {store}",
                "        }",
            ]
        declared = [
            f"        {layout.dtype.cuda} further{index}[WIDTH];" for index, layout in enumerate(self._fused.outputs, 1)
        ]
        body = []
        for index, step in enumerate(program.steps):
            kind = "bool" if step.name in OPERATIONS and OPERATIONS[step.name].gives == FLAG else "COMPUTE"
            body.append(f"            const {kind} v{index} = {self._expression(step, tensors, numbers)};")
        first, *others = program.outputs
        body.append(f"            result[i] = static_cast<OUT>(v{first});")
        for index, (value, output) in enumerate(zip(others, self._fused.outputs, strict=True), 1):
            step = program.steps[value]
            if step.name == CAST and step.value == output.dtype.name:  # rounded once, from what is cast
                value = step.arguments[0]
            body.append(f"            further{index}[i] = {_rounded(output.dtype, f'v{value}')};")
        return [
            "    template <int WIDTH, typename OUT, typename KEPT_ELEMENTS>",
            "    __device__ __forceinline__ void apply(const COMPUTE (&sums)[WIDTH], COMPUTE alpha,",
            "                                          const Loaded<WIDTH>& loaded, KEPT_ELEMENTS& kept,",
            "                                          OUT (&result)[WIDTH], int row, int column, int inside) const {",
            *declared,
            "#pragma unroll",
            "        for (int i = 0; i < WIDTH; ++i) {",
            *body,
            "        }",
            *stores,
            "    }",
        ]

    def _expression(self, step: Step, tensors: dict[str, int], numbers: dict[str, int]) -> str:
        arguments = [f"v{index}" for index in step.arguments]
        if step.name == ACCUMULATOR:
            return "sums[i]"
        if step.name == CONSTANT:
            return self._literal(float(step.value))  # type: ignore[arg-type]
        if step.name == CAST:
            return f"static_cast<COMPUTE>({_rounded(DTYPES[str(step.value)], arguments[0])})"
        if step.name == UNIFORM:
            place = "column + i, row" if self._fused.swapped else "row, column + i"
            return f"philox_uniform(n{numbers[str(step.value)]}.value, {place})"
        if is_block_scale(step):
            return arguments[0]
        if isinstance(step.value, tuple):
            name = step.value[0]
            if name in tensors:
                return f"loaded.t{tensors[name]}.template value<COMPUTE>(i)"
            return f"n{numbers[name]}.value"
        text = OPERATIONS[step.name].cuda
        if self._short and step.name in SHORT:
            text = SHORT[step.name]
        elif self._rounded and step.name in ROUNDED:
            text = ROUNDED[step.name]
        if step is self._factor:
            arguments[1] = f"({text.format('alpha', arguments[1])})"
        return text.format(*arguments)

    def _literal(self, value: float) -> str:
        """A constant of the type that is computed in. Those beyond float's range are infinite there, as 1e39 is."""
        if self.compute == "float" and math.isfinite(value):
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        if math.isnan(value):
            return "static_cast<COMPUTE>(__longlong_as_double(0x7ff8000000000000ll))"
        if math.isinf(value):
            return f"static_cast<COMPUTE>({'-' if value < 0 else ''}__longlong_as_double(0x7ff0000000000000ll))"
        return f"static_cast<COMPUTE>({value.hex()})"

    def _select_matrix(self, count: int) -> list[str]:
        """Points to a matrix of a batch; `first` points to its first one."""
        names = [f"t{i}" for i in range(count)] + [f"o{i}" for i in range(1, len(self._fused.outputs) + 1)]
        return [
            "    __device__ __forceinline__ void select_matrix(const Epilogue& first, long long matrix) {",
            *(f"        {name}.data = first.{name}.data + matrix * first.{name}.matrix_stride;" for name in names),
            "    }",
        ]


def _rounded(dtype: DType, value: str) -> str:
    """A value in an element type. Numbers beyond the ends of a type of 8 bits, or of int32, become these."""
    if dtype.kind in ("int", "uint") and dtype.bits == 8:
        low, high = integer_range(dtype)
        value = f"min(max(static_cast<int>({value}), {low}), {high})"  # the conversion to int stops at its ends, too
    return f"static_cast<{dtype.cuda}>({value})"


def number_member(name: str) -> str:
    """Member of the kernel's parameters that holds an operand which is one number."""
    return f"epilogue.{name}"


def _members(name: str, data: Pointer, layout: Layout) -> list[tuple[str, Any]]:
    return [
        (name, data),
        (f"{name}.row_stride", Scalar("s64", layout.row_stride)),
        (f"{name}.column_stride", Scalar("s64", layout.column_stride)),
        (f"{name}.matrix_stride", Scalar("s64", layout.batch_stride)),
    ]
