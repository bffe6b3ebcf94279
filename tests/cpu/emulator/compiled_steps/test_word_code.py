"""Functions on words: what is compiled gives what Python gives."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding as llvm

from warptile.emulator.compiled_steps import word_code
from warptile.emulator.compiled_steps.step_library import linked, object_of, target_of
from warptile.emulator.compiled_steps.word_code import add_f32, read_i64, read_u8, write_32, write_64

LIMIT = 1 << 20


def arithmetic(x: int, y: int) -> int:
    """Every operator."""
    z = (x + y) * 3 - (x & y) + (x | 5) - (x ^ y)
    z += (x << 2) + (y >> 1) + ~x - -y
    return z + abs_(z) // 8 + abs_(y) % 16 + min(x, y) - max(x, LIMIT)


def abs_(x: int) -> int:
    """A conditional expression, and a function that others call."""
    return x if x >= 0 else -x


def conditions(x: int, y: int) -> int:
    """Short-circuit evaluation, chains and truth values as numbers."""
    found = (x < y) + 2 * (x == 3) + 4 * (not y)
    if (x > 0 and y > 0) or x == -1:
        found += 8
    elif 0 <= y < 10:
        found += 16
    else:
        found += 32
    return found


def loops(x: int, y: int) -> int:
    """Loops with ``break`` and ``continue``, one whose limit changes, and one over constants."""
    total = 0
    for i in range(abs_(x) % 32):
        if i % 4 == 1:
            continue
        if i > 20:
            break
        total += i
    limit = abs_(y) % 16
    for i in range(2, limit):
        limit = 100
        total += i
    while total > 64:
        total -= 50
    for weight in (3, 5, x):
        if weight == 5:
            continue
        total += weight
    first, second = total, x
    first, second = second, first
    return first * 7 + second


FUNCTIONS = (arithmetic, abs_, conditions, loops)


def summed(bytes_: int, count: int, out: int) -> int:
    """Reads and writes of memory."""
    total = 0
    for i in range(count):
        total += read_u8(bytes_ + i)
    write_64(out, total)
    write_32(out + 8, total - 1)
    return read_i64(out)


def compiled(*functions: word_code.WordFunction) -> dict[str, ctypes._CFuncPtr]:
    text = word_code.assembly(functions, [each.__name__ for each in functions])
    machine, _ = target_of(text)
    engine = linked(machine, object_of(machine, text))
    found = {}
    for each in functions:
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * each.__code__.co_argcount)
        found[each.__name__] = kind(engine.get_function_address(each.__name__))
        found[each.__name__].engine = engine
    return found


def test_words_are_computed_as_in_python():
    machine_code = compiled(*FUNCTIONS)
    for x in (-70, -5, -1, 0, 1, 3, 17, 31, 1000):
        for y in (-33, -2, 0, 1, 9, 10, 64, 12345):
            for function in (arithmetic, conditions, loops):
                assert machine_code[function.__name__](x, y) == function(x, y), (function.__name__, x, y)


def test_memory_is_read_and_written():
    code = compiled(summed)["summed"]
    given, out = np.arange(100, 200, dtype=np.uint8), np.full(2, -1, dtype=np.int64)
    expected = int(given.sum())
    assert code(given.ctypes.data, len(given), out.ctypes.data) == expected
    assert out.tolist() == [expected, (0xFFFFFFFF << 32 | expected - 1) - (1 << 64)]


def sum_of_singles(x: int, y: int) -> int:
    return add_f32(x, y)


def test_singles_are_added_as_in_numpy():
    add = compiled(sum_of_singles)["sum_of_singles"]
    values = np.array([0.1, -0.0, 1e-40, 3e38, np.inf, -7.25e10], dtype=np.float32)
    bits = values.view(np.uint32).tolist()
    with np.errstate(over="ignore"):
        for x, one in zip(bits, values, strict=True):
            for y, other in zip(bits, values, strict=True):
                assert add(x, y) == (one + other).view(np.uint32)


def unknown_call(x: int) -> int:
    """Calls what is not compiled with it."""
    return abs_(x)


def unknown_statement(x: int) -> int:
    """Uses a statement that is not in the compiled part of Python."""
    with x:
        return x


@pytest.mark.parametrize(("function", "error"), [(unknown_call, NameError), (unknown_statement, SyntaxError)])
def test_what_cannot_be_compiled_is_said(function, error):
    with pytest.raises(error, match=function.__name__):
        word_code.assembly([function], [])


def test_assembly_is_valid():
    llvm.parse_assembly(word_code.assembly(FUNCTIONS, [])).verify()
