"""A step of one's own loop that commits at all replicas or at none, in TorchFT's words.

Owns ``Manager``: what the training thread calls.  The machine that decides runs on a thread of
its own (``ft.step_thread``); the state that peers see is ``ft.managed_work``'s.

Invariants:
    T-1: ``should_commit`` is true exactly where the step commits at every member.
    T-2: a discarded step leaves the state as it was, since the optimiser runs after the word.
    T-6: the first step counts like any other: whoever learns its state does so before its
    forward, and where it could not, it counts for nothing.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, StepImpossible
from danaus.ft.contributions import WorldSizeMode, choose_contributors
from danaus.ft.managed_calls import ManagedCalls
from danaus.ft.managed_crew import ManagedCrew
from danaus.ft.managed_place import ManagerOptions, check_options, limit_of, place_of
from danaus.ft.managed_work import ManagedWork
from danaus.ft.participant import Participant
from danaus.ft.pending import Pending, seconds_of
from danaus.ft.step_plan import StepPlan
from danaus.ft.step_thread import Quorum, StepThread, ThreadWatch

_ENDLESS = 2**62
_LEFT = "its manager was shut down"
LoadState = Callable[[Any], object]
GetState = Callable[[], Any]


class Manager(ManagedCalls):
    """Take part in a run, step by step: quorum, reductions, commit.

    Args:
        pg: Must be None: danaus makes the group of the replicas itself.
        load_state_dict: Takes what another replica's ``state_dict`` gave.  Called on the thread
            that trains, before a forward or within ``should_commit``.
        state_dict: Gives all that a replica which joins must have: tensors, numbers and text in
            mappings and lists.  Its tensors are read where they are, so they must be the live
            ones.
        min_replica_size: No step commits to which fewer replicas contribute.
        options: See ``ManagerOptions``.

    Raises:
        ConfigError: An option that cannot be used, or a missing one.

    Example::

        manager = Manager(load_state_dict=load, state_dict=state, min_replica_size=1,
                          replica_id="replica-0", folder="run")
        while manager.current_step() < 1000:
            manager.start_quorum()
            loss_of(model, next(batches)).backward()
            manager.allreduce_gradients(model)
            if manager.should_commit():
                optimizer.step()
            optimizer.zero_grad()
        manager.shutdown()
    """

    def __init__(
        self,
        pg: None = None,
        load_state_dict: LoadState | None = None,
        state_dict: GetState | None = None,
        *,
        min_replica_size: int = 1,
        **options: Unpack[ManagerOptions],
    ) -> None:
        check_options(dict(options))
        if pg is not None:
            raise ConfigError(
                f"Manager was given a process group, {type(pg).__name__}",
                "none: danaus makes the group of the replicas itself",
                "leave pg out",
            )
        if min_replica_size < 1:
            raise ConfigError(f"min_replica_size is {min_replica_size}", "at least 1")
        self._place = place_of(**options)
        self._options, self._min_replica_size = options, min_replica_size
        self._state_fns: dict[str, tuple[LoadState, GetState]] = {}
        self._not_compared = list(options.get("not_compared", ()))
        self._step = self._batches_committed = self._num_failures = 0
        self._error: Exception | None = None
        self._begun = self._ready = self._forward_runs = self._was_in_quorum = False
        self._num_calls = 0
        self._quorum: Quorum | None = None
        self._work: ManagedWork | None = None
        self._crew: ManagedCrew | None = None
        self._thread = StepThread(
            on_error=self.report_error, has_failed=lambda: self._error is not None
        )
        if load_state_dict is not None and state_dict is not None:
            self.register_state_dict_fn("default", load_state_dict, state_dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def shutdown(self, wait: bool = True) -> None:
        """Leave the run, so that the others go on without this process; safe to call twice."""
        self._thread.end(_LEFT)

    # -- state ----------------------------------------------------------------------------------

    def register_state_dict_fn(
        self, key: str, load_state_dict: LoadState, state_dict: GetState, *, compared: bool = True
    ) -> None:
        """Add to what a replica that joins receives; the same keys at every replica.

        Args:
            key: Names it among the others.
            load_state_dict, state_dict: As for the manager itself.
            compared: False: it may differ between replicas; whoever joins learns one replica's.

        Raises:
            ConfigError: The key is taken, or the first step has begun.
        """
        if key in self._state_fns:
            raise ConfigError(f"state_dict functions {key!r} are registered", "another key")
        self._check_early(f"{key!r} is registered")
        self._state_fns[key] = load_state_dict, state_dict
        if not compared:
            self.do_not_compare(f"user/{glob.escape(key)}/*")

    def do_not_compare(self, *patterns: str) -> None:
        """Let tensors of such names differ between replicas, as ``not_compared`` does.

        Raises:
            ConfigError: The first step has begun.
        """
        self._check_early("what is not compared is told")
        self._not_compared += patterns

    def _check_early(self, what: str) -> None:
        if self._work is not None:
            raise ConfigError(f"{what} late", "before the first start_quorum()")

    def state_dict(self) -> dict[str, int]:
        """Return what a checkpoint of the user's own must hold of this manager."""
        return {"step": self._step, "batches_committed": self._batches_committed}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Go on from a checkpoint of the user's own.

        Raises:
            ConfigError: The first step has begun.
        """
        self._check_early("a checkpoint is loaded")
        self._step = state_dict["step"]
        self._batches_committed = state_dict["batches_committed"]

    def _capture(self, work: ManagedWork) -> None:
        user = {key: state_dict() for key, (_, state_dict) in self._state_fns.items()}
        work.capture({"user": user}, step=self._step, batches_committed=self._batches_committed)

    def _load_learned(self, work: ManagedWork) -> None:
        """Load a state that was learned, if one was; on the thread that trains."""
        learned = work.take_learned()
        if learned is None:
            return
        tree, self._step, self._batches_committed = learned
        for key, (load_state_dict, _) in self._state_fns.items():
            load_state_dict(tree["user"][key])
        self._capture(work)

    # -- the quorum -----------------------------------------------------------------------------

    def start_quorum(
        self,
        allow_heal: bool = True,
        shrink_only: bool = False,
        timeout: timedelta | float | None = None,
    ) -> None:
        """Begin the next step; call it before the forward.

        Where membership has not changed nothing is asked of anybody (Q-2).  The first quorum is
        waited for, so that a state that has to be learned is there before the first forward;
        later ones only with ``use_async_quorum=False``.

        Raises:
            ConfigError: A step is begun and was not brought to ``should_commit()``, or the
                arguments keep learners or newcomers out.
            DeadlinePassed: ``timeout`` passed, where the quorum is waited for.
            NoQuorum: There will be none; says what to do.
        """
        if not allow_heal or shrink_only:
            raise ConfigError(
                "start_quorum without healing, or without newcomers",
                "a quorum of all that are there",
                "leave allow_heal and shrink_only out",
            )
        if self._begun and self._num_calls:
            raise ConfigError(
                f"step {self._step + 1} is begun and its outcome was not asked for",
                "should_commit() once for each step",
                "call report_error() before it where a step must not commit",
            )
        work = self._work or self._start()
        if not self._begun:
            self._begin(work)
        if not self._forward_runs:
            self.wait_quorum(timeout)
            self._load_learned(work)

    def _begin(self, work: ManagedWork) -> None:
        first, self._was_in_quorum = not self._was_in_quorum, True
        # Before a learned state is looked for: one that comes later finds the forward running.
        self._forward_runs = not first and self._options.get("use_async_quorum", True)
        self._error = None
        self._begun, self._ready = True, False
        self._load_learned(work)
        self._capture(work)
        self._thread.go_on()

    def _start(self) -> ManagedWork:
        """Join the run for the first time."""
        if not self._state_fns:
            raise ConfigError(
                "Manager knows no state", "load_state_dict= and state_dict=, or registered ones"
            )
        work = ManagedWork(
            self._thread.committed,
            not_compared=self._not_compared,
            first_step=self._step,
        )
        self._capture(work)
        plan = StepPlan(num_steps=_ENDLESS, num_leaves=1, first_step=self._step)
        watch = ThreadWatch(self._thread, work.restored_for)
        participant = Participant(
            self._place, work, plan, observer=watch, make_crew=self._make_crew
        )
        self._work = work
        self._thread.start(participant, self._the_crew)
        return work

    def _make_crew(self, *given: Any, **options: Any) -> ManagedCrew:
        self._crew = ManagedCrew(
            *given,
            choose=self._choose,
            is_able=self._is_able,
            limit_s=limit_of(self._options),
            **options,
        )
        return self._crew

    def _the_crew(self) -> ManagedCrew:
        assert self._crew is not None  # the participant has made it
        return self._crew

    def _choose(self, replica_ids: Any, unable: frozenset[str]) -> tuple[str, ...]:
        mode = self._options.get("world_size_mode", WorldSizeMode.DYNAMIC)
        size = self._min_replica_size
        return choose_contributors(replica_ids, unable, mode=mode, min_replica_size=size)

    def _is_able(self) -> bool:
        """Tell whether a forward that may be running began with the state of this step."""
        return not (self._forward_runs and self._work is not None and self._work.has_learned)

    def wait_quorum(self, timeout: timedelta | float | None = None) -> None:
        """Wait until the group of the step's quorum is there.

        Raises:
            ConfigError: ``start_quorum`` was not called.
            DeadlinePassed: It was not there in time; wait again, or shut down.
            NoQuorum: There will be none; says what to do.
        """
        self._check_begun("wait_quorum()")
        if self._ready:
            return
        limit = timeout if timeout is not None else self._options.get("quorum_timeout")
        deadline = None if limit is None else Deadline.after(seconds_of(limit))
        self._quorum = self._thread.quorum(deadline)
        self._step = self._quorum.step - 1
        self._ready = True

    def _check_begun(self, what: str) -> None:
        if not self._begun:
            raise ConfigError(f"{what} outside of a step", "start_quorum() before it, once a step")

    # -- calls (ft.managed_calls) -----------------------------------------------------------------

    def _call(self, act: Callable[[], None], value: object) -> Pending:
        self._check_begun("a reduction")
        self._num_calls += 1
        pending = Pending(value)
        if self._error is None:
            self._thread.call(act, pending)
        else:
            pending.complete()
        return pending

    # -- the outcome ----------------------------------------------------------------------------

    def report_error(self, e: Exception) -> None:
        """Let the step in hand commit nowhere, for this reason; from any thread."""
        if self._error is None:
            self._error = e

    def errored(self) -> Exception | None:
        """Return what went wrong first in the step in hand, or None."""
        return self._error

    def should_commit(self, timeout: timedelta | float | None = None) -> bool:
        """Vote on the step; return whether it commits, the same at every replica and rank.

        Call it once per step, after the backward; run the optimiser if, and only if, it is true.

        Args:
            timeout: How long to wait for the outcome.  After ``DeadlinePassed`` ask again.

        Raises:
            ConfigError: No step is begun, or its outcome was asked for before.
            StepImpossible: More than ``max_retries`` steps in a row were discarded.
            NoQuorum: There will be no outcome; says what to do.
        """
        self._check_begun("should_commit()")
        self.wait_quorum(timeout)
        assert self._work is not None
        assert self._quorum is not None
        self._load_learned(self._work)
        self._forward_runs = False
        deadline = None if timeout is None else Deadline.after(seconds_of(timeout))
        committed = self._thread.outcome(self._refusal(self._quorum), deadline)
        self._begun, self._num_calls = False, 0
        if committed:
            self._step = self._quorum.step
            self._batches_committed += len(self._quorum.contributors)
            self._num_failures = 0
        else:
            self._count_failure(self._quorum.step)
        return committed

    def _refusal(self, quorum: Quorum) -> str:
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error}"
        if len(quorum.contributors) < self._min_replica_size:
            return f"{len(quorum.contributors)} of {self._min_replica_size} replicas contribute"
        return ""

    def _count_failure(self, step: int) -> None:
        self._num_failures += 1
        most = self._options.get("max_retries")
        if most is not None and self._num_failures > most:
            why = f"it was discarded {self._num_failures} times in a row"
            raise StepImpossible(step, f"{why}; last error here: {self._error or 'none'}")

    # -- facts ----------------------------------------------------------------------------------

    def current_step(self) -> int:
        """Return how many steps are committed."""
        return self._step

    def batches_committed(self) -> int:
        """Return how many batches are committed: replicas that contributed, over all steps."""
        return self._batches_committed

    def num_participants(self) -> int:
        """Return how many replicas contribute to the step; waits for its quorum."""
        return len(quorum.contributors) if (quorum := self._known()) else 0

    def participating_rank(self) -> int | None:
        """Return this replica's place among those that contribute; None: it does not."""
        return quorum.participating_rank if (quorum := self._known()) else None

    def is_participating(self) -> bool:
        """Tell whether what this replica brings to the step counts."""
        return self.participating_rank() is not None

    def replica_rank(self) -> int | None:
        """Return this replica's place in the quorum, spares counted; None before the first."""
        return quorum.replica_rank if (quorum := self._known()) else None

    def replica_ids(self) -> tuple[str, ...]:
        """Return the replicas of the quorum, by ``replica_rank``."""
        return quorum.replica_ids if (quorum := self._known()) else ()

    def replica_id(self) -> str:
        """Return this replica's stable name."""
        return self._place.replica_id

    def _known(self) -> Quorum | None:
        if self._begun:
            self.wait_quorum()
        return self._quorum
