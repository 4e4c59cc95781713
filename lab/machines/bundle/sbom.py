"""A bundle's contents as a CycloneDX 1.6 document, from its manifest alone. Pure.

The same bundle gives the same bytes: there is no time in it, and the serial number follows from
the bundle's digest. Licences are unknown: no checksum file and no image manifest has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode
from uuid import NAMESPACE_URL, uuid5

from lab.machines.bundle.manifest import ContainerImage, Manifest, Program

SPECIFICATION = "1.6"


def bill_of_materials(manifest: Manifest) -> str:
    """The document's text."""
    ordered = manifest.ordered()
    name = f"urn:hybridlab:bundle:{manifest.digest}"
    bundle = {
        "type": "application",
        "bom-ref": name,
        "name": "hybridlab-bundle",
        "version": manifest.short,
        "description": f"Kubernetes {manifest.kubernetes} for labs",
        "hashes": _hashes(manifest.digest),
    }
    components = [
        *(_program(program, dict(ordered.versions)) for program in ordered.programs),
        *(_image(image) for image in ordered.images),
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": uuid5(NAMESPACE_URL, name).urn,
        "version": 1,
        "metadata": {"component": bundle},
        "components": components,
        "dependencies": [
            {"ref": name, "dependsOn": [str(component["bom-ref"]) for component in components]}
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _program(program: Program, versions: dict[str, str]) -> dict[str, object]:
    version = versions.get(program.component)
    return {
        "type": "file",
        "bom-ref": f"program/{program.os}/{program.name}",
        "name": program.name,
        **({"version": version} if version else {}),
        "group": program.component,
        "hashes": _hashes(program.blob.sha256),
        "properties": [*_properties(program.os, program.source)],
    }


def _image(image: ContainerImage) -> dict[str, object]:
    repository, _, tag = image.name.rpartition(":")
    digest = f"sha256:{image.manifest.sha256}"
    qualifiers = urlencode({"arch": "amd64", "repository_url": repository, "tag": tag}, safe="/")
    build = f"/{image.os_version}" if image.os_version else ""
    return {
        "type": "container",
        "bom-ref": f"image/{image.os}{build}/{image.name}",
        "name": repository,
        "version": tag,
        "purl": f"pkg:oci/{repository.rpartition('/')[2]}@{quote(digest, safe='')}?{qualifiers}",
        "hashes": _hashes(image.manifest.sha256),
        "properties": [*_properties(image.os, image.source)],
    }


def _properties(os: str, source: str) -> Iterator[dict[str, str]]:
    yield {"name": "hybridlab:os", "value": os}
    yield {"name": "hybridlab:source", "value": source}


def _hashes(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]
