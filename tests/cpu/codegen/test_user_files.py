"""Names of kernels and of files, as people write them and as the compiler does."""

from pathlib import Path

import numpy as np
import pytest

import warptile as wt
from warptile.codegen import cuda_file, headers
from warptile.codegen.cuda_file import _errors_by_file, compile_file
from warptile.codegen.file_names import files_of, renamed, short_names
from warptile.codegen.host_code import declarations, host_declarations, without
from warptile.codegen.inputs import includes_in_any_case
from warptile.codegen.kernel_names import declared_kernels, demangled, entries_of, exact_names, named_entry, plain_name
from warptile.errors import ArgumentError, CompileError


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


def test_names_of_files_that_are_no_ascii():
    """Compilers write their bytes as octal numbers."""
    ptx = rb'''.file 1 "/p\303\274/k\303\251 \"1\".cu"'''
    assert files_of(ptx) == ['/pü/ké "1".cu']
    shown = renamed(ptx, {'/pü/ké "1".cu': 'ké "1".cu'})
    assert shown.decode() == r'''.file 1 "ké \"1\".cu"'''
    assert files_of(shown) == ['ké "1".cu']


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
    template <int N> __global__ void __launch_bounds__(((least() < N ? least() : N) * 4), 2) six(int* x) {}
    """
    assert list(declared_kernels(text)) == ["one", "two", "three<...>", "four", "five", "six<...>"]


def test_entries_of_ptx():
    assert entries_of(b".visible .entry _Z1kv(\n.weak .entry w$1()\n// .entry no\n.func f()") == ["_Z1kv", "w$1"]


def test_a_name_may_stand_for_one_kernel_alone():
    entries = ["_ZN1a4gemmEv", "_ZN1b4gemmEv", "other"]
    assert named_entry(entries, "a::gemm", []) == "_ZN1a4gemmEv"
    assert named_entry(["other"], None, []) == "other"
    with pytest.raises(ArgumentError, match=r"^entry: got 'gemm', which stands for a::gemm, b::gemm; give "):
        named_entry(entries, "gemm", [])
    with pytest.raises(
        ArgumentError, match=r"^entry: got 'othr'; the file has other, a::gemm; give .*such as 'other'$"
    ):
        named_entry(entries, "othr", ["a::gemm", "other"])
    with pytest.raises(ArgumentError, match=r"^entry: left out; the file has no kernel$"):
        named_entry([], None, [])
    many = [f"k{i}" for i in range(11)]
    with pytest.raises(ArgumentError, match=r"k7 and 3 more; give one of them, such as 'k0'$"):
        named_entry(many, None, many)


GEMM = "_ZN4mine4gemmILi128EfEEvPKfPT0_"
INSTANCES = [GEMM, GEMM.replace("128", "64", 1), "_Z5scalePfj", "_Z5scalePdj", "plain"]


@pytest.mark.parametrize(
    ("name", "position"),
    [
        (GEMM, 0), ("mine::gemm<128, float>", 0), ("gemm<64,float>", 1), ("gemm< 64u, float >", 1),
        ("void mine::gemm<128, float>(float const*, float*)", 0), ("gemm<128, float>(const float*, float*)", 0),
        ("scale(float *, unsigned int)", 2), ("scale(double*, unsigned int)", 3), ("plain", 4), ("mine::gemm", None),
        ("gemm<32, float>", None), ("scale", None),
    ],
)  # fmt: skip
def test_kernels_by_their_demangled_names(name, position):
    if position is None:
        with pytest.raises(ArgumentError, match="got '"):
            named_entry(INSTANCES, name, exact_names(INSTANCES))
    else:
        assert named_entry(INSTANCES, name, []) == INSTANCES[position]


def test_each_kernel_has_a_name_of_its_own():
    assert demangled(GEMM) == "void mine::gemm<128, float>(float const*, float*)"
    names = ["gemm<128, float>", "gemm<64, float>", "scale(float*, unsigned int)", "scale(double*, unsigned int)"]
    assert exact_names(INSTANCES) == [*names, "plain"]
    assert exact_names(["_ZN1a1kEv", "_ZN1b1kEv"]) == ["a::k", "b::k"]
    assert [named_entry(INSTANCES, name, []) for name in exact_names(INSTANCES)] == INSTANCES


PROGRAM = """\
#include <x.h>  // a { in a comment
namespace mine { using T = int;
template <int N = 3, typename V = T>
__global__ void kernel(V* x, int y = f({1, 2})) { if (y) { x[0] = '{'; } }
}
extern "C" { int other(void); }
struct Timer { __device__ void go() {} void stop() {} };
struct Host {
  Host() : x(1) {}
  int x; };
const int table[] = {1, 2}, more = 3;
auto square = [](int x) { return x * x; };
__constant__ float weights[3];
/* } */
int main() {
#ifdef A }
  printf("}%d\\"", other());
#endif
}
"""


def test_declarations_of_a_file():
    found = [(each.first_line, each.last_line, each.of_device) for each in declarations(PROGRAM)]
    assert found == [
        (2, 2, False), (3, 4, True), (6, 6, False), (7, 7, True), (8, 10, False), (11, 11, False), (12, 12, False),
        (12, 12, False), (13, 13, True), (15, 19, False),
    ]  # fmt: skip
    assert PROGRAM[next(declarations(PROGRAM)).start :].startswith("using T")


def test_braces_that_each_branch_of_a_condition_opens_are_opened_once():
    text = """\
__global__ void kernel(int n) {
#if WIDE
  if (n) {
#elif NARROW
  if (!n) {
#else
  for (;;) {
#endif
  }
}
void host(
#ifdef A
  int a) {
#else
  ) {
#endif
}
int last;
"""
    found = [(each.first_line, each.last_line, each.of_device) for each in declarations(text)]
    assert found == [(1, 10, True), (11, 17, False), (18, 18, False)]


def test_macros_may_be_declarations_without_a_semicolon():
    text = """\
INSTANCES(64, half)
INSTANCES(64, float)  // the widest

OTHERS(f({1}))
#define X(a) a
EACH(X)
PREFIX(int)
int held() { return 1; }
call(3)

int last;
LAST(1)
"""
    found = [(each.first_line, each.last_line) for each in declarations(text)]
    assert found == [(1, 1), (2, 2), (4, 4), (6, 8), (9, 11), (12, 12)]


def test_host_code_is_left_out_and_everything_else_keeps_its_line():
    left_out = host_declarations(PROGRAM, [4, 7, 9, 17])
    assert [(each.first_line, each.last_line) for each in left_out] == [(8, 10), (15, 19)]
    before, after = PROGRAM.split("\n"), without(PROGRAM, left_out).split("\n")
    assert len(after) == len(before)
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        directive = old.startswith("#")
        assert new == (old if directive or not (8 <= number <= 10 or 15 <= number <= 19) else ""), number


def test_errors_after_the_parser_has_lost_its_way_are_not_counted():
    lines = ["a.h(3): error: incomplete type", "b.h(9): error: expected a declaration", "b.h(12): error: no template"]
    log = "\n".join(f"{line}\n      text\n        ^\n" for line in lines)
    assert _errors_by_file(log, Path("/p")) == {Path("/p/a.h"): {3: "incomplete type"}}
    assert _errors_by_file(log[log.index("b.h") :], Path("/p")) == {
        Path("/p/b.h"): {9: "expected a declaration", 12: "no template"}
    }


def test_includes_that_no_condition_leaves_out():
    text = b"""#ifndef GUARD
#define GUARD
#include <a>
/* #include <commented>
*/
#if defined(X)
# include <in_a_condition>
#else
#include <in_another>
#endif
#ifdef Y
#include "y.h"
#endif
  #  include "b.h"
#endif
"""
    assert includes_in_any_case(text) == ((False, "a"), (True, "b.h"))
    assert includes_in_any_case(text.replace(b"#define GUARD", b"")) == ()
    assert includes_in_any_case(b"#include <a>") == ((False, "a"),)


@pytest.fixture
def passes(monkeypatch):
    """A list that grows with each pass of the compiler."""
    made, run_program = [], cuda_file.run_program

    def counted(*arguments, **options):
        made.append(options)
        return run_program(*arguments, **options)

    monkeypatch.setattr(cuda_file, "run_program", counted)
    return made


def test_all_headers_that_a_file_lacks_are_left_empty_at_once(tmp_path, passes):
    (tmp_path / "own.h").write_text("#pragma once\n#include <deque>\n#include <list>\n")
    names = ("vector", "string", "map", "chrono", "sys/time.h", "fstream")
    includes = "".join(f"#include <{name}>\n" for name in names)
    (tmp_path / "k.cu").write_text(
        f'{includes}#include "own.h"\n#ifdef _WIN32\n#include <windows.h>\n#endif\n__global__ void k() {{}}\n'
    )
    assert compile_file(tmp_path / "k.cu", "sm_90a").left_empty == (*names, "deque", "list")
    assert len(passes) == 2


def test_cccl_may_lie_in_another_folder_than_cudas_headers(monkeypatch):
    def folder(name, release):
        return headers.IncludeFolder(Path(name), release, ())

    found = [folder("wheel", (13, 0)), folder("old", (12, 9)), folder("toolkit", (13, 1))]
    monkeypatch.setattr(headers, "candidates", lambda: iter(found))
    monkeypatch.setattr(Path, "is_dir", lambda path: path.parts[0] in ("old", "toolkit"))
    assert headers.cccl_folder(13) == Path("toolkit/cccl")
    assert headers.cccl_folder(14) is None


def test_host_functions_of_a_namespace_that_is_nowhere_are_left_out_together(tmp_path, passes):
    lines = ["#include <vector>"]
    for number in range(6):
        lines.append(f"lib::Tensor launch{number}(lib::Tensor x) {{ return lib::go(x); }}")
    lines.append("int twice(int x) { return 2 * x; }  // as lib::twice")
    lines.append("__global__ void k(int* x) { x[0] = twice(x[0]); }")
    (tmp_path / "k.cu").write_text("\n".join(lines))
    assert compile_file(tmp_path / "k.cu", "sm_90a").left_out == tuple((line, line) for line in range(2, 8))
    assert len(passes) == 3


def test_algorithms_that_the_host_calls_are_left_out(tmp_path):
    for name in ("cub/device/device_scan.cuh", "thrust/sort.h", "thrust/complex.h"):
        (tmp_path / "cccl" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cccl" / name).write_text("#error of the host\n")
    source = tmp_path / "k.cu"
    source.write_text("""
#include <cub/device/device_scan.cuh>
#include <thrust/sort.h>
void scan(int* x, int n) {
  size_t bytes = 0;
  cub::DeviceScan::ExclusiveSum(nullptr, bytes, x, x, n);
  thrust::sort(x, x + n);
}
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }
""")
    found = compile_file(source, "sm_90a", include_folders=[tmp_path / "cccl"])
    assert (found.left_empty, found.left_out) == ((), ((4, 8),))
    source.write_text("#include <thrust/sort.h>\n__global__ void k(int* x) { thrust::sort(thrust::seq, x, x + 4); }")
    with pytest.raises(CompileError, match=r"called on the host are left out of <thrust/sort\.h>"):
        compile_file(source, "sm_90a", include_folders=[tmp_path / "cccl"])


@pytest.mark.skipif(headers.cccl_folder(13) is None, reason="no CCCL")
def test_what_kernels_use_of_thrust(tmp_path):
    (tmp_path / "k.cu").write_text("""
#include <thrust/complex.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/tuple.h>
__global__ void k(thrust::complex<float>* y, const int* x) {
  const auto pair = thrust::make_tuple(thrust::max(x[0], x[1]), thrust::plus<int>()(x[0], x[1]));
  y[0] = thrust::complex<float>(thrust::get<0>(pair), thrust::get<1>(pair)) * thrust::conj(y[0]);
  y[0] += thrust::abs(y[1]);
}
""")
    x, y = np.array([3, 4], np.int32), np.array([1 + 2j, 3 - 4j], np.complex64)
    assert wt.kernel(tmp_path / "k.cu", backend="emulator", arch="sm_90a")[1, 1](y, x).ok
    assert y[0] == (4 + 7j) * (1 - 2j) + 5


def test_what_is_of_curand_says_which_package_has_it(tmp_path):
    (tmp_path / "k.cu").write_text("#include <curand_of_tests.h>\n__global__ void k(curandStateOfTests* s) {}\n")
    with pytest.raises(CompileError, match=r"curand_of_tests\.h: of cuRAND, which .*cuda-toolkit\[curand\]"):
        compile_file(tmp_path / "k.cu", "sm_90a")


def test_byte_order_marks_are_no_part_of_a_file(tmp_path):
    (tmp_path / "own.h").write_text("\ufeff#pragma once\n__device__ int two() { return 2; }\n", encoding="utf-8")
    (tmp_path / "k.cu").write_text(
        '\ufeff#include "own.h"\n__global__ void k(int* y) { y[0] = two(); }\n', encoding="utf-8"
    )
    found = compile_file(tmp_path / "k.cu", "sm_90a")
    assert (found.left_empty, found.left_out) == ((), ())


def test_attributes_and_leading_colons_belong_to_a_declaration():
    text = '[[noreturn]] void fail(std::string why) { throw why; }\n::std::string name() { return ""; }\nint one;\n'
    assert [text[each.start : each.end] for each in declarations(text)] == text.strip().split("\n")
