"""The archive's ``__main__``: find a Python new enough, unpack, and run the agent.

Unpacked, because Python compiles what it imports from a directory once, and from an archive
each time: seconds, on a machine without hardware virtualisation. This file alone is read by
whatever Python the machine has, and so is written for any.
"""

import json
import os
import shutil
import sys
import zipfile

LOWEST = (3, 11)
OTHERS = ("python3.14", "python3.13", "python3.12", "python3.11")


def _newer() -> None:
    """Go on in a newer Python of the machine, or say that there is none."""
    for name in OTHERS:
        try:
            os.execvp(name, [name, "-I", "-S", *sys.argv])  # noqa: S606  no shell is wanted
        except OSError:
            continue
    found = ".".join(str(number) for number in sys.version_info[:3])
    failed = [
        "BrokenError",
        "starting the agent",
        "it needs Python 3.11 or newer, but python3 is " + found,
        "install Python 3.11 or newer in the image",
    ]
    sys.stdout.write(json.dumps({"failed": failed}) + "\n")
    sys.exit(1)


def _unpacked(archive: str) -> str:
    """The directory beside the archive; made whole, or not at all."""
    place = os.path.splitext(archive)[0]  # noqa: PTH122  pathlib is slow to import here
    if not os.path.isdir(place):  # noqa: PTH112  as above
        making = place.replace("node-", "unpacking-") + "." + str(os.getpid())
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(making)
        try:
            os.rename(making, place)  # noqa: PTH104  as above
        except OSError:  # another has been quicker
            shutil.rmtree(making)
    return place


def main() -> None:
    """Run the agent."""
    if sys.version_info < LOWEST:
        _newer()
    sys.path.insert(0, _unpacked(os.path.abspath(sys.argv[0])))  # noqa: PTH100  as above
    from lab.providers.node import agent  # noqa: PLC0415  it is there only now

    sys.exit(agent.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
