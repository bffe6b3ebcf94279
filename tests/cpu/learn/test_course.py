"""The course: every lesson is whole, its predictions are computed, and its pages load nothing."""

import re
from itertools import pairwise

import pytest

from warptile import measured
from warptile.bench.protocol.records import ProfileRecord, committed
from warptile.cli.main import run
from warptile.errors import ArgumentError
from warptile.learn import pages
from warptile.learn.course import lessons
from warptile.learn.exercise import named
from warptile.learn.exercise_list import EXERCISES
from warptile.learn.lesson_pictures import picture
from warptile.learn.predictions import PREDICTIONS, PredictedNumber, _recorded

COURSE = lessons()
IDS = [f"{lesson.number}" for lesson in COURSE]


def test_lessons_are_numbered_without_gaps():
    assert [lesson.number for lesson in COURSE] == list(range(1, len(COURSE) + 1))


@pytest.mark.parametrize("lesson", COURSE, ids=IDS)
def test_a_lesson_is_whole(lesson):
    assert len(lesson.screens) >= 3
    assert lesson.named("predict"), "a lesson asks for a prediction"
    assert 8 <= lesson.minutes <= 25
    assert sum(step.minutes for step in lesson.board) == lesson.minutes
    for screen in lesson.screens:
        words = sum(len(part.text.split()) for part in screen.parts if part.kind == "text")
        assert words <= 220, f"{screen.title}: {words} words; a screen has one idea"


def test_predictions_and_exercises_are_asked_for_once():
    asked = [part.name for lesson in COURSE for part in lesson.named("predict")]
    assert sorted(asked) == sorted(PREDICTIONS)
    given = [(part.name, lesson.number) for lesson in COURSE for part in lesson.named("exercise")]
    assert sorted(given) == sorted((each.name, each.lesson) for each in EXERCISES.values())


@pytest.mark.parametrize("name", PREDICTIONS)
def test_answers_are_numbers_with_a_reason(name):
    answer = PREDICTIONS[name]()
    assert answer.value > 0
    assert len(answer.why) > 20
    assert answer.holds(answer.value)
    assert not answer.holds(1.5 * answer.within * answer.value + 1)
    assert not answer.holds(-answer.value)


def test_some_answers_by_hand():
    by_hand = {
        "multiply-adds": 2048, "by-hand": 43, "asked-bytes": 1024, "tile-intensity": 64, "lane-of-element": 21,
        "unswizzled": 8, "padded": 1, "swizzled-chunk": 6, "warp-fragments": 8, "naive-intensity": 4,
    }  # fmt: skip
    assert {name: PREDICTIONS[name]().value for name in by_hand} == by_hand


def test_a_guess_counts_within_a_factor():
    answer = PredictedNumber(10, "clocks", "why", 2.0)
    assert [answer.holds(guess) for guess in (4.9, 5, 10, 20, 20.1, 0)] == [False, True, True, True, False, False]
    assert answer.shown == "10 clocks"
    assert PredictedNumber(1, "clocks", "").shown == "1 clock"
    assert PredictedNumber(6, "", "").shown == "6"


NAIVE = ("wmma-naive", 2048, "float32")


def tflops(rung):
    return _recorded(rung).tflops


def test_figures_in_the_text_are_recorded_ones():
    """Of lessons 1, 5 and 8: where records change, so must the sentences."""
    results = [each for each in measured.summary().results if each.problem.m == 4096]
    best = max(each.tflops for each in results if (each.rung, each.problem.dtype) == ("simt-warptile", "float32"))
    assert 1.7 < best / tflops("wmma-naive") < 2  # "almost twice as fast"
    assert round(tflops("wmma-naive")) == 27
    assert tflops("mma-swizzled") / tflops("mma-vectorized") > 3  # "more than three times"
    profiles = [each for record in committed() if isinstance(record, ProfileRecord) for each in record.profiles]
    (naive,) = (each for each in profiles if (each.rung, each.problem.m, each.problem.accumulator) == NAIVE)
    assert round(100 * naive.stalls["long_scoreboard"]) == 96


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    return {path.name: path.read_text() for path in pages.build(folder)}


def test_pages_load_nothing(course):
    assert len(course) == len(COURSE) + 1
    for name, text in course.items():
        assert len(text) < 600_000, name
        assert not re.search(r"""(?:src|srcset)\s*=|<link(?! rel="icon" href="data:)|@import|url\(""", text), name
        assert "Content-Security-Policy" in text
        for target in re.findall(r'href="([^"#]+)"', text):
            assert target in course or target == "data:,", target


def test_every_page_is_reached_from_the_one_before(course):
    assert re.findall(r'<li value="\d+"><a href="([^"]+)"', course["index.html"]) == list(course)[1:]
    names = list(course)[1:]
    for name, after in pairwise(names):
        assert f'<a href="{after}" rel="next">' in course[name]


def test_an_answer_is_not_shown_before_it_is_opened(course):
    for text in course.values():
        for box in re.findall(r'<div class="prediction".*?</div>', text, re.S):
            assert box.index("<details>") < box.index("<strong>", box.index("</p>"))
            assert "<details open" not in box


def test_an_unknown_picture_or_exercise_says_what_there_is():
    with pytest.raises(ArgumentError, match="there are fragment, banks, triple"):
        picture("x", "bank", ())
    with pytest.raises(ArgumentError, match="banks takes plain, padded, swizzled"):
        picture("x", "banks", ("plane",))
    with pytest.raises(ArgumentError, match="has operands a, b, c, not q"):
        picture("x", "fragment", ("mma.m16n8k16.f32.f16", "q"))
    with pytest.raises(ArgumentError, match=r"got 'swizle'; there are .*such as swizzle"):
        named("swizle")


def test_the_command_writes_the_pages(tmp_path, capsys):
    assert run(["learn", "--build", str(tmp_path / "course")]) == 0
    assert capsys.readouterr().out.endswith(f"index.html: {len(COURSE) + 1} pages\n")
    assert (tmp_path / "course" / "08-bank-conflicts.html").exists()


def test_the_quiz_asks_shows_and_counts(monkeypatch, capsys):
    asked = COURSE[7].named("predict")
    guesses = iter([PREDICTIONS[asked[0].name]().value, 1000.0, 6.0])
    monkeypatch.setattr("click.prompt", lambda *arguments, **named: next(guesses))
    assert run(["learn", "quiz", "8"]) == 0
    out = capsys.readouterr().out
    assert "Right: 8 wavefronts" in out
    assert "Not quite: 1 wavefront." in out
    assert out.endswith("2 of 3 right\n")


def test_the_quiz_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    told = []
    monkeypatch.setattr("click.prompt", lambda text, **named: told.append(text) or 1.0)
    assert run(["learn", "quiz"]) == 0
    told += [capsys.readouterr().out]
    assert max(len(line) for text in told for line in text.splitlines()) <= 60


def test_the_quiz_of_no_lesson(capsys):
    assert run(["learn", "quiz", "77"]) == 2
    assert "lesson 77: there are 1, 2" in capsys.readouterr().err
