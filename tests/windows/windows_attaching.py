"""A process that attaches its streams to a guest's command: HOST_KEY KEYFILE PORT COMMAND..."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.remote.shell import Reach, WindowsReach
from lab.remote.windows import WindowsShell

if __name__ == "__main__":
    host_key, keyfile, port, *command = sys.argv[1:]
    own = Reach("win1", "127.0.0.1", "Administrator", Path(keyfile), host_key, int(port))
    shell = WindowsShell(WindowsReach(own, "unused", "ab" * 32))
    try:
        code = shell.attach(command)
    finally:
        shell.close()
    sys.exit(code)
