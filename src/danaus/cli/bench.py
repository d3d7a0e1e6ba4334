"""``danaus bench recovery``: how fast a run recovers, measured here."""

from __future__ import annotations

from danaus.app.progress import run_console
from danaus.app.settings import BenchConfig, RunConfig
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.cli.train import check
from danaus.core.errors import ConfigError


def run(arguments: list[str]) -> int:
    """Run a bench; return the exit code."""
    if wants_help(arguments):
        return show_help(BenchConfig, "bench recovery")
    if arguments[:1] != ["recovery"]:
        asked = f"danaus has no bench {arguments[0]!r}" if arguments else "a bench needs a name"
        raise ConfigError(asked, to_do="there is: danaus bench recovery")
    given = read(arguments[1:], BenchConfig, "bench recovery")
    settings = build(BenchConfig, given, (), "bench recovery")
    if settings.out is not None and not settings.out.absolute().parent.is_dir():
        raise ConfigError(
            f"--out {settings.out} cannot be written", "its folder must exist", "make that first"
        )
    check(RunConfig(replicas=settings.replicas))
    from danaus.app.bench_recovery import run_bench

    code: int = run_bench(settings, console=run_console())
    return code
