"""Kernels of Triton: a stand-in of what Triton compiles everywhere, and Triton itself where it is installed."""

import types
from collections import namedtuple

import numpy as np
import pytest

import warptile as wt
from warptile.errors import IllegalAddress, UninitializedRead

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry axpy(
  .param .u64 .ptr .global .align 1 axpy_param_0, .param .u64 .ptr .global .align 1 axpy_param_1,
  .param .u32 axpy_param_2, .param .align 2 .b8 axpy_param_3[2],
  .param .u64 .ptr .global .align 1 axpy_param_4, .param .u64 .ptr .global .align 1 axpy_param_5
)
.reqntid 64
{
  .reg .pred %p<2>;
  .reg .b16 %rs<2>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<10>;
  mov.b32 %r1, axpy_param_2;
  cvt.u64.u32 %rd1, %r1;
  cvta.param.u64 %rd2, %rd1;
  ld.b32 %r2, [%rd2];
  mov.b32 %r10, axpy_param_3;
  ld.param.b16 %rs1, [%r10];
  mov.b32 %r3, {0, %rs1};
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r4, 64, %r5;
  setp.lt.s32 %p1, %r6, %r2;
  ld.param.b64 %rd3, [axpy_param_0];
  ld.param.b64 %rd4, [axpy_param_1];
  ld.param.b64 %rd8, [axpy_param_4];
  mad.wide.s32 %rd5, %r6, 4, %rd3;
  mad.wide.s32 %rd6, %r6, 4, %rd4;
  mad.wide.s32 %rd9, %r6, 4, %rd8;
  @%p1 ld.global.b32 %r7, [%rd5];
  @%p1 ld.global.b32 %r8, [%rd6];
  @%p1 fma.rn.f32 %r9, %r3, %r7, %r8;
  SCRATCH
  @%p1 st.global.b32 [%rd6], %r9;
  ret;
}
"""
WRITTEN = PTX.replace("SCRATCH", "@%p1 st.global.b32 [%rd9], %r9;\n@%p1 ld.global.b32 %r9, [%rd9];")
UNWRITTEN = PTX.replace("SCRATCH", "@%p1 ld.global.b32 %r9, [%rd9];")
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "a": "bf16", "BLOCK": "constexpr", "pair": ("constexpr",)}
FIELDS = {"name": "axpy", "num_warps": 2, "num_ctas": 1, "shared": 0, "global_scratch_size": 256}
METADATA = namedtuple("KernelMetadata", FIELDS)(**FIELDS)


def compiled(ptx=WRITTEN, metadata=METADATA, signature=SIGNATURE):
    src = types.SimpleNamespace(signature=signature)
    return types.SimpleNamespace(asm={"ptx": ptx}, metadata=metadata, src=src)


def arrays():
    return np.arange(100, dtype=np.float32), np.ones(100, np.float32)


@pytest.mark.parametrize("constants", [(64, (7,)), ()])
def test_a_compiled_kernel(constants):
    x, y = arrays()
    report = wt.emulate_triton(compiled(), x, y, 100, 2.5, *constants, grid=(2,))
    assert y.tolist() == (2.5 * x + 1).tolist()
    assert (report.name, report.spec.grid, report.spec.block, report.arch) == ("axpy", (2, 1, 1), (64, 1, 1), "sm_90a")
    assert report.ok


def test_grids_names_and_metadata_in_other_forms():
    x, y = arrays()
    for metadata in (FIELDS, types.SimpleNamespace(**FIELDS)):
        wt.emulate_triton(
            compiled(metadata=metadata),
            x,
            y,
            n=50,
            a=1,
            grid=lambda meta: (-(-meta["n"] // 64), 1),
            BLOCK=64,
            pair=(7,),
        )
    assert y.tolist() == [*(2 * x[:50] + 1), *[1] * 50]

    class Compiled(types.SimpleNamespace):
        def __getitem__(self, grid):
            return lambda *arguments, stream=None: (self, grid, arguments)

    launch = Compiled(**vars(compiled(signature={})))[(2,)]
    wt.emulate_triton(launch, x, y, 100, np.uint16(0))
    assert y.tolist() == [*(2 * x[:50] + 1), *[1] * 50]


def test_findings_name_the_arguments_of_triton():
    x, y = arrays()
    with pytest.raises(IllegalAddress, match=r"at y\+360, but y has 360 bytes"):
        wt.emulate_triton(compiled(), x, y[:90], 100, 2.5, grid=2).raise_if_found()
    with pytest.raises(UninitializedRead, match=r"scratch memory\+0, which nothing has written"):
        wt.emulate_triton(compiled(UNWRITTEN), x, y, 100, 2.5, grid=2).raise_if_found()


@pytest.mark.parametrize(
    ("launch", "values", "options", "said"),
    [
        (5, (), {}, "got int; it takes kernel"),
        (lambda: None, (), {}, "which is no kernel"),
        (compiled(), (1, 2), {"grid": 1}, r"got 2 arguments; axpy takes 4 \(x, y, n, a\)"),
        (compiled(), (*arrays(), 100, 2.5), {}, "no grid; give one"),
        (compiled(), (*arrays(), 100, 2.5), {"grid": (0,)}, r"got grid \(0,\)"),
        (compiled(metadata={"name": "axpy"}), (1, 2, 3, 4), {"grid": 1}, "num_warps, shared missing"),
        (types.SimpleNamespace(asm={}, metadata=METADATA), (), {"grid": 1}, "the kernel has no PTX"),
        (compiled(), (5, 5, 5, 5.0), {"grid": 1, "checks": "rces"}, "got 'rces'; there are"),
    ],
)
def test_what_is_no_launch_of_a_triton_kernel(launch, values, options, said):
    with pytest.raises(wt.WarptileError, match=said):
        wt.emulate_triton(launch, *values, **options)


def test_triton_itself(tmp_path, monkeypatch):
    """Without a GPU: Triton compiles for the emulator, for these arguments."""
    pytest.importorskip("triton", exc_type=ImportError)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (tmp_path / "triton_example.py").write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def scale(x, y, n, by, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, by * tl.load(x + i, i < n), i < n)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from triton_example import scale

    x, y = arrays()
    report = wt.emulate_triton(
        scale[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)], x, y, 100, 3.0, BLOCK=32, num_warps=1
    )
    assert y.tolist() == (3 * x).tolist()
    assert (report.spec.grid, report.spec.block) == ((4, 1, 1), (32, 1, 1))
    assert "tl.store" in next(line.text for line in report.lines if line.line == 5)
