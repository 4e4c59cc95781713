"""Kubernetes documents as data and as the YAML that Kubernetes programs read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

Document = Mapping[str, Any]
_TEXT = "tag:yaml.org,2002:str"


def administrator(name: str, namespace: str) -> tuple[Document, ...]:
    """A namespace whose pods may be privileged, and an account with full rights in the cluster."""
    account = {"name": name, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    allowed = {"pod-security.kubernetes.io/enforce": "privileged"}
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": allowed},
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
    )


def render(template: str, **values: object) -> tuple[Document, ...]:
    """The documents of a YAML template of this room, such as ``"addons/flannel.yaml"``."""
    return _parse(render_text(template, **values))


def render_text(template: str, **values: object) -> str:
    """The text of a template of this room: ``addons/flannel.yaml``."""
    return str(_template(template).render(values))


@cache
def _template(path: str) -> Any:
    """Cached: compiling takes 10 ms, and each node of a cluster has the same templates."""
    from importlib.resources import files  # noqa: PLC0415  for few commands

    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  slow

    text = files("lab.machines").joinpath(path).read_text(encoding="utf-8")
    filler = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701  no HTML
    return filler.from_string(text)


@cache
def _parse(text: str) -> tuple[Document, ...]:
    """Cached: each call takes 20 ms, and several steps of a cluster read the same documents."""
    from ruamel.yaml import YAML  # noqa: PLC0415  slow

    return tuple(YAML(typ="safe", pure=True).load_all(text))


def to_yaml(documents: Iterable[Document]) -> str:
    """Several documents as one text: keys in alphabetical order, long strings as block scalars."""
    return _dump(json.dumps([dict(document) for document in documents]))


@lru_cache(maxsize=256)
def _dump(documents: str) -> str:
    """Of JSON. Cached: 20 ms each time, and nodes of one role have most documents in common."""
    from ruamel.yaml import YAML  # noqa: PLC0415  slow

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.representer.add_representer(str, _text)
    out = io.StringIO()
    for number, document in enumerate(json.loads(documents)):
        if number:
            out.write("---\n")
        yaml.dump(document, out)
    return out.getvalue()


def _text(representer: Any, text: str) -> Any:
    return representer.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)
