"""Exercises: as given each fails for its own reason, the model answer passes, and the checker names what is wrong."""

import pytest

from warptile.cli.main import run
from warptile.errors import ArgumentError
from warptile.learn.exercise import ANSWER, HOLE, check
from warptile.learn.exercise_list import EXERCISES

FAILS = {
    "coalesced": ("", ""),
    "one-instruction": ("", ""),
    "four-moves": ("UnwrittenOutput: D[0, 0] was never written: 1024 of 1024", ""),
    "promotion": ("", ""),
    "fragment-reuse": ("", ""),
    "stream-k": ("", ""),
    "metadata": ("EmulationError: mma.sp::ordered_metadata", "line 40"),
    "warp-tiles": ("UnwrittenOutput: D[64, 0] was never written: 8192 of 16384", ""),
    "intensity": ("", ""),
    "two-barriers": ("DataRace: read-write race on shared memory, a_tile", "line 19"),
    "fragment-epilogue": ("", ""),
    "swizzle": ("", ""),
    "groups": ("UninitializedRead: wmma.load.a", "line 42"),
    "phases": ("UninitializedRead: wmma.load.a", "line 52"),
    "proxies": ("DataRace: write-read race on shared memory, out", "line 30"),
}
"""What the emulator says of each, and of which line."""

GATES = {"coalesced": "global_load_sectors", "one-instruction": "tensor_instructions",
         "fragment-reuse": "shared_load_requests", "intensity": "arithmetic_intensity",
         "fragment-epilogue": "global_store_sectors", "swizzle": "shared_load_conflict_ratio"}  # fmt: skip


@pytest.mark.parametrize("name", EXERCISES)
def test_as_given_it_fails_for_its_reason(name):
    outcome = check(EXERCISES[name].text(HOLE))
    error, where = FAILS[name]
    assert not outcome.passed
    assert outcome.error.startswith(error)
    assert bool(outcome.error) == bool(error)
    assert outcome.where == where
    assert outcome.error or outcome.wrong or name in GATES
    if name in GATES:
        assert [gate.counter for gate, _, holds in outcome.gates if not holds] == [GATES[name]]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_model_answer_passes(name):
    outcome = check(EXERCISES[name].text(ANSWER))
    assert outcome.passed, outcome
    assert not outcome.error
    assert not outcome.wrong
    assert all(holds for *_, holds in outcome.gates)


def test_every_lesson_has_an_exercise():
    assert {exercise.lesson for exercise in EXERCISES.values()} == set(range(1, 16))


@pytest.mark.parametrize("name", EXERCISES)
def test_both_forms_are_whole(name):
    exercise = EXERCISES[name]
    given, answer = exercise.text(HOLE), exercise.text(ANSWER)
    assert given != answer
    for text in (given, answer):
        assert "// HOLE" not in text
        assert "// ANSWER" not in text
        assert max(map(len, text.splitlines())) <= 120
    assert len(exercise.hints) == 3
    assert len(set(exercise.hints)) == 3


def test_a_wrong_answer_is_told_by_element_and_counter():
    given = EXERCISES["swizzle"].text(ANSWER).replace("chunk ^ (row & 7)", "chunk ^ (row & 3)")
    outcome = check(given)
    assert not outcome.passed
    assert [(gate.counter, value) for gate, value, _ in outcome.gates] == [("shared_load_conflict_ratio", 2.0)]
    assert outcome.lines
    assert {round(ratio, 2) for _, ratio in outcome.lines} == {2.0}
    wrong = check(EXERCISES["fragment-epilogue"].text(ANSWER).replace("row + group + 8", "row + group + 8 - 8"))
    assert "of 128 elements of D are wrong; the first is D[" in wrong.wrong or "never written" in wrong.error


def test_what_does_not_compile_says_so():
    outcome = check(EXERCISES["swizzle"].text(ANSWER).replace("chunk ^ (row & 7);", "chunk ^ rwo;"))
    assert outcome.error.startswith("it does not compile: ")
    assert "rwo" in outcome.error


def test_a_file_of_no_exercise_is_refused():
    with pytest.raises(ArgumentError, match=r"no line like '// warptile exercise: swizzle'.*warptile learn start"):
        check("__global__ void gemm() {}")


def test_a_file_that_does_not_compile_is_told_by_its_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["learn", "start", "swizzle"]) == 0
    path = tmp_path / "swizzle.cu"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], "__device__ int x = y;", *lines[4:], "__device__ int z = w;"]))
    capsys.readouterr()
    assert run(["learn", "check", "swizzle.cu"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == 'swizzle.cu, line 5: it does not compile: identifier "y" is undefined'
    assert said[1] == f'line {len(lines) + 2}: identifier "w" is undefined'


def test_start_without_a_name_lists_the_exercises(capsys):
    assert run(["learn", "start"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == list(EXERCISES)
    assert [int(line.split()[1]) for line in lines] == [each.lesson for each in EXERCISES.values()]
    assert max(map(len, lines)) <= 79


def test_from_start_to_passed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["learn", "start", "swizzle"]) == 0
    assert "warptile learn check swizzle.cu" in capsys.readouterr().out
    assert run(["learn", "check", "swizzle.cu"]) == 1
    out = capsys.readouterr().out
    assert "not   shared_load_conflict_ratio is 8.00; it has to be 1.00: no bank conflict in loads" in out
    assert "8.00-way bank conflicts" in out
    assert run(["learn", "hint", "swizzle", "3"]) == 0
    assert "chunk ^ (row & 7)" in capsys.readouterr().out
    path = tmp_path / "swizzle.cu"
    path.write_text(path.read_text().replace("return chunk;", "return chunk ^ (row & 7);"))
    assert run(["learn", "check", "swizzle.cu"]) == 0
    assert "passed: " in capsys.readouterr().out
    assert run(["learn", "start", "swizzle"]) == 2
    assert "swizzle.cu exists; give another name" in capsys.readouterr().err
    assert run(["learn", "answer", "swizzle"]) == 0
    assert "chunk ^ (row & 7)" in capsys.readouterr().out
    assert run(["learn", "check", "none.cu"]) == 2
    assert "there is no file 'none.cu'; give one that" in " ".join(capsys.readouterr().err.split())
    assert run(["learn", "check", "stream-k"]) == 2
    assert "warptile learn start stream-k stream-k.cu writes the" in " ".join(capsys.readouterr().err.split())
