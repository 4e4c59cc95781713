"""What came of the probes that a Windows pod was told to make: curl's output to outcomes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.providers.pods.exec_plan import END, Transfer
from lab.providers.provider import LARGE_TCP_BYTES, Outcome, Probe, ProbeStatus

_OK = 200
_BY_EXIT: Mapping[int, ProbeStatus] = {
    6: "no-such-name",
    7: "refused",
    18: "wrong",
    28: "timeout",
    52: "wrong",
    55: "wrong",
    56: "wrong",
}
"""curl's exit codes; any other says nothing of the network."""
_BY_WORDS: tuple[tuple[str, ProbeStatus], ...] = (
    ("unreachable", "no-route"),
    ("no route", "no-route"),
    ("refused", "refused"),
    ("forcibly closed", "refused"),  # on Windows a UDP socket hears so of a closed port
    ("timeout", "timeout"),
    ("timed out", "timeout"),
    ("deadline exceeded", "timeout"),
    ("did not properly respond", "timeout"),
)
"""What curl, and Go on both systems, say of the network; the first that is found counts."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one transfer has ended."""

    exit_code: int
    status: int
    """HTTP's."""
    bytes: int
    milliseconds: float
    remote: str
    error: str
    body: str | None = None
    """None where it has not been collected."""


def read_transfers(output: str) -> dict[str, Ended]:
    """What curl wrote of each transfer, by its name; lines of anything else are passed over."""
    found: dict[str, Ended] = {}
    for line in output.splitlines():
        name, space, text = line.partition(" ")
        if space and text.startswith("{"):
            try:
                found[name] = _ended(json.loads(text))
            except (ValueError, TypeError, AttributeError):
                continue
    return found


def _ended(said: Mapping[str, Any]) -> Ended:
    return Ended(
        exit_code=int(said.get("exitcode", -1)),
        status=int(said.get("http_code", 0)),
        bytes=int(said.get("size_download", 0)),
        milliseconds=1000 * float(said.get("time_total", 0.0)),
        remote=str(said.get("remote_ip") or ""),
        error=str(said.get("errormsg") or ""),
    )


def read_bodies(output: str) -> dict[str, str]:
    """The bodies that the second curl printed, by their transfers' names."""
    found: dict[str, str] = {}
    rest = output.replace("\r\n", "\n")
    while True:
        body, mark, rest = rest.partition(f"\n{END}")
        name, _, rest = rest.partition("\n")
        if not mark:
            return found
        found[name.strip()] = body


def outcome(
    probe: Probe, asked: Sequence[Transfer], ended: Mapping[str, Ended], bodies: Mapping[str, str]
) -> Outcome:
    """What came of one probe: the first transfer that failed decides."""
    learnt = _Learnt(probe)
    for transfer in asked:
        one = ended.get(transfer.name)
        if one is None:
            return learnt.failed("error", f"{transfer.part}: curl said nothing of it")
        status, detail = learnt.take(transfer, replace(one, body=bodies.get(transfer.name)))
        if status != "ok":
            return learnt.failed(status, f"{transfer.part}: {detail}")
    return learnt.failed("ok", "")


class _Learnt:
    """What the transfers of one probe have told so far."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._names: dict[str, None] = {}
        self._clients: dict[str, None] = {}
        self._answer: str | None = None
        self._latency = 0.0

    def take(self, transfer: Transfer, one: Ended) -> tuple[ProbeStatus, str]:
        """Note what a transfer tells, and how it ended."""
        self._latency = self._latency or one.milliseconds
        if one.exit_code:
            return _by_exit(one)
        if one.status != _OK:
            return "wrong", f"HTTP status {one.status}"
        if transfer.part == "name":
            self._answer = one.remote or None
            return "ok", ""
        if transfer.part == "body":
            whole = one.bytes == LARGE_TCP_BYTES
            return ("ok", "") if whole or self._probe.dialect == "lab" else _short(one.bytes)
        return self._answered(transfer, one.body)

    def _answered(self, transfer: Transfer, body: str | None) -> tuple[ProbeStatus, str]:
        if body is None:
            return "error", "what it answered could not be collected from the pod"
        if not transfer.dialled:
            return self._told(transfer, [body])
        return self._dialled(transfer, body)

    def _dialled(self, transfer: Transfer, body: str) -> tuple[ProbeStatus, str]:
        try:
            said = json.loads(body)
            errors, answers = list(said.get("errors") or ()), list(said.get("responses") or ())
        except (ValueError, AttributeError, TypeError):
            return "error", f"netexec in the pod did not dial: {body[:80]!r}"
        if errors:
            return _by_words(str(errors[0]))
        return self._told(transfer, [str(one) for one in answers])

    def _told(self, transfer: Transfer, answers: Sequence[str]) -> tuple[ProbeStatus, str]:
        if not answers:
            return "wrong", "an empty answer"
        if self._probe.dialect == "lab":
            return self._told_by_lab(transfer, answers[0])
        for answer in answers:
            said = answer.strip().lower()
            if transfer.part == "hostname":
                self._names[said] = None
            elif transfer.part == "clientip":
                self._clients[said.rpartition(":")[0]] = None
            elif said != transfer.expected:
                return (
                    "wrong",
                    f"{len(said)} bytes came back of {len(transfer.expected)}, or damaged",
                )
        return "ok", ""

    def _told_by_lab(self, transfer: Transfer, answer: str) -> tuple[ProbeStatus, str]:
        """JSON over HTTP; over UDP a head of four words, and the rest of what was sent."""
        try:
            if self._probe.protocol == "tcp":
                said = json.loads(answer)
                name, client = str(said["endpoint"]), str(said["client"])
            else:
                head, _, rest = answer.partition("\n")
                _, _, name, client = head.split(" ")
                if transfer.expected and not transfer.expected.endswith(rest):
                    return "wrong", "a damaged echo"
        except (ValueError, KeyError, TypeError):
            return "wrong", f"not an endpoint of the lab: {answer[:80]!r}"
        self._names[name] = None
        self._clients[client.rpartition(":")[0]] = None
        return "ok", ""

    def failed(self, status: ProbeStatus, detail: str) -> Outcome:
        """The outcome with a status."""
        first, *others = self._clients or (None,)
        return Outcome(
            self._probe.key,
            status,
            detail,
            first,
            tuple(self._names),
            self._answer,
            self._latency,
            tuple(one for one in others if one is not None),
        )


def _by_exit(one: Ended) -> tuple[ProbeStatus, str]:
    status = _BY_EXIT.get(one.exit_code, "error")
    if status == "refused":
        status = next((found for words, found in _BY_WORDS if words in one.error.lower()), status)
    return status, one.error or f"curl's exit code {one.exit_code}"


def _by_words(error: str) -> tuple[ProbeStatus, str]:
    low = error.lower()
    return next((found for words, found in _BY_WORDS if words in low), "wrong"), error


def _short(length: int) -> tuple[ProbeStatus, str]:
    return "wrong", f"echo of {length} bytes for {LARGE_TCP_BYTES}"
