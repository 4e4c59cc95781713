"""Files of other tools, recognised by marks that no scenario has. Pure."""

from __future__ import annotations

import codecs
import re

from lab._dataclass import dataclass

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_API = r"""^[ \t{-]*["']?apiVersion["']?[ \t]*:[ \t]*["']?"""
_KIND = r"""^[ \t-]*["']?kind["']?[ \t]*:[ \t]*["']?"""
_FROM = 'begin a scenario from it: "lab new NAME --from FILE"'


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A kind of file of another tool."""

    name: str
    """With an article."""
    marks: tuple[str, ...]
    """Regular expressions that all occur in such a file; ``^`` is the start of a line."""
    way: str
    """What its user can do instead, as a hint of an error."""
    begins: bool = False
    """Whether ``lab new --from`` begins a scenario from it."""


KIND = ForeignFile("a kind configuration", (_API + r"kind\.x-k8s\.io/",), _FROM, begins=True)
KUBEADM = ForeignFile(
    "a kubeadm configuration",
    (_API + r"(kubeadm\.k8s|kubeproxy\.config\.k8s|kubelet\.config\.k8s)\.io/",),
    _FROM,
    begins=True,
)
FLANNEL = ForeignFile(
    "a kube-flannel ConfigMap",
    (_API, r"""^[ \t]+["']?net-conf\.json["']?[ \t]*:"""),
    _FROM,
    begins=True,
)
CALICO = ForeignFile(
    "a Calico Installation",
    (_API + r"operator\.tigera\.io/", _KIND + r"Installation\b"),
    _FROM,
    begins=True,
)
FILES = (
    KIND,
    CALICO,
    FLANNEL,
    KUBEADM,
    ForeignFile(
        "a file of Calico's resources",
        (_API + r"(crd\.)?projectcalico\.org/|^[ \t]*name: calico-config\b",),
        'write "lab new NAME --topology calico-vxlan", or calico-bgp',
    ),
    ForeignFile(
        "a kubeconfig",
        (_API, _KIND + r"Config\b", r"^clusters[ \t]*:"),
        'write a scenario, such as by "lab new NAME"; a lab has a cluster of its own',
    ),
    ForeignFile(
        "a Kubernetes manifest",
        (_API, _KIND),
        'apply it to a lab with a cluster: "kubectl --kubeconfig FILE apply", after '
        '"lab kubeconfig LAB -o FILE"',
    ),
    ForeignFile(
        "a containerlab topology",
        (r"^topology:[ \t]*(#.*)?\n(?:[ \t]*\n|[ \t]+\S.*\n)*?[ \t]+(nodes|links|kinds):",),
        'write "lab new NAME": Kubernetes nodes are described, and links follow from the topology',
    ),
    ForeignFile(
        "a netlab topology",
        (
            r"^(links|provider|module|addressing|defaults[.\w]*):",
            r"^nodes:",
            r"\A(?!(?s:.*)^kubernetes:)",  # a scenario has it, and may have links
        ),
        'write "lab new NAME": Kubernetes nodes are described, and links follow from the topology',
    ),
    ForeignFile(
        "a Windows answer file",
        (r"<unattend\b",),
        'the lab writes its own: "lab image build windows-server-2022"; see docs/how-to/windows.md',
    ),
    ForeignFile(
        "a libvirt domain",
        (r"^[ \t]*(<\?xml[^>]*>[ \t]*)?<domain\b",),
        'the lab makes its own domains: a node has the keys memory, vcpus, disk and nics, and "lab '
        'up SCENARIO --provider libvirt" makes it; see docs/how-to/hypervisors.md',
    ),
    ForeignFile(
        "a libvirt network",
        (r"^[ \t]*(<\?xml[^>]*>[ \t]*)?<network\b",),
        'the lab makes its own networks, by "network" of a scenario and "lab up SCENARIO '
        '--provider libvirt"; see docs/how-to/hypervisors.md',
    ),
)
"""Narrower ones first."""


def recognise(raw: bytes) -> ForeignFile | None:
    """The kind of file that the bytes are, or begin with; None if no other tool's is known."""
    text = raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8-sig", errors="replace")
    return next((file for file in FILES if all(_occurs(mark, text) for mark in file.marks)), None)


def _occurs(mark: str, text: str) -> bool:
    return re.search(mark, text, re.MULTILINE) is not None
