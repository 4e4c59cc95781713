"""The first program of the stand-in: Setup from the medium, Windows from the disk."""

from __future__ import annotations

import sys
import threading
import traceback

from stand_in.guest import machine, setup


def main(source: str) -> None:
    threading.Thread(target=machine.watch_power_button, daemon=True).start()
    try:
        if source == "medium":
            machine.show("Windows Setup (a stand-in, not Windows)")
            setup.run()
            machine.power("reboot")
        from stand_in.guest import windows  # noqa: PLC0415  slow, and not needed by Setup

        machine.show("Windows (a stand-in, not Windows)")
        windows.run()
        threading.Event().wait()
    except machine.RestartError:
        machine.power("reboot")
    except machine.StopError as error:
        machine.stop(str(error))
    except Exception as error:  # noqa: BLE001  any error is shown
        machine.show(traceback.format_exc())
        own = [one for one in traceback.extract_tb(error.__traceback__) if "guest" in one.filename]
        machine.stop(f"broke: {error} ({own[-1].filename}, line {own[-1].lineno})")


if __name__ == "__main__":
    main(sys.argv[1])
