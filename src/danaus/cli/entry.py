"""Where the ``danaus`` command begins.

It imports nothing before it listens for Ctrl-C: loading ``main`` takes longer than starting Python.
"""


def main() -> int:
    """Run the command that ``sys.argv`` names; return the exit code."""
    try:
        from danaus.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
