"""The archive's ``__main__``: find a new enough Python, unpack, and run the agent.

It unpacks because Python caches compiled modules from a directory but not from an archive, which
costs seconds on an emulated processor. This file must run on any Python version.
"""

import json
import os
import shutil
import sys
import zipfile

LOWEST = (3, 11)
OTHERS = ("python3.14", "python3.13", "python3.12", "python3.11")


def _run_newer_python() -> None:
    """Re-execute in a newer Python, or report that the machine has none."""
    for name in OTHERS:
        try:
            os.execvp(name, [name, "-I", "-S", *sys.argv])  # noqa: S606  no shell is wanted
        except OSError:
            continue
    version = ".".join(str(number) for number in sys.version_info[:3])
    failed = [
        "BrokenError",
        "starting the agent",
        "it needs Python 3.11 or newer, but python3 is " + version,
        "install Python 3.11 or newer in the image",
    ]
    sys.stdout.write(json.dumps({"failed": failed}) + "\n")
    sys.exit(1)


def _unpack_archive(archive: str) -> str:
    """Unpack the archive atomically into the directory beside it; returns the directory."""
    place = os.path.splitext(archive)[0]  # noqa: PTH122  pathlib is slow to import here
    if not os.path.isdir(place):  # noqa: PTH112  as above
        making = place.replace("node-", "unpacking-") + "." + str(os.getpid())
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(making)
        try:
            os.rename(making, place)  # noqa: PTH104  as above
        except OSError:  # another process was faster
            shutil.rmtree(making)
    return place


def main() -> None:
    """Run the agent."""
    if sys.version_info < LOWEST:
        _run_newer_python()
    sys.path.insert(0, _unpack_archive(os.path.abspath(sys.argv[0])))  # noqa: PTH100  as above
    from lab.machines.agents import agent  # noqa: PLC0415  importable only now

    sys.exit(agent.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
