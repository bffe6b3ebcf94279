"""Formulas that are written once for NumPy's arrays, and compiled where NumPy's cost of a call is too much.

With some dozens of elements an operation of NumPy takes a microsecond, nearly all of it the call. `Formulas` are
evaluated by NumPy a few times; a process that goes on using them has them compiled in the background. `Compiled` calls
them once with a `Value` in the place of each array: operators, and NumPy's functions through its own protocols (NEP 13,
NEP 18), note down what is done, and LLVM makes one loop over vectors of it. All numbers are float64, so whole numbers
are exact up to 2^53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.native.background import MadeLater
from warptile.native.elementary import Elementary
from warptile.native.functions import elements_of, function_of_arrays, machine_code

FloatArray = NDArray[np.float64]
Function = Callable[[Mapping[str, Any]], Sequence[Any]]
"""Formulas: from arrays and numbers by name to results."""

WIDTH = 8
"""Elements that one pass of the loop computes, as vectors."""

ALIGNMENT = 8
"""Of arrays, in bytes."""

_FUNCTIONS = {
    np.ceil: "llvm.ceil", np.floor: "llvm.floor", np.minimum: "llvm.minnum", np.maximum: "llvm.maxnum",
}  # fmt: skip
_ELEMENTARY = {np.log: Elementary.log, np.log2: Elementary.log2, np.exp: Elementary.exp}
_OPERATORS = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.true_divide: "divide", np.floor_divide: "whole",
    np.remainder: "rest", np.power: "power", np.greater: ">", np.greater_equal: ">=", np.less: "<",
    np.less_equal: "<=", np.equal: "==", np.not_equal: "!=", np.bitwise_and: "and", np.bitwise_or: "or",
}  # fmt: skip


def lookup(table: Sequence[float] | NDArray[Any], index: Any) -> Any:
    """``table[index]``, of numbers, arrays or values of whole numbers, which are places of the table."""
    if isinstance(index, Value):
        return index.trace.lookup(np.asarray(table), index)
    return np.asarray(table)[np.asarray(index).astype(np.int64)]


class Constants:
    """A constant array that can be indexed by values too, by places of it."""

    def __init__(self, numbers: NDArray[Any]) -> None:
        self._numbers = numbers

    def __getitem__(self, index: Any) -> Any:
        return lookup(self._numbers, index)


class Value:
    """An element of an array in formulas that are being noted down.

    Attributes:
        trace: where they are noted down.
        of: LLVM's value.
        truth: whether it is a truth value instead of a number.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: _Trace, of: Any, truth: bool = False) -> None:
        self.trace, self.of, self.truth = trace, of, truth

    def __bool__(self) -> bool:
        raise TypeError("a formula must not depend on an element by a Python condition: use numpy.where")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if function in _FUNCTIONS:
            return self.trace.call(_FUNCTIONS[function], *inputs)
        if function in _ELEMENTARY:
            return self.trace.elementary(_ELEMENTARY[function], *inputs)
        return self.trace.operate(_OPERATORS[function], *inputs) if function in _OPERATORS else NotImplemented

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        if function is np.where:
            return self.trace.select(*inputs)
        if function is np.clip:
            number, least, most = inputs
            number = number if least is None else self.trace.call("llvm.maxnum", number, least)
            return number if most is None else self.trace.call("llvm.minnum", number, most)
        if function is np.isin:
            element, among = inputs
            found: Any = False
            for each in among:
                found = (element == each) | found
            return found
        return NotImplemented

    def __add__(self, other: Any) -> Value:
        return self.trace.operate("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.trace.operate("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.trace.operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.trace.operate("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.trace.operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.trace.operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.trace.operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.trace.operate("divide", other, self)

    def __floordiv__(self, other: Any) -> Value:
        return self.trace.operate("whole", self, other)

    def __rfloordiv__(self, other: Any) -> Value:
        return self.trace.operate("whole", other, self)

    def __mod__(self, other: Any) -> Value:
        return self.trace.operate("rest", self, other)

    def __rmod__(self, other: Any) -> Value:
        return self.trace.operate("rest", other, self)

    def __pow__(self, other: Any) -> Value:
        return self.trace.operate("power", self, other)

    def __neg__(self) -> Value:
        return self.trace.operate("subtract", 0.0, self)

    def __gt__(self, other: Any) -> Value:
        return self.trace.operate(">", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.trace.operate(">=", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.trace.operate("<", self, other)

    def __le__(self, other: Any) -> Value:
        return self.trace.operate("<=", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.trace.operate("==", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.trace.operate("!=", self, other)

    def __and__(self, other: Any) -> Value:
        return self.trace.operate("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Value:
        return self.trace.operate("or", self, other)

    __ror__ = __or__

    def __invert__(self) -> Value:
        inverted: Value = self.trace.select(self, False, True)
        return inverted


class _Trace:
    """The body of the loop, as LLVM's builder makes it. Equal operations are made once."""

    def __init__(self, ir: Any, builder: Any) -> None:
        self._ir, self._builder = ir, builder
        self._vector = ir.VectorType(ir.DoubleType(), WIDTH)
        self._elementary = Elementary(ir, builder, WIDTH)
        self._made: dict[tuple[Any, ...], Value] = {}
        self._constants: dict[Any, Any] = {}

    def number(self, of: Any) -> Any:
        """LLVM's numbers of a value or constant."""
        if isinstance(of, Value):
            return self._once(("number", of.of), self._widened, of).of if of.truth else of.of
        return self._constant(float(of))

    def truth(self, of: Any) -> Any:
        """LLVM's truth values of a value or constant."""
        if isinstance(of, Value):
            return of.of if of.truth else (of != 0.0).of
        return self._constant(bool(of))

    def operate(self, operator: str, one: Any, other: Any) -> Value:
        """The result of an operator."""
        builder = self._builder
        if operator in ("and", "or"):
            of = self.truth(one), self.truth(other)
            make = builder.and_ if operator == "and" else builder.or_
            return self._once((operator, *of), lambda: Value(self, make(*of), truth=True))
        if operator == "whole":
            return self.call("llvm.floor", self.operate("divide", one, other))
        if operator == "rest":
            return self.operate("subtract", one, self.operate("multiply", self.operate("whole", one, other), other))
        if operator == "power":
            return self.elementary(Elementary.power, one, other)
        of = self.number(one), self.number(other)
        if operator in (">", ">=", "<", "<=", "==", "!="):
            compare = builder.fcmp_unordered if operator == "!=" else builder.fcmp_ordered
            return self._once((operator, *of), lambda: Value(self, compare(operator, *of), truth=True))
        if all(getattr(each, "truth", isinstance(each, bool)) for each in (one, other)):
            raise TypeError("arithmetic of two truth values: NumPy's differs from that of numbers; use numpy.where")
        make = {"add": builder.fadd, "subtract": builder.fsub, "multiply": builder.fmul, "divide": builder.fdiv}[
            operator
        ]
        return self._once((operator, *of), lambda: Value(self, make(*of)))

    def call(self, function: str, *inputs: Any) -> Value:
        """The result of one of LLVM's functions of float64."""
        of = tuple(map(self.number, inputs))
        return self._once((function, *of), lambda: Value(self, self._elementary.call(function, *of)))

    def elementary(self, function: Callable[..., Any], *inputs: Any) -> Value:
        """The result of one of the methods of `Elementary`."""
        of = tuple(map(self.number, inputs))
        return self._once((function, *of), lambda: Value(self, function(self._elementary, *of)))

    def select(self, condition: Any, one: Any, other: Any) -> Any:
        """``one`` where the condition holds, else ``other``."""
        if not isinstance(condition, Value):
            return one if condition else other
        both = all(each.truth if isinstance(each, Value) else isinstance(each, bool) for each in (one, other))
        of = tuple(map(self.truth if both else self.number, (one, other)))
        chosen = self.truth(condition), *of
        return self._once(("select", *chosen), lambda: Value(self, self._builder.select(*chosen), truth=both))

    def lookup(self, table: NDArray[Any], index: Value) -> Value:
        """An element of a constant array."""
        ir, builder = self._ir, self._builder
        numbers = tuple(map(float, table))

        def make() -> Value:
            double, place_of = ir.DoubleType(), ir.IntType(64)
            kind = ir.ArrayType(double, len(numbers))
            array = ir.GlobalVariable(builder.module, kind, builder.module.get_unique_name("table"))
            array.global_constant, array.linkage, array.initializer = True, "internal", ir.Constant(kind, numbers)
            places = builder.fptosi(self.number(index), ir.VectorType(place_of, WIDTH))
            found: Any = ir.Constant(self._vector, ir.Undefined)
            for lane in (ir.Constant(ir.IntType(32), number) for number in range(WIDTH)):
                place = builder.gep(array, [ir.Constant(place_of, 0), builder.extract_element(places, lane)])
                found = builder.insert_element(found, builder.load(place), lane)
            return Value(self, found)

        return self._once(("lookup", numbers, index.of), make)

    def _once(self, key: tuple[Any, ...], make: Callable[..., Value], *arguments: Any) -> Value:
        key = tuple(id(each) if hasattr(each, "type") else each for each in key)
        if key not in self._made:
            self._made[key] = make(*arguments)
        return self._made[key]

    def _widened(self, of: Value) -> Value:
        return Value(self, self._builder.uitofp(of.of, self._vector))

    def _constant(self, number: float | bool) -> Any:
        key = type(number), number
        if key not in self._constants:
            truths = self._ir.VectorType(self._ir.IntType(1), WIDTH)
            kind = truths if isinstance(number, bool) else self._vector
            self._constants[key] = self._ir.Constant(kind, [number] * WIDTH)
        return self._constants[key]


def _splat(ir: Any, builder: Any, number: Any) -> Any:
    """A vector of equal elements."""
    undefined, first = ir.Constant(ir.VectorType(number.type, WIDTH), ir.Undefined), ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(undefined, number, first)
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


class Compiled:
    """Formulas as a loop of machine code, over vectors of `WIDTH` elements.

    Args:
        formulas: given a value for each name, the results.
        columns: names of arrays with an element for each iteration.
        numbers: names of numbers that all iterations share.

    Raises:
        ImportError, OSError, RuntimeError: no machine code can be made here.
    """

    def __init__(self, formulas: Function, columns: Sequence[str], numbers: Sequence[str] = ()) -> None:
        from llvmlite import ir

        double, count = ir.DoubleType(), ir.IntType(64)
        vector, pointer = ir.VectorType(double, WIDTH), double.as_pointer()
        module = ir.Module("formulas")
        arrays = [ir.IntType(8).as_pointer()] * 3
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [count, *arrays]), "formulas")
        enter, body, leave = (function.append_basic_block(name) for name in ("enter", "body", "leave"))
        builder = ir.IRBuilder(enter)
        total, *given = function.args
        from_columns, from_numbers, to = (elements_of(ir, builder, each, double) for each in given)
        values = {
            name: _splat(ir, builder, builder.load(builder.gep(from_numbers, [ir.Constant(count, place)])))
            for place, name in enumerate(numbers)
        }
        builder.cbranch(builder.icmp_signed(">", total, ir.Constant(count, 0)), body, leave)
        builder.position_at_end(body)
        first = builder.phi(count)
        first.add_incoming(ir.Constant(count, 0), enter)

        lanes = ir.Constant(ir.VectorType(count, WIDTH), list(range(WIDTH)))
        left = builder.icmp_signed("<", lanes, _splat(ir, builder, builder.sub(total, first)))
        alignment = ir.Constant(ir.IntType(32), ALIGNMENT)
        kinds = {"load": (vector, [pointer, alignment.type, left.type, vector])}
        kinds["store"] = ir.VoidType(), [vector, pointer, alignment.type, left.type]
        masked = {
            name: ir.Function(module, ir.FunctionType(*kind), f"llvm.masked.{name}.v{WIDTH}f64.p0")
            for name, kind in kinds.items()
        }

        def place_of(start: Any, row: int) -> Any:
            return builder.gep(start, [builder.add(builder.mul(total, ir.Constant(count, row)), first)])

        ones = ir.Constant(vector, [1.0] * WIDTH)
        for row, name in enumerate(columns):
            values[name] = builder.call(masked["load"], [place_of(from_columns, row), alignment, left, ones])
        trace = _Trace(ir, builder)
        results = formulas({name: Value(trace, of) for name, of in values.items()})
        for row, result in enumerate(results):
            builder.call(masked["store"], [trace.number(result), place_of(to, row), alignment, left])
        following = builder.add(first, ir.Constant(count, WIDTH))
        first.add_incoming(following, body)
        builder.cbranch(builder.icmp_signed("<", following, total), body, leave)
        builder.position_at_end(leave)
        builder.ret_void()
        self._call = function_of_arrays(machine_code(str(module), "formulas"), 1, len(arrays))
        self.results = len(results)
        """How many arrays come out."""

    def __call__(self, columns: FloatArray, numbers: FloatArray) -> FloatArray:
        """The results, a row for each.

        Args:
            columns: a row for each name; copied unless contiguous.
            numbers: one for each name.
        """
        columns, numbers = np.ascontiguousarray(columns, np.float64), np.ascontiguousarray(numbers, np.float64)
        count = columns.shape[1]
        found = np.empty((self.results, count))
        self._call(count, columns, numbers, found)
        return found


class Formulas:
    """Formulas that NumPy evaluates until their machine code is made, in the background. Where none can be made, NumPy
    goes on. Any number of threads may call them.

    Args:
        formulas: given an array or number for each name, the results.
        columns: names of arrays, all of one length.
        numbers: names of numbers.
    """

    def __init__(self, formulas: Function, columns: Sequence[str], numbers: Sequence[str] = ()) -> None:
        self._formulas, self._columns, self._numbers = formulas, tuple(columns), tuple(numbers)
        self.compiled = MadeLater(lambda: Compiled(formulas, columns, numbers))
        """Their machine code."""

    def __call__(self, columns: FloatArray, numbers: FloatArray) -> FloatArray:
        """The results, a row for each; arguments as of `Compiled`."""
        compiled = self.compiled.asked()
        return self.by_numpy(columns, numbers) if compiled is None else compiled(columns, numbers)

    def by_numpy(self, columns: FloatArray, numbers: FloatArray) -> FloatArray:
        """As a call, always by NumPy."""
        names = {**dict(zip(self._columns, columns, strict=True)), **dict(zip(self._numbers, numbers, strict=True))}
        results = self._formulas(names)
        found = np.empty((len(results), columns.shape[1]))
        for row, result in enumerate(results):
            found[row] = result
        return found
