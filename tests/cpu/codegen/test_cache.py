"""The cache keeps whole entries or none: under damage, many processes and kill -9, and in no folder it cannot trust."""

import errno
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from warptile.codegen.cache import SCHEMA, Cache, default_folder, key_of
from warptile.errors import UnsupportedError

KEY = key_of({"text": "one"})
OTHER = key_of({"text": "two"})
METADATA = {"entry": "_Z4tilePf", "registers": 40}
BLOBS = {"cubin": bytes(range(256)) * 4, "ptx": b".version 9.0\n.target sm_90a\n"}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def filled(cache):
    assert cache.put(KEY, METADATA, BLOBS)
    return cache


def test_an_entry_comes_back_as_it_was_put(filled):
    entry = filled.get(KEY)
    assert entry is not None
    assert dict(entry.metadata) == METADATA
    assert dict(entry.blobs) == BLOBS
    assert entry.size_bytes == sum(map(len, BLOBS.values()))
    assert filled.get(OTHER) is None


def test_blobs_lie_on_disk_as_raw_bytes_with_json_beside_them(filled):
    folder = filled.entries / KEY
    assert (folder / "kernel.cubin").read_bytes() == BLOBS["cubin"]
    assert json.loads((folder / "entry.json").read_text())["metadata"] == METADATA


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": "bc"}, {"ab": "c"}),
        ({"options": ("ab", "c")}, {"options": ("a", "bc")}),
        ({"options": ("a",)}, {"options": "a"}),
        ({"n": 1}, {"n": "1"}),
        ({"headers": {"x.cuh": b"1", "y.cuh": b""}}, {"headers": {"x.cuh": b"", "y.cuh": b"1"}}),
        ({}, {"may_spill": 0}),
    ],
)
def test_different_parts_give_different_keys(left, right):
    assert key_of(left) != key_of(right)


def test_a_key_does_not_depend_on_the_order_of_names_and_holds_the_schema(monkeypatch):
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    before = key_of({"a": 1})
    monkeypatch.setattr("warptile.codegen.cache.SCHEMA", SCHEMA + 1)
    assert key_of({"a": 1}) != before


def test_values_without_stable_bytes_are_no_part_of_a_key():
    with pytest.raises(TypeError, match="float"):
        key_of({"alpha": 1.0})


@pytest.mark.parametrize("name", ["entry.json", "kernel.cubin", "kernel.ptx"])
def test_a_flipped_bit_anywhere_is_a_miss(filled, name):
    file = filled.entries / KEY / name
    with file.open("r+b", buffering=0) as opened:
        for position, byte in enumerate(file.read_bytes()):
            os.pwrite(opened.fileno(), bytes([byte ^ 1]), position)
            assert filled.get(KEY) is None, position
            os.pwrite(opened.fileno(), bytes([byte]), position)
    assert filled.get(KEY) is not None


@pytest.mark.parametrize("name", ["entry.json", "kernel.cubin", "kernel.ptx"])
@pytest.mark.parametrize("change", ["empty", "half", "longer", "gone", "folder", "link", "pipe"])
def test_a_damaged_entry_is_a_miss_and_the_next_put_repairs_it(filled, tmp_path, name, change):
    file = filled.entries / KEY / name
    whole = file.read_bytes()
    if change == "longer":
        file.write_bytes(whole + b"x")
    elif change in ("empty", "half"):
        file.write_bytes(whole[: len(whole) // 2] if change == "half" else b"")
    else:
        file.unlink()
    if change == "folder":
        file.mkdir()
    elif change == "link":
        (tmp_path / "elsewhere").write_bytes(whole)
        file.symlink_to(tmp_path / "elsewhere")
    elif change == "pipe":
        os.mkfifo(file)
    assert filled.get(KEY) is None
    assert list(filled.list()) == []
    assert filled.put(KEY, METADATA, BLOBS)
    assert dict(filled.get(KEY).blobs) == BLOBS
    assert os.listdir(filled.entries) == [KEY]


def test_an_entry_of_another_key_or_behind_a_link_is_a_miss(filled):
    (filled.entries / KEY).rename(filled.entries / OTHER)
    assert filled.get(OTHER) is None
    (filled.entries / OTHER).rename(filled.entries / "aside")
    (filled.entries / KEY).symlink_to(filled.entries / "aside")
    assert filled.get(KEY) is None
    assert filled.put(KEY, METADATA, BLOBS)
    assert filled.get(KEY) is not None
    assert not (filled.entries / KEY).is_symlink()


def test_an_entry_of_another_schema_is_a_miss(filled, monkeypatch):
    monkeypatch.setattr("warptile.codegen.cache.SCHEMA", SCHEMA + 1)
    assert filled.get(KEY) is None


def test_a_whole_entry_is_not_replaced(filled):
    assert filled.put(KEY, {"entry": "second"}, BLOBS)
    assert dict(filled.get(KEY).metadata) == METADATA


def test_the_folders_are_for_their_owner_alone(filled):
    for folder in (filled.folder, filled.entries, filled.entries / KEY):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def _refused(cache, word):
    assert word in cache.problem()
    assert cache.get(KEY) is None
    assert not cache.put(OTHER, METADATA, BLOBS)
    with pytest.raises(UnsupportedError, match=word):
        list(cache.list())
    with pytest.raises(UnsupportedError, match=word):
        cache.clear()


def test_a_symbolic_link_is_refused_even_to_a_good_folder(filled, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(filled.folder)
    _refused(Cache(link), "symbolic link")
    other = tmp_path / "other"
    other.mkdir(0o700)
    (other / "kernels").symlink_to(filled.entries)
    _refused(Cache(other), "symbolic link")
    assert filled.get(KEY) is not None
    assert filled.get(OTHER) is None


def _give_away(path, monkeypatch):
    """Let ``path`` belong to another user, neither this one nor root."""
    real = os.geteuid()
    if real == 0:
        os.chown(path, 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: real + 1)


def test_a_folder_of_another_user_is_refused(filled, monkeypatch):
    _give_away(filled.folder, monkeypatch)
    _refused(filled, "belongs to user")


@pytest.mark.parametrize("name", ["", "entry.json", "kernel.cubin", "kernel.ptx"])
@pytest.mark.parametrize("mode", [0o020, 0o002, 0o022])
def test_an_entry_that_others_may_write_to_is_a_miss_with_a_warning_that_names_it(filled, caplog, name, mode):
    path = filled.entries / KEY / name if name else filled.entries / KEY
    path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)
    assert filled.get(KEY) is None
    assert [(record.levelname, f"run: chmod go-w '{path}'" in record.getMessage()) for record in caplog.records] == [
        ("WARNING", True)
    ]
    assert list(filled.list()) == []
    assert filled.put(KEY, {"entry": "made anew"}, BLOBS)
    assert dict(filled.get(KEY).metadata) == {"entry": "made anew"}


def test_a_forged_entry_in_a_folder_that_others_may_write_to_is_not_loaded(filled):
    """Digests alone do not help: whoever replaces the files computes them anew."""
    (filled.entries / KEY).chmod(0o777)
    forger = Cache(filled.folder.parent / "forger")
    forger.put(KEY, METADATA, {"ptx": b"forged"})
    for file in (forger.entries / KEY).iterdir():
        os.replace(file, filled.entries / KEY / file.name)
    assert filled.get(KEY) is None


@pytest.mark.parametrize("name", ["", "entry.json", "kernel.ptx"])
def test_an_entry_of_another_user_is_a_miss_with_a_warning(filled, monkeypatch, caplog, name):
    path = filled.entries / KEY / name if name else filled.entries / KEY
    _give_away(path, monkeypatch)
    assert filled.get(KEY) is None
    assert any("belongs to user" in record.getMessage() for record in caplog.records)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere, so this is of other users alone")
def test_a_folder_that_only_root_may_write_to_is_read():
    from warptile.codegen.cache import _problem_with

    assert _problem_with(Path("/usr")) is None


def test_files_are_their_owners_alone_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        assert cache.put(KEY, METADATA, BLOBS)
    finally:
        os.umask(before)
    for file in (cache.entries / KEY).iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("which", ["folder", "entries"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(filled, which, mode):
    getattr(filled, which).chmod(mode)
    _refused(filled, "others may write")
    getattr(filled, which).chmod(0o700)
    assert filled.get(KEY) is not None


def test_a_path_that_cannot_be_a_folder_keeps_nothing_and_does_not_raise(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        cache = Cache(folder)
        assert cache.get(KEY) is None
        assert not cache.put(KEY, METADATA, BLOBS)
        assert cache.problem() is not None
    assert file.read_text() == ""


def test_a_path_that_cannot_be_a_folder_is_named_when_it_is_listed_or_exported(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "below")
    for use in (lambda: list(cache.list()), lambda: cache.export_to(tmp_path / "kernels.zip")):
        with pytest.raises(UnsupportedError, match=r"cannot be read \(Not a directory\); set WARPTILE_CACHE_DIR"):
            use()


def test_a_disk_that_refuses_to_write_keeps_nothing(filled, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert not filled.put(OTHER, METADATA, BLOBS)
    monkeypatch.undo()
    assert filled.get(OTHER) is None
    assert os.listdir(filled.entries) == [KEY]


_IS_LIMITED = """
import resource, sys
from warptile.codegen.cache import Cache
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
cache = Cache(sys.argv[1])
print([cache.put(sys.argv[2], {}, {"cubin": b"c" * 4096}) for _ in range(3)], cache.get(sys.argv[2]))
"""


def test_a_file_that_does_not_fit_is_said_once_and_leaves_nothing(filled):
    process = _run(_IS_LIMITED, filled.folder, OTHER)
    output, errors = process.communicate(timeout=60)
    assert output == "[False, False, False] None\n", errors
    assert errors.count("compiled kernels are not kept") == 1
    assert "WARPTILE_CACHE_DIR" in errors
    assert os.listdir(filled.entries) == [KEY]


def test_a_folder_that_is_read_only_is_read_and_keeps_nothing(filled, monkeypatch, caplog):
    def read_only(*arguments, **named):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, read_only)
    assert dict(filled.get(KEY).blobs) == BLOBS
    assert not filled.put(OTHER, METADATA, BLOBS)
    assert "Read-only file system" in caplog.text
    with pytest.raises(UnsupportedError, match="cannot be cleared"):
        filled.clear()
    assert filled.get(KEY) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the home folder is not asked of HOME")
def test_a_user_without_a_home_folder_gets_one_of_their_own_in_the_temporary_folder(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "WARPTILE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert default_folder() == tmp_path / f"warptile-cache-{os.geteuid()}"
    assert Cache().put(KEY, METADATA, BLOBS)
    assert Cache().get(KEY) is not None
    assert stat.S_IMODE(default_folder().stat().st_mode) == 0o700
    assert not (tmp_path / "~").exists()


def test_looking_makes_no_folder(cache):
    assert cache.get(KEY) is None
    assert list(cache.list()) == []
    assert cache.clear() == 0
    assert cache.problem() is None
    assert not cache.folder.exists()


def test_the_folder_is_looked_up_at_each_use(tmp_path, monkeypatch):
    cache = Cache()
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "first"))
    assert cache.put(KEY, METADATA, BLOBS)
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "second"))
    assert cache.get(KEY) is None
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path / "first"))
    assert cache.get(KEY) is not None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WARPTILE_CACHE_DIR", "~/first")
    assert cache.get(KEY) is not None
    monkeypatch.delenv("WARPTILE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder().name == "warptile"
    assert "xdg" in str(default_folder()) or sys.platform != "linux"


def test_clear_removes_whole_and_damaged_entries_and_leftovers(filled):
    filled.put(OTHER, METADATA, BLOBS)
    (filled.entries / OTHER / "entry.json").write_bytes(b"{")
    (filled.entries / ".new-1-0").mkdir()
    assert filled.clear() == 2
    assert os.listdir(filled.entries) == []


def _run(code, *arguments):
    """Start a Python process of its own, as other users of the cache are."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


_DIES_WRITING = """
import os, signal, sys
from pathlib import Path
from warptile.codegen.cache import Cache
calls, plain = 0, Path.write_bytes
def write_bytes(self, data):
    global calls
    calls += 1
    if calls > int(sys.argv[3]):
        plain(self, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self, data)
Path.write_bytes = write_bytes
if int(sys.argv[3]) == 3:
    os.rename = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
Cache(sys.argv[1]).put(sys.argv[2], {"entry": "e"}, {"cubin": b"c" * 65536, "ptx": b"p" * 65536})
"""


@pytest.mark.parametrize("files_written", [0, 1, 2, 3])
def test_a_writer_killed_at_any_point_leaves_no_entry_and_no_harm(filled, files_written):
    process = _run(_DIES_WRITING, filled.folder, OTHER, files_written)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert filled.get(OTHER) is None
    assert [entry.key for entry in filled.list()] == [KEY]
    leftovers = [name for name in os.listdir(filled.entries) if name.startswith(".")]
    assert len(leftovers) == 1
    assert filled.put(OTHER, METADATA, BLOBS)
    assert filled.get(OTHER) is not None
    long_ago = time.time() - 7200
    os.utime(filled.entries / leftovers[0], (long_ago, long_ago))
    assert filled.put(key_of({"text": "three"}), METADATA, BLOBS)
    assert not (filled.entries / leftovers[0]).exists()


_WRITES_UNTIL_KILLED = """
import sys
from warptile.codegen.cache import Cache, key_of
cache, number = Cache(sys.argv[1]), 0
while True:
    number += 1
    data = bytes([number % 251]) * 200_000
    cache.put(key_of({"n": number % 5}), {"number": number}, {"cubin": data, "ptx": data})
    if number == 1:
        print("writing", flush=True)
    if number % 3 == 0:
        cache.clear()
"""


def test_whatever_survives_kill_9_at_a_random_moment_is_whole(cache):
    for delay_ms in (1, 7, 13, 29):
        process = _run(_WRITES_UNTIL_KILLED, cache.folder)
        assert process.stdout.readline() == "writing\n", process.stderr.read()
        time.sleep(delay_ms / 1000)
        process.kill()
        process.communicate(timeout=60)
        keys = [name for name in os.listdir(cache.entries) if not name.startswith(".")]
        entries = list(cache.list())
        assert [entry.key for entry in entries] == sorted(keys)
        for entry in entries:
            assert entry.blobs["cubin"] == entry.blobs["ptx"] == bytes([entry.metadata["number"] % 251]) * 200_000


_SHARES = """
import random, sys
from warptile.codegen.cache import Cache, key_of
cache, generator, hits = Cache(sys.argv[1]), random.Random(int(sys.argv[2])), 0
for turn in range(150):
    number = generator.randrange(8)
    key, data = key_of({"n": number}), bytes([number]) * 50_000
    entry = cache.get(key)
    if entry is None:
        assert cache.put(key, {"number": number}, {"cubin": data, "ptx": data}) or sys.argv[3] == "clears"
    else:
        hits += 1
        assert entry.metadata == {"number": number} and entry.blobs["cubin"] == entry.blobs["ptx"] == data
    if sys.argv[3] == "clears" and turn % 20 == 0:
        cache.clear()
    if sys.argv[3] == "damages" and turn % 10 == 0:
        try:
            (cache.entries / key / "kernel.cubin").write_bytes(b"damage")
        except FileNotFoundError:
            pass
print(hits)
"""


@pytest.mark.parametrize("disturbance", ["none", "clears", "damages"])
def test_many_processes_never_see_half_an_entry(cache, disturbance):
    processes = [_run(_SHARES, cache.folder, seed, disturbance) for seed in range(5)]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert int(output) > 0
    assert not [name for name in os.listdir(cache.entries) if name.startswith(".")]
    if disturbance == "none":
        assert len(list(cache.list())) == 8


def test_export_and_import_carry_entries_to_another_folder(filled, tmp_path):
    filled.put(OTHER, METADATA, {"ptx": b"p"})
    assert filled.export_to(tmp_path / "kernels.zip") == 2
    second = Cache(tmp_path / "second")
    assert second.import_from(tmp_path / "kernels.zip") == 2
    assert list(second.list()) == list(filled.list())
    assert second.import_from(tmp_path / "kernels.zip") == 2


def test_damaged_entries_are_not_exported(filled, tmp_path):
    filled.put(OTHER, METADATA, BLOBS)
    (filled.entries / OTHER / "kernel.ptx").write_bytes(b"")
    assert filled.export_to(tmp_path / "kernels.zip") == 1


def test_an_export_that_fails_says_so_and_leaves_no_file(filled, tmp_path):
    with pytest.raises(UnsupportedError, match="cannot be written"):
        filled.export_to(tmp_path / "absent" / "kernels.zip")
    (tmp_path / "taken").mkdir()
    with pytest.raises(UnsupportedError, match="cannot be written"):
        filled.export_to(tmp_path / "taken")
    assert sorted(os.listdir(tmp_path)) == ["cache", "taken"]


def _rewritten(source, target, change):
    """Copy an archive, with ``change(name, data)`` giving the members to write for each one."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            for member, data in change(name, old.read(name)):
                new.writestr(member, data)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda name, data: [(name, data), (f"../{name[-5:]}", b"x")], "unexpected member"),
        (lambda name, data: [(f"/{name}", data)], "unexpected member"),
        (lambda name, data: [(name.replace("kernel.ptx", "run.sh"), data)], "unexpected member"),
        (lambda name, data: [(name, data[:-1] if name.endswith("cubin") else data)], "truncated or altered"),
        (lambda name, data: [(name, data.replace(b'40', b'41') if name.endswith("json") else data)], "altered"),
        (lambda name, data: [] if name.endswith("json") else [(name, data)], "has no entry.json"),
        (lambda name, data: [] if name.endswith("ptx") else [(name, data)], "truncated or altered"),
        (lambda name, data: [(name.replace(KEY, OTHER), data)], "another key"),
    ],
)  # fmt: skip
def test_an_archive_that_no_export_wrote_is_refused_whole(filled, tmp_path, change, word):
    filled.export_to(tmp_path / "good.zip")
    _rewritten(tmp_path / "good.zip", tmp_path / "bad.zip", change)
    second = Cache(tmp_path / "second")
    with pytest.raises(UnsupportedError, match=word):
        second.import_from(tmp_path / "bad.zip")
    assert list(second.list()) == []
    assert sorted(os.listdir(tmp_path)) == ["bad.zip", "cache", "good.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_member_twice_is_refused(filled, tmp_path):
    filled.export_to(tmp_path / "good.zip")
    _rewritten(tmp_path / "good.zip", tmp_path / "bad.zip", lambda name, data: [(name, data)] * 2)
    with pytest.raises(UnsupportedError, match="is there twice"):
        filled.import_from(tmp_path / "bad.zip")


def test_what_is_no_archive_is_refused(filled, tmp_path):
    (tmp_path / "text.zip").write_text("no archive")
    filled.export_to(tmp_path / "good.zip")
    (tmp_path / "half.zip").write_bytes((tmp_path / "good.zip").read_bytes()[:-40])
    for name in ("text.zip", "half.zip", "absent.zip"):
        with pytest.raises(UnsupportedError, match="warptile cache export"):
            filled.import_from(tmp_path / name)
