"""The baseline's arithmetic of layouts and its choice of an algorithm, without the library."""

import ctypes
import importlib.util
import sys
from collections import defaultdict
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from warptile.bench.baselines.cublaslt import CublasLt, CublasLtMatmul, fastest, layouts, transposes, types_of
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import BF16, E4M3, E4M3_FAST
from warptile.errors import UnsupportedError

TYPES = ("float64", "float64", "float64")


def column_major(memory, layout):
    """A library's view of some memory: ``rows`` by ``columns``, column after column."""
    assert layout.leading_dimension == layout.rows
    return memory.reshape(layout.columns, layout.rows).T


@pytest.mark.parametrize("a_major", ["row", "col"])
@pytest.mark.parametrize("b_major", ["row", "col"])
def test_the_library_computes_our_product(a_major, b_major):
    m, n, k = 3, 5, 7
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((m, k)), generator.standard_normal((k, n))
    stored_b = np.ascontiguousarray(b if b_major == "row" else b.T)
    stored_a = np.ascontiguousarray(a if a_major == "row" else a.T)
    key = ProblemKey(m, n, k, *TYPES, b_major, a_major)
    first, second, result = layouts(key)
    left, right = column_major(stored_b.reshape(-1), first), column_major(stored_a.reshape(-1), second)
    first_transposed, second_transposed = transposes(key)
    product = (left.T if first_transposed else left) @ (right.T if second_transposed else right)
    assert (result.rows, result.columns) == product.shape
    d = np.empty(m * n)
    column_major(d, result)[:] = product
    np.testing.assert_allclose(d.reshape(m, n), a @ b)


def test_float32_is_true_float32_and_tf32_is_asked_for():
    assert types_of(ProblemKey(8, 8, 8, "float32", "float32", "float32")).compute == "COMPUTE_32F"
    assert types_of(ProblemKey(8, 8, 8, "tfloat32", "float32", "float32")).compute == "COMPUTE_32F_FAST_TF32"


def test_accumulators_of_float16_are_kept_apart():
    wide = types_of(ProblemKey(8, 8, 8, "float16", "float32", "float16"))
    narrow = types_of(ProblemKey(8, 8, 8, "float16", "float16", "float16"))
    assert (wide.compute, narrow.compute) == ("COMPUTE_32F", "COMPUTE_16F")
    assert (wide.scale, narrow.scale) == ("CUDA_R_32F", "CUDA_R_16F")


def test_types_without_a_baseline_are_refused_by_name():
    assert types_of(ProblemKey(8, 8, 8, "float8_e4m3", "float32", "bfloat16")).operand == "CUDA_R_8F_E4M3"
    with pytest.raises(UnsupportedError, match=r"got uint8/int32/int32 .* such as a key with dtype='float16'"):
        types_of(ProblemKey(8, 8, 8, "uint8", "int32", "int32"))


def test_the_fastest_algorithm_wins_whatever_its_place():
    times = {0: 2.0, 1: 3.0, 2: 1.0, 3: 5.0}
    best = fastest(4, times.__getitem__)
    assert (best.index, best.best_ms, best.first_ms, best.failed) == (2, 1.0, 2.0, ())


def test_one_hiccup_does_not_choose():
    calls = []

    def time_ms(index):
        calls.append(index)
        return [1.0, 1.2][index] + (9.0 if calls == [0] else 0.0)

    assert fastest(2, time_ms).index == 0


def test_an_algorithm_that_fails_is_named_and_left_out():
    def time_ms(index):
        if index != 1:
            raise RuntimeError("not supported")
        return 4.0

    best = fastest(3, time_ms)
    assert (best.index, best.best_ms, best.first_ms) == (1, 4.0, None)
    assert best.failed == ("heuristic 0: not supported", "heuristic 2: not supported")


def test_when_all_fail_there_is_no_baseline():
    with pytest.raises(UnsupportedError, match="every algorithm failed: heuristic 0: no"):
        fastest(1, lambda index: (_ for _ in ()).throw(RuntimeError("no")))


@pytest.mark.skipif(importlib.util.find_spec("nvmath") is not None, reason="nvmath-python is installed")
def test_without_its_bindings_the_message_says_how_to_get_them():
    with pytest.raises(UnsupportedError, match=r"pip install 'warptile\[bench\]'"):
        CublasLt()


class FakeLt:
    """cuBLASLt's bindings as far as a product needs them: attributes are noted by name."""

    class cuBLASLtError(Exception):
        pass

    def __init__(self):
        self.noted = {}
        self.layouts, self.batches = [], {}
        self.MatrixLayoutAttribute = {"BATCH_COUNT": 5, "STRIDED_BATCH_OFFSET": 6}
        names = ("TRANSA", "TRANSB", "FAST_ACCUM")
        self.MatmulDescAttribute = {name: index for index, name in enumerate(names)}
        limits = ("MAX_WORKSPACE_BYTES", *(f"MIN_ALIGNMENT_{each}_BYTES" for each in "ABCD"))
        limits = {name: index for index, name in enumerate(limits)}
        self.MatmulPreferenceAttribute = type("Preference", (dict,), limits)(limits)
        self.matmul_heuristic_result_dtype = np.dtype([("state", np.int32), ("algo", np.int64)])

    def __getattr__(self, name):
        return lambda *arguments: 0

    def matrix_layout_create(self, *what):
        self.layouts.append(what)
        return len(self.layouts)

    def get_matrix_layout_attribute_dtype(self, attribute):
        return {5: np.int32, 6: np.int64}[attribute]

    def matrix_layout_set_attribute(self, layout, attribute, address, size):
        kind = {(5, 4): ctypes.c_int32, (6, 8): ctypes.c_int64}[attribute, size]
        self.batches[layout, attribute] = kind.from_address(address).value

    def get_matmul_desc_attribute_dtype(self, attribute):
        return np.int32

    def _note(self, names, attribute, address, size):
        kind = {4: ctypes.c_int32, 8: ctypes.c_int64}[size]
        name = next(name for name, index in names.items() if index == attribute)
        self.noted[name] = kind.from_address(address).value

    def matmul_desc_set_attribute(self, description, attribute, address, size):
        self._note(self.MatmulDescAttribute, attribute, address, size)

    def matmul_preference_set_attribute(self, preference, attribute, address, size):
        self._note(self.MatmulPreferenceAttribute, attribute, address, size)

    def matmul_algo_get_heuristic(self, *arguments):
        ctypes.c_int32.from_address(arguments[-1]).value = 1


@pytest.fixture
def asked(monkeypatch):
    """What the library is asked for a problem, by the names of its attributes."""
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace(CudaDataType=defaultdict(int)))

    def ask(key, **how):
        lt = FakeLt()
        assert len(CublasLtMatmul(lt, defaultdict(int), 0, key, **how)) == 1
        return {**lt.noted, **lt.batches}

    return ask


def test_matrices_that_begin_anywhere_are_said_to_the_library(asked):
    key = BF16.key(64, 64, 64, "col")
    assert not any("ALIGNMENT" in name for name in asked(key))
    assert asked(key, alignment_bytes=2)["MIN_ALIGNMENT_B_BYTES"] == 2


def test_short_sums_of_8_bit_floats_are_asked_for(asked):
    assert "FAST_ACCUM" not in asked(E4M3.key(64, 64, 64, "col"))
    assert asked(E4M3_FAST.key(64, 64, 64, "col"))["FAST_ACCUM"] == 1


def test_matrices_of_a_batch_follow_each_other_in_the_librarys_layouts(asked):
    key = msgspec.structs.replace(BF16.key(48, 80, 64, "col"), batch=5)
    count, stride = 5, 6
    found = asked(key)
    # The library's first operand is our B, its second our A, its result our D.
    assert [found[layout, count] for layout in (1, 2, 3)] == [5, 5, 5]
    assert [found[layout, stride] for layout in (1, 2, 3)] == [80 * 64, 48 * 64, 48 * 80]
    assert not any(isinstance(name, tuple) for name in asked(BF16.key(48, 80, 64, "col")))
