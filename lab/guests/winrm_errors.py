"""What WinRM's answers, and the lack of them, mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import ParseError

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.link import LostError, UnreachableError
from lab.guests.winrm_endpoint import Endpoint

FORGOTTEN = frozenset({2150858843, 995})
"""Faults that say: this shell or command is not known (any more), or was ended. As other clients
of WinRM know them; not seen from a Windows of our own."""
_TOO_LARGE = 413
_SAID = 300


class CertificateError(BrokenError):
    """The machine shows another certificate than it must. Trying again is no cure."""


class PasswordError(BrokenError):
    """The password was refused. Trying again may lock the account."""


class FaultError(BrokenError):
    """The service understood, and refused; ``code`` is WS-Management's."""

    def __init__(self, doing: str, happened: str, cure: str, code: int) -> None:
        super().__init__(doing, happened, cure)
        self.code = code


class StaleError(UnreachableError):
    """The connection had ended before anything was sent on it."""


class ReplyLostError(LostError):
    """Something was sent, and whether it was done is not known."""

    clean = False
    """Whether the other side closed without a word: then nothing that it had to say is lost."""


class QuietError(Exception):
    """WinRM's own time for an operation has passed. No more than that."""


def meaning(doing: str, endpoint: Endpoint, error: Exception, deadline: Deadline) -> Exception:
    """What an exception of pywinrm, requests or pyspnego means; a defect comes back as it is."""
    from requests import exceptions as http  # noqa: PLC0415  slow to import
    from spnego.exceptions import SpnegoError  # noqa: PLC0415  the same
    from winrm import exceptions as winrm  # noqa: PLC0415  the same

    strange = (ParseError, StopIteration, SpnegoError, winrm.WinRMError, LookupError, ValueError)
    meanings: tuple[tuple[Any, Callable[[Any], Exception]], ...] = (
        (winrm.WinRMOperationTimeoutError, lambda _: QuietError()),
        (winrm.AuthenticationError, lambda _: _refused(doing, endpoint)),
        (winrm.WSManFaultError, lambda one: _fault(doing, endpoint, one)),
        (winrm.WinRMTransportError, lambda one: _status(doing, endpoint, one.code)),
        (http.Timeout, lambda _: _late(doing, endpoint, deadline)),
        (http.RequestException, lambda one: _broken(doing, endpoint, one)),
        ((*strange, PermissionError, AssertionError), lambda one: _other(doing, endpoint, one)),
    )
    for kind, means in meanings:
        if isinstance(error, kind):
            return means(error)
    return error


def _refused(doing: str, endpoint: Endpoint) -> PasswordError:
    return PasswordError(
        doing,
        f"401: the password of user '{endpoint.user}' is refused at {endpoint.address}",
        "see that this is the machine it was made for, and that the account is neither locked "
        "nor disabled; do not try often: Windows locks Administrator after 10 refusals",
    )


def _fault(doing: str, endpoint: Endpoint, fault: Any) -> FaultError:
    reason, code = str(fault.reason), int(fault.wsman_fault_code or 0)
    said = " ".join(reason.split())[:_SAID]
    cure = "see what 'winrm get winrm/config' says there"
    if "quota" in reason.lower() or "maximum number" in reason.lower():
        cure = "end what else uses WinRM there, or raise the quota (MaxShellsPerUser)"
    return FaultError(doing, f"'{endpoint.name}' refused: {said} (fault {code})", cure, code)


def _status(doing: str, endpoint: Endpoint, status: int) -> BrokenError:
    if status == _TOO_LARGE:
        return FaultError(
            doing,
            f"413: '{endpoint.name}' takes no message of that size (MaxEnvelopeSizekb)",
            "send what is long in a file",
            status,
        )
    return FaultError(
        doing,
        f"'{endpoint.name}' answered with HTTP status {status} and nothing else",
        "see that the service WinRM runs there, and its event log",
        status,
    )


def _other(doing: str, endpoint: Endpoint, error: Exception) -> BrokenError:
    return BrokenError(
        doing,
        f"what answers at {endpoint.address} does not speak WinRM as Windows does ({error!r})",
        "see what listens there",
    )


def _late(doing: str, endpoint: Endpoint, deadline: Deadline) -> BrokenError:
    if deadline.left() == 0.0:
        return DeadlineError(
            doing,
            f"no answer within {deadline.seconds:g} s from {endpoint.address}",
            "give it longer, or see whether the machine still runs",
        )
    return _lost(doing, endpoint, "it does not answer")


def _broken(doing: str, endpoint: Endpoint, error: Exception) -> ReplyLostError:
    from http.client import RemoteDisconnected  # noqa: PLC0415  for this alone

    lost = _lost(doing, endpoint, str(_root(error)) or type(error).__name__)
    lost.clean = any(isinstance(one, RemoteDisconnected) for one in _chain(error))
    return lost


def _lost(doing: str, endpoint: Endpoint, words: str) -> ReplyLostError:
    return ReplyLostError(
        doing,
        f"the connection to '{endpoint.name}' ({endpoint.address}) was lost ({words})",
        "see whether the machine still runs, then repeat",
    )


def _root(error: Exception) -> BaseException:
    return list(_chain(error))[-1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and all that it wraps: urllib3 puts the cause among the arguments."""
    yield error
    for one in (*error.args, getattr(error, "reason", None)):
        if isinstance(one, BaseException):
            yield from _chain(one)
            return
