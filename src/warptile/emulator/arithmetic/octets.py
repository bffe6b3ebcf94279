"""Vectors of eight float64, float32 or int32 for Numba, kept in CPU registers instead of arrays.

LLVM makes vector instructions of a loop over arrays only if it can prove that the arrays do not overlap. It need not
prove anything of these values. They live within one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

WIDTH = 8
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_SINGLES_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_LANES = ir.VectorType(ir.IntType(32), WIDTH)

Emit = Callable[..., Any]
"""Writes LLVM instructions: from a builder and operands to a result."""


class Octet(types.Type):
    """The type of eight numbers, as Numba knows it."""

    def __init__(self, element: str) -> None:
        super().__init__(name=f"Octet({element})")
        self.vector = {"float64": _VECTOR, "float32": _SINGLES_VECTOR, "int32": _LANES}[element]


@register_model(Octet)
class _OctetModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


_OCTET: Any = Octet("float64")
_SINGLES: Any = Octet("float32")
_INTEGERS: Any = Octet("int32")


def _of_one(source: Any, result: Any, emit: Emit) -> Any:
    @intrinsic
    def operation(typing_context: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *arguments)

        return result(source), generate

    return operation


def _of_two(emit: Emit) -> Any:
    """An operation on two octets of one type."""

    @intrinsic
    def operation(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *arguments)

        return a(a, b), generate

    return operation


def _emit_spread(builder: Any, value: Any) -> Any:
    first = builder.insert_element(
        ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined), value, ir.IntType(32)(0)
    )
    return builder.shuffle_vector(first, first, ir.Constant(_LANES, [0] * WIDTH))


def _emit_trunc(builder: Any, value: Any) -> Any:
    name, kind = f"llvm.trunc.v{WIDTH}f64", ir.FunctionType(_VECTOR, [_VECTOR])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])  # type: ignore[no-untyped-call]


spread = _of_one(types.float64, _OCTET, _emit_spread)
"""Eight times the same number."""

spread_single = _of_one(types.float32, _SINGLES, _emit_spread)
"""Eight times the same float32."""

trunc = _of_one(_OCTET, _OCTET, _emit_trunc)
"""Without their fractions; infinities and NaN stay."""

as_singles = _of_one(_OCTET, _SINGLES, lambda builder, value: builder.fptrunc(value, _SINGLES_VECTOR))
"""Rounded to float32."""

from_singles = _of_one(_SINGLES, _OCTET, lambda builder, value: builder.fpext(value, _VECTOR))
"""float32 as float64."""

as_integers = _of_one(_SINGLES, _INTEGERS, lambda builder, value: builder.fptosi(value, _LANES))
"""Without their fractions, as int32, which has to hold them."""

from_integers = _of_one(_INTEGERS, _OCTET, lambda builder, value: builder.sitofp(value, _VECTOR))
"""int32 as float64."""

add_integers = _of_two(lambda builder, a, b: builder.add(a, b))
add = _of_two(lambda builder, a, b: builder.fadd(a, b))
multiply = _of_two(lambda builder, a, b: builder.fmul(a, b))
divide = _of_two(lambda builder, a, b: builder.fdiv(a, b))
larger = _of_two(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    vector = ir.VectorType(data.type.pointee, WIDTH)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def _load(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        return builder.load(_pointer(context, builder, kind, *arguments), align=kind.dtype.bitwidth // 8)

    return (_SINGLES if array.dtype == types.float32 else _OCTET)(array, types.intp), generate


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _OCTET), generate


@intrinsic
def _spread_at(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return _emit_spread(builder, builder.load(builder.gep(data, [arguments[1]])))

    return (_SINGLES if array.dtype == types.float32 else _OCTET)(array, types.intp), generate


spread_at: Any = _spread_at
"""``spread_at(array, i)``: eight times element i, which is not negative."""

load: Any = _load
"""``load(array, i)``: elements i to i + 7 of an array of float64 or float32."""

store: Any = _store
"""``store(array, i, octet)``: the other way round, of float64."""


def _emit_single_bits(builder: Any, value: Any) -> Any:
    return builder.zext(builder.bitcast(value, ir.IntType(32)), ir.IntType(64))


def _emit_trunc_one(builder: Any, value: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic("llvm.trunc", [ir.DoubleType()]), [value])


bits = _of_one(types.float64, types.int64, lambda builder, value: builder.bitcast(value, ir.IntType(64)))
"""The bits of one float64, as an int64."""

from_bits = _of_one(types.int64, types.float64, lambda builder, value: builder.bitcast(value, ir.DoubleType()))
"""The float64 of such bits."""

bits_of_single = _of_one(types.float32, types.int64, _emit_single_bits)
"""The bits of one float32, as an int64."""

trunc_one = _of_one(types.float64, types.float64, _emit_trunc_one)
"""`trunc` of one number."""
