"""Kernels with bugs like those of docs/found-bugs.md are reported with their lines; corrected, they have no finding and
right results. The script that tries them on a GPU counts what it should."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import found_bugs
import try_found_bugs
import warptile as wt
from found_bugs import ARCH, FOLDER, HEADERS, PATTERNS, RECORD_FILE, Attempt, Pattern, Size, table, try_pattern
from warptile.runtime.kernel_file import compiled_kernel, read_kernel

PAGE = FOLDER.parents[1] / "docs" / "found-bugs.md"
SCHEDULES = ("latest", "earliest", "random:7")


def each_pattern():
    return pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)


def emulated(pattern: Pattern, *, corrected: bool, schedule: str = "latest"):
    """The report of a small launch, and the launch."""
    attempt = pattern.prepare(pattern.small)
    launch = pattern.kernel(corrected, "emulator", schedule)[pattern.small.blocks, pattern.threads]
    return launch(*attempt.arguments), attempt


@each_pattern()
def test_the_bug_is_reported_with_its_lines(pattern: Pattern) -> None:
    report, _ = emulated(pattern, corrected=False)
    assert pattern.reported_lines
    assert {finding.check for finding in report.findings} == {pattern.check}
    with pytest.raises(wt.EmulationError, match=pattern.message) as caught:
        report.raise_if_found()
    named = {int(line) for line in re.findall(rf"\b{pattern.name}\.cu:(\d+)", str(caught.value))}
    assert set(pattern.reported_lines.values()) <= named


@each_pattern()
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_corrected_kernel_has_no_finding_and_the_right_result(pattern: Pattern, schedule: str) -> None:
    report, attempt = emulated(pattern, corrected=True, schedule=schedule)
    assert report.findings == ()
    assert report.finished
    assert attempt.wrong() == 0


@each_pattern()
@pytest.mark.parametrize("corrected", [False, True], ids=["faulty", "corrected"])
def test_it_compiles_for_a_gpu_without_a_warning(pattern: Pattern, corrected: bool) -> None:
    file = read_kernel(
        pattern.path, ARCH, entry=f"pattern<{str(corrected).lower()}>", include_folders=(FOLDER, HEADERS),
        machine_code=True,
    )  # fmt: skip
    compiled = compiled_kernel(file, ARCH)
    assert compiled.cubin
    assert compiled.log == ""


@each_pattern()
def test_a_result_that_is_not_written_is_wrong(pattern: Pattern) -> None:
    size = pattern.small
    attempt = pattern.prepare(size)
    assert attempt.wrong() == attempt.expected.size
    attempt.result[:] = attempt.expected
    assert attempt.wrong() == 0
    attempt.result[-1] += 1
    assert attempt.wrong() == 1


def test_every_kernel_is_tried_and_describes_its_bug() -> None:
    assert sorted(pattern.name for pattern in PATTERNS) == sorted(path.stem for path in FOLDER.glob("*.cu"))
    page = PAGE.read_text()
    for pattern in PATTERNS:
        text = pattern.path.read_text()
        assert set(pattern.header) == {"Bug", "Provoked by", "Fix"}, pattern.name
        assert all(
            re.search(r"if \(CORRECTED\).*;\s+// BUG$", line) for line in text.splitlines() if "CORRECTED)" in line
        )
        assert "// BUG" in text, pattern.name
        assert max(map(len, text.splitlines())) <= 120, pattern.name
        assert re.search(rf"^## {re.escape(pattern.found_in.partition(',')[0])}: ", page, re.M), pattern.name


# -- the script ------------------------------------------------------------------------------------------------------


def lanes_prepared_by(prepare) -> Pattern:
    """The pattern of lanes, whose arguments are made otherwise."""
    pattern = next(each for each in PATTERNS if each.name == "lanes_without_syncwarp")
    return Pattern(
        pattern.name, pattern.found_in, pattern.check, pattern.message, pattern.threads, prepare, Size(2, 4), Size(2, 4)
    )


def test_launches_are_counted_with_what_is_wrong_in_them() -> None:
    pattern = next(each for each in PATTERNS if each.name == "lanes_without_syncwarp")
    launched = 0

    def prepare(size: Size) -> Attempt:
        """In every second launch three elements are expected to be what they are not."""
        nonlocal launched
        launched += 1
        attempt = pattern.prepare(size)
        attempt.expected[: 3 * (launched % 2)] += 1
        return attempt

    counts = try_pattern(lanes_prepared_by(prepare), corrected=True, backend="emulator", launches=5, seconds=60)
    assert counts.pop("seconds") >= 0
    assert counts == {"launches": 5, "wrong_launches": 3, "elements": 5 * 128, "wrong_elements": 9}


def test_no_launch_is_begun_when_the_time_is_up() -> None:
    counts = try_pattern(PATTERNS[0], corrected=True, backend="emulator", launches=1000, seconds=0)
    assert counts["launches"] == 1


@pytest.mark.parametrize("name", ["CUDA_ERROR_LAUNCH_FAILED", None])
def test_a_launch_that_fails_is_the_last_one(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    launched = 0

    class Failing:
        def __getitem__(self, configuration):
            return self.launch

        def launch(self, *arguments):
            nonlocal launched
            launched += 1
            if launched == 3:
                raise wt.DeviceError("the GPU is unwell", name, context_lost=True)
            arguments[0][:] = np.arange(arguments[0].size)

    monkeypatch.setattr(Pattern, "kernel", lambda *arguments: Failing())
    pattern = lanes_prepared_by(next(each for each in PATTERNS if each.name == "lanes_without_syncwarp").prepare)
    counts = try_pattern(pattern, corrected=False, backend="gpu", launches=5, seconds=60)
    assert (counts["launches"], counts["wrong_launches"]) == (2, 0)
    assert counts["error"] == (name or "the GPU is unwell")


def test_the_script_writes_a_record(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "record.json"
    given = ["--backend", "emulator", "--only", "without_syncwarp", "--launches", "2", "--out", str(out)]
    assert try_found_bugs.main(given) == 0
    record = json.loads(out.read_text())
    assert {"gpu", "arch", "driver", "compiler", "date", "git_hash", "patterns"} == set(record)
    assert list(record["patterns"]) == ["lanes_without_syncwarp"]
    found = record["patterns"]["lanes_without_syncwarp"]
    assert list(found) == ["corrected", "faulty"]
    assert (found["corrected"]["launches"], found["corrected"]["wrong_launches"]) == (2, 0)
    assert found["faulty"]["elements"] == 2 * 128
    assert "lanes_without_syncwarp, faulty: launches 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--launches", "0"], "--launches: got 0"),
        (["--only", "nothing"], "no kernel's name contains 'nothing'; there are arrival_after_exit, "),
        ([], "--out: it takes a file in a folder that exists"),
        (["--out", "no/such/folder/record.json"], "--out: it takes a file in a folder that exists"),
        (["--backend", "emulator", "--out", str(RECORD_FILE)], "is the record of a GPU, not of the emulator"),
    ],
)
def test_the_script_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        try_found_bugs.main(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_script_says_that_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setattr(try_found_bugs.driver, "available", lambda: False)
    with pytest.raises(SystemExit):
        try_found_bugs.main(["--out", str(tmp_path / "record.json")])
    assert "there is no GPU; --backend emulator" in capsys.readouterr().err


def test_a_process_that_does_not_end_is_killed() -> None:
    found = try_found_bugs.try_in_a_process("copies_never_waited", "emulator", 1, seconds=0.05)
    assert found == {"corrected": {"error": "does not end"}, "faulty": {"error": "not tried"}}


def test_the_last_words_of_a_process_that_fails_are_kept() -> None:
    found = try_found_bugs.try_in_a_process("no_such_kernel", "emulator", 1)
    assert "no_such_kernel" in found["corrected"]["error"]
    assert try_found_bugs.fails(found)


@pytest.mark.parametrize(("wrong", "status"), [(0, 0), (1, 1)])
def test_a_corrected_kernel_that_is_wrong_fails_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path, wrong: int, status: int
) -> None:
    def made(name, backend, launches):
        return {"corrected": {"launches": 1, "wrong_launches": wrong}, "faulty": {"launches": 1, "wrong_launches": 1}}

    monkeypatch.setattr(try_found_bugs, "try_in_a_process", made)
    given = ["--backend", "emulator", "--out", str(tmp_path / "record.json")]
    assert try_found_bugs.main(given) == status
    assert set(json.loads((tmp_path / "record.json").read_text())["patterns"]) == {each.name for each in PATTERNS}


# -- the table -------------------------------------------------------------------------------------------------------


def test_the_table_says_what_happened() -> None:
    def counts(launches, wrong_launches, wrong_elements, **more):
        return {
            "launches": launches, "wrong_launches": wrong_launches, "elements": 1000 * launches,
            "wrong_elements": wrong_elements, **more,
        }  # fmt: skip

    right = counts(100, 0, 0)
    record = {
        "gpu": "NVIDIA H200", "driver": "580.1", "compiler": "NVRTC 13.0.88", "date": "2026-11-20T12:00:00Z",
        "patterns": {
            "polled_without_acquire": {"corrected": right, "faulty": counts(100, 99, 25_000)},
            "arrival_after_exit": {"corrected": right, "faulty": counts(7, 0, 0, error="CUDA_ERROR_LAUNCH_FAILED")},
            "store_without_proxy_fence": {"corrected": right, "faulty": {"error": "does not end"}},
        },
    }  # fmt: skip
    lines = found_bugs.table(record).splitlines()
    assert lines[2:] == [
        "| `arrival_after_exit` | fast.cu | 0 of 7, then `CUDA_ERROR_LAUNCH_FAILED` | 0 of 7,000 | 0 of 100 |",
        "| `store_without_proxy_fence` | fast.cu | does not end | – | 0 of 100 |",
        "| `polled_without_acquire` | CUTLASS | 99 of 100 | 25,000 of 100,000 | 0 of 100 |",
        "",
        "NVIDIA H200, driver 580.1, NVRTC 13.0.88, 2026-11-20.",
    ]


@pytest.mark.skipif(not RECORD_FILE.exists(), reason="there is no record of a GPU")
def test_the_page_has_the_table_of_a_complete_record() -> None:
    record = json.loads(RECORD_FILE.read_text())
    assert set(record["patterns"]) == {pattern.name for pattern in PATTERNS}
    assert not [name for name, found in record["patterns"].items() if try_found_bugs.fails(found)]
    assert table(record) in PAGE.read_text(), "PYTHONPATH=src:tests/support python tests/support/found_bugs.py"
