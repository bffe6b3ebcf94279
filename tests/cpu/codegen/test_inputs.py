"""What is remembered of the files that compilations read: found without a compiler, and never out of date."""

import os
import subprocess
import sys
import time

import pytest

from warptile.codegen import headers, inputs, nvrtc
from warptile.codegen.cache import Cache
from warptile.codegen.inputs import Inputs, Stamp
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source

ARCH = "sm_90a"
RUNG = Source('#include "rung.cuh"\n', "warptile::k")


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A kernels folder of the test's own, whose files have not changed for a day."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "rung.cuh").write_text(
        '#pragma once\n#include "value.cuh"\nnamespace warptile { __global__ void k(float* d) { d[0] = VALUE; } }\n'
    )
    (folder / "value.cuh").write_text("#pragma once\n#define VALUE 1.0f\n")
    monkeypatch.setattr(headers, "KERNELS", folder)
    monkeypatch.setattr(inputs, "SETTLED_NS", 0)
    return folder


@pytest.fixture
def new_process(monkeypatch):
    """What makes all that a process remembers go."""

    def forget():
        fresh = Inputs()
        for module in (inputs, headers, nvrtc):
            monkeypatch.setattr(module, "INPUTS", fresh)
        monkeypatch.setattr(headers, "_reached", {})
        return fresh

    forget()
    return forget


_LOOKS_UP = """
import sys
from warptile.codegen.cache import Cache
from warptile.codegen.nvrtc import cached_kernel, compile_source
from warptile.codegen.translation_unit import Source
source = Source("#include <cuda_fp16.h>\\n__global__ void k(__half* d) { d[0] = 1; }", "k")
kernel = compile_source(source, "sm_90a")
print(kernel.key, "cuda.bindings.nvrtc" in sys.modules)
"""


def test_a_cached_kernel_is_found_without_loading_a_compiler(tmp_path):
    environment = {**os.environ, "WARPTILE_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _LOOKS_UP], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs[0][0] == outputs[1][0]
    assert [loaded for _, loaded in outputs] == ["True", "False"]


def test_a_later_process_reads_no_header(cache, kernels, new_process, monkeypatch):
    first = compile_source(RUNG, ARCH, cache=cache)
    fresh = new_process()
    monkeypatch.setattr(fresh, "content", None)
    assert compile_source(RUNG, ARCH, cache=cache) == first


@pytest.mark.parametrize("between", ["processes", "calls"])
@pytest.mark.parametrize("pretend", [False, True])
def test_a_header_that_was_edited_gives_another_kernel(cache, kernels, new_process, between, pretend):
    first = compile_source(RUNG, ARCH, cache=cache)
    header = kernels / "value.cuh"
    before = header.stat()
    time.sleep(0.02)
    header.write_text(header.read_text().replace("1.0f", "2.0f"))
    if pretend:  # the same size and time of modification
        os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    if between == "processes":
        new_process()
    second = compile_source(RUNG, ARCH, cache=cache)
    assert first.key != second.key
    assert b"1073741824" in second.ptx, "2.0f"


def test_a_header_that_goes_away_is_an_error_and_one_that_comes_back_is_found(cache, kernels, new_process):
    compile_source(RUNG, ARCH, cache=cache)
    (kernels / "value.cuh").rename(kernels / "elsewhere")
    with pytest.raises(nvrtc.CompileError, match=r'#include "value\.cuh" names no file'):
        compile_source(RUNG, ARCH, cache=cache)
    (kernels / "elsewhere").rename(kernels / "value.cuh")
    assert compile_source(RUNG, ARCH, cache=cache).entry


def test_a_header_that_has_just_changed_is_not_noted(cache, kernels, new_process, monkeypatch):
    monkeypatch.setattr(inputs, "SETTLED_NS", 10**15)
    compile_source(RUNG, ARCH, cache=cache)
    fresh = new_process()
    fresh.load(cache)
    assert fresh._headers == {}


def test_a_digest_that_is_wrong_is_found_out_when_the_header_is_compiled(cache, kernels, new_process):
    first = compile_source(RUNG, ARCH, cache=None)
    path = str(kernels / "value.cuh")
    fresh = new_process()
    fresh._headers[path] = inputs.Header(Stamp.of(path), "0" * 64, ())
    assert compile_source(RUNG, ARCH, cache=cache) == first


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: data.replace(b"13", b"99")])
def test_a_damaged_note_counts_for_nothing(cache, kernels, new_process, damage):
    first = compile_source(RUNG, ARCH, cache=cache)
    file = cache.folder / "inputs.note"
    file.write_bytes(damage(file.read_bytes()))
    fresh = new_process()
    fresh.load(cache)
    assert (fresh._headers, fresh._compilers) == ({}, {})
    assert compile_source(RUNG, ARCH, cache=cache) == first


def test_another_library_is_asked_for_its_version(tmp_path):
    library = tmp_path / "libnvrtc.so.13"
    library.write_text("one")
    known = Inputs()
    assert known.compiler(str(library)) is None
    assert known.compiler(str(tmp_path / "absent"), lambda: ("", ())) is None
    assert known.compiler(str(library), lambda: ("NVRTC 13.0.1", ("sm_90",))).version == "NVRTC 13.0.1"
    assert known.compiler(str(library)).arches == ("sm_90",)
    library.write_text("another")
    assert known.compiler(str(library), lambda: ("NVRTC 13.2.5", ())).version == "NVRTC 13.2.5"


def test_a_compiler_other_than_the_remembered_one_has_keys_of_its_own(cache, kernels, new_process, monkeypatch):
    first = compile_source(RUNG, ARCH, cache=cache)
    monkeypatch.setattr(nvrtc, "compiler_version", lambda: "NVRTC 13.99.0")
    (kernels / "value.cuh").write_text("#pragma once\n#define VALUE 3.0f\n")
    other = compile_source(RUNG, ARCH, cache=cache)
    assert (first.compiler, other.compiler) == ("NVRTC 13.0.88", "NVRTC 13.99.0") or first.compiler != other.compiler
    monkeypatch.setattr(nvrtc, "_compile", None)
    assert compile_source(RUNG, ARCH, cache=cache) == other


def test_notes_are_replaced_and_cleared_and_read_from_no_folder_that_others_may_write_to(cache, tmp_path):
    assert cache.note("inputs") is None
    assert cache.keep_note("inputs", b"one")
    assert cache.keep_note("inputs", b"two")
    assert cache.note("inputs") == b"two"
    assert os.listdir(cache.entries) == []
    (cache.folder / "inputs.note").chmod(0o622)
    assert cache.note("inputs") is None
    (cache.folder / "inputs.note").chmod(0o600)
    cache.folder.chmod(0o777)
    assert cache.note("inputs") is None
    assert not cache.keep_note("inputs", b"three")
    cache.folder.chmod(0o700)
    assert cache.note("inputs") == b"two"
    cache.clear()
    assert os.listdir(cache.folder) == ["kernels"]
    (tmp_path / "file").write_text("")
    assert not Cache(tmp_path / "file").keep_note("inputs", b"four")
