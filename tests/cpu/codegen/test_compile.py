"""Compiling needs no GPU, names no machine, refuses costly results, and takes from the cache only what is current."""

import os
import re
import subprocess
import sys

import msgspec
import pytest

from warptile.codegen import headers
from warptile.codegen import nvrtc as compile_module
from warptile.codegen.cache import Cache
from warptile.codegen.nvrtc import (
    Resources,
    compile_ptx,
    compile_source,
    compiler_version,
    nvrtc_release,
    ptx_alone,
    resources_of,
    supported_arches,
)
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, UnsupportedError
from warptile.problem import Problem
from warptile.rungs import RUNGS

ARCH = "sm_90a"

PLAIN = Source(
    """
#include <mma.h>
namespace warptile {
template <int STRIDE>
__global__ void copy(const __half* a, float* d) {
  __shared__ float tile[256];
  tile[threadIdx.x] = __half2float(a[threadIdx.x]);
  __syncthreads();
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum;
  nvcuda::wmma::fill_fragment(sum, tile[255 - threadIdx.x]);
  nvcuda::wmma::store_matrix_sync(d + STRIDE, sum, 16, nvcuda::wmma::mem_row_major);
}
}
""",
    "warptile::copy<4>",
)

SMALL = Source("__global__ void k(float* d) { d[0] = 1; }", "k")

SPILLS = """
__global__ void __launch_bounds__(1024) k(float* d) {
  float v[128];
  for (int i = 0; i < 128; i++) v[i] = d[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < 128; j++) d[j * 1024 + threadIdx.x + 7] = v[j] * v[127 - j];
}
"""


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A kernels folder of the test's own: rung.cuh includes tile/load.cuh, which includes tile/deep.cuh."""
    folder = tmp_path / "kernels"
    (folder / "tile").mkdir(parents=True)
    (folder / "rung.cuh").write_text(
        '#pragma once\n#include "tile/load.cuh"\nnamespace warptile {\n'
        "template <int N> __global__ void k(float* d) { d[N] = load(d); }\n}\n"
    )
    (folder / "tile" / "load.cuh").write_text(
        '#pragma once\n#include "tile/deep.cuh"\nnamespace warptile {\n'
        "__device__ inline float load(float* d) { return d[threadIdx.x] + DEEP; }\n}\n"
    )
    (folder / "tile" / "deep.cuh").write_text("#pragma once\n#define DEEP 1.0f\n")
    monkeypatch.setattr(headers, "KERNELS", folder)
    return folder


RUNG = Source('#include "rung.cuh"\n', "warptile::k<3>")


def test_one_compilation_gives_ptx_and_cubin_without_a_gpu():
    kernel = compile_source(PLAIN, ARCH, cache=None)
    assert kernel.entry == "_ZN8warptile4copyILi4EEEvPK6__halfPf"
    assert kernel.ptx.endswith(b"}\n") or kernel.ptx.rstrip().endswith(b"}")
    assert b"\0" not in kernel.ptx
    assert f".entry {kernel.entry}(".encode() in kernel.ptx
    assert b".target sm_90a" in kernel.ptx
    assert b"wmma.store.d.sync.aligned" in kernel.ptx
    assert kernel.cubin.startswith(b"\x7fELF")
    assert kernel.resources.static_shared_bytes == 256 * 4
    assert 8 <= kernel.resources.registers <= 64
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0
    assert re.fullmatch(r"NVRTC \d+\.\d+\.\d+", kernel.compiler)
    assert f"'{kernel.entry}' for 'sm_90a'" in kernel.log


def test_the_emulators_ptx_is_compiled_once_and_has_an_entry_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WARPTILE_DUMP", raising=False)
    made = compile_ptx(SMALL, ARCH)
    assert (made.entry, made.arch) == ("_Z1kPf", ARCH)
    assert b".entry _Z1kPf" in made.ptx
    [entry] = Cache().list()
    assert (entry.metadata["name_expression"], list(entry.blobs)) == ("k", ["ptx"])
    with monkeypatch.context() as patched:
        patched.setattr(compile_module, "_run", None)
        assert compile_ptx(SMALL, ARCH) == made
    assert compile_module.cached_kernel(SMALL, ARCH) is None, "PTX alone is no kernel for a GPU"
    whole = compile_source(SMALL, ARCH)
    assert len(list(Cache().list())) == 2
    assert compile_module.cached_kernel(SMALL, ARCH) == whole
    assert compile_ptx(Source(SPILLS, "k"), ARCH).entry == "_Z1kPf", "nobody asks ptxas"
    with pytest.raises(CompileError):
        compile_ptx(Source("", "missing"), ARCH)


def test_ptx_alone_is_that_of_the_whole_compilation(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    whole = compile_source(PLAIN, ARCH, cache=None)
    entry, ptx = ptx_alone(PLAIN, ARCH)

    def code(text):
        """Without comments, and without debug information: names in it have a hash of the time of compilation."""
        lines, _, _ = text.partition(b"\t.section")
        return [line for line in lines.splitlines() if line and not line.startswith(b"//")]

    assert (entry, code(ptx)) == (whole.entry, code(whole.ptx))
    assert any(b"wmma.store" in line for line in code(ptx))
    assert ptx_alone(Source(SPILLS, "k"), ARCH)[0] == "_Z1kPf"  # nobody asks ptxas
    assert not list(tmp_path.iterdir())
    with pytest.raises(CompileError, match="declares no such name"):
        ptx_alone(Source("", "missing"), ARCH)
    with pytest.raises(UnsupportedError, match="sm_12"):
        ptx_alone(SMALL, "sm_12")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_generation_is_a_target(arch):
    kernel = compile_source(PLAIN, arch, cache=None)
    assert kernel.arch == arch
    assert f".target {arch}\n".encode() in kernel.ptx


def test_line_information_names_files_relative_to_the_package(kernels):
    kernel = compile_source(RUNG, ARCH, cache=None)
    assert re.findall(rb'\.file\s+\d+ "([^"]*)"', kernel.ptx) == [b"rung.cuh", b"tile/load.cuh"]
    assert re.search(rb"\.loc\s+1 4 ", kernel.ptx)


def test_no_output_depends_on_the_current_folder_or_the_time(tmp_path, monkeypatch, kernels):
    first = compile_source(RUNG, ARCH, cache=None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rung.cuh").write_text("#error this file must not be found\n")
    assert compile_source(RUNG, ARCH, cache=None) == first
    for folder in (os.getcwd(), str(kernels), sys.prefix):
        assert folder.encode() not in first.ptx
        assert folder not in first.log
    assert str(kernels).encode() not in first.cubin


def test_cuda_headers_are_named_relative_to_their_folder():
    kernel = compile_source(PLAIN, ARCH, cache=None)
    names = re.findall(rb'\.file\s+\d+ "([^"]*)"', kernel.ptx)
    assert names[0] == b"kernel.cu"
    assert {b"crt/mma.hpp"} <= set(names[1:]) <= {b"crt/mma.h", b"crt/mma.hpp", b"cuda_fp16.hpp"}


def test_an_error_names_the_header_and_its_line_and_carries_the_log(kernels):
    load = kernels / "tile" / "load.cuh"
    load.write_text(load.read_text().replace("threadIdx.x]", "threadIdx.x"))
    with pytest.raises(CompileError) as caught:
        compile_source(RUNG, ARCH, cache=None)
    assert caught.value.line == "tile/load.cuh(4)"
    assert "tile/load.cuh(4)" in str(caught.value)
    assert "warptile::k<3>" in str(caught.value)
    assert 'expected a "]"' in caught.value.log


def test_a_name_that_the_source_lacks_is_an_error_without_a_line():
    with pytest.raises(CompileError, match=r"declares no such name.*no member \"absent\"") as caught:
        compile_source(Source(PLAIN.text, "warptile::absent<4>"), ARCH, cache=None)
    assert caught.value.line is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("__shared__ float s[100000]; s[threadIdx.x] = d[0]; __syncthreads(); d[1] = s[5];", "too much shared data"),
        ('asm volatile("bogus.op;");', "bogus|Unknown modifier"),
    ],
)
def test_what_ptxas_refuses_is_an_error_with_its_reason(body, reason):
    with pytest.raises(CompileError, match=f"ptxas: .*(?:{reason})"):
        compile_source(Source(f"__global__ void k(float* d) {{ {body} }}", "k"), ARCH, cache=None)


def test_an_unknown_option_is_an_error():
    with pytest.raises(CompileError, match="--bogus"):
        compile_source(PLAIN, ARCH, options=("--bogus",), cache=None)


@pytest.mark.parametrize("arch", ["sm_70", "sm_80a", "compute_90", "90", "sm_90x", ""])
def test_an_architecture_that_nvrtc_lacks_is_refused_with_those_it_has(arch):
    with pytest.raises(UnsupportedError, match=r"sm_75, sm_80.*arch='sm_90a'") as caught:
        compile_source(PLAIN, arch, cache=None)
    assert repr(arch) in str(caught.value)


def test_spills_fail_a_source_that_must_not_spill():
    with pytest.raises(CompileError, match=r"registers spill to local memory \(\d+ bytes stored") as caught:
        compile_source(Source(SPILLS, "k"), ARCH, cache=None)
    assert "spill stores" in caught.value.log
    kernel = compile_source(Source(SPILLS, "k", may_spill=True), ARCH, cache=None)
    assert kernel.resources.spill_store_bytes > 0
    assert kernel.resources.spill_load_bytes > 0
    assert kernel.resources.stack_bytes > 0
    assert kernel.resources.registers == 64


WGMMA = """
__global__ void __launch_bounds__(128) k(float* d, unsigned long long a, unsigned long long b) {
  float c[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  for (int i = 0; i < 2; i++) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(a), "l"(b));
    c[0] += TOUCH;
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; i++) d[threadIdx.x * 4 + i] = c[i];
}
"""


def test_serialised_wgmma_fails_the_build():
    with pytest.raises(CompileError, match=r"wgmma\.mma_async instructions are serialized"):
        compile_source(Source(WGMMA.replace("TOUCH", "1.0f"), "k"), ARCH, cache=None)


def test_wgmma_that_is_not_serialised_compiles():
    text = WGMMA.replace("c[0] += TOUCH;", "").replace("i < 2", "i < 1")
    assert compile_source(Source(text, "k"), ARCH, cache=None).resources.registers > 0


def test_an_ignored_register_budget_fails_the_build():
    text = '__global__ void k(float* d) { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); d[0] = 1; }'
    with pytest.raises(CompileError, match="'setmaxnreg' ignored"):
        compile_source(Source(text, "k"), ARCH, cache=None)


def test_resources_count_the_functions_that_a_kernel_calls():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 96 bytes cumulative stack size, 512 bytes smem
ptxas info    : Function properties for callee
ptxas         .     32 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 360 bytes cmem[0]
"""
    assert resources_of(log, "first") == Resources(40, 512, 96, 24, 40)
    assert resources_of(log, "second") == Resources(255, 0, 0, 0, 0)
    with pytest.raises(CompileError, match="third"):
        resources_of(log, "third")


def _no_compilation(*_):
    raise AssertionError("compiled although the cache has it")


def test_a_second_call_takes_everything_from_the_cache(cache, monkeypatch):
    first = compile_source(PLAIN, ARCH, cache=cache)
    monkeypatch.setattr(compile_module, "_compile", _no_compilation)
    assert compile_source(PLAIN, ARCH, cache=cache) == first


def test_the_default_cache_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "mine"))
    kernel = compile_source(SMALL, ARCH)
    assert [entry.key for entry in Cache(tmp_path / "mine").list()] == [kernel.key]


def test_without_a_cache_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "mine"))
    compile_source(SMALL, ARCH, cache=None)
    assert not (tmp_path / "mine").exists()


def test_a_debug_build_changes_no_later_compilation_of_the_process():
    problem = Problem.dense(
        64, 96, 32, DTYPES["float32"], out=DTYPES["float32"], accumulator=DTYPES["float32"], b_major="col"
    )
    rung = RUNGS["simt-warptile"]
    source = translation_unit(rung.resolve(problem, rung.default_config(problem)))
    before = compile_source(source, ARCH, cache=None)
    debug = compile_source(SMALL, ARCH, options=("-G",), cache=None)
    assert b".target sm_90a, debug" in debug.ptx
    assert compile_source(source, ARCH, cache=None).cubin == before.cubin
    with pytest.raises(CompileError, match="__global__"):
        compile_source(Source("__global__ void k( {", "k"), ARCH, options=("-G",), cache=None)


def test_whatever_changes_the_result_changes_the_key(cache, kernels):
    keys = [compile_source(RUNG, ARCH, cache=cache).key]
    keys.append(compile_source(RUNG, "sm_90", cache=cache).key)
    keys.append(compile_source(RUNG, ARCH, options=("-maxrregcount=32",), cache=cache).key)
    keys.append(compile_source(Source(RUNG.text, "warptile::k<4>"), ARCH, cache=cache).key)
    keys.append(compile_source(Source(RUNG.text + "\n", RUNG.name_expression), ARCH, cache=cache).key)
    keys.append(compile_source(Source(RUNG.text, RUNG.name_expression, may_spill=True), ARCH, cache=cache).key)
    for name in ("rung.cuh", "tile/load.cuh", "tile/deep.cuh"):
        (kernels / name).write_text((kernels / name).read_text() + "// more\n")
        keys.append(compile_source(RUNG, ARCH, cache=cache).key)
    (kernels / "unrelated.cuh").write_text("")
    assert compile_source(RUNG, ARCH, cache=cache).key == keys[-1]
    assert len(set(keys)) == len(keys) == 9


def test_an_edited_header_is_compiled_anew(cache, kernels):
    before = compile_source(RUNG, ARCH, cache=cache)
    (kernels / "tile" / "deep.cuh").write_text("#pragma once\n#define DEEP 2.0f\n")
    after = compile_source(RUNG, ARCH, cache=cache)
    assert before.ptx != after.ptx
    assert b"0f40000000" in after.ptx


def test_another_compiler_or_other_cuda_headers_give_another_key(cache, monkeypatch):
    keys = {compile_source(PLAIN, ARCH, cache=cache).key}
    monkeypatch.setattr(compile_module, "compiler_version", lambda: "NVRTC 13.99.0")
    monkeypatch.setattr(compile_module, "_usual_compiler", lambda: ("NVRTC 13.99.0", supported_arches()))
    keys.add(compile_source(PLAIN, ARCH, cache=cache).key)
    monkeypatch.undo()
    found = headers.reachable(PLAIN.text, headers.cuda_include_folder(nvrtc_release()[0]))
    assert {"mma.h", "crt/mma.h", "crt/mma.hpp", "cuda_fp16.h", "cuda_fp16.hpp"} <= set(found.cuda_files)
    path, header = found.cuda_files["crt/mma.hpp"]
    edited = msgspec.structs.replace(header, sha256="0" * 64)
    changed = headers.Headers(found.own_files, {**found.cuda_files, "crt/mma.hpp": (path, edited)})
    monkeypatch.setattr(headers, "reachable", lambda *_: changed)
    keys.add(compile_source(PLAIN, ARCH, cache=cache).key)
    assert len(keys) == 3


@pytest.mark.parametrize("name", ["entry.json", "kernel.cubin", "kernel.ptx"])
def test_a_damaged_entry_is_compiled_anew_and_repaired(cache, name):
    first = compile_source(SMALL, ARCH, cache=cache)
    file = cache.entries / first.key / name
    file.write_bytes(file.read_bytes()[:-7])
    assert compile_source(SMALL, ARCH, cache=cache) == first
    assert cache.get(first.key) is not None


def test_an_entry_that_is_no_kernel_is_compiled_anew(cache):
    first = compile_source(SMALL, ARCH, cache=None)
    assert cache.put(first.key, {"entry": 5}, {"cubin": b"", "ptx": b""})
    assert compile_source(SMALL, ARCH, cache=cache) == first


def test_a_cache_that_cannot_be_used_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "link"):
        assert compile_source(SMALL, ARCH, cache=Cache(folder)).cubin
    assert os.listdir(tmp_path / "real") == []


_COMPILES = """
import sys
from warptile.codegen.cache import Cache
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
kernel = compile_source(Source("__global__ void k(float* d) { d[0] = 1; }", "k"), "sm_90a", cache=Cache(sys.argv[1]))
print(kernel.key, len(kernel.cubin))
"""


def test_processes_that_compile_the_same_kernel_at_once_agree(cache):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _COMPILES, str(cache.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    results = set()
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        results.add(output)
    assert len(results) == 1
    (entry,) = cache.list()
    assert results == {f"{entry.key} {len(entry.blobs['cubin'])}\n"}
    assert os.listdir(cache.entries) == [entry.key]


def test_an_include_that_is_not_under_the_kernels_folder_says_how_to_write_it(kernels):
    (kernels / "rung.cuh").write_text('#include "load.cuh"\n')
    with pytest.raises(CompileError, match=r'rung\.cuh: #include "load\.cuh".*relative'):
        compile_source(RUNG, ARCH, cache=None)
    with pytest.raises(CompileError, match="names no file"):
        compile_source(Source('#include "../outside.cuh"\n', "k"), ARCH, cache=None)


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch):
    from cuda.bindings import nvrtc

    def absent():
        raise RuntimeError("Failed to dlopen libnvrtc.so.13")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", absent)
    with pytest.raises(CompileError, match=r"libnvrtc.*pip install 'cuda-toolkit\[crt,cudart,nvrtc\]"):
        compile_source(PLAIN, ARCH, cache=None)


def test_without_the_bindings_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompileError, match="pip install"):
        compile_source(PLAIN, ARCH, cache=None)


def _include_folder(path, release, without=()):
    for name in headers.NEEDED:
        if name not in without:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(f"#define CUDA_VERSION {release}\n" if name == "cuda.h" else "")
    return path


def test_a_toolkit_serves_where_the_wheels_lack_a_header(tmp_path, monkeypatch):
    wheels = _include_folder(tmp_path / "wheels" / "include", 13000, without=("crt/mma.h",))
    old = _include_folder(tmp_path / "old" / "include", 12080)
    good = _include_folder(tmp_path / "good" / "include", 13010)
    monkeypatch.setattr(headers, "wheel_folders", lambda: iter([wheels.parent]))
    monkeypatch.setenv("CUDA_HOME", str(old.parent))
    monkeypatch.setenv("CUDA_PATH", str(good.parent))
    assert headers.cuda_include_folder(13) == good
    assert headers.cuda_include_folder(12) == old
    looked_at = {folder.path: folder for folder in headers.candidates()}
    assert looked_at[wheels].missing == ("crt/mma.h",)
    assert looked_at[good].release == (13, 1)


def test_without_headers_the_error_says_what_each_folder_lacks_and_what_to_install(tmp_path, monkeypatch):
    wheels = _include_folder(tmp_path / "wheels" / "include", 13000, without=("crt/mma.h", "mma.h"))
    old = _include_folder(tmp_path / "old" / "include", 12080)
    monkeypatch.setattr(headers, "_folders", lambda: iter([wheels, old, tmp_path / "absent"]))
    with pytest.raises(CompileError, match=r"lacks mma\.h, crt/mma\.h.*CUDA 12\.8.*pip install 'cuda-toolkit\[crt"):
        compile_source(PLAIN, ARCH, cache=None)
    monkeypatch.setattr(headers, "_folders", lambda: iter([]))
    with pytest.raises(CompileError, match="none found"):
        headers.cuda_include_folder(13)


def test_the_compilers_version_agrees_with_its_release():
    major, minor = nvrtc_release()
    assert compiler_version().startswith(f"NVRTC {major}.{minor}.")
    assert {"sm_75", "sm_80", "sm_90"} <= set(supported_arches())


def test_what_warptile_dump_lists_is_written_here(tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARPTILE_DUMP", "cu,ptx,cubin,sass")
    for _ in ("compiled", "from the cache"):
        kernel = compile_source(PLAIN, ARCH, cache=cache)
        files = {file.suffix: file for file in (tmp_path / "warptile-dump").iterdir()}
        assert sorted(file.name for file in files.values()) == [
            f"copy-4-sm_90a-{kernel.key[:8]}.{suffix}" for suffix in ("cu", "cubin", "ptx", "sass")
        ]
        assert files[".cu"].read_text() == PLAIN.text
        assert files[".ptx"].read_bytes() == kernel.ptx
        assert files[".cubin"].read_bytes() == kernel.cubin
        assert "EXIT" in files[".sass"].read_text()
        for file in files.values():
            file.unlink()


def test_an_unknown_word_in_warptile_dump_is_refused(monkeypatch):
    monkeypatch.setenv("WARPTILE_DUMP", "ptx,elf")
    with pytest.raises(UnsupportedError, match="got elf; it takes some of cu,ptx,cubin,sass"):
        compile_source(SMALL, ARCH, cache=None)


def test_without_nvdisasm_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(headers, "program", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'warptile\[sass\]'"):
        compile_module.disassemble(b"")
    monkeypatch.undo()
    with pytest.raises(UnsupportedError, match="nvdisasm"):
        compile_module.disassemble(b"no cubin")
