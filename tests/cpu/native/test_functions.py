"""Machine code outlives whoever asked for it: threads that make one function at once each go on calling their own."""

import ctypes
import gc
import weakref

import pytest

from warptile.native.functions import METH_O, machine_code, method

llvm = pytest.importorskip("llvmlite.binding")

PLUS_ONE = """
define i64 @plus_one(i64 %x) {
  %y = add i64 %x, 1
  ret i64 %y
}
"""


@pytest.fixture
def compilers(monkeypatch):
    """References to the compilers that are made, which keep none of them alive."""
    made, make = [], llvm.create_mcjit_compiler

    def making(*given):
        compiler = make(*given)
        made.append(weakref.ref(compiler))
        return compiler

    monkeypatch.setattr(llvm, "create_mcjit_compiler", making)
    return made


def test_machine_code_is_kept(compilers):
    functions = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(machine_code(PLUS_ONE, "plus_one")) for _ in range(3)]
    gc.collect()
    assert len(compilers) == 3
    assert all(each() is not None for each in compilers)
    assert [each(41) for each in functions] == [42] * 3


def test_the_description_of_a_function_is_kept(compilers):
    described = weakref.ref(method(PLUS_ONE, "plus_one", METH_O, "Adds one."))
    gc.collect()
    assert described() is not None
    assert described().name == b"plus_one"
    assert compilers[0]() is not None
