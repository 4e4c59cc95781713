"""``python -m lab``, and the console command ``lab``.

Importing this module starts the command: until the command can report an interrupt, Ctrl-C ends it
at once without a traceback. (In the few milliseconds while Python itself starts, lab has no
control.)
"""

from __future__ import annotations

import errno
import gc
import signal
import sys
import threading

_DEFECT = 70
"""Same as :data:`lab.cli.defect.EXIT_CODE`, which may not be importable."""
_REFUSED = 4
"""Same as :attr:`lab._errors.PreflightError.exit_code`."""
_USED_UP = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_PYTHONS_OWN = signal.getsignal(signal.SIGINT)  # ignored in a background job: not changed then
if _PYTHONS_OWN is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Imports make many objects and no garbage: searching them for cycles takes a tenth of 'lab up'.
gc.set_threshold(100_000)

try:
    from lab.cli.main import main, report_beside
except Exception as error:  # noqa: BLE001  a broken installation, or a resource is used up
    if isinstance(error, MemoryError) or getattr(error, "errno", None) in _USED_UP:
        sys.stderr.write(f"lab cannot start: {error or 'no memory is left'}; raise that limit\n")
        sys.exit(_REFUSED)
    try:
        from lab.cli.defect import report
    except Exception:  # noqa: BLE001  even that module is missing
        sys.stderr.write(f"lab cannot start: {type(error).__name__}; install it again\n")
    else:
        report(error, "lab cannot start", "; install it again")
    sys.exit(_DEFECT)


def start() -> None:
    """Run the command, and end the process with its exit code."""
    try:
        signal.signal(signal.SIGINT, _PYTHONS_OWN)
        threading.excepthook = sys.unraisablehook = report_beside
        main()
    finally:
        if _PYTHONS_OWN is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    start()
