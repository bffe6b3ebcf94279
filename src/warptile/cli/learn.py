"""`warptile learn`: the course, its exercises and its quiz."""

from __future__ import annotations

import functools
import http.server
import shutil
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.formatting import wrap_text

from warptile.cli._files import FILE_TO_WRITE, write_file
from warptile.cli._names import CommandGroup, OneOf

if TYPE_CHECKING:
    from warptile.learn.exercise import CheckOutcome

HINTS = 3


def _exercises() -> tuple[str, ...]:
    from warptile.learn.exercise_list import EXERCISES

    return tuple(EXERCISES)


EXERCISE = OneOf("exercise", _exercises)


@click.group("learn", cls=CommandGroup, invoke_without_command=True)
@click.option("--build", "folder", type=click.Path(path_type=Path, file_okay=False), help="Only write the pages there.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the server on this machine.  [any free one]")
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the course in a browser.")
@click.pass_context
def command(context: click.Context, folder: Path | None, port: int, opens: bool) -> None:
    """The course: how a fast GEMM works, in a browser, with exercises.

    Without a subcommand it is served on this machine until interrupted.

    \b
    Examples:
      warptile learn
      warptile learn quiz 8
      warptile learn start swizzle
      warptile learn --build course
    """
    if context.invoked_subcommand is not None:
        return
    from warptile.learn.pages import build

    if folder is not None:
        pages = build(folder)
        click.echo(f"{pages[0]}: {len(pages)} pages")
        return
    with tempfile.TemporaryDirectory() as made:
        build(Path(made))
        handler = functools.partial(_Quiet, directory=made)
        with _server(port, handler) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}/"
            click.echo(f"{address}: the course; interrupt to end")
            if opens:
                webbrowser.open(address)
            server.serve_forever()


def _server(port: int, handler: Callable[..., _Quiet]) -> http.server.ThreadingHTTPServer:
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise click.UsageError(
            f"--port: got {port} ({error.strerror}); leave it out, and a free one is taken"
        ) from None


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not shown."""


@command.command("start")
@click.argument("name", required=False, type=EXERCISE)
@click.argument("file", required=False, type=FILE_TO_WRITE)
def start(name: str | None, file: Path | None) -> int:
    """Write an exercise to FILE, by default NAME.cu. Without NAME, list them.

    \b
    Examples:
      warptile learn start
      warptile learn start swizzle mine.cu
    """
    from warptile.learn.exercise import named
    from warptile.learn.exercise_list import EXERCISES

    if name is None:
        width = max(map(len, EXERCISES))
        for each in EXERCISES.values():
            click.echo(f"lesson {each.lesson:2}  {each.name:{width}}  {each.title}")
        return 0
    path = file or Path(f"{name}.cu")
    if path.exists():
        raise click.UsageError(f"{path} exists; give another name: warptile learn start {name} mine.cu")
    exercise = named(name)
    write_file(path, exercise.text())
    click.echo(f"{path}: {exercise.title}\n\n{_folded(exercise.task)}\n\nwarptile learn check {path}")
    return 0


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def check(file: Path) -> int:
    """Run an exercise on the emulator; say what is wrong.

    \b
    Example:
      warptile learn check swizzle.cu
    """
    from warptile.learn.exercise import check as checked

    if not file.exists():
        name = file.with_suffix("").name
        raise click.UsageError(
            f"there is no file {str(file)!r}; warptile learn start {name} {file.with_suffix('.cu')} writes the exercise"
            if name in _exercises()
            else f"there is no file {str(file)!r}; give one that `warptile learn start` wrote, such as swizzle.cu"
        )
    outcome = checked(file.read_text("utf-8", errors="replace"))
    _tell(outcome, file)
    return 0 if outcome.passed else 1


def _folded(text: str) -> str:
    """A text in lines that are easy to read, and fit the terminal."""
    return wrap_text(text, min(78, shutil.get_terminal_size().columns))


def _tell(outcome: CheckOutcome, file: Path) -> None:
    if outcome.error:
        click.echo(f"{file}{f', {outcome.where}' if outcome.where else ''}: {outcome.error}")
    if outcome.wrong:
        click.echo(f"{file}: {outcome.wrong}")
    for gate, value, holds in outcome.gates:
        click.echo(f"{'ok   ' if holds else 'not  '} {gate.counter} is {value:.2f}; it has to be {gate.says}")
    for line, ratio in outcome.lines:
        click.echo(f"      line {line}: {ratio:.2f}-way bank conflicts")
    name = outcome.exercise.name
    if outcome.passed:
        click.echo(f"passed: {outcome.exercise.title}\nTo compare: warptile learn answer {name}")
    else:
        click.echo(f"A hint: warptile learn hint {name} 1")


@command.command("hint")
@click.argument("name", type=EXERCISE)
@click.argument("number", type=click.IntRange(1, HINTS), default=1)
def hint(name: str, number: int) -> int:
    """Print hint NUMBER, 1 to 3, of an exercise.

    \b
    Example:
      warptile learn hint swizzle 2
    """
    from warptile.learn.exercise import named

    click.echo(_folded(named(name).hints[number - 1]))
    return 0


@command.command("answer")
@click.argument("name", type=EXERCISE)
def answer(name: str) -> int:
    """Print the model answer of an exercise.

    \b
    Example:
      warptile learn answer swizzle
    """
    from warptile.learn.exercise import ANSWER, named

    click.echo(named(name).text(ANSWER), nl=False)
    return 0


@command.command("quiz")
@click.argument("number", required=False, type=int)
def quiz(number: int | None) -> int:
    """Predict the numbers of lesson NUMBER, or of all.

    \b
    Example:
      warptile learn quiz 8
    """
    from warptile.learn.course import lessons
    from warptile.learn.predictions import PREDICTIONS

    course = {lesson.number: lesson for lesson in lessons()}
    if number is not None and number not in course:
        listed = ", ".join(map(str, course))
        raise click.UsageError(f"lesson {number}: there are {listed}, such as warptile learn quiz {next(iter(course))}")
    asked = [part for each in (course if number is None else (number,)) for part in course[each].named("predict")]
    right = 0
    for part in asked:
        said = click.prompt(f"\n{_folded(part.text)}\n>", type=float, prompt_suffix=" ")
        answer = PREDICTIONS[part.name]()
        right += answer.holds(said)
        click.echo(_folded(f"{'Right' if answer.holds(said) else 'Not quite'}: {answer.shown}. {answer.why}"))
    click.echo(f"\n{right} of {len(asked)} right")
    return 0
