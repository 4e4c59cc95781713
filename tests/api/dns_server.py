"""The real CoreDNS, and queries to it."""

import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab.providers.netns import dns

SECONDS = 120.0


@dataclass(frozen=True)
class Asked:
    address: str | None


@dataclass(frozen=True)
class Dns:
    port: int
    log: Path

    def ask(self, name: str) -> Asked | str:
        """The answer, or a description of the error; waits until the server listens."""
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
            asking.settimeout(SECONDS)
            asking.connect(("127.0.0.1", self.port))
            try:
                asking.send(dns.make_question(name, 7))
                return Asked(dns.read_answer(asking.recv(4096), name, 7))
            except OSError as error:
                return f"{error}; {self.log.read_text()[-500:]}"

    def once_known(self, name: str) -> Asked | str:
        return Deadline(SECONDS).wait(
            f"asking for {name}",
            lambda: self.ask(name),
            until=lambda said: isinstance(said, Asked) and said.address is not None,
            every=0.2,
        )
