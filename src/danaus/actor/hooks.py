"""What an actor does about failures and its own end: running ``__supervise__``, ``__cleanup__``."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from danaus.actor.attempt import Attempt, exits
from danaus.actor.contexts import Context, act_as
from danaus.actor.failure import Fault
from danaus.actor.work import CodeHost, fault_of, guarded

Then = Callable[[Any, Fault | None], None]


class Hooks:
    """Runs the hooks of one actor.

    Args:
        host: The process.
        on_actors_thread: Runs something on the actor's own thread, after what it has to do there.
    """

    def __init__(
        self, host: CodeHost, on_actors_thread: Callable[[Callable[[], None]], None]
    ) -> None:
        self._host = host
        self._on_actors_thread = on_actors_thread

    def run(self, context: Context, name: str, arg: object, *, then: Then) -> None:
        """Run a hook, if the actor has it.

        Args:
            context: Who the actor is.
            name: Of the hook.
            arg: Its argument.
            then: Told on the connections' loop what it returned, or raised.
        """
        hook = getattr(context.actor, name, None)
        if hook is None:
            then(None, None)
            return
        endpoints = getattr(context.actor, "__endpoints__", {})
        on_loop = endpoints and all(spec.is_async for spec in endpoints.values())
        if inspect.iscoroutinefunction(hook) or on_loop:
            # A plain hook of an actor that is async otherwise runs where its other code does.
            self._host.user_loop.start(
                self._on_loop(context, functools.partial(hook, arg), then), name
            )
            return

        def job() -> None:
            act_as(context)
            value = None
            with Attempt() as attempt:
                value = hook(arg)
            self._host.io.post(then, value, self._fault(attempt.error))

        if name == "__cleanup__":
            self._on_actors_thread(job)
        else:
            # Not on the actor's thread: an endpoint may be running there, for hours.
            beside = guarded(job, self._host.process_should_end)
            threading.Thread(target=beside, name=name, daemon=True).start()

    async def _on_loop(self, context: Context, hook: Callable[[], Any], then: Then) -> None:
        act_as(context)
        value = None
        with exits(self._host.process_should_end):
            with Attempt() as attempt:
                value = hook()
                if inspect.isawaitable(value):
                    value = await value
            self._host.io.post(then, value, self._fault(attempt.error))

    def _fault(self, error: Exception | None) -> Fault | None:
        return None if error is None else fault_of(error, self._host.wall_clock.now())
