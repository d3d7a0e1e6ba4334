"""One actor of a kind in the whole job, and actors that call each other from anywhere.

python examples/controllers.py
"""

from __future__ import annotations

from danaus.actor import (
    Actor,
    current_rank,
    enable_transport,
    endpoint,
    get_or_spawn_controller,
    returns_future,
    shutdown_context,
    this_host,
    wait_all,
)


class Scores(Actor):
    """Knows the best score; there is one in the job, in the process that it began with."""

    def __init__(self) -> None:
        self.best = 0

    @endpoint
    def offer(self, score: int) -> int:
        """Take a score; return the best so far."""
        self.best = max(self.best, score)
        return self.best


class Player(Actor):
    """Plays in a worker; plain code waits with ``get``, ``async`` code awaits."""

    @endpoint
    def play(self) -> int:
        """Offer a score."""
        scores = get_or_spawn_controller("scores", Scores).get()
        return scores.offer.call_one(10 * current_rank().rank).get()

    @endpoint
    async def play_again(self) -> int:
        """Offer another, and let others run meanwhile."""
        scores = await get_or_spawn_controller("scores", Scores)
        return await scores.offer.call_one(100 + current_rank().rank)


@returns_future
async def best_score() -> int:
    """Ask for it; plain code calls ``best_score().get()``, ``async`` code awaits it."""
    scores = await get_or_spawn_controller("scores", Scores)  # the very same
    return await scores.offer.call_one(0)


def main() -> None:
    """Have three players play, from three processes."""
    enable_transport("tcp")  # over the loopback; without this, by socket files
    players = this_host().spawn_procs(per_host={"gpus": 3}).spawn("player", Player)
    wait_all([players.play.call(), players.play_again.call()]).get()
    print(f"the best score is {best_score().get()}")
    shutdown_context()


if __name__ == "__main__":
    main()
