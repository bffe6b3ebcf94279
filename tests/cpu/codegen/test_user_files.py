"""Names of kernels and of files, as people write them and as the compiler does."""

import pytest

from warptile.codegen.file_names import files_of, renamed, short_names
from warptile.codegen.kernel_names import declared_kernels, entries_of, named_entry, plain_name
from warptile.errors import ArgumentError


def test_files_get_as_much_of_their_paths_as_tells_them_apart():
    files = ["/p/k.cu", "/p/a/tile.h", "/p/b/tile.h", "/q/b/tile.h", "/p/x/../a/tile.h"]
    assert short_names(files) == {
        "/p/k.cu": "k.cu", "/p/a/tile.h": "a/tile.h", "/p/b/tile.h": "p/b/tile.h", "/q/b/tile.h": "q/b/tile.h",
        "/p/x/../a/tile.h": "a/tile.h",
    }  # fmt: skip
    assert short_names(["tile.h", "a/tile.h"]) == {"tile.h": "tile.h", "a/tile.h": "a/tile.h"}
    assert short_names([]) == {}


def test_files_of_ptx_are_renamed_and_nothing_else():
    ptx = b'\t.file\t1 "/p/k.cu"\n .file 2 "/p/h.h", 1, 20\n// .file 3 "/p/k.cu"\n.b8 "/p/k.cu"\n'
    assert files_of(ptx) == ["/p/k.cu", "/p/h.h"]
    assert renamed(ptx, {"/p/k.cu": "k.cu"}) == ptx.replace(b'1 "/p/k.cu"', b'1 "k.cu"')


@pytest.mark.parametrize(
    ("lowered", "plain"),
    [
        ("_Z5scalePf", "scale"), ("_ZN4mine5scaleEPf", "mine::scale"), ("_Z5scaleILi128EEvPf", "scale"), ("k", "k"),
        ("_ZL4heldPf", "held"), ("_ZN4mine5gemm_ILi4EEvPf", "mine::gemm_"), ("", ""),
    ],
)  # fmt: skip
def test_plain_names(lowered, plain):
    assert plain_name(lowered) == plain


def test_kernels_that_a_text_declares():
    text = """
    // __global__ void commented(int);
    /* __global__ void out(int) {} */
    __global__ void one(float* x);
    extern "C" __global__ void __launch_bounds__(128, 2) two(const float* __restrict__ x) { int helper(int); }
    template <typename T, int N = (4)>
    __global__ __launch_bounds__(N) void three(T x) {}
    __global__ void __cluster_dims__(2, 1, 1) four() {}
    __device__ int no(int x) { return x; }
    static __global__ void five(int (&x)[3]) {}
    """
    assert list(declared_kernels(text)) == ["one", "two", "three<...>", "four", "five"]


def test_entries_of_ptx():
    assert entries_of(b".visible .entry _Z1kv(\n.weak .entry w$1()\n// .entry no\n.func f()") == ["_Z1kv", "w$1"]


def test_a_name_may_stand_for_one_kernel_alone():
    entries = ["_ZN1a4gemmEv", "_ZN1b4gemmEv", "other"]
    assert named_entry(entries, "a::gemm", []) == "_ZN1a4gemmEv"
    assert named_entry(["other"], None, []) == "other"
    with pytest.raises(ArgumentError, match=r"got 'gemm', which stands for _ZN1a4gemmEv, _ZN1b4gemmEv"):
        named_entry(entries, "gemm", [])
    with pytest.raises(ArgumentError, match=r"^got 'othr'; the file has other, a::gemm$"):
        named_entry(entries, "othr", ["a::gemm", "other"])
    with pytest.raises(ArgumentError, match=r"^left out; the file has no kernel$"):
        named_entry([], None, [])
    many = [f"k{i}" for i in range(11)]
    with pytest.raises(ArgumentError, match=r"k7 and 3 more$"):
        named_entry(many, None, many)
