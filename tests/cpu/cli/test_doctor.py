"""The doctor says what is there, gives a fix for what is not, and its exit code follows."""

import json
import sys

import pytest
from click.testing import CliRunner

from warptile import doctor
from warptile.cli.cache import command as cache_command
from warptile.cli.doctor import command as doctor_command
from warptile.codegen import headers
from warptile.codegen.cache import Cache, key_of
from warptile.errors import CompileError, DeviceError, NoDeviceError, UnsupportedError
from warptile.gpu import driver


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "cache"))


def _absent(*_):
    raise NoDeviceError("no NVIDIA driver (Failed to dlopen libcuda.so.1); use the emulator")


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(driver, "device_info", _absent)


def _device(**changes):
    facts = {
        "ordinal": 0, "name": "NVIDIA H200", "capability": (9, 0), "multiprocessors": 132, "memory_bytes": 2**37,
        "l2_bytes": 60 * 2**20, "shared_bytes_per_block": 227 * 1024, "clock_hz": 1.98e9, "driver_cuda": (13, 0),
        "uuid": "GPU-0",
    }  # fmt: skip
    return driver.DeviceInfo(**{**facts, **changes})


def test_a_machine_without_a_gpu_is_healthy_and_told_how_to_get_further(without_gpu):
    findings = {finding.name: finding for finding in doctor.examine()}
    assert list(findings) == [
        "python", "nvrtc", "headers", "compile", "gpu", "counters", "cache",
        "extra bench", "extra torch", "extra plot", "extra sass",
    ]  # fmt: skip
    assert doctor.healthy(tuple(findings.values()))
    for name in ("python", "nvrtc", "headers", "compile", "cache"):
        assert findings[name].state == "ok", findings[name]
    assert findings["nvrtc"].detail.startswith("NVRTC ")
    assert findings["gpu"].state == "missing"
    assert "libcuda" in findings["gpu"].detail
    assert "driver" in findings["gpu"].fix


def test_every_finding_that_is_not_ok_has_a_fix():
    assert all(bool(finding.fix) == (finding.state != "ok") for finding in doctor.examine())
    with pytest.raises(AssertionError):
        doctor.Finding("gpu", "problem", "broken")


def test_looking_does_not_make_the_cache_folder(tmp_path, without_gpu):
    doctor.examine()
    assert not (tmp_path / "cache").exists()


def test_missing_nvrtc_is_a_problem_with_the_command_that_installs_it(monkeypatch, without_gpu):
    def absent():
        raise CompileError(f"NVRTC cannot be loaded (no libnvrtc); install it with: {headers.INSTALL}")

    monkeypatch.setattr("warptile.codegen.nvrtc.compiler_version", absent)
    finding = doctor.check_nvrtc()
    assert finding == doctor.Finding("nvrtc", "problem", "NVRTC cannot be loaded (no libnvrtc)", headers.INSTALL)
    result = CliRunner().invoke(doctor_command, [])
    assert result.exit_code == 1
    assert headers.INSTALL in result.stdout


def test_missing_headers_are_a_problem_that_names_them(tmp_path, monkeypatch):
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 13000\n")
    monkeypatch.setattr(headers, "_folders", lambda: iter([tmp_path]))
    finding = doctor.check_headers()
    assert finding.state == "problem"
    assert "crt/mma.h" in finding.detail
    assert finding.fix == headers.INSTALL
    assert doctor.check_compile().state == "problem"


@pytest.mark.parametrize(
    ("device", "state", "word"),
    [
        (_device(), "ok", "NVIDIA H200, sm_90a, 132 multiprocessors"),
        (_device(driver_cuda=(12, 8)), "problem", "driver for CUDA 12.8"),
        (_device(name="Tesla V100", capability=(7, 0)), "problem", "V100"),
        (_device(name="A100", capability=(8, 0)), "ok", "sm_80"),
    ],
)
def test_the_gpu_is_judged_by_its_driver_and_generation(monkeypatch, device, state, word):
    monkeypatch.setattr(driver, "device_info", lambda: device)
    finding = doctor.check_gpu()
    assert finding.state == state
    assert word in finding.detail


def test_a_gpu_that_fails_is_a_problem(monkeypatch):
    def broken():
        raise DeviceError("device 0: CUDA_ERROR_ECC_UNCORRECTABLE (uncorrectable)", "CUDA_ERROR_ECC_UNCORRECTABLE")

    monkeypatch.setattr(driver, "device_info", broken)
    assert doctor.check_gpu().state == "problem"


ADMIN_ONLY, EVERYONE = "EnableMSI: 1\nRmProfilingAdminOnly: 1\n", "EnableMSI: 1\nRmProfilingAdminOnly: 0\n"


@pytest.mark.parametrize(
    ("parameters", "capabilities", "expected"),
    [
        (None, "000001ffffffffff", None),
        ("EnableMSI: 1\n", "000001ffffffffff", None),
        (EVERYONE, "0000000000000000", True),
        (ADMIN_ONLY, "0000000000000000", False),
        (ADMIN_ONLY, "00000000a80425fb", False),  # a container's usual set: no CAP_SYS_ADMIN
        (ADMIN_ONLY, "0000000000200000", True),  # bit 21, CAP_SYS_ADMIN
        (ADMIN_ONLY, "0000004000000000", True),  # bit 38, CAP_PERFMON
    ],
)
def test_counters_need_the_drivers_permission_or_a_capability(tmp_path, parameters, capabilities, expected):
    if parameters is not None:
        (tmp_path / "params").write_text(parameters)
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    assert doctor.counters_permitted(tmp_path / "params", tmp_path / "status") is expected


@pytest.mark.parametrize(
    ("permitted", "program", "state", "word"),
    [
        (None, None, "missing", "emulator"),
        (False, "/usr/bin/ncu", "missing", "NVreg_RestrictProfilingToAdminUsers=0"),
        (True, None, "missing", "Nsight Compute"),
        (True, "/usr/bin/ncu", "ok", ""),
    ],
)
def test_the_fix_for_counters_follows_what_is_missing(monkeypatch, permitted, program, state, word):
    monkeypatch.setattr(doctor, "counters_permitted", lambda: permitted)
    monkeypatch.setattr("shutil.which", lambda name: program)
    finding = doctor.check_counters()
    assert finding.state == state
    assert word in finding.fix


def test_a_cache_folder_that_is_refused_is_a_problem_with_its_fix(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "link"))
    finding = doctor.check_cache()
    assert finding.state == "problem"
    assert "symbolic link" in finding.detail
    assert "WARPTILE_CACHE_DIR" in finding.fix


def test_one_broken_part_does_not_hide_the_others(monkeypatch, without_gpu):
    def explode(*_):
        raise ZeroDivisionError("inside a broken package")

    monkeypatch.setattr(doctor, "check_headers", explode)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings["headers"].state == "problem"
    assert "inside a broken package" in findings["headers"].detail
    assert findings["cache"].state == "ok"


def test_an_extra_lists_what_it_lacks(monkeypatch):
    monkeypatch.setitem(doctor.EXTRAS, "plot", (("warptile-of-the-moon", "warptile_of_the_moon"), ("click", "click")))
    finding = doctor.check_extra("plot")
    assert finding.state == "missing"
    assert finding.detail == "not installed: warptile-of-the-moon"
    assert finding.fix == "python3 -m pip install 'warptile[plot]'"
    monkeypatch.setitem(doctor.EXTRAS, "plot", (("click", "click"),))
    assert doctor.check_extra("plot").state == "ok"


def test_json_is_one_document_on_stdout(without_gpu):
    result = CliRunner().invoke(doctor_command, ["--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == "warptile.doctor/1"
    assert document["healthy"] is True
    assert {finding["name"] for finding in document["findings"]} >= {"nvrtc", "gpu", "cache"}
    assert all(set(finding) == {"name", "state", "detail", "fix"} for finding in document["findings"])


def test_the_table_shows_each_finding_and_fix_unbroken(without_gpu):
    result = CliRunner().invoke(doctor_command, [])
    assert result.exit_code == 0
    for finding in doctor.examine():
        assert finding.name in result.stdout
        assert finding.fix[:100] in result.stdout
    assert result.stdout.rstrip().endswith("ready")


def test_the_cache_command_lists_exports_clears_and_imports(tmp_path):
    key = key_of({"text": "one"})
    Cache().put(key, {"name_expression": "warptile::k<4>", "arch": "sm_90a"}, {"cubin": b"c" * 1000, "ptx": b"p"})
    run = CliRunner().invoke

    listed = run(cache_command, ["ls"])
    assert key[:12] in listed.stdout
    assert "warptile::k<4>" in listed.stdout
    assert "1,001" in listed.stdout.split()
    document = json.loads(run(cache_command, ["ls", "--json"]).stdout)
    assert [(row["key"], row["bytes"], row["arch"]) for row in document["entries"]] == [(key, 1001, "sm_90a")]

    archive = str(tmp_path / "kernels.zip")
    assert "1 kernels written" in run(cache_command, ["export", archive]).stderr
    assert "1 kernels removed" in run(cache_command, ["clear"]).stderr
    assert Cache().get(key) is None
    assert "1 kernels read" in run(cache_command, ["import", archive]).stderr
    assert Cache().get(key) is not None


def test_the_cache_command_passes_refusals_on(tmp_path, monkeypatch):
    (tmp_path / "text.zip").write_text("no archive")
    assert isinstance(
        CliRunner().invoke(cache_command, ["import", str(tmp_path / "text.zip")]).exception, UnsupportedError
    )
    assert CliRunner().invoke(cache_command, ["import", str(tmp_path / "absent.zip")]).exit_code == 2
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "link"))
    assert isinstance(CliRunner().invoke(cache_command, ["ls"]).exception, UnsupportedError)


def test_the_commands_load_nothing_heavy_until_they_run():
    import subprocess

    code = (
        "import sys, warptile.cli.doctor, warptile.cli.cache;"
        "print([name for name in ('numpy', 'cuda.bindings', 'rich', 'msgspec') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
