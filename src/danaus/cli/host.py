"""``danaus host``: a machine that waits to be joined by runs of several machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from danaus.actor.waiting_host import run_worker_loop_forever
from danaus.app.settings import SHARED_SECRET
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.core.errors import ConfigError
from danaus.wire.address import Address
from danaus.wire.secret import Secret


@dataclass(frozen=True, kw_only=True)
class HostCommand:
    """Wait to be joined by a controller that holds the same secret; Ctrl-C ends everything at
    once, SIGTERM once the replica that trains here has left its run, after the step in hand.

    Args:
        listen: Where to listen, as in tcp:10.77.0.10:4500: an address that the other hosts dial.
        secret: The hosts' secret, the same file on every host; made if it is
            not there; none: ~/.danaus/secret.
        run_dir: Folder for the host's own things, on its own disk; none: a temporary one.
        name: Of the host, for people; none: the machine's.
    """

    listen: str = ""
    secret: Path | None = None
    run_dir: Path | None = None
    name: str = ""


def run(arguments: list[str]) -> int:
    """Be a host until a person or a signal ends it; return the exit code."""
    if wants_help(arguments):
        return show_help(HostCommand, "host")
    settings = build(HostCommand, read(arguments, HostCommand, "host"), (), "host")
    address = _address(settings.listen)
    secret = (settings.secret or SHARED_SECRET).expanduser()
    prepare_secret(secret)
    run_worker_loop_forever(address, secret, run_dir=settings.run_dir, name=settings.name, say=_say)
    _say("the host has ended, and all that it had started")
    return 0


def prepare_secret(path: Path) -> None:
    """Make the hosts' secret if it is not there, and say how it gets to the others."""
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path.parent} cannot be made: {error.strerror}") from error
        Secret.ensure(path)
        _say(f"made the secret {path}; copy it to the other hosts and to whoever starts runs:")
        _say(f"  scp -p {path} OTHER_HOST:{path}")
    Secret.load(path)


def _address(text: str) -> Address:
    if not text:
        raise ConfigError(
            "--listen is missing",
            "danaus host needs an address of this machine that the other hosts can dial",
            "as in: danaus host --listen tcp:10.77.0.10:4500",
        )
    address = Address.parse(text)
    if address.scheme != "tcp":
        raise ConfigError(f"{text} is no address that other machines dial", "tcp:ADDRESS:PORT")
    return address


def _say(line: str) -> None:
    print(line, flush=True)
