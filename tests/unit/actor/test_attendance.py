"""Whom a host agent obeys: of a run's controllers the newest (A-12)."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor.agent_messages import OwnerReplaced
from danaus.actor.unattended import Attendance
from danaus.wire.owned_tasks import OwnedTasks


class Session:
    def __init__(self) -> None:
        self.generation = 0
        self.told: list[object] = []

    def tell(self, message: object) -> None:
        self.told.append(message)


@pytest.fixture
def attended():
    """Run a function of an attendance and of what its agent noted."""

    def run(scene) -> None:
        async def on_loop() -> None:
            tasks, notes = OwnedTasks("test"), []
            attendance = Attendance((), tasks, end=lambda: notes.append("END"), note=notes.append)
            scene(attendance, notes)
            await tasks.close()

        asyncio.run(on_loop())

    return run


def test_an_earlier_controller_is_told_and_not_obeyed(attended):
    def scene(attendance, _notes):
        old, new, worker = Session(), Session(), Session()
        attendance.greeted(old, 1)
        attendance.greeted(worker, 0)
        assert attendance.obeys(old)
        attendance.greeted(new, 2)
        assert old.told == [OwnerReplaced(2)]
        assert not new.told
        assert (attendance.obeys(old), attendance.obeys(new)) == (False, True)
        assert attendance.obeys(worker), "workers and the quorum service take no turns"
        attendance.refuse(old)
        assert old.told == [OwnerReplaced(2)] * 2

    attended(scene)


def test_one_that_comes_back_over_a_new_session_is_told_too(attended):
    def scene(attendance, _notes):
        attendance.greeted(Session(), 2)
        late = Session()
        attendance.greeted(late, 1)
        assert late.told == [OwnerReplaced(2)]

    attended(scene)


def test_a_host_is_alone_once_the_last_session_of_the_newest_is_over_and_until_another(attended):
    def scene(attendance, notes):
        old, first, second = Session(), Session(), Session()
        attendance.greeted(old, 1)
        attendance.greeted(first, 2)
        attendance.greeted(second, 2)
        alone = "the controller is gone; going on for as long as somebody works here"
        attendance.left(first)
        assert alone not in notes
        attendance.left(second)
        assert notes.count(alone) == 1, "an earlier controller that lives attends nothing"
        attendance.nobody_there()
        assert notes.count(alone) == 1, "it waits already"
        attendance.greeted(Session(), 3)
        attendance.nobody_there()
        assert notes.count(alone) == 2, "it had stopped to wait"

    attended(scene)
