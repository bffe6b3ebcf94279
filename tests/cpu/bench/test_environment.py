"""What a measurement says it ran on."""

import subprocess
import time

from warptile.bench.protocol import environment
from warptile.bench.protocol.environment import Sample, Sampler, describe, git_hash, now, summarize, version_of


def test_samples_are_taken_while_the_block_runs():
    readings = iter(range(10_000))
    with Sampler(lambda: (1000.0 + next(readings), 3200.0, 700.0, 55.0), period_s=0.001) as sampler:
        time.sleep(0.05)
        middle_s = time.monotonic()
        time.sleep(0.05)
    everything, later = sampler.since(0.0), sampler.since(middle_s)
    assert 0 < later.count < everything.count
    assert later.sm_clock_mhz.low > everything.sm_clock_mhz.low == 1000.0
    assert everything.power_w.median == 700.0
    assert sampler.error is None


def test_a_reader_that_fails_ends_the_sampling_and_says_so():
    def read():
        raise OSError("gone")

    with Sampler(read, period_s=0.001) as sampler:
        time.sleep(0.02)
    assert sampler.since(0.0) is None
    assert sampler.error == "sampling stopped: gone"


def test_without_any_reader_there_are_no_samples(monkeypatch):
    monkeypatch.setattr(environment, "nvml_reader", lambda: None)
    monkeypatch.setattr(environment, "smi_reader", lambda: None)
    with Sampler() as sampler:
        pass
    assert sampler.since(0.0) is None
    assert "neither NVML nor nvidia-smi" in sampler.error


def test_nvidia_smis_words_become_a_description(monkeypatch):
    monkeypatch.setattr(environment, "smi", lambda fields: ["NVIDIA H200", "580.159", "700.00"])
    found = describe(None, "cublasLt 13.1.0")
    assert (found.gpu, found.driver, found.power_cap_w) == ("NVIDIA H200", "580.159", 700.0)
    assert found.baseline_library == "cublasLt 13.1.0"
    assert found.nvrtc == version_of("nvidia-cuda-nvrtc") != "none"
    monkeypatch.setattr(environment, "smi", lambda fields: None)
    assert describe(None).gpu == "no GPU"


def test_nothing_sampled_is_none_and_not_zero():
    assert summarize([]) is None
    assert summarize([Sample(0.0, 1.0, 2.0, 3.0, 4.0)]).power_w.median == 3.0


def test_versions_of_what_is_not_installed_are_none():
    assert version_of("no-such-distribution", "numpy") == version_of("numpy")
    assert version_of("no-such-distribution") == "none"


def test_the_commit_says_whether_files_were_changed(tmp_path):
    def git(*arguments):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *settings, "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    assert git_hash(tmp_path) == "unknown"
    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    clean = git_hash(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("two")
    assert git_hash(tmp_path) == clean + "+"


def test_time_is_utc_to_the_second():
    assert len(now()) == len("2026-11-20T12:00:00Z")
    assert now().endswith("Z")
