"""The scripts that judge other people's kernels: on a folder with two kernels of our own, one with a race."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import outside_suite
import pytest
from outside_suite import Case, close, difference, judge, totals

from recorded import outside_record
from warptile.bench.protocol.outside_verdicts import OutsideSuite
from warptile.bench.protocol.records import OutsideRecord, decode
from warptile.bench.report.outside_tables import NO_VERDICTS, table
from warptile.bench.report.record_lookup import RecordLookup

REVERSE = """
__global__ void reverse(int* y, const int* x) {
  __shared__ int tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  BARRIER
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""

TABLE = """
import numpy as np
from outside_suite import Case

NAME = "Two kernels"


def cases(folder):
    for name, finds in (("right", ()), ("racy", RACY_FINDS)):
        yield Case(
            name, folder / f"{name}.cu", "reverse", (1, 64),
            lambda: (np.zeros(64, np.int32), np.arange(64, dtype=np.int32)),
            finds=finds, right=lambda given: (given[0] == given[1][::-1]).all(),
        )
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "right.cu").write_text(REVERSE.replace("BARRIER", "__syncthreads();"))
    (tmp_path / "racy.cu").write_text(REVERSE.replace("BARRIER", ""))
    return tmp_path


def case(folder: Path, name: str, **changes) -> Case:
    made = Case(
        name, folder / f"{name}.cu", "reverse", (1, 64),
        lambda: (np.zeros(64, np.int32), np.arange(64, dtype=np.int32)),
        right=lambda given: bool((given[0] == given[1][::-1]).all()),
    )  # fmt: skip
    return replace(made, **changes)


def test_a_kernel_is_as_the_table_says(folder):
    right = case(folder, "right").verdict()
    assert (right.found, right.result, right.refused, right.agrees) == ((), True, "", True)
    assert right.warp_instructions > 2 * 10, "of two warps"
    racy = case(folder, "racy", finds=("races",)).verdict()
    assert (racy.found, racy.result, racy.agrees) == (("races",), None, True)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("racy", {}, "racy: found besides: races"),
        ("right", {"finds": ("races", "writes")}, "right: missed: races, writes"),
        ("racy", {"finds": ("writes",), "may_find": ("races",)}, "racy: missed: writes; found besides: races"),
        ("right", {"right": lambda _: False}, "right: wrong result"),
        ("right", {"entry": "revers"}, "right: refused: ArgumentError: entry: got 'revers'; the file has reverse"),
        ("right", {"arguments": tuple}, "right: refused: ArgumentError: .*"),
    ],
)
def test_each_difference_is_named(folder, name, changes, said):
    verdict = case(folder, name, **changes).verdict()
    assert not verdict.agrees
    assert re.fullmatch(said, difference(verdict))


def test_what_else_may_be_found_is_no_difference(folder):
    assert case(folder, "racy", may_find=("races",)).verdict().agrees
    assert case(folder, "right", may_find=("races",)).verdict().agrees


def test_totals_count_kernels_with_and_without_bugs(folder):
    told = []
    verdicts = judge([case(folder, "right"), case(folder, "racy"), case(folder, "racy", finds=("races",))], told.append)
    assert told == ["racy: found besides: races"]
    suite = OutsideSuite.of("mine", "1.0", verdicts)
    assert (suite.correct, suite.quiet, suite.faulty, suite.caught, suite.differences) == (2, 1, 1, 1, 1)
    assert (suite.compared, suite.right) == (2, 2), "a kernel with a bug may compute anything"
    assert totals(suite).startswith("mine 1.0: 1 of 1 faulty kernels caught, 1 of 2 correct ones without findings")


@pytest.mark.parametrize("right", [True, False])
def test_the_script_ends_with_1_on_any_difference_and_writes_a_record(folder, right):
    (folder / "table.py").write_text(TABLE.replace("RACY_FINDS", '("races",)' if right else "()"))
    command = [sys.executable, outside_suite.__file__, str(folder / "table.py"), str(folder), "--revision", "abc"]
    done = subprocess.run([*command, "--json", str(folder / "made")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0 if right else 1, "")
    assert ("racy: found besides: races" in done.stdout) is not right
    (path,) = (folder / "made").iterdir()
    assert path.name.startswith("outside-two-kernels-cpu-")
    record = decode(path.read_bytes(), path.name)
    assert isinstance(record, OutsideRecord)
    assert (record.suite, record.revision) == ("Two kernels", "abc")
    assert [(each.case, each.agrees) for each in record.groups] == [("right", True), ("racy", right)]
    done = subprocess.run([*command, "--only", "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no case" in done.stderr


def test_results_are_close_or_not():
    wanted = np.array([1.0, -100.0])
    assert close(wanted + 0.009, wanted)
    assert not close(wanted + 0.011, wanted)
    assert not close(np.array([1.0, np.nan]), wanted)
    assert not close(wanted[:1], wanted)


def test_the_document_has_a_row_for_each_suite():
    text = table(RecordLookup([outside_record()]))
    assert "| Others' kernels | `0123456789ab` | 1 of 2 | 1 of 2 | 1 of 1 | 1 | 10.0 |" in text
    assert "outside-others'-kernels-cpu-20261120T120000" in text
    assert table(RecordLookup([])) == NO_VERDICTS
