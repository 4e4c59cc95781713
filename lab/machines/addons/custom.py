"""A network plug-in of somebody's own: the objects of its manifests, and archives of its images."""

from __future__ import annotations

import json
import math
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lab._errors import os_words
from lab.machines.addons.addon import BRIDGE_CONFIG, FLANNEL_CONFIG, Addon, DaemonSet, Waves
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster
from lab.machines.cluster.documents import Document
from lab.machines.cluster.linux.operations import Operations, Remove
from lab.topology.footprint import Footprint
from lab.topology.intent import Intent, MachineIntent

_FIRST = ("Namespace", "CustomResourceDefinition")
"""Kinds that other objects need, in order."""
_DEFAULT = "default"
_WORDS = {
    **dict.fromkeys(
        ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True
    ),
    **dict.fromkeys(
        ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
"""Plain scalars that are no text, with their values."""
_WHOLE = re.compile(r"[-+]?(0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"(?<![0-9])0(?=[0-7])")
_PLAIN = "tag:hybridlab,plain"
_MERGE = "tag:yaml.org,2002:merge"


class WrongFileError(Exception):
    """A manifest or an archive cannot be used; its text is a clause with the file's name."""


def read_objects(path: str) -> tuple[Document, ...]:
    """The objects of a manifest file, those of lists among them.

    Raises WrongFileError when it cannot be read, is not YAML, or has something that is no object.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415  slow
    from ruamel.yaml.constructor import SafeConstructor  # noqa: PLC0415  slow
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415  slow
    from ruamel.yaml.nodes import ScalarNode  # noqa: PLC0415  slow
    from ruamel.yaml.resolver import VersionedResolver  # noqa: PLC0415  slow
    from ruamel.yaml.tag import Tag  # noqa: PLC0415  slow

    class Resolver(VersionedResolver):
        """Leaves plain scalars to :func:`read_scalar`."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0]:
                return Tag(suffix=_MERGE if value == "<<" else _PLAIN)
            return super().resolve(kind, value, implicit)

    class Constructor(SafeConstructor):
        """Makes them."""

    Constructor.add_constructor(_PLAIN, lambda _, node: read_scalar(node.value))
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver, yaml.Constructor = Resolver, Constructor
    try:
        text = Path(path).read_text(encoding="utf-8")
        # keys become text, as in JSON
        documents = json.loads(json.dumps([*yaml.load_all(text)], default=str, allow_nan=False))
    except OSError as error:
        raise WrongFileError(f"manifest '{path}' cannot be read: {os_words(error)}") from error
    except (YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" (line {line + 1})"
        raise WrongFileError(f"manifest '{path}' is not YAML{where}") from error
    return tuple(_list_objects(path, documents))


def read_scalar(text: str) -> bool | float | str | None:
    """A plain scalar as kubectl reads it (sigs.k8s.io/yaml): YAML 1.1 without base 60 and dates.

    ``on`` and ``y`` are true, 0644 and 0o644 are octal, and a whole number is one in JSON.
    """
    if text in _WORDS:
        return _WORDS[text]
    digits = text if text.startswith(".") else text.replace("_", "")
    if not text.startswith("_") and _WHOLE.fullmatch(digits):
        return int(_OCTAL.sub("0o", digits), 0)
    if not text.startswith("_") and _FRACTION.fullmatch(digits):
        number = float(digits)
        if math.isfinite(number):
            return int(number) if number.is_integer() else number
    return text


def _list_objects(path: str, documents: Iterable[Any]) -> Iterator[Document]:
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        listed = isinstance(document, dict) and document.get("kind") == "List"
        if listed and isinstance(document.get("items"), list):
            yield from _list_objects(path, document["items"])
        elif _is_object(document):
            named = {"namespace": _DEFAULT, **document["metadata"]}
            yield {**document, "metadata": named}
        else:
            raise WrongFileError(
                f"document {number} of manifest '{path}' is no Kubernetes object: it needs "
                "apiVersion, kind and metadata.name"
            )


def _is_object(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    words = (document.get("apiVersion"), document.get("kind"), document["metadata"].get("name"))
    return all(isinstance(word, str) and word for word in words)


def order_objects(objects: Iterable[Document]) -> tuple[Document, ...]:
    """The objects as they are applied: what others need first, otherwise as they are written."""
    return tuple(sorted(objects, key=_place))


def _place(document: Document) -> int:
    kind = document["kind"]
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def list_daemon_sets(objects: Iterable[Document]) -> tuple[DaemonSet, ...]:
    """Namespace and name of each DaemonSet."""
    return tuple(
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in objects
        if each["kind"] == "DaemonSet"
    )


def _read(intent: Intent) -> tuple[Document, ...]:
    assert intent.kubernetes is not None, "asked for where there is a cluster"
    paths = intent.kubernetes.manifests or ()
    return order_objects(document for path in paths for document in read_objects(path))


def _find_wrong(intent: Intent) -> Iterator[str]:
    assert intent.kubernetes is not None, "asked for where there is a cluster"
    try:
        if not list_daemon_sets(_read(intent)):
            listed = ", ".join(f"'{path}'" for path in intent.kubernetes.manifests or ())
            yield (
                f"no DaemonSet is in the manifests ({listed or 'none are given'}), so that no node "
                "would get a pod network"
            )
    except WrongFileError as error:
        yield str(error)
    for path in intent.kubernetes.archives or ():
        try:
            if not tarfile.is_tarfile(path):
                yield f"'{path}' of 'images' is no archive of an image"
        except OSError as error:
            yield f"image archive '{path}' cannot be read: {os_words(error)}"


class Custom(Addon):
    """What the manifests make. Its devices, tables and addresses are not known."""

    topologies = frozenset({"custom"})
    footprint = Footprint(ports=("*",), paths=("/etc/cni/net.d/*",))
    writes_plugins = True

    def daemon_sets(self, intent: Intent) -> tuple[DaemonSet, ...]:
        return list_daemon_sets(_read(intent))

    def waves(self, cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
        return (_read(intent),)

    def archives(self, intent: Intent) -> tuple[Path, ...]:
        own = intent.kubernetes
        return tuple(map(Path, own.archives or ())) if own else ()

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        return (Remove((FLANNEL_CONFIG, BRIDGE_CONFIG)),)

    def unfit(self, intent: Intent) -> str:
        """What is wrong with the files, all at once."""
        return "; ".join(_find_wrong(intent))


ADDON = Custom()
