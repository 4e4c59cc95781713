"""The keys of a cluster made by hand, kept in the lab's directory and made but once."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from lab.cluster import certificates
from lab.cluster.certificates import CertificateSubject, Pair
from lab.plan.canonical import digest
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import write_private

DIRECTORY = "cluster-keys"
_SECRET_BYTES = 32
"""The key of AES-CBC with 256 bits, as Kubernetes the Hard Way takes it."""


class Keys:
    """Keys below one directory; each in a file of its own, mode 0600.

    Parameters
    ----------
    directory
        The lab's own.

    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / DIRECTORY

    def authority(self) -> Pair:
        """The cluster's authority."""
        return self._kept("ca", "", lambda: certificates.authority("hybridlab"))

    def service_accounts(self) -> Pair:
        """What signs service accounts' tokens; in the certificate's place stands the public key."""
        return self._kept("service-accounts", "", certificates.signing_key)

    def issued(self, file: str, subject: CertificateSubject) -> Pair:
        """A certificate for the subject: another one when the subject is, or the authority."""
        ca = self.authority()
        about = digest(subject, ca.certificate)
        return self._kept(file, about, lambda: certificates.issued(ca, subject))

    def encryption_key(self) -> str:
        """What Secrets are encrypted with in etcd, base64."""
        made = self._kept(
            "encryption",
            "",
            lambda: Pair("", b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()),
        )
        return made.key

    def _kept(self, file: str, about: str, make: Callable[[], Pair]) -> Pair:
        path = self._directory / f"{file}.json"
        with guarded_files(f"reading '{path}'"):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and (found := json.loads(text))["about"] == about:
            return Pair(found["certificate"], found["key"])
        made = make()
        make_private(self._directory)
        kept = {"about": about, "certificate": made.certificate, "key": made.key}
        write_private(path, json.dumps(kept))
        return made
