"""Kernels compiled ahead: each once, in parallel, and what has been made stays when it is interrupted."""

import re
import threading
import time
from dataclasses import replace

import pytest

from warptile.codegen.cache import Cache
from warptile.codegen.nvrtc import cached_kernel
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import CompileError, UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.runtime import compile_ahead as ahead
from warptile.runtime.compile_ahead import compile_ahead


def plan(m, n, k, name="float32"):
    element = DTYPES[name]
    problem = Problem.dense(m, n, k, element, out=element, accumulator=DTYPES["float32"])
    return make_plan(problem, device=REFERENCE)


@pytest.fixture
def stubbed(monkeypatch, tmp_path):
    """Compilations that are only counted; ``compiling`` is called in each."""
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    compiled, lock = [], threading.Lock()

    def compile_source(source, arch):
        compile_source.compiling(source)
        with lock:
            compiled.append(source)

    compile_source.compiling = lambda source: None
    monkeypatch.setattr(ahead, "compile_source", compile_source)
    monkeypatch.setattr(ahead, "cached_kernel", lambda source, arch: source if source in compiled else None)
    compile_source.compiled = compiled
    return compile_source


def test_kernels_are_in_the_cache_for_later_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    wanted = plan(64, 64, 64)
    seen = []
    report = compile_ahead([wanted, wanted], REFERENCE, 1, lambda *said: seen.append(said))
    [kernel] = report.kernels
    assert (kernel.name, kernel.dtype, kernel.state, kernel.error) == (wanted.rung.name, "float32", "compiled", None)
    assert kernel.config == dict(wanted.config)
    assert (report.device, report.arch, report.folder) == ("NVIDIA H200", "sm_90a", tmp_path)
    assert 0 < kernel.seconds <= report.seconds
    assert seen == [(1, 1, kernel)]
    assert cached_kernel(translation_unit(wanted.kernel), "sm_90a") is not None
    again = compile_ahead([wanted], REFERENCE)
    assert (len(again.compiled), len(again.cached), len(again.failed)) == (0, 1, 0)


def test_each_translation_unit_is_compiled_once_and_repacking_passes_too(stubbed):
    misaligned = plan(4096, 4096, 4096, "bfloat16")
    problem = replace(misaligned.problem, a=replace(misaligned.problem.a, alignment_bytes=2))
    repacking = make_plan(problem, device=REFERENCE, rung="wgmma-final")
    plans = [plan(512, 512, 512, "bfloat16"), plan(512, 512, 512, "bfloat16"), repacking]
    report = compile_ahead(plans, REFERENCE, 2)
    assert len(stubbed.compiled) == len(set(stubbed.compiled)) == len(report.compiled)
    expected = {"wgmma-final", "repack"} if repacking.kernel.copies else {"wgmma-final"}
    assert {each.name for each in report.kernels} == expected


def test_compilations_run_at_the_same_time(stubbed):
    together = threading.Barrier(2, timeout=30)
    stubbed.compiling = lambda source: together.wait()
    report = compile_ahead([plan(512, 512, 512, "bfloat16"), plan(512, 512, 512, "float16")], REFERENCE, 2)
    assert len(report.compiled) == 2


def test_a_kernel_that_does_not_compile_is_reported_and_the_others_are_made(stubbed):
    def refuse(source):
        if "__half" in source.text:
            raise CompileError("registers spill")

    stubbed.compiling = refuse
    report = compile_ahead([plan(512, 512, 512, "bfloat16"), plan(512, 512, 512, "float16")], REFERENCE)
    [failed] = report.failed
    assert (failed.dtype, failed.error) == ("float16", "registers spill")
    assert [each.dtype for each in report.compiled] == ["bfloat16"]


def test_an_interrupt_ends_it_and_what_was_made_stays(stubbed):
    plans = [plan(extent, 512, 512, name) for extent in (64, 512) for name in ("bfloat16", "float16")]

    def interrupt(done, total, kernel):
        assert total == len({translation_unit(each.kernel) for each in plans})
        raise KeyboardInterrupt

    stubbed.compiling = lambda source: time.sleep(0.02)
    with pytest.raises(KeyboardInterrupt):
        compile_ahead(plans, REFERENCE, 1, interrupt)
    time.sleep(0.1)
    assert 1 <= len(stubbed.compiled) <= 2


def test_a_cache_that_keeps_nothing_is_said_at_once(stubbed, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(UnsupportedError, match="set WARPTILE_CACHE_DIR to another path"):
        compile_ahead([plan(64, 64, 64)], REFERENCE)
    assert not stubbed.compiled


def test_nothing_to_compile_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    report = compile_ahead([], REFERENCE)
    assert report.kernels == ()
    assert list(Cache().list()) == []


def test_a_kernel_that_the_cache_does_not_keep_has_failed(stubbed, monkeypatch):
    monkeypatch.setattr(ahead, "cached_kernel", lambda source, arch: None)  # the disk is full
    report = compile_ahead([plan(64, 64, 64)], REFERENCE)
    [kernel] = report.failed
    assert kernel.error is not None
    assert re.search(r"it compiles, and is not kept in .*: make room there, or set WARPTILE_CACHE_DIR to", kernel.error)
