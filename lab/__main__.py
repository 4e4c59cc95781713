"""``python -m lab``, and the console command ``lab``.

Importing this module is starting the command: until the command is ready to say that it was
interrupted, Ctrl-C ends it at once and without a traceback. (In the few milliseconds before,
while Python itself starts, nothing of ours can.)
"""

from __future__ import annotations

import signal

_PYTHONS_OWN = signal.getsignal(signal.SIGINT)  # or ignored, as in a background job: left alone
if _PYTHONS_OWN is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from lab.cli.main import main  # noqa: E402  only now


def start() -> None:
    """Run the command, and end the process with its exit code."""
    try:
        signal.signal(signal.SIGINT, _PYTHONS_OWN)
        main()
    finally:
        if _PYTHONS_OWN is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    start()
