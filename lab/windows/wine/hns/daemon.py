"""The daemon of a node's HNS: keeps the state in a file and makes the network what it says.

``python3 -m lab.windows.wine.hns.daemon DIRECTORY BUILD CARD...`` runs in the node's own network
namespace. In DIRECTORY it keeps ``state.json``, replaced at once after each change, so that a
daemon that is killed goes on where it was; and ``calls.jsonl``, each question that
changes something with its answer.

The state names the machine's start that it belongs to. After another start, what Windows loses
then is gone: pods, and networks that are not persistent.
"""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

from lab._errors import BrokenError
from lab.providers.netns import isolation
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.netlink import Socket, apply_operations, list_addresses, list_links
from lab.providers.netns.operations import (
    AddressAdd,
    BridgeAdd,
    LinkRemove,
    NamespaceOperations,
)
from lab.providers.netns.services import SERVICE_TABLE, replacing_table
from lab.topology.intent import Pod
from lab.windows.wine.hns import network
from lab.windows.wine.hns.filters import REMOVAL
from lab.windows.wine.hns.service import (
    UNUSED_CARD,
    Answer,
    Card,
    HnsState,
    Question,
    after_restart,
    after_service_restart,
    answer,
    with_cards,
)

PORT = 18081
"""Also in ``standins/hns.c``."""
_FAILED = 0x80004005
"""E_FAIL."""
_OWN = "/proc/self/ns/net"
_NFT_SECONDS = 20.0
_CALLS_BYTES = 4 << 20
"""Size from which the record of calls is begun anew; the one before is kept beside it."""
_STATISTICS = "GET /endpointstats/"
_REFRESH = "POST /refresh"
"""Asked for by whoever has changed a card's addresses, with which Linux takes routes away."""
_DEVICES = Path("/sys/class/net")
_COUNTERS = {
    "BytesReceived": "tx_bytes",
    "BytesSent": "rx_bytes",
    "PacketsReceived": "tx_packets",
    "PacketsSent": "rx_packets",
    "DroppedPacketsIncoming": "tx_dropped",
    "DroppedPacketsOutgoing": "rx_dropped",
}
"""Linux's counters of the node's end of a pod's link: what it sends is received by the pod."""


class Daemon:
    """One node's HNS. Questions are answered one at a time."""

    def __init__(self, directory: Path, build: int, cards: Sequence[str]) -> None:
        self._directory = directory
        self._cards = cards
        self._lock = threading.Lock()
        self._numbers = 0
        """Pods that were ever plugged in: their interface indexes are never used again."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        _name_own_namespace()
        self._state = self._load(build)
        self._pods: dict[str, Pod] = {}
        self._filters: dict[str, str] = {network.NODE: REMOVAL}
        """What was loaded, by key of :attr:`network.NodeNetwork.filters`; at first an earlier
        daemon's rules are removed from the node, whatever they are."""
        self._done: NamespaceOperations | None = None
        self._is_broken = False
        """Whether a change has failed since the network was last what the state says."""
        self._take_over()
        self._settle(self._state)
        self._save()

    def ask(self, question: Question) -> Answer:
        """Answer a question, once the network is what the answer says."""
        with self._lock:
            if question.operation == "call" and question.object.startswith(_STATISTICS):
                return self._count(question.object.removeprefix(_STATISTICS).strip("/").lower())
            if question.operation == "call" and question.object == _REFRESH:
                self._make_anew()
                return Answer(0, "", json.dumps({"Success": True, "Output": {}}))
            after, given = answer(self._state, question, str(uuid.uuid4()))
            if after is not self._state:
                try:
                    if self._is_broken:
                        self._make_anew()
                    self._settle(after)
                except Exception as error:  # noqa: BLE001  whoever asks is told, and the next may ask
                    given = Answer(_FAILED, "", json.dumps({"Error": str(error)}))
                    self._is_broken = True
                    with suppress(Exception):
                        self._make_anew()
                else:
                    self._state = after
                    self._save()
            self._record(question, given)
            return given

    def _make_anew(self) -> None:
        """After a failure: make the network of the state again, from nothing."""
        _remove([name for name in _indexes() if _is_made(name)])
        self._pods.clear()
        self._done = None
        self._settle(self._state)
        self._is_broken = False

    def _count(self, guid: str) -> Answer:
        """What an endpoint has sent and received (hcsshim, ``HNSEndpointStats``)."""
        pod = self._pods.get(guid)
        counts: dict[str, object] = {"EndpointID": guid, "InstanceID": guid}
        folder = _DEVICES / pod.port / "statistics" if pod else None
        if folder and folder.exists():
            read = {name: (folder / file).read_text() for name, file in _COUNTERS.items()}
            counts |= {name: int(text) for name, text in read.items()}
        return Answer(0, "", json.dumps({"Success": True, "Output": counts}))

    def _load(self, build: int) -> HnsState:
        """The state of the file, with the cards as they are now."""
        cards = _read_cards(self._cards)
        try:
            kept = json.loads((self._directory / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return HnsState(build, cards)
        self._numbers = int(kept["numbers"])
        spaces, hosted = kept["spaces"], tuple(kept["hosted"])
        habits = frozenset(kept.get("habits", ()))
        state = HnsState(build, cards, kept["objects"], spaces, hosted, habits)
        is_same = kept["start"] == _machine_start()
        return with_cards(after_service_restart(state) if is_same else after_restart(state), cards)

    def _save(self) -> None:
        kept = {
            "start": _machine_start(),
            "numbers": self._numbers,
            "objects": self._state.objects,
            "spaces": self._state.spaces,
            "hosted": self._state.hosted,
            "habits": sorted(self._state.habits),
        }
        draft = self._directory / ".state.json.partial"
        draft.write_text(json.dumps(kept), encoding="utf-8")
        draft.replace(self._directory / "state.json")

    def _record(self, question: Question, given: Answer) -> None:
        reads = question.operation in {"open", "query", "enumerate"}
        if reads or question.object.startswith("GET "):
            return
        line = {"question": asdict(question), "answer": asdict(given)}
        path = self._directory / "calls.jsonl"
        if path.exists() and path.stat().st_size > _CALLS_BYTES:
            path.replace(path.with_suffix(".jsonl.1"))
        with path.open("a", encoding="utf-8") as calls:
            calls.write(json.dumps(line) + "\n")

    def _take_over(self) -> None:
        """Know what an earlier daemon has made of the state; remove what is left of anything else.

        A network whose devices are not all there is made from nothing.
        """
        wanted = network.node_network(self._state)
        indexes = _indexes()
        ports = {pod.port: guid for guid, pod in wanted.pods.items()}
        made = {name for name in indexes if _is_made(name) and not _is_port(name)}
        devices = {
            bridge.name for bridge in (wanted.machine.bridge, wanted.machine.tunnel) if bridge
        }
        if devices == made:
            self._pods = {
                guid: wanted.pods[guid] for port, guid in ports.items() if port in indexes
            }
            if devices:
                self._settle_cards(self._state)
                self._done = self._own(wanted)
            left = [name for name in indexes if _is_port(name) and name not in ports]
        else:
            left = [name for name in indexes if _is_made(name)]
        _remove(left)

    def _own(self, wanted: network.NodeNetwork) -> NamespaceOperations:
        indexes = _indexes()
        cards = [card.name for card in wanted.machine.interfaces]
        return network.own_operations(wanted.machine, {card: indexes[card] for card in cards})

    def _settle_cards(self, state: HnsState) -> None:
        """Make the unused card, or remove it."""
        card = UNUSED_CARD
        if card not in state.cards:
            _remove([card.name])
        elif card.name not in _indexes():
            index = network.FIRST_INDEX - 1
            operations = (
                BridgeAdd(card.name, index, card.mac),
                AddressAdd(card.name, card.address),
            )
            made = NamespaceOperations(network.NODE, ((card.name, index),), operations)
            _run(lambda: apply_operations([made]))

    def _settle(self, state: HnsState) -> None:
        """Make the network what the state says.

        Raises BrokenError when the kernel refuses something.
        """
        wanted = network.node_network(state)
        if UNUSED_CARD in state.cards:
            self._settle_cards(state)
        own = self._own(wanted)
        gone = [guid for guid, pod in self._pods.items() if wanted.pods.get(guid) != pod]
        _remove([self._pods[guid].port for guid in gone])
        for guid in gone:
            del self._pods[guid]
            self._filters.pop(guid, None)
        before, self._done = self._done, None
        delta = network.changes(before, own)
        _run(lambda: apply_operations([delta]))
        if before is None or network.rules(before) != network.rules(own):
            _load_rules(network.rules(own) or replacing_table(SERVICE_TABLE))
        self._done = own
        for guid, pod in wanted.pods.items():
            if guid not in self._pods:
                self._plug(guid, pod, wanted)
        self._filter(wanted)
        if UNUSED_CARD not in state.cards:
            self._settle_cards(state)

    def _filter(self, wanted: network.NodeNetwork) -> None:
        """Load the access control lists where they have changed."""
        for place in wanted.filters.keys() | self._filters.keys():
            script = wanted.filters.get(place, "")
            if script == self._filters.get(place, ""):
                continue
            name = network.NODE if place == network.NODE else wanted.pods[place].name
            inside = ("nsenter", f"--net={Path(NETNS_DIRECTORY, name)}", "--")
            _load_rules(script or REMOVAL, inside)
            if script:
                self._filters[place] = script
            else:
                del self._filters[place]

    def _plug(self, guid: str, pod: Pod, wanted: network.NodeNetwork) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        made = network.pod_operations(pod, wanted.machine, _indexes(), number)
        _run(lambda: apply_operations(made))
        self._pods[guid] = pod


def _is_port(name: str) -> bool:
    """Whether a device is the node's end of a pod's link."""
    digits = name.removeprefix("h")
    return name.startswith("h") and len(digits) == 12 and not set(digits) - set("0123456789abcdef")  # noqa: PLR2004  network.py names them so


def _is_made(name: str) -> bool:
    """Whether a device is HNS' own."""
    return name == network.BRIDGE or name.startswith("vxlan") or _is_port(name)


def _machine_start() -> str:
    """Identifies this start of the machine: of its first process."""
    return Path("/proc/1/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]


def _name_own_namespace() -> None:
    """Give this process's network namespace the name by which operations find it."""
    place = Path(NETNS_DIRECTORY, network.NODE)
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        place.touch()
    if not os.path.samestat(place.stat(), Path(_OWN).stat()):
        isolation.mount(_OWN, str(place), "", isolation.MS_BIND)


def _run(apply: Callable[[], None]) -> None:
    """Call on a thread of its own, which it leaves in another namespace."""
    failures: list[Exception] = []

    def call() -> None:
        try:
            apply()
        except Exception as error:  # noqa: BLE001  raised again by the caller's thread
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _indexes() -> Mapping[str, int]:
    with Socket(network.NODE) as channel:
        return {link.name: link.index for link in list_links(channel)}


def _read_cards(names: Sequence[str]) -> tuple[Card, ...]:
    """The cards of these names; BrokenError if one is missing."""
    with Socket(network.NODE) as channel:
        links = {link.name: link for link in list_links(channel)}
        addresses = list_addresses(channel)
    cards = []
    for name in names:
        if name not in links:
            raise BrokenError("looking at the node's network cards", f"there is no '{name}'")
        link = links[name]
        address = next((text for index, text in addresses if index == link.index), "")
        cards.append(Card(name, address, link.mac, link.mtu))
    return tuple(cards)


def _remove(devices: Sequence[str]) -> None:
    """Remove devices of the node; one that is gone already is no error."""
    known = _indexes()
    present = [device for device in devices if device in known]
    if present:
        operations = tuple(LinkRemove(device) for device in present)
        made = NamespaceOperations(network.NODE, tuple(known.items()), operations)
        _run(lambda: apply_operations([made]))


def _load_rules(script: str, inside: Sequence[str] = ()) -> None:
    """Load an nftables script. ``inside``: the beginning of a command in another namespace."""
    done = subprocess.run(  # noqa: S603  the node's own
        (*inside, "nft", "-f", "-"),
        input=script,
        capture_output=True,
        text=True,
        timeout=_NFT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise BrokenError("loading nftables rules", done.stderr.strip())


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        operation, named, size = (self.rfile.readline().decode().strip() for _ in range(3))
        document = self.rfile.read(int(size or 0)).decode()
        given = cast("_Server", self.server).daemon.ask(Question(operation, named, document))
        text = f"{given.code & 0xFFFFFFFF:x}\n{given.guid}\n{given.document}"
        self.wfile.write(text.encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, daemon: Daemon, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Call)
        self.daemon = daemon


def main(arguments: Sequence[str]) -> None:
    """Serve until killed."""
    directory, build, *cards = arguments
    with _Server(Daemon(Path(directory), int(build), cards), PORT) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
