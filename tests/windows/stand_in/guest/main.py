"""The first program of the stand-in: Setup from the medium, Windows from the disk."""

from __future__ import annotations

import struct
import sys
import threading
import traceback
from pathlib import Path

from stand_in.guest.answer import AnswerError
from stand_in.guest.screen import RestartError, StopError, power_off, restart, show, stop

KEY_POWER = 116
_EVENT = struct.Struct("llHHi")


def main(arguments: list[str]) -> None:
    threading.Thread(target=_power_button, daemon=True).start()
    try:
        if arguments == ["medium"]:
            from stand_in.guest import setup  # noqa: PLC0415  not needed by Windows

            show("Windows Setup (a stand-in, not Windows)")
            setup.run()
            restart()
        from stand_in.guest import services, windows  # noqa: PLC0415  slow, and not needed by Setup

        show("Windows (a stand-in, not Windows)")
        windows.run()
        services.forever()
    except RestartError:
        restart()
    except (StopError, AnswerError) as error:
        stop(str(error))
    except Exception as error:  # noqa: BLE001  any error is shown
        show(traceback.format_exc())
        own = [one for one in traceback.extract_tb(error.__traceback__) if "guest" in one.filename]
        stop(f"broke: {error} ({own[-1].filename}, line {own[-1].lineno})")


def _power_button() -> None:
    """Shut down when the power button is pressed, like Windows."""
    for path in sorted(Path("/sys/class/input").glob("event*")):
        name = path / "device/name"
        if name.exists() and "Power Button" in name.read_text():
            with Path("/dev/input", path.name).open("rb", buffering=0) as events:
                while event := events.read(_EVENT.size):
                    _, _, kind, code, value = _EVENT.unpack(event)
                    if (kind, code, value) == (1, KEY_POWER, 1):
                        power_off()


if __name__ == "__main__":
    main(sys.argv[1:])
