"""The journal: finished work survives the process, what killed a process is named, the rest goes on."""

import pytest

from warptile.bench.campaign.journal import Journal, run_tasks
from warptile.errors import DeviceError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "journal.jsonl"


def test_results_are_there_for_the_next_process(path):
    Journal(path).finish("cell/a", {"ms": 1.5})
    again = Journal(path)
    assert again.settled("cell/a")
    assert again.results(dict[str, float]) == {"cell/a": {"ms": 1.5}}
    assert again.results(dict[str, float], prefix="check/") == {}


def test_a_task_that_took_its_process_down_is_marked_and_not_run_again(path):
    journal = Journal(path)
    journal.finish("one", 1)
    journal.start("two")
    after = Journal(path)
    assert not after.settled("two")
    assert after.fail_unfinished("the worker ended with status -11") == ["two"]
    assert Journal(path).failures() == {"two": "the worker ended with status -11"}
    assert Journal(path).settled("two")


def test_a_line_cut_off_by_a_kill_is_skipped(path):
    Journal(path).finish("one", 1)
    with path.open("ab") as file:
        file.write(b'{"task":"two","event":"do')
    journal = Journal(path)
    assert (journal.damaged_lines, journal.results(int)) == (1, {"one": 1})


def test_one_failing_task_does_not_lose_the_rest(path):
    said = []

    def broken():
        raise ValueError("no such tile")

    left = run_tasks(Journal(path), [("a", lambda: 1), ("b", broken), ("c", lambda: 3)], say=said.append)
    journal = Journal(path)
    assert left == []
    assert journal.results(int) == {"a": 1, "c": 3}
    assert journal.failures() == {"b": "ValueError: no such tile"}
    assert said == ["b: FAILED ValueError: no such tile"]


def test_finished_and_failed_tasks_do_not_run_again(path):
    journal = Journal(path)
    journal.finish("a", 1)
    journal.fail("b", "why")
    ran = []
    run_tasks(journal, [(name, lambda name=name: ran.append(name)) for name in "abc"], say=print)
    assert ran == ["c"]
    journal.forget_failures()
    run_tasks(journal, [(name, lambda name=name: ran.append(name)) for name in "abc"], say=print)
    assert ran == ["c", "b"]
    assert Journal(path).results(int | None).keys() == {"a", "c", "b"}


def test_an_error_that_loses_the_gpu_ends_the_process_after_it_was_noted(path):
    def lost():
        raise DeviceError("the GPU context is lost")

    ran = []
    with pytest.raises(DeviceError):
        run_tasks(Journal(path), [("a", lost), ("b", lambda: ran.append("b"))], say=print, fatal=lambda error: True)
    assert ran == []
    assert Journal(path).failures() == {"a": "DeviceError: the GPU context is lost"}


def test_nothing_starts_when_time_has_run_out(path):
    clock = iter([False, True, True])
    left = run_tasks(Journal(path), [(name, lambda: 0) for name in "abc"], say=print, expired=lambda: next(clock))
    assert left == ["b", "c"]
    assert Journal(path).results(int) == {"a": 0}


def test_tasks_stopped_through_no_fault_of_theirs_run_again(path):
    journal = Journal(path)
    journal.fail("a", "why")
    journal.start("b")
    journal.forget_unfinished()
    again = Journal(path)
    assert (again.settled("a"), again.settled("b")) == (True, False)
    assert again.fail_unfinished("x") == []
