"""What goes to many, over a thousand hosts in one process and memory channels (A-1, A-4, A-11)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict

import pytest

from danaus.actor.agent_messages import Hello
from danaus.actor.cast_messages import Cast
from danaus.actor.casting import Casting
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.links import LocalLink
from danaus.actor.ordering import HoldBack
from danaus.actor.place import Place
from danaus.actor.process_link import ProcessLink
from danaus.actor.process_messages import CancelCall, Deliver, DeliverAgain, Raised
from danaus.actor.relays import Relays
from danaus.actor.session_peer import SessionPeer
from danaus.actor.targets import Way
from danaus.actor.tree import FAN_OUT, plan
from danaus.wire.channel import memory_pair
from danaus.wire.codec import pack, unpack
from danaus.wire.frame import FrameParser
from danaus.wire.resumable import Session

SENDER = ProcessRef("controller/1/0#0", "", "memory", "job")
KILLED = Fault("signal", "killed", signal="SIGKILL")
LIMIT_S = 60.0


class SameLoop:
    """The connections' loop, where there is no other."""

    is_current = True

    def post(self, function, *args) -> None:
        asyncio.get_running_loop().call_soon(function, *args)


class World:
    """Hosts of one process each, with an actor that answers what it is sent."""

    def __init__(self, num_hosts: int) -> None:
        self.refs = [ProcessRef(f"h{n}/m/0#0", f"agent{n}", "", "job") for n in range(num_hosts)]
        self.hosts = {ref: Host(self, ref) for ref in (SENDER, *self.refs)}
        self.num_sent: Counter[ProcessRef] = Counter()
        self.num_taken: Counter[ProcessRef] = Counter()
        self.num_handled = 0
        self.kill_at: dict[int, ProcessRef] = {}
        self.dead: set[ProcessRef] = set()

    def handled(self) -> None:
        self.num_handled += 1
        victim = self.kill_at.pop(self.num_handled, None)
        if victim is not None:
            self.kill(victim)

    def kill(self, ref: ProcessRef) -> None:
        self.dead.add(ref)
        for host in self.hosts.values():
            for session in host.sessions if host.ref == ref else ():
                session.end("killed")
            link = host.links.get(ref)
            if link is not None:
                asyncio.get_running_loop().call_soon(link.fail, "killed", KILLED)


class Host:
    """One process: links, relays, and its one actor."""

    info = None

    def __init__(self, world: World, ref: ProcessRef) -> None:
        self.world, self.ref = world, ref
        self.io = SameLoop()
        self.links: dict[ProcessRef, ProcessLink] = {}
        self.sessions: list[Session] = []
        self.relays = Relays(self)
        self.order: HoldBack[tuple[Deliver, object, object]] = HoldBack()
        self.seen: defaultdict[str, list[object]] = defaultdict(list)
        self.local = LocalLink(self)

    def link(self, ref: ProcessRef):
        if ref == self.ref:
            return self.local
        if ref not in self.links:
            link = self.links[ref] = ProcessLink(ref, self, lambda *_: None)
            if ref in self.world.dead:
                link.fail("killed", KILLED)
            else:
                self._connect(link, self.world.hosts[ref])
        return self.links[ref]

    def _connect(self, link: ProcessLink, there: Host) -> None:
        dialled, accepted = memory_pair()
        here = Session(str(link.ref), b"")
        other = Session(str(self.ref), b"")
        self.sessions.append(here)
        there.sessions.append(other)
        SessionPeer(other, Hello(self.ref.process_id), "job", user=there)
        here.attach(dialled, 0)
        other.attach(accepted, 0)
        send = here.send

        def counted(parts):
            self.world.num_sent[self.ref] += 1
            return send(parts)

        here.send = counted
        link.attach(here)
        arrived = here.on_message

        def taken(parts):
            self.world.num_taken[self.ref] += 1
            arrived(parts)

        here.on_message = taken

    def take_request(self, message, parts, peer) -> None:
        self.take(message, parts, peer)

    def take(self, message, parts, peer) -> None:
        if self.ref in self.world.dead:
            return
        match message:
            case Cast():
                self.relays.take(message, parts, peer)
            case DeliverAgain():
                self.relays.again(message.message, parts, peer)
            case CancelCall():
                self.relays.cancel(peer, message.call)
            case Deliver():
                self.deliver_many([(message, parts)], peer)

    def take_messages(self, messages, peer):
        if self.ref not in self.world.dead:
            self.deliver_many(messages, peer)
        return []

    def deliver_many(self, messages, peer) -> None:
        for message, parts in messages:
            item = (message, parts, peer)
            for each in self.order.accept(message.sender, message.number, item):
                # The actor's code runs a little later, as on a thread of its own.
                asyncio.get_running_loop().call_soon(self._run, *each)

    def _run(self, message, parts, peer) -> None:
        if self.ref in self.world.dead:
            return
        assert self.world.refs[message.place.at] == self.ref
        (value,), _ = unpack(parts)
        self.seen[message.sender].append(value)
        if message.call:
            peer.answer(message.call, pack((self.ref.process_id, value)), more=False)
        self.world.handled()


class Answers:
    """Waits for one answer of each point."""

    def __init__(self, num_points: int) -> None:
        self.outcomes: list[list[object]] = [[] for _ in range(num_points)]
        self.posted_calls: dict[int, tuple[object, int]] = {}
        self._left = num_points
        self.all = asyncio.get_running_loop().create_future()

    def point(self, at: int):
        return OnePoint(self, at)

    def posted(self, at: int, link, call: int) -> None:
        self.posted_calls[at] = link, call

    def came(self, at: int, outcome: object) -> None:
        self.outcomes[at].append(outcome)
        self._left -= 1
        if not self._left:
            self.all.set_result(None)


class OnePoint:
    any_thread = False

    def __init__(self, answers: Answers, at: int) -> None:
        self._answers, self._at = answers, at

    def returned(self, parts) -> None:
        self._answers.came(self._at, unpack(parts))

    def raised(self, message, parts) -> None:
        self._answers.came(self._at, message)

    def gone(self, why, fault) -> None:
        self._answers.came(self._at, (why, fault))


def cast_to_all(world: World, ways: list[Way], value: object, waiting) -> None:
    messages = [(at, way, next(way.numbers)) for at, way in enumerate(ways)]
    sender = world.hosts[SENDER]
    casting = Casting(sender, messages, pack(((value,), {})), waiting)
    for numbered in casting.send():
        casting.ask_again(numbered)


def ways_to(world: World) -> list[Way]:
    places = [Place(at, ("host",), (len(world.refs),)) for at in range(len(world.refs))]
    return [
        Way(ref, ("mesh", 0, 0, "me", "ping", place), itertools.count(1))
        for ref, place in zip(world.refs, places, strict=True)
    ]


@pytest.fixture(autouse=True)
def small_parsers(monkeypatch):
    """A thousand sessions in one process: none of them needs much room."""
    monkeypatch.setattr("danaus.wire.frame._SCRATCH_BYTES", 4096)
    assert FrameParser


async def until(holds) -> None:
    """Let the loop turn until something holds; ``run`` limits it."""
    for _ in iter(holds, True):
        await asyncio.sleep(0)


def run(play) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await play()

    asyncio.run(limited())


def test_a_thousand_hosts_hear_by_sixteen_messages_and_answer_by_few():
    async def play() -> None:
        world = World(1000)
        ways, answers = ways_to(world), Answers(1000)
        cast_to_all(world, ways, "hello", answers)
        await answers.all
        assert answers.outcomes == [[(ref.process_id, "hello")] for ref in world.refs]
        assert world.num_sent[SENDER] == FAN_OUT
        assert max(world.num_sent.values()) <= FAN_OUT
        # Gathered on the way: a branch is whole, or sends what it has a few times at most.
        assert world.num_taken[SENDER] < 1000 / 4

    run(play)


def test_a_broadcast_reaches_all_and_is_answered_once_by_each_branch():
    async def play() -> None:
        world = World(1000)
        ways = ways_to(world)
        for value in range(3):
            cast_to_all(world, ways, value, None)
        await until(lambda: world.num_handled == 3000 and world.num_taken[SENDER] == 3 * FAN_OUT)
        assert world.num_sent[SENDER] == world.num_taken[SENDER] == 3 * FAN_OUT
        assert all(world.hosts[ref].seen["me"] == [0, 1, 2] for ref in world.refs)

    run(play)


@pytest.mark.parametrize("after", [1, 5, 17, 18, 40, 90, 150, 190, 299])
@pytest.mark.parametrize("deep", [False, True], ids=["first", "second"])
def test_whoever_passes_on_may_die_at_any_moment(after, deep):
    async def play() -> None:
        world = World(300)
        branch = plan(tuple((ref, ref) for ref in world.refs))[3]
        victim = branch.below[1].process if deep else branch.process
        world.kill_at[after] = victim
        ways = ways_to(world)
        calls = [Answers(300) for _ in range(3)]
        for value, answers in enumerate(calls):
            cast_to_all(world, ways, value, answers)
        for answers in calls:
            await answers.all
        for value, answers in enumerate(calls):
            for ref, outcomes in zip(world.refs, answers.outcomes, strict=True):
                assert len(outcomes) == 1
                if outcomes != [(ref.process_id, value)]:
                    assert ref == victim, outcomes
                    assert outcomes == [("killed", KILLED)]
        for ref in world.refs:
            if ref != victim:
                assert world.hosts[ref].seen["me"] == [0, 1, 2]

    run(play)


def test_a_broadcast_gets_to_all_others_though_one_who_passes_on_dies():
    async def play() -> None:
        world = World(300)
        victim = plan(tuple((ref, ref) for ref in world.refs))[0].process
        world.kill_at[3] = victim
        ways = ways_to(world)
        for value in range(2):
            cast_to_all(world, ways, value, None)
        living = [world.hosts[ref] for ref in world.refs if ref != victim]
        await until(lambda: all(host.seen["me"] == [0, 1] for host in living))

    run(play)


def test_a_call_that_is_cancelled_is_given_up_all_the_way_down():
    async def play() -> None:
        world = World(300)
        answers = Answers(300)
        for ref in world.refs:
            world.hosts[ref]._run = lambda *_: None  # it never answers
        cast_to_all(world, ways_to(world), "hello", answers)
        relays = [world.hosts[ref].relays for ref in world.refs]
        await until(lambda: sum(len(each._open) for each in relays) == 300)
        for link, call in answers.posted_calls.values():
            link.cancel(call)
        await until(lambda: not any(each._open for each in relays))

    run(play)


def test_answers_that_are_large_together_come_in_several_messages(monkeypatch):
    """What was gathered goes before what would make it too much; each answer comes out once."""
    monkeypatch.setattr("danaus.actor.relays._MOST_BYTES", 5000)
    sizes: list[int] = []
    send = SessionPeer.send

    def noted(self, message, parts=()):
        sizes.append(sum(map(len, parts)))
        send(self, message, parts)

    monkeypatch.setattr(SessionPeer, "send", noted)

    async def play() -> None:
        world = World(300)
        ways, answers = ways_to(world), Answers(300)
        cast_to_all(world, ways, bytes(1500), answers)
        await answers.all
        assert answers.outcomes == [[(ref.process_id, bytes(1500))] for ref in world.refs]

    run(play)
    assert 3000 < max(sizes) <= 5000


@pytest.mark.parametrize("num_hosts", [17, 300], ids=["of a leaf", "of one who passes on"])
def test_an_answer_that_no_frame_holds_is_said_to_be(monkeypatch, num_hosts):
    """A-4: the caller is told which answer was too large, and has all others."""
    monkeypatch.setattr("danaus.actor.relays.MAX_ANSWER_BYTES", 1000)

    async def play() -> None:
        world = World(num_hosts)
        large = {world.refs[0], world.refs[-1]}
        for ref in large:
            host = world.hosts[ref]
            host._run = lambda message, parts, peer: peer.answer(
                message.call, pack(bytes(2000)), more=False
            )
        ways, answers = ways_to(world), Answers(num_hosts)
        cast_to_all(world, ways, "hello", answers)
        await answers.all
        for ref, (outcome,) in zip(world.refs, answers.outcomes, strict=True):
            if ref in large:
                assert isinstance(outcome, Raised)
                assert "a frame holds 1000" in outcome.exception
            else:
                assert outcome == (ref.process_id, "hello")

    run(play)
