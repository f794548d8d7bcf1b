"""Lets `python -m hiflash` do what `hiflash` does."""

import os
import signal
import sys


def main() -> int:
    """Run the command line; a signal before it begins or after it has ended just ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from hiflash.cli import main as command_line

    return command_line()


def _end(*_: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
