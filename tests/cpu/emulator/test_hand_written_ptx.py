"""PTX that people write and compilers do not: vectors of registers, variables of functions, spaces left out."""

import numpy as np
import pytest

import warptile as wt
from warptile.emulator import emulate
from warptile.emulator.compiled_steps import compiled_program
from warptile.emulator.compiled_steps.step_library import library
from warptile.errors import PtxSyntaxError
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

THREADS = 64

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
KERNEL = """
.visible .entry k(.param .u64 y, .param .u64 x)
{
  .reg .b64 out, in;
  .reg .b32 at;
  ld.param.u64 out, [y];
  ld.param.u64 in, [x];
  mov.u32 at, %tid.x;
  mad.wide.u32 out, at, 16, out;
  mad.wide.u32 in, at, 16, in;
"""


def run(body, monkeypatch, before=""):
    """The kernel's output, four words a thread, of both ways of execution; checked for findings."""
    assert library(wait=True) is not None
    monkeypatch.setattr(compiled_program, "MANY_LANES", 0)
    module = parse(f"{HEAD}{before}{KERNEL}{body}\nret;\n}}\n")
    spec = LaunchSpec("k", (1, 1, 1), (THREADS, 1, 1), (Pointer("y"), Pointer("x")))
    x = np.arange(4 * THREADS, dtype=np.uint32).reshape(THREADS, 4)
    found = []
    for interpreted in (True, False):
        y = np.zeros_like(x)
        report = emulate(
            module, spec, {"y": y, "x": x}, accesses={"y": Access(writes=True)}, arch="sm_90a", interpreted=interpreted
        )
        found.append((y, report))
    (y, expected), (compiled, report) = found
    assert report == expected
    assert (compiled == y).all()
    return x, y


def test_vectors_of_registers(monkeypatch):
    body = """
      .reg .v4 .u32 v, w<2>;
      .reg .v2 .b64 pair;
      .reg .pred small;
      ld.global.v4.u32 v, [in];
      mov.v4.u32 w0, v;
      setp.lt.u32 small, w0.x, 128;
      @small add.u32 v.w, w0.r, w0.g;
      mov.b64 pair.x, {v.x, v.y};
      mov.v2.b64 pair, {pair.x, pair.x};
      mov.b64 {v.b, _}, pair.y;
      st.global.v4.u32 [out], v;
    """
    x, y = run(body, monkeypatch)
    expected = x.copy()
    expected[:, 3] = np.where(x[:, 0] < 128, x[:, 0] + x[:, 1], x[:, 3])
    expected[:, 2] = x[:, 0]
    assert (y == expected).all()


def test_elements_of_a_vector_may_change_places(monkeypatch):
    body = """
      .reg .v4 .u32 v;
      .reg .b32 a;
      ld.global.v4.u32 v, [in];
      mov.u32 a, v.w;
      mov.v4.u32 {v.y, v.z, v.w, a}, {v.x, v.y, v.z, v.w};
      mov.v2.u32 {v.x, _}, {a, v.x};
      st.global.v4.u32 [out], v;
    """
    x, y = run(body, monkeypatch)
    assert (y == x[:, [3, 0, 1, 2]]).all()


def test_vectors_in_a_scope_hide_others(monkeypatch):
    body = """
      .reg .v2 .u32 v;
      .reg .u32 v.x;
      mov.v2.u32 v, {1, 2};
      mov.u32 v.x, 3;
      { .reg .v4 .u32 v; mov.v4.u32 v, {4, 5, 6, 7}; st.global.v2.u32 [out], {v.z, v.w}; }
      st.global.v2.u32 [out+8], {v.x, v.y};
    """
    _, y = run(body, monkeypatch)
    assert (y == [6, 7, 3, 2]).all()


@pytest.mark.parametrize("move", ["mov.v2.u32 v, 3;", "mov.v4.u32 v, v;", "mov.v2.u32 v, {1, 2, 3};"])
def test_moves_of_vectors_that_do_not_fit(move):
    with pytest.raises(PtxSyntaxError, match=r"takes two vectors of . elements"):
        parse(f"{HEAD}.entry k()\n{{\n.reg .v2 .u32 v;\n{move}\n}}\n")


def test_elements_that_a_vector_does_not_have():
    with pytest.raises(PtxSyntaxError, match=r"'v\.z' is not declared"):
        parse(f"{HEAD}.entry k()\n{{\n.reg .v2 .u32 v;\nmov.u32 v.x, v.z;\n}}\n")


def test_variables_that_functions_declare_in_global_and_constant_memory(monkeypatch):
    """Two of one name are two variables, and each is there once for all threads and launches."""
    before = """
    .func (.reg .u32 result) other()
    {
      .const .u32 table[2] = {5, 6};
      ld.const.u32 result, [table+4];
      ret;
    }
    """
    body = """
      .global .align 16 .u32 table[4] = {1, 2, 3, 4};
      .reg .v4 .u32 v;
      ld.global.v4.u32 v, [table];
      call (v.w), other;
      st.global.v4.u32 [out], v;
    """
    _, y = run(body, monkeypatch, before)
    assert (y == [1, 2, 3, 6]).all()


def test_accesses_to_variables_by_name_mean_their_space(monkeypatch):
    """As ptxas takes them: an access to a shared variable that names no space is one to shared memory."""
    before = ".const .u32 constants[2] = {8, 9};\n.global .u32 counter;\n"
    body = """
      .shared .align 8 .u32 tile[4];
      .local .u32 own;
      .reg .u32 a, b, c;
      .reg .pred first;
      setp.eq.u32 first, at, 0;
      @first st.volatile.v2.u32 [tile], {3, 4};
      bar.sync 0;
      ld.u32 a, [tile+4];
      st.u32 [own], a;
      ld.u32 a, [own];
      ld.u32 b, [constants+4];
      @first st.u32 [tile+8], 0;
      bar.sync 0;
      red.add.u32 [tile+8], 1;
      atom.add.u32 c, [counter], 1;
      bar.sync 0;
      ld.u32 c, [tile+8];
      st.global.v4.u32 [out], {a, b, c, 1};
    """
    _, y = run(body, monkeypatch, before)
    assert (y == [4, 9, THREADS, 1]).all()


def test_a_race_on_a_variable_whose_space_is_left_out_is_one_on_shared_memory():
    text = f"""{HEAD}{KERNEL}
      .shared .u32 tile[{THREADS}];
      .reg .u32 a, other;
      st.u32 [tile], at;
      ld.u32 a, [tile];
      st.global.u32 [out], a;
      ret;
    }}"""
    x, y = np.zeros((2, 4 * THREADS), np.uint32)
    report = wt.kernel(text, "k", backend="emulator", arch="sm_90a")[1, THREADS](y, x)
    assert any(each.check == "races" and "shared memory, tile+0" in each.message for each in report.findings)
