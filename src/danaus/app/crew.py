"""The crew of a run: its replicas, who of them is to train, and how that changes while it runs.

Owns the keepers of all replicas, and carries out ``danaus scale``, ``danaus drain`` and ``danaus
roll``.  What to start and what to drain is ``crew_plan``'s to say; what is wanted is on the disk
before anything is done about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from danaus.actor.failure import MeshFailure
from danaus.actor.mesh import HostMesh
from danaus.app import crew_plan
from danaus.app.crew_file import CrewRecord, read_crew, write_crew
from danaus.app.door import Done, Drain, Roll, Scale
from danaus.app.events import Event
from danaus.app.inheritance import Inherited
from danaus.app.line_tail import LineTail
from danaus.app.replica_keeper import ReplicaKeeper
from danaus.app.run_folder import RunFolder
from danaus.app.run_hosts import RunHosts
from danaus.app.run_record import happening, incarnation_of, replica_of
from danaus.app.run_result import WorkerResult, reached
from danaus.app.settings import RunConfig
from danaus.app.spares import Spare, SparePool
from danaus.core.errors import ConfigError, DeadlinePassed
from danaus.core.journal import Journal

_LOOK_S = 0.1
Results = asyncio.Task[tuple[WorkerResult, ...]]


class Crew:
    """Keep the replicas that are wanted.

    Args:
        folder: The run's, held by this process.
        journal: Where changes are written.
        config: Every setting of the run.
        hosts: Where replicas live.
        make_keeper: Makes the keeper of a replica, by its place.
        spares: Processes that wait to become replicas.
    """

    def __init__(
        self,
        folder: RunFolder,
        journal: Journal,
        config: RunConfig,
        *,
        hosts: RunHosts,
        make_keeper: Callable[[int], ReplicaKeeper],
        spares: SparePool,
    ) -> None:
        self._folder, self._journal, self._config = folder, journal, config
        self._hosts, self._make_keeper, self._spares = hosts, make_keeper, spares
        self._record = read_crew(folder.control) or CrewRecord(tuple(range(config.replicas)))
        self._keepers: dict[int, ReplicaKeeper] = {}
        self._tasks: dict[int, Results] = {}
        self._group: asyncio.TaskGroup | None = None
        self._grown, self._turn = asyncio.Event(), asyncio.Lock()
        self._tail = LineTail(folder.journal_path)
        self._counted: dict[int, int] = {}
        self._inherited: dict[int, Inherited] = {}

    # -- the replicas -----------------------------------------------------------------------

    @property
    def keepers(self) -> list[ReplicaKeeper]:
        """Of every replica that ever trained."""
        return list(self._keepers.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The replicas that are to train."""
        return tuple(map(_name, self._record.places))

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the replicas that are wanted, or go on with those that live."""
        self._group = group
        inheritance = self._hosts.inheritance
        self._hosts.close(self._record.closed)
        self._inherited = {
            place: found
            for place in self._record.places
            if (found := inheritance.claim(_name(place))) is not None
        }
        self._start(self._record.places)
        self._spares.begin(group)
        group.create_task(inheritance.end_unclaimed())

    async def berth(self, place: int, stopping: asyncio.Event) -> HostMesh | Spare | Inherited:
        """Return what a replica starts on (H-4).

        That is what an earlier controller has left, at first; then a spare that is ready, else a
        host.

        Raises:
            DanausError: It is not wanted any more, or cannot start.
        """
        if place in self._inherited:
            found = self._inherited.pop(place)
            return replace(found, home=self._hosts.home(found.host))
        spare = self._spares.take()
        if spare is None:
            return await self._hosts.host(place, stopping)
        self._hosts.move(place, spare.name)
        self._journal.record(Event.SPARE_USED, spare=spare.name, replica=_name(place))
        return spare

    def failed(self, failure: MeshFailure) -> None:
        """Hear of a failure."""
        self._spares.failed(failure)
        for keeper in self.keepers:
            keeper.failed(failure)

    async def first_at_the_end(self, stopped: asyncio.Task[bool], num_steps: int) -> None:
        """Wait for the first replica that has taken the last step, or for a stop."""
        tasks = self._tasks.values()
        await first_at_the_end(tasks, stopped, grown=self._grown, num_steps=num_steps)

    def tasks_of(self, names: Iterable[str]) -> list[Results]:
        """Return what the keepers of these replicas are at."""
        wanted = set(names)
        return [task for place, task in self._tasks.items() if _name(place) in wanted]

    async def stop(self) -> None:
        """End all replicas side by side."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._spares.stop())
            for keeper in self.keepers:
                tasks.create_task(keeper.stop())

    def results(self) -> dict[str, tuple[WorkerResult, ...]]:
        """Return how each replica ended."""
        return {_name(place): task.result() for place, task in self._tasks.items()}

    def _start(self, places: Iterable[int]) -> None:
        for place in places:
            if place in self._keepers:
                self._keepers[place].resume()
            elif self._group is not None:
                keeper = self._keepers[place] = self._make_keeper(place)
                self._tasks[place] = self._group.create_task(keeper.run())
        self._grown.set()

    # -- what the door is asked for -----------------------------------------------------------

    async def asked(self, wish: Drain | Scale | Roll) -> Done:
        """Do it, one after the other.

        Raises:
            DanausError: It cannot be done.
        """
        async with self._turn:
            match wish:
                case Scale(replicas):
                    return await self._scale(replicas)
                case Roll(host):
                    return await self._roll(host)
                case Drain(target, _, True):
                    return self._use_again(self._hosts.rank_of(target))
                case Drain(target, grace_s) if target.startswith("host"):
                    return await self._drain_host(self._hosts.rank_of(target), grace_s)
                case Drain(target, grace_s):
                    return await self._drain(self._place_of(target), grace_s)

    async def _scale(self, replicas: int) -> Done:
        config, was = self._config, len(self._record.places)
        limits = crew_plan.Limits(
            config.quorum.min_replicas, config.step.num_leaves, config.step.batch == "elastic"
        )
        change = crew_plan.scale(self._record.places, replicas, limits)
        self._check_may_leave(change.drain)
        self._want(change)
        await self._hosts.grow(max(self._record.places) + 1)
        self._start(change.start)
        told = await self._let_leave(change.drain, f"the run is scaled to {replicas} replicas")
        told += [f"{_name(place)} starts, and learns the state" for place in change.start]
        return Done("; ".join([f"{was} replicas became {replicas}", *told]))

    async def _drain(self, place: int, grace_s: float | None) -> Done:
        self._check_may_leave((place,))
        self._want(crew_plan.Change(drain=(place,)))
        (told,) = await self._let_leave((place,), "danaus drain", grace_s)
        return Done(f"{told}; danaus scale brings it back")

    async def _drain_host(self, rank: int, grace_s: float | None) -> Done:
        places = [p for p in self._record.places if self._hosts.host_of(p) == rank]
        self._check_may_leave(places)
        room = self._hosts.num_empty(but=rank)
        moving, staying = places[:room], places[room:]
        self._save(closed=tuple(sorted({*self._record.closed, rank})))
        if staying:
            self._want(crew_plan.Change(drain=tuple(staying)))
        self._hosts.close((rank,))
        told = await self._let_leave(places, f"danaus drain of host{rank}", grace_s)
        self._start(moving)
        told += [f"{_name(place)} moves to an empty host" for place in moving]
        words = f"host{rank} is not used any more (danaus drain RUN host{rank} --undo)"
        return Done("; ".join([*told, words]))

    def _use_again(self, rank: int) -> Done:
        self._save(closed=tuple(each for each in self._record.closed if each != rank))
        self._hosts.open(rank)
        return Done(f"host{rank} is used again; danaus scale brings replicas back")

    async def _roll(self, named: str) -> Done:
        rank = self._hosts.rank_of(named) if named else None
        todo = crew_plan.hosts_to_roll(self._hosts.size, self._record.rolled, rank)
        host = todo[0]
        places = [p for p in self._record.places if self._hosts.host_of(p) == host]
        self._check_may_leave(places)
        self._journal.record(
            Event.ROLL_BEGAN, host=f"host{host}", replicas=list(map(_name, places))
        )
        before = dict(self._counted)
        told = await self._let_leave(places, f"host{host} is restarted (danaus roll)")
        try:
            await self._hosts.restart(host)
        finally:
            self._start(places)
        await self._until_back(places, before)
        self._journal.record(Event.ROLL_ENDED, host=f"host{host}")
        left = len(todo) - 1
        if not named:
            self._save(rolled=(*self._record.rolled, host) if left else ())
        words = [f"host{host} is restarted", *told]
        words += [f"{_name(place)} is back" for place in places]
        return Done("; ".join(words), more=bool(left))

    async def _let_leave(
        self, places: Sequence[int], reason: str, grace_s: float | None = None
    ) -> list[str]:
        """Drain replicas side by side; return in words how each went."""
        keepers = [self._keepers[place] for place in places if place in self._keepers]
        return list(await asyncio.gather(*(keeper.drain(reason, grace_s) for keeper in keepers)))

    async def _until_back(self, places: Sequence[int], before: dict[int, int]) -> None:
        """Wait until replicas that were started again are counted."""
        limit_s = self._config.start_limit_s + self._config.quorum.hold_limit_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    if all(self._is_newer(place, before) for place in places):
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            names = ", ".join(map(_name, places))
            raise DeadlinePassed(f"{names} to take part again after the restart", limit_s) from None

    def _is_newer(self, place: int, before: dict[int, int]) -> bool:
        self._look()
        return self._counted.get(place, -1) > before.get(place, -1)

    # -- what is known and remembered -----------------------------------------------------------

    def _look(self) -> None:
        """See from the journal who takes part in the present quorum."""
        for line in self._tail.new_lines():
            event = happening(line)
            if event is not None and event.name == Event.QUORUM_ANNOUNCED:
                self._counted = {
                    _place(replica_of(member)): incarnation_of(member)
                    for member in event.names("members")
                }

    def _check_may_leave(self, places: Sequence[int]) -> None:
        self._look()
        there = {*self._counted} & {*self._record.places}
        minimum = self._config.quorum.min_replicas
        crew_plan.may_leave(places, there, min_replicas=minimum)

    def _place_of(self, target: str) -> int:
        if target not in self.names:
            raise ConfigError(
                f"there is no {target!r} that trains", f"one of {', '.join(self.names)}"
            )
        return _place(target)

    def _want(self, change: crew_plan.Change) -> None:
        """Remember who is to train from now on, and write it down."""
        was = self._record.places
        now = tuple(sorted({*was, *change.start} - {*change.drain}))
        self._save(places=now)
        self._journal.record(
            Event.CREW_SCALED,
            replicas=len(now),
            was=len(was),
            start=[_name(place) for place in change.start],
            drain=[_name(place) for place in change.drain],
        )

    def _save(
        self,
        *,
        places: tuple[int, ...] | None = None,
        closed: tuple[int, ...] | None = None,
        rolled: tuple[int, ...] | None = None,
    ) -> None:
        old = self._record
        self._record = CrewRecord(
            old.places if places is None else places,
            old.closed if closed is None else closed,
            old.rolled if rolled is None else rolled,
        )
        write_crew(self._folder.control, self._record)


async def first_at_the_end(
    tasks: Collection[Results],
    stopped: asyncio.Task[bool],
    *,
    grown: asyncio.Event,
    num_steps: int,
) -> None:
    """Wait for the first replica that has taken the last step, or for a stop.

    One that was started too late to learn that step is sent home without it, while a member may
    have died after it and be about to take it again.

    Args:
        tasks: What the keepers are at; may grow.
        stopped: Ends the wait.
        grown: Set when ``tasks`` has grown.
        num_steps: The number of the last step.
    """
    over: set[Results] = set()
    while not stopped.done() and (running := set(tasks) - over):
        grown.clear()
        more = asyncio.ensure_future(grown.wait())
        await asyncio.wait({*running, stopped, more}, return_when=asyncio.FIRST_COMPLETED)
        more.cancel()
        done = {task for task in running if task.done()}
        if any(reached(task.result(), num_steps) for task in done):
            return
        over |= done


def _name(place: int) -> str:
    return f"replica-{place}"


def _place(name: str) -> int:
    return int(name.rpartition("-")[2])
