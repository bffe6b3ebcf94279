"""A user's kernel under a stand-in for Nsight Compute: whose launch is counted, and whose lines those are."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import ncu_stand_in
from warptile.bench.profiling import launch_file
from warptile.bench.profiling.file_profile import UserLaunch, emulated_file, file_under_ncu
from warptile.bench.profiling.instruction_lists import ListedInstruction, sass_by_line
from warptile.bench.profiling.launch_file import StoredLaunch
from warptile.bench.profiling.ncu import ProfileError
from warptile.bench.profiling.source_files import SourceFiles
from warptile.codegen.nvrtc import CompiledKernel, Resources
from warptile.gpu import driver, loader
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.runtime.kernel_file import read_kernel

KERNEL = """\
__global__ void halve(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] / 2;
}
"""
RAW = '"ID","Kernel Name","smsp__inst_executed.sum"\n"","","inst"\n"0","_Z5halvePKfPfi","14"\n'
HEADER = '"# Samples","Instructions Executed","L2 Theoretical Sectors Global"'
SASS = f'"Kernel Name","halve"\n"Address","Source",{HEADER}\n"0x10","      LDG.E R4, [R2.64]","5","2","8"\n'


@pytest.fixture
def launch(tmp_path):
    (tmp_path / "halve.cu").write_text(KERNEL)
    kernel = read_kernel(tmp_path / "halve.cu", "sm_90a", machine_code=True)
    spec = LaunchSpec(kernel.entry, (1, 1, 1), (64, 1, 1), (Pointer("x"), Pointer("y"), Scalar("s32", 64)))
    buffers = {name: np.arange(64, dtype=np.float32).view(np.uint8) for name in "xy"}
    return UserLaunch(kernel, spec, buffers, {"x": Access(), "y": Access(writes=True)}, "sm_90a")


def test_lines_of_nsight_compute_are_those_of_the_emulator(launch, tmp_path, monkeypatch):
    file = launch.kernel.path.resolve()
    lines = (
        f'"File Path","{file}"\n"Function Name","halve"\n"Line No","Source","Address","Source",{HEADER}\n'
        '"2","if","","","5","2","8"\n"","","0x10","      LDG.E R4, [R2.64]","5","2","8"\n'
    )
    ncu_stand_in.install(tmp_path, monkeypatch, raw=RAW, sass=SASS, lines=lines)
    found = file_under_ncu(launch, with_ptx=True)
    assert (found.backend, found.entry, found.counters["warp_instructions"]) == ("gpu", "_Z5halvePKfPfi", 14)
    (line,) = found.lines
    mine = next(each for each in emulated_file(launch, with_ptx=True).lines if each.line == 2)
    assert (line.file, line.line, line.text, line.ptx) == (mine.file, mine.line, mine.text, mine.ptx)
    assert (line.global_sectors, line.time_share) == (8, 1.0)
    asked = json.loads((tmp_path / "calls").read_text().splitlines()[0])
    assert asked[asked.index("--kernel-name") + 1] == "regex:^_Z5halvePKfPfi$"
    assert asked[asked.index("--source-folders") + 1] == str(tmp_path)
    assert "warptile.bench.profiling.launch_file" in asked


def test_a_launch_that_was_not_counted_is_an_error(launch, tmp_path, monkeypatch):
    ncu_stand_in.install(tmp_path, monkeypatch, raw="", sass="")
    with pytest.raises(ProfileError, match=r"halve\.cu: Nsight Compute counted nothing"):
        file_under_ncu(launch)


def test_what_is_stored_is_launched(tmp_path, monkeypatch, capsys):
    made = []

    class Memory:
        def __init__(self, array):
            self.address = 4096 + len(array)
            made.append(("copied", len(array)))

        def close(self):
            made.append("freed")

    class Loaded:
        def launch(self, spec, pointers):
            made.append((spec.entry, pointers))

    monkeypatch.setattr(driver.Allocation, "from_array", classmethod(lambda cls, array: Memory(array)))
    monkeypatch.setattr(driver, "enter", lambda: None)
    monkeypatch.setattr(driver, "synchronize", lambda: made.append("waited"))
    monkeypatch.setattr(loader, "load", lambda kernel: made.append(kernel.cubin) or Loaded())
    kernel = CompiledKernel("k", "sm_90a", b"", b"code", Resources(8, 0, 0, 0, 0), "", "", "key")
    stored = StoredLaunch(kernel, LaunchSpec("k", (1, 1, 1), (1, 1, 1), (Pointer("x"),)), {"x": np.zeros(3, np.uint8)})
    (tmp_path / "launch.pickle").write_bytes(pickle.dumps(stored))
    (tmp_path / "requests.json").write_text(json.dumps([str(tmp_path / "launch.pickle")]))
    assert launch_file.main(str(tmp_path / "requests.json")) == 0
    assert made == [("copied", 3), b"code", ("k", {"x": 4099}), "waited", "freed"]
    assert capsys.readouterr().out == "warptile-launch 0 ok\n"


DISASSEMBLY = """\
	.section	.text.other,"ax",@progbits
	//## File "/far/k.cu", line 1
        /*0000*/                   EXIT ;
	.section	.text.mine,"ax",@progbits
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/far/k.cu", line 9
        /*0010*/              @!P0 BRA `(.L_x_0) ;
	//## File "/far/h.h", line 3 inlined at "/far/k.cu", line 9
        /*0020*/                   IMAD R0, R1, R2, R3 ;
.L_x_0:
	//## File "/far/k.cu", line 9
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1);
        /*0050*/                   NOP;
	.section	.text.helper,"ax",@progbits
	//## File "/far/k.cu", line 20
        /*0000*/                   RET.REL.NODEC R20 `(mine) ;
"""


def test_machine_instructions_of_a_kernel_and_its_functions():
    files = SourceFiles({"k.cu": Path("/far/k.cu")}, {"/far/k.cu": "k.cu", "/far/h.h": "h.h"})
    found = sass_by_line(DISASSEMBLY, "mine", ["mine", "other"], files)
    assert found == {
        ("k.cu", 9): [ListedInstruction(0x10, "@!P0 BRA `(.L_x_0)"), ListedInstruction(0x30, "EXIT")],
        ("h.h", 3): [ListedInstruction(0x20, "IMAD R0, R1, R2, R3")],
        ("k.cu", 20): [ListedInstruction(0, "RET.REL.NODEC R20 `(mine)")],
    }
