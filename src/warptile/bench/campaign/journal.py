"""A journal of tasks: what is done stays done when the process dies, and what killed it is named.

Each line of the file is one event of one task: started, done with its result, or failed with its reason. A task that
was started and neither finished nor failed took its process down with it (a kernel that faults destroys the CUDA
context; a hang is killed by the parent); the next process marks it as failed and goes on with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

STARTED, DONE, FAILED = "started", "done", "failed"


class JournalEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a journal."""

    task: str
    event: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""


class Journal:
    """Events in a file, one JSON document a line, appended with one write each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._events: dict[str, JournalEvent] = {}
        self.damaged_lines = 0
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    event = msgspec.json.decode(line, type=JournalEvent)
                except msgspec.MsgspecError:
                    self.damaged_lines += 1
                    continue
                self._events[event.task] = event

    def _append(self, event: JournalEvent) -> None:
        line = msgspec.json.encode(event) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self._events[event.task] = event

    def start(self, task: str) -> None:
        """Note that a task begins."""
        self._append(JournalEvent(task, STARTED))

    def finish(self, task: str, result: Any) -> None:
        """Note a task's result, anything msgspec can encode."""
        self._append(JournalEvent(task, DONE, msgspec.Raw(msgspec.json.encode(result))))

    def fail(self, task: str, reason: str) -> None:
        """Note that a task failed, and why."""
        self._append(JournalEvent(task, FAILED, reason=reason))

    def fail_unfinished(self, reason: str) -> list[str]:
        """Mark every task that was started and not finished as failed; their names."""
        stuck = [task for task, event in self._events.items() if event.event == STARTED]
        for task in stuck:
            self.fail(task, reason)
        return stuck

    def settled(self, task: str) -> bool:
        """Whether the task is done or has failed."""
        event = self._events.get(task)
        return event is not None and event.event in (DONE, FAILED)

    def results(self, kind: Any, prefix: str = "") -> dict[str, Any]:
        """Results of the finished tasks whose name starts with ``prefix``, decoded as ``kind``, in the order done."""
        return {
            task: msgspec.json.decode(event.result, type=kind)
            for task, event in self._events.items()
            if event.event == DONE and task.startswith(prefix)
        }

    def failures(self, prefix: str = "") -> dict[str, str]:
        """Reasons of the failed tasks whose name starts with ``prefix``."""
        return {
            task: event.reason
            for task, event in self._events.items()
            if event.event == FAILED and task.startswith(prefix)
        }

    def forget_failures(self) -> None:
        """Let failed tasks run again."""
        self._keep(DONE)

    def forget_unfinished(self) -> None:
        """Let tasks run again that were stopped through no fault of theirs."""
        self._keep(DONE, FAILED)

    def _keep(self, *events: str) -> None:
        """Rewrite the file with the last event of each task, if it is one of these."""
        kept = [event for event in self._events.values() if event.event in events]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in kept))
        temporary.replace(self.path)
        self._events = {event.task: event for event in kept}


JournalTask = tuple[str, Callable[[], Any]]


def run_tasks(
    journal: Journal,
    tasks: Iterable[JournalTask],
    *,
    say: Callable[[str], None],
    fatal: Callable[[Exception], bool] = lambda error: False,
    expired: Callable[[], bool] = lambda: False,
) -> Sequence[str]:
    """Run the tasks that are not settled, one by one; the names of those left when time ran out.

    A task that raises is noted as failed and the next one runs, except that a ``fatal`` error is raised again after it
    was noted: the process is then of no more use.
    """
    left: list[str] = []
    for name, work in tasks:
        if journal.settled(name):
            continue
        if expired():
            left.append(name)
            continue
        journal.start(name)
        try:
            result = work()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            journal.fail(name, reason)
            say(f"{name}: FAILED {reason}")
            if fatal(error):
                raise
        else:
            journal.finish(name, result)
    return left
