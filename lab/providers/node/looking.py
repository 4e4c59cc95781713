"""How a machine is, asked without starting Python there: a shell script that the agent leaves.

Python and the agent's modules take seconds to load where the processor is emulated, and how a
machine is, is asked by every command. The script is there from when the network has been made
to the end until it is worked on again, so that its absence says something too. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.node.place import DIRECTORY

SCRIPT = DIRECTORY / "look"
RECORD = DIRECTORY / "record.json"
ABSENT = "the lab's network is not there: the machine was restarted, or never had it"
UNFINISHED = "its network was not made to the end"
OTHER = "its network was made for another intent"
NO_HOLDER = "the holder of its pods is not running"
NO_RESPONDER = "its responder is not running"

QUESTION = f"""
[ ! -e {SCRIPT} ] || exec sh {SCRIPT} "$0"
if [ -e {RECORD} ]; then echo {shlex.quote(UNFINISHED)}; else echo {shlex.quote(ABSENT)}; fi
"""
"""To be asked with the digest of the work as its name."""

Process = tuple[int, int]
"""Its id, and when it started, in clock ticks since boot."""


def script(digest: str, holder: Process, responder: Process, names: Sequence[str]) -> str:
    """The script: says what is wrong, in a sentence; nothing where nothing is.

    Parameters
    ----------
    digest
        Of the work that was done; the script is asked with that of the work there should be.
    holder
        The holder's process.
    responder
        The responder's process, its id as it is inside the holder.
    names
        The namespaces that the holder holds.

    """
    inside = f"/proc/{holder[0]}/root/proc/{responder[0]}/stat"
    return f"""#!/bin/sh
say() {{ echo "$1"; exit; }}
runs() {{ # stat file, start: whether it is that very process, and no zombie
    read -r line 2> /dev/null < "$1" || return 1
    set -- "$2" ${{line##*) }}
    [ "$2" != Z ] && [ "$2" != X ] && [ "${{21}}" = "$1" ]
}}
[ "$1" = {digest} ] || say {shlex.quote(OTHER)}
runs /proc/{holder[0]}/stat {holder[1]} || say {shlex.quote(NO_HOLDER)}
there=' '
while read -r _ place _; do there="$there$place "; done < /proc/{holder[0]}/mounts
for name in {shlex.join(names)}; do
    case $there in
        *" {NETNS_DIRECTORY}/$name "*) ;;
        *) say "its namespace '$name' is missing" ;;
    esac
done
runs {inside} {responder[1]} || say {shlex.quote(NO_RESPONDER)}
"""
