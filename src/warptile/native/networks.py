"""Small networks as machine code: of a few inputs at once, each in a lane of a vector.

NumPy multiplies such small matrices slowly, and wants a copy of the inputs in another order and type first. Here a unit
of a layer is a chain of multiply-adds of vectors with one weight each; `UNITS` chains run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.native.functions import elements_of, function_of_arrays, machine_code

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights (networks, inputs, units) and biases (networks, 1, units) of one layer of all networks."""

LANES = 16
"""Inputs that are evaluated together."""

UNITS = 8
"""Units of a layer that are computed together, at most: each has a vector register."""


class CompiledNetworks:
    """Networks of equal sizes. Each layer but the last, which has one unit, is followed by max(x, 0).

    Args:
        layers: of all networks.

    Raises:
        ImportError, OSError, RuntimeError: no machine code can be made here.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        weights = [np.concatenate((bias, each), axis=1).reshape(len(each), -1) for each, bias in layers]
        self._weights = np.ascontiguousarray(np.concatenate(weights, axis=1), np.float32)
        sizes = [layers[0][0].shape[1], *(each.shape[2] for each, _ in layers)]
        self._call = function_of_arrays(machine_code(_module(sizes, len(self._weights)), "networks"), 2, 4)

    def __call__(self, inputs: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean of the outputs of all networks.

        Args:
            inputs: a row for each input of the networks, without gaps between rows.
            places: columns to evaluate; contiguous.
        """
        assert inputs.flags.c_contiguous
        assert places.flags.c_contiguous
        count = len(places)
        found = np.empty(-(-count // LANES) * LANES)
        self._call(count, inputs.shape[1], inputs, places, self._weights, found)
        return found[:count]


def _module(sizes: Sequence[int], networks: int) -> str:
    """LLVM assembly of ``networks(count, stride, inputs, places, weights, found)``.

    Args:
        sizes: inputs of the first layer, and units of each.
        networks: how many.
    """
    from llvmlite import ir

    whole, single, double = ir.IntType(64), ir.FloatType(), ir.DoubleType()
    vector, wide = ir.VectorType(single, LANES), ir.VectorType(double, LANES)
    module = ir.Module("networks")
    arguments = [whole, whole, *[ir.IntType(8).as_pointer()] * 4]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), "networks")
    build = ir.IRBuilder(function.append_basic_block())
    count, stride, *arrays = function.args
    inputs, places, weights, found = (
        elements_of(ir, build, *each) for each in zip(arrays, (double, whole, single, double), strict=True)
    )
    values = [build.alloca(ir.ArrayType(vector, size)) for size in sizes[:-1]]
    enter, leave = (function.append_basic_block() for _ in range(2))
    build.cbranch(build.icmp_signed(">", count, whole(0)), enter, leave)
    build.position_at_end(enter)

    def loop(total: Any, step: int, carried: Sequence[Any], body: Callable[..., Sequence[Any]]) -> Sequence[Any]:
        """What ``body`` makes of its index and of ``carried`` in the last iteration; there is one at least."""
        before, head = build.block, function.append_basic_block()
        build.branch(head)
        build.position_at_end(head)
        index, *phis = (build.phi(each.type) for each in (whole(0), *carried))
        results = body(index, *phis)
        following = build.add(index, whole(step))
        for phi, first, next_ in zip((index, *phis), (whole(0), *carried), (following, *results), strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(next_, build.block)
        after = function.append_basic_block()
        build.cbranch(build.icmp_signed("<", following, total), head, after)
        build.position_at_end(after)
        return results

    def call(name: str, *of: Any) -> Any:
        kind = ir.FunctionType(vector, [vector] * len(of))
        return build.call(module.declare_intrinsic(f"llvm.{name}.v{LANES}f32", (), kind), of)

    def splat(number: Any) -> Any:
        one = build.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
        return build.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def place_in(array: Any, index: Any) -> Any:
        return build.gep(array, [whole(0), index])

    def gathered(first: Any) -> None:
        """The inputs of `LANES` places, the last one repeated, as vectors."""
        last = build.sub(count, whole(1))
        columns = []
        for lane in range(LANES):
            here = build.add(first, whole(lane))
            here = build.select(build.icmp_signed("<", here, last), here, last)
            columns.append(build.load(build.gep(places, [here])))

        def row(index: Any) -> Sequence[Any]:
            start, made = build.mul(index, stride), ir.Constant(wide, ir.Undefined)
            for lane, column in enumerate(columns):
                each = build.load(build.gep(inputs, [build.add(start, column)]))
                made = build.insert_element(made, each, ir.IntType(32)(lane))
            build.store(build.fptrunc(made, vector), place_in(values[0], index))
            return ()

        loop(whole(sizes[0]), 1, (), row)

    def layer(number: int, start: Any) -> Any:
        """Where the weights of the next layer start; or, of the last layer, its output."""
        entering, units = sizes[number], sizes[number + 1]
        together, is_last = gcd(units, UNITS), number == len(sizes) - 2

        def some(unit: Any) -> Sequence[Any]:
            biases = [build.gep(start, [build.add(unit, whole(each))]) for each in range(together)]

            def added(index: Any, *sums: Any) -> Sequence[Any]:
                value = build.load(place_in(values[number], index))
                row = build.add(build.mul(build.add(index, whole(1)), whole(units)), unit)
                of = (build.load(build.gep(start, [build.add(row, whole(each))])) for each in range(together))
                return [call("fmuladd", splat(one), value, each) for one, each in zip(of, sums, strict=True)]

            sums = loop(whole(entering), 1, [splat(build.load(each)) for each in biases], added)
            if is_last:
                return sums
            zero = ir.Constant(vector, [0.0] * LANES)
            for place, each in enumerate(sums):
                build.store(call("maxnum", each, zero), place_in(values[number + 1], build.add(unit, whole(place))))
            return ()

        if is_last:
            return some(whole(0))[0]
        loop(whole(units), together, (), some)
        return build.gep(start, [whole((entering + 1) * units)])

    def block(first: Any) -> Sequence[Any]:
        gathered(first)
        each_weights = sum((entering + 1) * units for entering, units in pairwise(sizes))

        def network(index: Any, total: Any) -> Sequence[Any]:
            at = build.gep(weights, [build.mul(index, whole(each_weights))])
            for number in range(len(sizes) - 1):
                at = layer(number, at)
            return [build.fadd(total, build.fpext(at, wide))]

        (total,) = loop(whole(networks), 1, [ir.Constant(wide, [0.0] * LANES)], network)
        mean = build.fdiv(total, ir.Constant(wide, [float(networks)] * LANES))
        for lane in range(LANES):
            here = build.gep(found, [build.add(first, whole(lane))])
            build.store(build.extract_element(mean, ir.IntType(32)(lane)), here)
        return ()

    loop(count, LANES, (), block)
    build.branch(leave)
    build.position_at_end(leave)
    build.ret_void()
    return str(module)
