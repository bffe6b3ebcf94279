"""``warptile emulate``: a PTX file of any origin, arrays in files, and what wrong calls are told."""

import json
import os

import ml_dtypes
import numpy as np
import pytest

from warptile.cli import _tensor_map_file
from warptile.cli.main import run

AXPY = """
.version 8.0
.target sm_80
.address_size 64

.visible .entry axpy(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f3;
DONE:
    ret;
}
"""

STRANGE = AXPY.replace("fma.rn.f32", "frobnicate.f32").replace("axpy", "strange")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "axpy.ptx").write_text(AXPY)
    (tmp_path / "two.ptx").write_text(AXPY + AXPY.split(".address_size 64")[1].replace("axpy", "again"))
    (tmp_path / "strange.ptx").write_text(STRANGE)
    (tmp_path / "broken.ptx").write_text(AXPY.replace("ret;", "ret"))
    (tmp_path / "binary.ptx").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "not.npy").write_text("not an array")
    generator = np.random.default_rng(0)
    np.save("x.npy", generator.standard_normal(50).astype(np.float32))
    np.save("y.npy", generator.standard_normal(50).astype(np.float32))
    np.save("many.npy", np.array([1, "two", None], dtype=object), allow_pickle=True)
    np.save("swapped.npy", np.ones(50, ">f4"))
    return tmp_path


GOOD = ["--arg", "in:x.npy", "--arg", "inout:y.npy", "--arg", "f32:2.5", "--arg", "u32:50"]
LAUNCH = ["--grid", "2", "--block", "32,1,1"]


@pytest.mark.usefixtures("folder")
def test_a_kernel_runs_and_its_buffer_comes_back(capsys):
    assert run(["emulate", "axpy.ptx", *LAUNCH, *GOOD, "--out-dir", "out/deep", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    x, y, d = np.load("x.npy"), np.load("y.npy"), np.load("out/deep/y.npy")
    assert np.array_equal(d, (2.5 * x.astype(np.float64) + y).astype(np.float32))
    assert d.shape == (50,)
    assert (document["schema"], document["entry"], document["arch"]) == ("warptile.emulate/1", "axpy", "sm_90a")
    assert document["written"] == ["out/deep/y.npy"]
    assert document["counters"]["global_load_bytes"] == 2 * 50 * 4
    assert document["counters"]["global_store_bytes"] == 50 * 4
    by_line = sum(line["counters"]["global_load_bytes"] for line in document["lines"])
    assert by_line == document["counters"]["global_load_bytes"]


def test_numbers_of_every_size_are_arguments(folder):
    """Each is stored as 64 bits, at its place: NVRTC passes bool and char as 8 bits, short and half as 16."""
    given = {"bool": "true", "u8": "200", "i8": "-3", "i16": "-300", "u16": "60000", "f16": "1.5", "bf16": "-2"}
    bits = {"bool": 8, "u8": 8, "i8": 8}
    parameters = "".join(f", .param .b{bits.get(name, 16)} p{i}" for i, name in enumerate(given))
    loads = "".join(
        f"ld.param.u{bits.get(name, 16)} %rd2, [p{i}];\nst.global.u64 [%rd1+{8 * i}], %rd2;\n"
        for i, name in enumerate(given)
    )
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    body = f"{{\n.reg .b64 %rd<3>;\nld.param.u64 %rd1, [y];\n{loads}ret;\n}}\n"
    (folder / "small.ptx").write_text(f"{head}.visible .entry small(.param .u64 y{parameters})\n{body}")
    np.save("o.npy", np.zeros(len(given), np.uint64))
    arguments = [f"--arg={name}:{value}" for name, value in given.items()]
    assert run(["emulate", "small.ptx", "--arg", "inout:o.npy", *arguments, "--out-dir", "out"]) == 0
    assert np.load("out/o.npy").tolist() == [1, 200, 0xFD, 0xFED4, 60000, 0x3E00, 0xC000]


@pytest.mark.usefixtures("folder")
def test_a_kernel_runs_in_clusters(capsys):
    text = AXPY.replace("%ctaid.x", "%cluster_ctarank").replace("sm_80", "sm_90")
    with open("cluster.ptx", "w") as file:
        file.write(text)
    arguments = ["emulate", "cluster.ptx", *LAUNCH, *GOOD, "--out-dir", "out"]
    assert run([*arguments, "--cluster", "2,1,1"]) == 0
    x, y, d = np.load("x.npy"), np.load("y.npy"), np.load("out/y.npy")
    assert np.array_equal(d, (2.5 * x.astype(np.float64) + y).astype(np.float32))
    assert run(arguments) == 1  # every block is then the first of its cluster, and both write the same elements
    assert "DataRace" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_people_get_a_table(capsys):
    assert run(["emulate", "axpy.ptx", "--entry", "axpy", *LAUNCH, *GOOD, "--out-dir", "."]) == 0
    text = capsys.readouterr().out
    assert "global_load_bytes" in text
    assert "wrote y.npy" in text


@pytest.mark.usefixtures("folder")
def test_an_in_buffer_is_never_written(capsys):
    arguments = ["--arg", "inout:x.npy", "--arg", "in:y.npy", "--arg", "f32:1", "--arg", "u32:50"]
    assert run(["emulate", "axpy.ptx", *LAUNCH, *arguments, "--out-dir", "out"]) == 1
    assert "writes y.npy, which is read-only" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_memory_outside_a_buffer_is_an_error_with_its_place(capsys):
    arguments = [*GOOD[:-1], "u32:51"]
    assert run(["emulate", "axpy.ptx", *LAUNCH, *arguments, "--out-dir", "out"]) == 1
    said = capsys.readouterr().out
    assert "error [addresses] axpy.ptx:25" in said
    assert "here: axpy.ptx:25 | ld.global.f32 %f2, [%rd4];" in said
    assert "The run ended here." in said
    assert not os.path.exists("out")


@pytest.mark.usefixtures("folder")
def test_buffers_have_the_elements_that_the_kernel_name_says(capsys):
    with open("named.ptx", "w") as file:
        file.write(AXPY.replace("axpy", "_Z4axpyPKfPffi"))
    rest = ["--arg", "zeros:f32:50", "--arg", "f32:2", "--arg", "i32:50", "--block", "64"]
    assert run(["emulate", "named.ptx", "--arg", "random:f64:50", *rest]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--arg 0 has elements of float64 and parameter 0 is float const*, which takes float32, complex64" in said
    assert said.endswith("give --arg random:f32:50")
    np.save("wide.npy", np.zeros(50))
    assert run(["emulate", "named.ptx", "--arg", "in:wide.npy", *rest]) == 2
    assert "save x.astype('float32') with numpy.save, or" in " ".join(capsys.readouterr().err.split())
    assert run(["emulate", "named.ptx", "--arg", "random:u8:200", *rest]) == 0
    assert run(["emulate", "named.ptx", "--arg", "random:f32:50", *rest]) == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.ptx", *GOOD], 2, "does not exist"),
        (["binary.ptx", *GOOD, "--out-dir", "."], 2, "not readable as PTX"),
        (["broken.ptx", *GOOD, "--out-dir", "."], 1, "PtxSyntaxError"),
        (["strange.ptx", *GOOD, "--out-dir", "."], 1, "UnknownInstruction: frobnicate"),
        (["axpy.ptx", "--entry", "saxpy", *GOOD, "--out-dir", "."], 2, "got 'saxpy'; the file has axpy"),
        (
            ["two.ptx", *GOOD, "--out-dir", "."],
            2,
            "left out; the file has axpy, again; give one of them",
        ),
        (["axpy.ptx", *GOOD[:-2], "--out-dir", "."], 2, "takes 4 parameters (u64, u64, f32, u32) and got 3"),
        (["axpy.ptx"], 2, "such as --arg zeros:f32:1024 --arg zeros:f32:1024 --arg f32:1 --arg u32:1"),
        (["axpy.ptx", *GOOD[:-1], "f32:50", "--out-dir", "."], 2, "--arg 3 is f32 and parameter 3 is u32, which would"),
        (["axpy.ptx", *GOOD[:-1], "f32:50", "--out-dir", "."], 2, "as another number; give --arg u32:1"),
        (["axpy.ptx", "--grid", "1,70000", *GOOD, "--out-dir", "."], 4, "a grid has at most 65535 along y"),
        (["axpy.ptx", *GOOD[:-1], "u64:50", "--out-dir", "."], 2, "parameter 3 of axpy is u32 of 4 bytes"),
        (["axpy.ptx", *GOOD[:-2], "--arg", "in:x.npy", "--out-dir", "."], 2, "--arg 3 has 8 bytes"),
        (["axpy.ptx", *GOOD], 2, "--out-dir"),
        (["axpy.ptx", "--arg", "in:gone.npy"], 2, "gone.npy: not a readable .npy"),
        (["axpy.ptx", "--arg", "in:not.npy"], 2, "not a readable .npy"),
        (["axpy.ptx", "--arg", "in:many.npy"], 2, "not a readable .npy"),
        (["axpy.ptx", "--arg", "in:axpy.ptx"], 2, "axpy.ptx: not a readable .npy file (it holds no array of numbers);"),
        (["axpy.ptx", "--arg", "in:."], 2, ".: not a readable .npy file (Is a directory);"),
        (["axpy.ptx", "--arg", "inout:swapped.npy"], 2, "swapped.npy: got byte order '>f4', and a GPU reads and wri"),
        (["axpy.ptx", "--arg", "i32:3000000000"], 2, "does not fit into s32"),
        (["axpy.ptx", "--arg", "u32:-1"], 2, "does not fit into u32"),
        (["axpy.ptx", "--arg", "f32:much"], 2, "got 'much', which is no f32; it takes a number, such as f32:1.5"),
        (["axpy.ptx", "--arg", "u8:256"], 2, "256 does not fit into u8, which holds 0 to 255"),
        (["axpy.ptx", "--arg", "bool:yes"], 2, "'yes' is no bool; it takes 0, 1, false, true"),
        (["axpy.ptx", "--arg", "i7:1"], 2, "in:a.npy"),
        (["axpy.ptx", "--arg", "5"], 2, "in:a.npy"),
        (["axpy.ptx", "--arg", "tensormap:t.json"], 2, "t.json: no readable tensor map"),
        (["axpy.ptx", "--grid", "0", *GOOD], 2, "got '0'"),
        (["axpy.ptx", "--block", "1,2,3,4", *GOOD], 2, "8,4,1"),
        (["axpy.ptx", "--block", "2048", *GOOD, "--out-dir", "."], 4, "1024 threads"),
        (["axpy.ptx", "--arch", "sm_7", *GOOD, "--out-dir", "."], 2, "did you mean sm_87 or sm_75"),
        (["axpy.ptx", "--check", "spelling", *GOOD, "--out-dir", "."], 2, "spelling"),
        (["axpy.ptx", "--ignore", "default", *GOOD, "--out-dir", "."], 2, "got 'default'; it takes bulk-exit"),
        (["axpy.ptx", "--schedule", "never", *GOOD, "--out-dir", "."], 2, "never"),
        (["axpy.ptx", "--schedule", "random:x", *GOOD, "--out-dir", "."], 2, "random:SEED, such as random:7"),
        (["axpy.ptx", *GOOD, "--out-dir", "x.npy/out"], 2, "--out-dir: x.npy/out/y.npy cannot be written"),
        (["axpy.ptx", "--cluster", "2", *GOOD, "--out-dir", "."], 4, "cluster"),
        (["axpy.ptx", "--arg", "inout:y.npy", "--arg", "inout:y.npy", "--out-dir", "."], 2, "rename one"),
    ],
)
def test_wrong_calls_have_their_exit_codes(arguments, code, words, capsys):
    before = np.load("y.npy")
    assert run(["emulate", *arguments]) == code
    said = capsys.readouterr()
    assert words in " ".join(said.err.split())
    assert said.out == ""
    assert np.array_equal(np.load("y.npy"), before)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(6).astype(ml_dtypes.bfloat16).reshape(3, 2),
        np.float32(4),
        np.zeros((3, 0), np.float32),
    ],
    ids=["by columns", "bfloat16", "no axes", "empty"],
)
def test_any_array_file_comes_back_as_it_was(array):
    np.save("y.npy", array)
    arguments = ["--arg", "in:x.npy", "--arg", "inout:y.npy", "--arg", "f32:1", "--arg", "u32:0"]
    assert run(["emulate", "axpy.ptx", *arguments, "--out-dir", "out", "--check", "", "--json"]) == 0
    before, after = np.load("y.npy"), np.load("out/y.npy")
    assert (after.shape, after.dtype, after.tobytes()) == (before.shape, before.dtype, before.tobytes())


@pytest.mark.usefixtures("folder")
def test_the_same_file_may_be_two_buffers():
    arguments = ["--arg", "in:y.npy", "--arg", "inout:y.npy", "--arg", "f32:1", "--arg", "u32:50"]
    assert run(["emulate", "axpy.ptx", *LAUNCH, *arguments, "--out-dir", "out", "--json"]) == 0
    assert np.array_equal(np.load("out/y.npy"), 2 * np.load("y.npy"))


TILES = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry tiles(.param .align 64 .b8 source[128], .param .align 64 .b8 target[128], .param .u64 count)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .shared .align 128 .b8 tile[256];
    .shared .align 8 .b64 full;
    mov.u32 %r1, full;
    mov.u32 %r2, tile;
    mov.b64 %rd1, source;
    mov.b64 %rd2, target;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {0, 1}], [%r1];
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
    @!%p1 bra again;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {8, 2}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ld.param.u64 %rd3, [count];
    st.global.u32 [%rd3], %r2;
    ret;
}
"""
MAP = {"dtype": "f32", "dims": [16, 6], "strides_bytes": [64], "box": [16, 4], "element_strides": [1, 1]}


def test_tensor_maps_from_files_share_the_memory_of_their_base(folder, capsys):
    (folder / "tiles.ptx").write_text(TILES)
    (folder / "maps").mkdir()
    np.save("a.npy", np.arange(96, dtype=np.float32).reshape(6, 16))
    np.save("maps/c.npy", np.zeros((6, 16), dtype=np.float32))
    (folder / "a.json").write_text(json.dumps({**MAP, "base": "a.npy"}))
    (folder / "maps/c.json").write_text(json.dumps({**MAP, "base": "c.npy", "inout": True}))
    given = ["--arg", "tensormap:a.json", "--arg", "tensormap:maps/c.json", "--arg", "in:maps/c.npy"]
    assert run(["emulate", "tiles.ptx", *given, "--out-dir", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["out/c.npy"]
    a, c = np.load("a.npy"), np.load("out/c.npy")
    wanted = np.zeros((6, 16), dtype=np.float32)
    wanted[2:6, 8:] = a[1:5, :8]
    wanted[0, 0] = c[0, 0]  # the kernel's plain store, to the same memory
    assert c[0, 0] != 0
    assert np.array_equal(c, wanted)
    assert run(["emulate", "tiles.ptx", *given]) == 2
    assert "--out-dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"box": [18, 4]}, 2, "box is (18, 4); it takes an innermost extent of a multiple of 16 bytes"),
        ({"dtype": "f31"}, 2, "dtype 'f31'; it takes u8"),
        ({"interleave": "16B"}, 4, "interleave '16B'"),
        ({"boxes": 1}, 2, "unknown field `boxes`"),
        ({"base": "nothing.npy"}, 2, "nothing.npy: not a readable .npy file"),
        ({"box": [257, 4]}, 2, "box is (257, 4); it takes extents of 1 to 256"),
        ({"swizzle": "32B"}, 2, "box is (16, 4); it takes at most 32 bytes innermost under swizzle 32B; it has 64"),
        ({"box": [16]}, 2, "box is (16,); it takes 2 extents, as dims has"),
        ({"strides_bytes": []}, 2, "strides_bytes is (); it takes 1: one for every dimension but the innermost"),
        ({"strides_bytes": [72]}, 2, "strides_bytes is (72,); it takes multiples of 16"),
        ({"offset_bytes": 8}, 2, "offset_bytes is 8; it takes a multiple of 16: the tensor starts at such an address"),
        ({"dims": [0, 6]}, 2, "dims is (0, 6); it takes extents of 1 to 2^32"),
        ({"dims": [16, 6, 1, 1, 1, 1]}, 2, "it takes one to five dimensions"),
    ],
)
def test_a_wrong_tensor_map_is_told(folder, capsys, change, code, said):
    (folder / "tiles.ptx").write_text(TILES)
    (folder / "t.json").write_text(json.dumps({**MAP, "base": "x.npy", **change}))
    assert run(["emulate", "tiles.ptx", "--arg", "tensormap:t.json"]) == code
    assert said in " ".join(capsys.readouterr().err.split())


def told(capsys, folder, array, **fields):
    """What is said of a map whose array lies in m.npy."""
    np.save("m.npy", array)
    (folder / "tiles.ptx").write_text(TILES)
    (folder / "t.json").write_text(json.dumps({"base": "m.npy", **fields}))
    assert run(["emulate", "tiles.ptx", "--arg", "tensormap:t.json"]) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        (np.zeros((6, 16), np.float32), {"dtype": "f32", "dims": [16, 6], "strides_bytes": [64], "box": [300, 4]}),
        (np.zeros((6, 16), np.float32), {"dtype": "f32", "dims": [16, 7], "strides_bytes": [64], "box": [16, 4]}),
        (np.zeros((4, 6, 80), np.float16), {"dtype": "f16", "dims": [80, 6], "strides_bytes": [], "box": [8, 4]}),
        (np.zeros((40, 64), ml_dtypes.bfloat16), {"dtype": "bf17", "dims": [64], "box": [64]}),
        (np.zeros((9, 48), np.int8), {"dtype": "u8", "dims": [48, 9], "strides_bytes": [40], "box": [48, 9]}),
        (np.zeros(96, np.int32), {"dtype": "s32", "dims": [97], "box": [16]}),
    ],
)
def test_a_wrong_tensor_map_is_told_one_that_works(capsys, folder, array, wrong):
    said = told(capsys, folder, array, **wrong)
    _, found, example = said.partition("; all of m.npy is ")
    assert found
    given = json.loads(example.rpartition("}")[0] + "}")
    (folder / "good.json").write_text(json.dumps(given))
    tensor, _, _ = _tensor_map_file.read(folder / "good.json")
    assert tensor.dims == array.shape[::-1]
    assert tensor.element_bytes == array.dtype.itemsize


def test_a_tensor_beyond_its_array_is_told(capsys, folder):
    fields = {"dtype": "f32", "dims": [16, 6], "strides_bytes": [64], "box": [16, 4], "offset_bytes": 16}
    said = told(capsys, folder, np.zeros((6, 16), np.float32), **fields)
    assert "dims (16, 6) of f32 with strides_bytes (64,) from byte 16 take 400 bytes, and m.npy has 384" in said


def test_rows_that_no_map_can_have_are_told_how_to_be_padded(capsys, folder):
    said = told(capsys, folder, np.zeros((6, 9), np.float16), dtype="f16", dims=[9, 6], strides_bytes=[18], box=[8, 4])
    assert "strides_bytes is (18,); it takes multiples of 16" in said
    assert "m.npy has rows of 18 bytes: pad them to 32, a multiple of 16" in said


def test_a_map_of_the_wrong_rank_is_told_where_it_is_used(folder, capsys):
    np.save("a.npy", np.zeros(96, np.float32))
    (folder / "tiles.ptx").write_text(TILES)
    (folder / "t.json").write_text(json.dumps({"base": "a.npy", "dtype": "f32", "dims": [96], "box": [16]}))
    given = ["--arg", "tensormap:t.json", "--arg", "tensormap:t.json", "--arg", "in:a.npy"]
    assert run(["emulate", "tiles.ptx", *given]) == 1
    assert "the tensor map has 1 dimensions and the copy takes 2" in " ".join(capsys.readouterr().out.split())


BLOCKS = """
template <int N> __global__ void __block_size__((N, 1, 1)) blocks(int* y) {
#ifdef SIGN
  y[threadIdx.x] = SIGN blockDim.x;
#else
  y[threadIdx.x] = blockDim.x;
#endif
}
template __global__ void blocks<32>(int*);
"""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("entry", ["blocks<32>", "blocks", None])
def test_macros_the_standard_and_the_threads_that_a_kernel_requires(entry):
    """Its threads come from the kernel; C++20 has a terse syntax for templates that C++17 has not."""
    np.save("y.npy", np.zeros(32, np.int32))
    with open("blocks.cu", "w") as file:
        file.write(BLOCKS + "__device__ int twice(auto x) { return 2 * x; }\n")
    named = ["--entry", entry] if entry else []
    options = [*named, "-D", "SIGN=-", "--std", "c++20", "--arch", "sm_90a", "--out-dir", "out"]
    assert run(["emulate", "blocks.cu", "--arg", "inout:y.npy", *options]) == 0
    assert (np.load("out/y.npy") == -32).all()


SCRATCHED = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];

.visible .entry scratched(.param .u64 y, .param .u64 scratch, .param .u64 profile)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [scratch];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd2, %rd2, %rd3;
    add.s64 %rd1, %rd1, %rd3;
    mov.u32 %r5, %dynamic_smem_size;
    st.global.u32 [%rd2], %r5;
    ld.global.u32 %r6, [%rd2];
    st.global.u32 [%rd1], %r6;
    ret;
}
"""


@pytest.mark.usefixtures("folder")
def test_triton_says_how_its_kernels_are_launched(capsys):
    metadata = {"name": "scratched", "num_warps": 2, "num_ctas": 2, "shared": 640, "global_scratch_size": 256}
    with open("scratched.ptx", "w") as ptx, open("scratched.json", "w") as file:
        ptx.write(SCRATCHED)
        json.dump(metadata, file)
    np.save("y.npy", np.zeros(3 * 2 * 64, np.int32))
    arguments = ["emulate", "scratched.ptx", "--grid", "3", "--arg", "inout:y.npy", "--out-dir", "out"]
    assert run(arguments) == 0
    assert "launched as Triton's scratched.json says" in capsys.readouterr().err
    assert (np.load("out/y.npy") == 640).all()
    assert run([*arguments, "--smem", "320", "--block", "32"]) == 0
    assert (np.load("out/y.npy")[: 3 * 2 * 32] == 320).all()
    assert run([*arguments, "--arg", "u64:0"]) == 1, "scratch memory that is given is not replaced"
    with open("scratched.json", "w") as file:
        json.dump({"name": "scratched"}, file)
    assert run(arguments) == 2
    assert "takes 3 parameters" in capsys.readouterr().err
