"""``warptile profile --file``: any kernel by source line, with PTX and SASS, and what wrong calls are told."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from warptile.cli.main import run
from warptile.codegen import headers

PAGE = Path(__file__).parents[3] / "docs" / "profile.md"
WITH_SASS = pytest.mark.skipif(
    headers.program("nvdisasm") is None, reason="nvdisasm is not installed (the extra warptile[sass] adds it)"
)

SCALE = """
#include <cstdio>
#include <cuda_pipeline_primitives.h>  // which declares integer types, too
#include "a/tile.h"
#include "b/tile.h"
template <typename T, int N>
__global__ void scale(const T* x, T* y, uint32_t n) {
    const uint i = blockIdx.x * N + threadIdx.x;
    if (i < n) y[i] = doubled(x, i) + tripled(x, i);
}
"""
RACE = """
__global__ void shift(const float* x, float* y, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[(threadIdx.x + 32) % 64] * n;
}
"""
KERNELS = """
namespace mine { __global__ void first(float* y) { y[threadIdx.x] = 1; } }
extern "C" __global__ void __launch_bounds__(64) second(float* y) { y[threadIdx.x] = 2; }
template <int N> __global__ void third(float* y) { y[threadIdx.x] = N; }
__global__ void said(float* y) { printf("block %d\\n", blockIdx.x); }
__global__ void nothing() {}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, function, factor in (("a", "doubled", 2), ("b", "tripled", 3)):
        (tmp_path / name).mkdir()
        body = f"{{\n    return x[i] * {factor}.0f;\n}}\n"
        text = f"template <typename T> __device__ __forceinline__ T {function}(const T* x, int i) {body}"
        (tmp_path / name / "tile.h").write_text("// a line more\n" * (name == "b") + text)
    for name, text in (("scale", SCALE), ("race", RACE), ("kernels", KERNELS), ("none", "\n")):
        (tmp_path / f"{name}.cu").write_text(text)
    np.save("x.npy", np.arange(64, dtype=np.float32))
    np.save("y.npy", np.zeros(64, np.float32))
    return tmp_path


ARGUMENTS = ["--grid", "2", "--block", "32", "--arg", "in:x.npy", "--arg", "inout:y.npy", "--arg", "u32:64"]
PROFILE = ["profile", "--backend", "emulator", "--file"]
SCALED = [*PROFILE, "scale.cu", "--entry", "scale<float, 32>", *ARGUMENTS]
RACING = [*PROFILE, "race.cu", "--block", "64", "--arg", "in:x.npy", "--arg", "inout:y.npy", "--arg", "i32:2"]


def profiled(capsys, arguments):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
def test_headers_of_one_name_keep_their_own_lines(capsys):
    document = profiled(capsys, SCALED)
    lines = {(line["file"], line["line"]): line for line in document["lines"]}
    assert lines["a/tile.h", 2]["text"] == "return x[i] * 2.0f;"
    assert lines["b/tile.h", 3]["text"] == "return x[i] * 3.0f;"
    assert lines["scale.cu", 9]["text"].startswith("if (i < n) y[i]")
    assert lines["scale.cu", 9]["global_sectors"] == 64 * 4 // 32
    assert sum(line["time_share"] for line in document["lines"]) == pytest.approx(1)
    assert sum(line["warp_instructions"] for line in document["lines"]) == document["counters"]["warp_instructions"]
    assert (document["schema"], document["left_empty"]) == ("warptile.file-profile/1", [])
    assert all(line["ptx"] is None and line["sass"] is None for line in document["lines"])


def test_a_header_that_ends_like_a_kernel_of_ours_is_its_own(folder, capsys):
    (folder / "kernels" / "tile").mkdir(parents=True)
    ours = headers.KERNELS / "tile" / "block_tile.cuh"
    assert ours.is_file()
    (folder / "kernels" / "tile" / ours.name).write_text(
        "__device__ void put(float* y) {\n    y[threadIdx.x] = 4;\n}\n"
    )
    (folder / "own.cu").write_text(
        f'#include "kernels/tile/{ours.name}"\n__global__ void own(float* y) {{\n  put(y);\n}}\n'
    )
    document = profiled(capsys, [*PROFILE, "own.cu", "--block", "64", "--arg", "inout:y.npy"])
    (line,) = [line for line in document["lines"] if line["global_sectors"]]
    assert (line["file"], line["line"], line["text"]) == (ours.name, 2, "y[threadIdx.x] = 4;")


def test_headers_are_found_in_the_folders_that_are_given(folder, capsys):
    (folder / "far").mkdir()
    (folder / "far" / "four.h").write_text("__device__ float four() { return 4; }\n")
    (folder / "far.cu").write_text("#include <four.h>\n__global__ void far(float* y) { y[threadIdx.x] = four(); }\n")
    call = [*PROFILE, "far.cu", "--block", "64", "--arg", "inout:y.npy"]
    assert run(call) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert 'far.cu(2): identifier "four" is undefined; headers found nowhere and left empty: <four.h>' in told
    assert profiled(capsys, [*call, "-I", "far"])["left_empty"] == []


@WITH_SASS
@pytest.mark.usefixtures("folder")
def test_lines_have_their_ptx_and_machine_instructions(capsys):
    document = profiled(capsys, [*SCALED, "--ptx", "--sass"])
    lines = {(line["file"], line["line"]): line for line in document["lines"]}
    loads = {place: [each["text"] for each in line["ptx"]] for place, line in lines.items()}
    assert [text for text in loads["a/tile.h", 2] if text.startswith("ld.global.f32")]
    stores = [each["text"] for each in lines["scale.cu", 9]["sass"] if each["text"].startswith("STG")]
    assert len(stores) == 1
    assert all("NOP" not in each["text"] for line in document["lines"] for each in line["sass"])
    addresses = [each["at"] for line in document["lines"] for each in line["sass"]]
    assert len(set(addresses)) == len(addresses)


@WITH_SASS
def test_rungs_have_them_too(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    call = ["profile", "mma-swizzled", "--backend", "emulator", "-m", "64", "-n", "64", "-k", "64", "--ptx", "--sass"]
    document = profiled(capsys, call)
    by_line = {(line["file"], line["line"]): line for line in document["lines"]}
    multiplying = [line for line in by_line.values() if line["tensor_instructions"]]
    assert multiplying
    for line in multiplying:
        assert any(each["text"].startswith("mma.sync") for each in line["ptx"])
        assert any(each["text"].startswith("HMMA.16816") for each in line["sass"])
    assert run([*call, "--top", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    assert any(line.startswith("  SASS ") for line in printed)
    assert any(line.startswith("  PTX ") for line in printed)


@pytest.mark.usefixtures("folder")
def test_without_nvdisasm_the_error_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(headers, "program", lambda name: None)
    assert run([*SCALED, "--sass"]) == 4
    assert "pip install 'warptile[sass]'" in capsys.readouterr().err


def test_ptx_files_have_the_lines_that_they_name_or_their_own(folder, capsys):
    from warptile.runtime.kernel_file import read_kernel

    ptx = read_kernel(Path("race.cu"), "sm_90a").ptx.replace('"race.cu"', f'"{folder / "race.cu"}"')
    plain = re.sub(r"(?m)^\s*\.(loc|file)\b.*\n", "", ptx)
    call = [*RACING[3:], "--check", ""]
    for name, text in (("named.ptx", ptx), ("plain.ptx", plain)):
        (folder / name).write_text(text)
    named = profiled(capsys, [*PROFILE, "named.ptx", *call[2:], "--ptx"])
    assert {line["file"] for line in named["lines"]} == {"race.cu"}
    assert "tile[threadIdx.x] = x[threadIdx.x];" in {line["text"] for line in named["lines"]}
    own = profiled(capsys, [*PROFILE, "plain.ptx", *call[2:], "--ptx"])
    assert {line["file"] for line in own["lines"]} == {"plain.ptx"}
    for line in own["lines"]:
        text = plain.splitlines()[line["line"] - 1]
        assert line["text"].split() == text.split()
        assert [each["at"] for each in line["ptx"]] == [line["line"]]
    assert named["counters"] == own["counters"]


@pytest.mark.usefixtures("folder")
def test_a_race_is_told_with_its_exit_code_and_without_counters(capsys):
    assert run([*RACING, "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "DataRace: write-read race on shared memory" in said.err
    assert "race.cu:5" in said.err
    assert "--check '' counts without checks" in said.err
    assert profiled(capsys, [*RACING, "--check", ""])["counters"]["shared_load_requests"] == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("entry", "lowered"),
    [
        ("first", "_ZN4mine5firstEPf"), ("mine::first", "_ZN4mine5firstEPf"), ("second", "second"),
        ("_ZN4mine5firstEPf", "_ZN4mine5firstEPf"), ("third<3>", "_Z5thirdILi3EEvPf"),
    ],
)  # fmt: skip
def test_kernels_are_named_as_in_the_source(capsys, entry, lowered):
    found = profiled(capsys, [*PROFILE, "kernels.cu", "--entry", entry, "--block", "64", "--arg", "inout:y.npy"])
    assert found["entry"] == lowered
    assert found["counters"]["global_store_bytes"] == 256


@pytest.mark.usefixtures("folder")
def test_an_empty_kernel_and_one_that_prints(capsys):
    found = profiled(capsys, [*PROFILE, "kernels.cu", "--entry", "nothing"])
    assert [line["warp_instructions"] for line in found["lines"]] == [1]
    call = [*PROFILE, "kernels.cu", "--entry", "said", "--grid", "2", "--arg", "inout:y.npy"]
    assert profiled(capsys, call)["output"] == "block 0\nblock 1\n"
    assert run(call) == 0
    assert capsys.readouterr().out.startswith("block 0\nblock 1\n")


@pytest.mark.usefixtures("folder")
def test_a_timeline_of_a_file(capsys):
    assert run([*SCALED, "--timeline", "trace.json", "--launches", "2"]) == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    named = {event.get("args", {}).get("line", "") for event in events}
    assert "scale.cu:7" in named
    assert named <= {"", *(f"{file}:{line}" for file in ("a/tile.h", "b/tile.h", "scale.cu") for line in range(12))}
    assert "2 launches in a row" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "give a rung or a file, and not both"),
        (["mma-final", "--file", "race.cu"], 2, "give a rung or a file, and not both"),
        (["mma-final", "--grid", "2"], 2, "--grid goes with --file FILE"),
        (["--file", "race.cu", "--compare", "mma-final"], 2, "--compare goes with a rung"),
        (["--file", "race.cu", "--save", "run.json"], 2, "--save goes with a rung"),
        (["--file", "gone.cu"], 2, "'gone.cu' does not exist"),
        (["--file", "none.cu"], 2, "left out; the file has no kernel"),
        (["--file", "kernels.cu"], 2, "left out; the file has"),
        (["--file", "kernels.cu", "--entry", "secnd"], 2, "got 'secnd'; the file has second,"),
        (["--file", "kernels.cu", "--entry", "third"], 2, "got 'third'; the file has third<...>,"),
        (["--file", "kernels.cu", "--entry", "third"], 2, "a template needs its arguments, such as 'third<128>'"),
        (["--file", "race.cu"], 2, "shift takes 3 parameters (u64, u64, u32) and got 0 --arg"),
        (["--file", "race.cu", "--arch", "sm_12"], 2, "got 'sm_12'"),
        (["--file", "race.cu", "-I", "gone"], 2, "'gone' does not exist"),
        (["--file", "race.cu", "--arg", "in:gone.npy"], 2, "gone.npy: not a readable .npy"),
        (["--file", "race.cu", "--launches", "2"], 2, "--launches goes with --timeline"),
        (["--file", "race.cu", "--timeline", "trace.json", "--json"], 2, "leave it out"),
    ],
)
def test_wrong_calls_have_their_exit_codes(arguments, code, words, capsys):
    assert run(["profile", "--backend", "emulator", *arguments]) == code
    said = capsys.readouterr()
    assert words in " ".join(said.err.split())
    assert said.out == ""


def test_a_file_that_does_not_compile_has_the_log_and_the_line(folder, capsys):
    (folder / "bad.cu").write_text("__global__ void bad(int* y) {\n    y[0] = unheard_of;\n}\n")
    assert run([*PROFILE, "bad.cu", "--arg", "inout:y.npy"]) == 1
    said = capsys.readouterr().err
    assert 'bad.cu for sm_90a: bad.cu(2): identifier "unheard_of" is undefined\n' in said
    assert "    y[0] = unheard_of;" in said
    assert "1 error detected" in said


PROGRAM = """\
#include <vector>
#include <cuda_runtime.h>
using std::vector;
static const std::vector<int> SIZES = {1, 2};
int twice(int x) { return 2 * x; }
__global__ void count(float* y) {
    y[threadIdx.x] = twice(threadIdx.x);
}
#define SIZE 64
int main(int argc, char** argv) {
    float* y;
    cudaMalloc(&y, SIZE * sizeof(float));
    count<<<1, SIZE>>>(y);
}
"""


def test_code_of_the_host_is_left_out_and_lines_stay(folder, capsys):
    (folder / "program.cu").write_text(PROGRAM)
    call = [*PROFILE, "program.cu", "--block", "64", "--arg", "inout:y.npy"]
    assert run([*call, "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["left_empty"], document["left_out"]) == (["vector"], [[3, 3], [4, 4], [10, 14]])
    assert "program.cu: host code left out: lines 3, 4, 10-14\n" in said.err
    (line,) = [line for line in document["lines"] if line["global_sectors"]]
    assert (line["line"], line["text"]) == (7, "y[threadIdx.x] = twice(threadIdx.x);")


OWN_HEADER = """\
#pragma once
#include <string>
#include "deep/deep.h"
inline void log(const std::string& text) {
    std::fprintf(stderr, "%s", text.c_str());
}
__device__ inline void put_four(float* y) { y[threadIdx.x] = two() + TWO; }
"""


@pytest.mark.parametrize("twice", [False, True], ids=["", "included by two names"])
def test_host_code_of_headers_is_left_out_too(folder, capsys, twice):
    (folder / "own" / "deep").mkdir(parents=True)
    (folder / "own" / "own.h").write_text(OWN_HEADER)
    (folder / "own" / "deep" / "deep.h").write_text(
        '#pragma once\nstatic FILE* sink = stderr;\n#define TWO 2\n#include "next.h"\n'
    )
    (folder / "own" / "deep" / "next.h").write_text("#pragma once\n__device__ inline int two() { return TWO; }\n")
    text = '#include "own/own.h"\n' + ('#include "own/./own.h"\n' if twice else "")
    text += "__global__ void k(float* y) { put_four(y); }\nint main() { log(__FILE__); }\n"
    (folder / "k.cu").write_text(text)
    assert run([*PROFILE, "k.cu", "--block", "64", "--arg", "inout:y.npy", "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["left_out_of_headers"] == [["deep.h", 2, 2], ["own.h", 4, 6]]
    assert "k.cu: host code of deep.h left out: line 2\n" in said.err
    assert "k.cu: host code of own.h left out: lines 4-6\n" in said.err
    (line,) = [line for line in document["lines"] if line["global_sectors"]]
    assert (line["file"], line["line"]) == ("own.h", 7), "lines stay, and name the file"
    assert line["text"] == "__device__ inline void put_four(float* y) { y[threadIdx.x] = two() + TWO; }"


def test_an_error_in_a_header_or_a_kernel_is_one_still(folder, capsys):
    (folder / "host.h").write_text(
        "#include <string>\nstruct Log {\n    std::string text;\n    __device__ int size() { return 0; }\n};\n"
    )
    (folder / "host.cu").write_text('#include "host.h"\n__global__ void k() {}\nint main() { Log log; }\n')
    assert run([*PROFILE, "host.cu"]) == 1
    said = capsys.readouterr().err
    assert 'host.cu for sm_90a: host.h(3): namespace "std" has no member "string"' in said
    assert "put #ifndef __CUDACC_RTC__ around code of the host" in said
    (folder / "helper.cu").write_text("int f() { return unknown; }\n__global__ void k(int* y) { y[0] = f(); }\n")
    assert run([*PROFILE, "helper.cu"]) == 1
    told = capsys.readouterr().err
    assert 'helper.cu(2): identifier "f" is undefined; host code left out: line 1; the first for helper.cu(1): ' in told
    assert 'helper.cu(1): identifier "unknown" is undefined\n' in told


@pytest.mark.usefixtures("folder")
def test_emulate_takes_the_same_files(capsys):
    call = ["emulate", "scale.cu", "--entry", "scale<float, 32>", *ARGUMENTS]
    assert run([*call, "--out-dir", "out", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert np.array_equal(np.load("out/y.npy"), 5 * np.load("x.npy"))
    assert {line["file"] for line in document["lines"]} == {"scale.cu", "a/tile.h", "b/tile.h"}


@pytest.mark.usefixtures("folder")
def test_messages_fold_at_the_width_of_the_terminal(capsys, monkeypatch):
    call = ["profile", "--backend", "emulator", "--file", "kernels.cu", "--entry", "secnd"]
    assert run(call) == 2
    whole = capsys.readouterr().err
    assert max(map(len, whole.splitlines())) > 80, "a file gets it as it is"
    monkeypatch.setenv("COLUMNS", "60")
    assert run(call) == 2
    assert capsys.readouterr().err == whole
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run(call) == 2
    folded = capsys.readouterr().err
    assert max(map(len, folded.splitlines())) <= 60
    assert folded.split() == whole.split()
    assert run(RACING) == 1
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 60


def commands_of(page):
    """Each command of a page with the lines of output below it."""
    found = []
    for line in page.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif found and line.startswith("    "):
            found[-1][1].append(line[4:].rstrip())
        elif line.strip():
            found.append(("", []))
    return [(command, output) for command, output in found if command and output]


@WITH_SASS
def test_the_page_shows_what_the_commands_print(tmp_path, monkeypatch, capsys):
    text = PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    source = re.search(r"^    template <int PAD>.*?^    }$", text, re.M | re.S)[0]
    Path("transpose.cu").write_text("\n".join(line[4:] for line in source.splitlines()) + "\n")
    np.save("x.npy", np.random.default_rng(0).random((64, 64), np.float32))
    np.save("y.npy", np.zeros((64, 64), np.float32))
    quoted = commands_of(text)
    assert len(quoted) == 3
    for command, output in quoted:
        assert run([*shlex.split(command)[1:], "--backend", "emulator"]) == 0
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        start = printed.index(output[0]) if output[0] in printed else 0
        assert printed[start : start + len(output)] == output, command
