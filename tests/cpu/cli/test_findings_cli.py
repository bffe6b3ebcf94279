"""``warptile emulate`` lists what the checks find: as text, as JSON and as SARIF."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sarif_rules import violations
from warptile.cli.main import run
from warptile.emulator.findings import ALL_CHECKS, CHECKS
from warptile.emulator.sarif import COMPILE_ERROR

KERNEL = """__global__ void k(const int* in, int* out) {
  __shared__ int tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  BARRIER
  out[threadIdx.x] = tile[63 - threadIdx.x];
  out[64 + threadIdx.x] = __any_sync(~0u, threadIdx.x == 70) + tile[threadIdx.x ^ 1];
  LAST
}
"""
RIGHT = ["-D", "BARRIER=__syncthreads();", "-D", "LAST="]
RACY = ["-D", "BARRIER=", "-D", "LAST="]
OUTSIDE = ["-D", "BARRIER=", "-D", "LAST=if (threadIdx.x == 5) out[1000] = 3;"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/k.cu").write_text(KERNEL)
    np.save("in.npy", np.arange(64, dtype=np.int32))
    np.save("out.npy", np.zeros(128, np.int32))


def emulate(*options: str) -> int:
    launch = ["--block", "64", "--arg", "in:in.npy", "--arg", "inout:out.npy", "--out-dir", "done"]
    return run(["emulate", "src/k.cu", *launch, *options])


def found(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[dict]]:
    code = emulate(*options, "--json")
    return code, json.loads(capsys.readouterr().out)["findings"]


def test_a_correct_kernel_has_no_findings(capsys):
    assert found(capsys, *RIGHT) == (0, [])
    assert emulate(*RIGHT) == 0
    assert "error" not in capsys.readouterr().out


def test_all_findings_are_listed_with_both_lines_and_a_fix(capsys):
    assert emulate(*OUTSIDE) == 1
    said = capsys.readouterr().out
    assert "error [races] k.cu:5" in said
    assert "before: k.cu:3 | tile[threadIdx.x] = in[threadIdx.x];" in said
    assert "here: k.cu:5 | out[threadIdx.x] = tile[63 - threadIdx.x];" in said
    assert "why: no barrier (__syncthreads()) between them" in said
    assert "fix: put __syncthreads() between the two accesses" in said
    assert "model [warp-order] k.cu:6" in said
    assert "error [addresses] k.cu:7" in said
    assert said.endswith("The run ended here.\n\n2 errors, 1 model finding\n")


def test_they_are_in_the_json_document(capsys):
    code, findings = found(capsys, *RACY)
    assert code == 1
    assert [(each["check"], each["severity"], each["count"]) for each in findings] == [
        ("races", "error", 64), ("warp-order", "model", 64),
    ]  # fmt: skip
    race = findings[0]
    assert (race["first"]["line"], race["location"]["line"]) == (3, 5)
    assert race["location"]["text"] == "out[threadIdx.x] = tile[63 - threadIdx.x];"
    assert (race["error"], race["stopped"], race["schedule"]) == ("DataRace", False, "latest")


@pytest.mark.parametrize(
    ("options", "checks", "code"),
    [
        (["--model", "common"], ["races"], 1),
        (["--ignore", "races"], [], 0),
        (["--check", "writes,overflow"], [], 0),
        (["--check", "races"], ["races"], 1),
        (["--check", "races", "--check", "warp-order"], ["races", "warp-order"], 1),
        (["--check", ""], [], 0),
    ],
)
def test_checks_are_chosen_by_name(capsys, options, checks, code):
    result, findings = found(capsys, *RACY, *options)
    assert (result, [each["check"] for each in findings]) == (code, checks)


def test_warnings_alone_do_not_fail(capsys):
    same = ["-D", "BARRIER=__syncthreads();", "-D", "LAST=__syncthreads(); tile[0] = 4;"]
    assert found(capsys, *same) == (0, [])
    code, findings = found(capsys, *same, "--check", "default,redundant-stores")
    assert (code, [each["check"] for each in findings]) == (0, ["redundant-stores"])


@pytest.mark.parametrize("options", [RIGHT, RACY, OUTSIDE])
def test_sarif_is_what_the_schema_asks_for(options):
    emulate(*options, "--sarif", "found.sarif")
    with open("found.sarif") as file:
        log = json.load(file)
    assert violations(log) == []
    (made,) = log["runs"]
    rules = made["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [*CHECKS, COMPILE_ERROR]
    for result in made["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "src/k.cu"}
    assert made["invocations"] == [{"executionSuccessful": options is not OUTSIDE}]
    assert [result["level"] for result in made["results"]][:2] == ([] if options is RIGHT else ["error", "warning"])
    if options is not RIGHT:
        (before,) = made["results"][0]["relatedLocations"]
        assert before["physicalLocation"]["region"]["startLine"] == 3
        assert made["results"][0]["locations"][0]["physicalLocation"]["region"] == {
            "startLine": 5, "snippet": {"text": "out[threadIdx.x] = tile[63 - threadIdx.x];"},
        }  # fmt: skip


def test_sarif_of_ptx_names_its_lines(capsys):
    with open("k.ptx", "w") as file:
        file.write(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nst.global.u32 [8], 1;\n}\n")
    assert run(["emulate", "k.ptx", "--sarif", "found.sarif"]) == 1
    with open("found.sarif") as file:
        log = json.load(file)
    assert violations(log) == []
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "k.ptx"}, "region": {"startLine": 6, "snippet": {"text": "st.global.u32 [8], 1;"}},
    }  # fmt: skip


BROKEN = """#include "half.h"
__global__ void k(float* y) {
\ty[0] = twice(1.0f) + missing;
}
"""


def test_what_the_compiler_refuses_is_in_both_documents(capsys, tmp_path):
    (tmp_path / "src/k.cu").write_text(BROKEN)
    (tmp_path / "src/half.h").write_text("__device__ float twice(float x) { return /* \u00e9 */ 2 * z; }\n")
    assert emulate("--entry", "k", "--sarif", "found.sarif", "--json") == 1
    said = capsys.readouterr()
    assert said.err.startswith("CompileError: ")
    made = json.loads(said.out)
    assert (made["entry"], made["finished"], made["findings"], made["lines"]) == ("k", False, [], [])
    assert made["refused"]["error"] == "CompileError"
    assert made["refused"]["places"] == [
        {
            "file": "half.h", "line": 1, "column": 54, "message": 'identifier "z" is undefined',
            "text": "__device__ float twice(float x) { return /* \u00e9 */ 2 * z; }",
        },
        {
            "file": "k.cu", "line": 3, "column": 23, "message": 'identifier "missing" is undefined',
            "text": "y[0] = twice(1.0f) + missing;",
        },
    ]  # fmt: skip
    with open("found.sarif") as file:
        log = json.load(file)
    assert violations(log) == []
    (made,) = log["runs"]
    assert made["invocations"] == [{"executionSuccessful": False}]
    assert [result["ruleId"] for result in made["results"]] == [COMPILE_ERROR] * 2
    assert made["tool"]["driver"]["rules"][made["results"][1]["ruleIndex"]]["id"] == COMPILE_ERROR
    assert made["results"][1]["message"] == {"text": 'identifier "missing" is undefined'}
    assert made["results"][1]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/k.cu"},
        "region": {"startLine": 3, "startColumn": 23, "snippet": {"text": "y[0] = twice(1.0f) + missing;"}},
    }  # fmt: skip


@pytest.mark.parametrize(("instruction", "code", "result"), [("foo.u32 1;", 1, False), ("mov.u32 %r1, 1;", 1, True)])
def test_ptx_that_is_refused_is_in_both_documents(capsys, instruction, code, result):
    with open("k.ptx", "w") as file:
        file.write(f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{instruction}\n}}\n")
    assert run(["emulate", "k.ptx", "--sarif", "found.sarif", "--json"]) == code
    (place,) = json.loads(capsys.readouterr().out)["refused"]["places"]
    assert (place["file"], place["line"]) == ("k.ptx", 6)
    with open("found.sarif") as file:
        log = json.load(file)
    assert violations(log) == []
    (made,) = log["runs"]
    notified = made["invocations"][0].get("toolExecutionNotifications", [])
    assert (len(made["results"]), len(notified)) == (int(result), int(not result))
    (said,) = made["results"] or notified
    assert said["locations"][0]["physicalLocation"]["region"]["startLine"] == 6


def test_the_help_names_every_check_and_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["emulate", "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in ALL_CHECKS - {"volatile"})
    assert "--volatile" in text


def test_a_check_that_does_not_exist_is_told(capsys):
    assert emulate(*RIGHT, "--check", "racez") == 2
    assert "got 'racez'; did you mean races?" in capsys.readouterr().err
    assert emulate(*RIGHT, "--ignore", "deadlock") == 4
    assert "deadlock is always checked" in " ".join(capsys.readouterr().err.split())
