"""The ``warptile`` command itself: help, version, exit codes, what goes to which stream."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import warptile
from warptile import errors
from warptile.cli.main import CommandFiles, exit_code, run, warptile_command


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"warptile, version {warptile.__version__}\n"


def test_help_lists_every_command_with_a_sentence(capsys):
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ("ladder", "emulate", "doctor", "cache"):
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
        assert len(line.split()) > 3


def test_every_command_file_defines_its_command():
    context = click.Context(warptile_command)
    for name in warptile_command.list_commands(context):
        command = warptile_command.get_command(context, name)
        assert isinstance(command, click.Command), name
        assert command.name == name
        assert command.help


def test_commands_are_loaded_only_when_asked_for():
    code = "import sys, warptile.cli.main; print(any(m.startswith('numpy') for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ShapeError("x"), 2),
        (errors.DTypeError("x"), 2),
        (errors.LayoutError("x"), 2),
        (errors.NoDeviceError("x"), 3),
        (errors.UnsupportedError("x"), 4),
        (errors.DeviceError("x"), 1),
        (errors.CompileError("x"), 1),
        (errors.EmulationError("x"), 1),
        (errors.UnknownInstruction("x"), 1),
        (errors.PtxSyntaxError("x"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("x"), 2),
    ],
)
def test_each_error_has_its_exit_code_and_stays_off_stdout(error, code, monkeypatch, capsys):
    @click.command("fail")
    def fail():
        raise error

    monkeypatch.setattr(CommandFiles, "get_command", lambda self, ctx, name: fail)
    assert run(["fail"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err
    if isinstance(error, errors.WarptileError):
        assert exit_code(error) == code
        assert type(error).__name__ in said.err


def test_a_mistake_of_our_own_is_not_hidden(monkeypatch):
    @click.command("fail")
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(CommandFiles, "get_command", lambda self, ctx, name: fail)
    with pytest.raises(ZeroDivisionError):
        run(["fail"])


def test_an_unknown_command_is_usage(capsys):
    assert run(["fly"]) == 2
    assert "got 'fly'; it takes bench, cache, " in capsys.readouterr().err
    assert run(["laddr"]) == 2
    assert "got 'laddr'; did you mean ladder or learn?" in capsys.readouterr().err
    assert run(["cache", "lst"]) == 2
    assert "did you mean ls?" in capsys.readouterr().err


def every_command():
    """Each command with the words that call it."""
    context = click.Context(warptile_command)
    found = []
    for name in warptile_command.list_commands(context):
        command = warptile_command.get_command(context, name)
        found.append(([name], command))
        if isinstance(command, click.Group):
            found += [([name, part], command.commands[part]) for part in command.list_commands(context)]
    return found


EVERY_COMMAND = every_command()
NAMES = [" ".join(words) for words, _ in EVERY_COMMAND]


@pytest.mark.parametrize(("words", "command"), EVERY_COMMAND, ids=NAMES)
def test_help_has_an_example_that_runs_as_written(words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.ptx").write_text("")
    (tmp_path / "add.cu").write_text("")
    (tmp_path / "kernels.zip").write_text("")
    (tmp_path / "program").touch(0o755)
    (tmp_path / "program.cu").write_text("")
    (tmp_path / "swizzle.cu").write_text("")
    for name in ("a.npy", "d.npy"):
        np.save(tmp_path / name, np.zeros(256, np.float32))
    lines = [" ".join(line.split()) for line in command.help.replace("\\\n", " ").splitlines()]
    examples = [line for line in lines if line.startswith("warptile ")]
    assert examples
    for example in examples:
        arguments = shlex.split(example.partition(" > ")[0])[1:]
        context, called = None, warptile_command
        while isinstance(called, click.Group) and arguments and not arguments[0].startswith("-"):
            called = called.get_command(click.Context(called), arguments[0])
            arguments = arguments[1:]
        context = called.make_context(example, arguments)  # parses and converts everything, and runs nothing
        assert context.command is called


@pytest.mark.parametrize(("words", "command"), EVERY_COMMAND, ids=NAMES)
def test_help_fits_80_columns_and_its_first_sentence_is_whole(words, command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert run([*words[:-1], "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    (line,) = [line for line in text.splitlines() if line.split()[:1] == words[-1:]]
    assert line.endswith(".")
    assert not line.endswith("...")


@pytest.mark.parametrize(("words", "command"), EVERY_COMMAND, ids=NAMES)
def test_an_option_that_is_none_is_usage_and_answered_with_the_nearest(words, command, capsys):
    assert run([*words, "--jsn"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "No such option" in said.err
    if any(parameter.name == "as_json" for parameter in command.params):
        assert "--json" in said.err


def test_the_log_level_is_checked(monkeypatch, capsys):
    monkeypatch.setenv("WARPTILE_LOG", "LOUD")
    assert run(["emulate", "nothing.ptx"]) == 2
    assert "WARPTILE_LOG: got 'LOUD'" in capsys.readouterr().err
    monkeypatch.setenv("WARPTILE_LOG", "")  # as if it were not there, like the other variables
    assert run(["isa", "mma.m16n8k16.f32.f16"]) == 0


def test_a_reader_that_leaves_is_no_traceback(tmp_path):
    command = f"{sys.executable} -m warptile.cli.main ladder --rung simt-naive -m 4 -n 4 -k 4 --backend emulator | true"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "Traceback" not in done.stderr


def shell(command):
    """A command of a shell with warptile in front of its words."""
    return subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m warptile.cli.main {command}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["isa mma.m16n8k16.f32.f16", "isa mma.m16n8k16.f32.f16 --json"])
def test_a_full_disk_is_no_traceback(words):
    done = shell(f"{words} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "OSError: No space left on device\n"


def test_output_that_is_closed_goes_nowhere():
    done = shell("isa mma.m16n8k16.f32.f16 >&-")
    assert (done.returncode, done.stderr) == (0, "")


WRITES = [
    (words, parameter)
    for words, command in EVERY_COMMAND
    for parameter in command.params
    if isinstance(parameter.type, click.Path) and not parameter.type.exists and not parameter.type.dir_okay
]


def test_commands_that_write_files():
    written = {" ".join([*words, max(parameter.opts)]) for words, parameter in WRITES}
    assert {"bench --plot", "cache export file", "emulate --sarif", "profile --timeline", "report --out"} <= written


@pytest.mark.parametrize(("words", "parameter"), WRITES, ids=[" ".join([*w, max(p.opts)]) for w, p in WRITES])
@pytest.mark.parametrize(("path", "said"), [("no/x", "there is no folder 'no'"), ("file/x", "'file' is a file")])
def test_where_a_command_writes_is_looked_at_before_it_computes(words, parameter, path, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    if " ".join([*words, parameter.name]) in ("report runs", "learn check file"):
        return  # these are read
    with pytest.raises(click.BadParameter, match=f"got '{path}', and {said}"):
        parameter.type.convert(path, parameter, None)


def test_sums_that_a_type_does_not_have_are_refused(capsys):
    assert run(["ladder", "--backend", "emulator", "--dtype", "bit1", "--accumulate", "float16"]) == 2
    assert "the sums of bit1 operands are kept in int32, int32_xor" in capsys.readouterr().err


@pytest.mark.parametrize(("group", "given", "meant"), [("learn", "quizz", "quiz"), ("cache", "clea", "clear")])
def test_a_misspelt_subcommand_is_answered_with_the_nearest(group, given, meant, capsys):
    assert run([group, given]) == 2
    assert f"got {given!r}; did you mean {meant}" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["0", "many"])
def test_columns_that_say_no_width_are_none(columns, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["isa", "mma.m16n8k16.f32.f16"]) == 0
    plain = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["isa", "mma.m16n8k16.f32.f16"]) == 0
    assert capsys.readouterr().out == plain
