"""A process that attaches its terminal to a command: HOST_KEY KEYFILE PORT COMMAND..."""

import sys
from pathlib import Path

from lab.machines.ssh.shell import SshShell
from lab.shells.shell import Reach

if __name__ == "__main__":
    host_key, keyfile, port, *command = sys.argv[1:]
    shell = SshShell(Reach("guest1", "127.0.0.1", "root", Path(keyfile), host_key, int(port)))
    try:
        code = shell.attach(command)
    finally:
        shell.close()
    sys.exit(code)
