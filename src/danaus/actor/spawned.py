"""A worker that was not forked: an interpreter of its own that imports for itself, then works.

``python -m danaus.actor.spawned FD``, started by the nursery where processes must not be forked; it
reads from the pipe what it is.
"""

from __future__ import annotations

import sys

import msgspec

from danaus.actor import nursery_messages as talk
from danaus.actor.nursery import NOT_BEGUN, become_worker, load, signals_in_use
from danaus.wire.secret import Secret


def main() -> None:
    """Become the worker that the pipe, the only argument, tells of."""
    with open(int(sys.argv[1]), "rb") as pipe:
        told = pipe.read()
    try:
        born = talk.born.decode(told)
    except msgspec.DecodeError:  # torn, or nothing at all
        raise SystemExit(NOT_BEGUN) from None
    sys.path[:] = [*born.settings.sys_path]
    load(born.settings)
    secret = Secret.load(born.settings.secret_path)
    become_worker(born, secret, signals_in_use())


if __name__ == "__main__":
    main()
