"""``lab bundle``: create, list, show, verify and collect the bundles that clusters need."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import quantity, say
from lab.cli.commands import Commands
from lab.cli.options import json_option
from lab.cli.output import echo, echo_collected, echo_json, echo_table
from lab.scenario.terms import Os


@click.group("bundle", cls=Commands)
def command() -> None:
    """Keep the Kubernetes programs and container images that clusters are made from.

    A bundle is created once for all labs, and named by the digest of its contents. Labs on real
    machines come up from it without internet access.
    """


@command.command("create")
@click.option(
    "--kubernetes",
    metavar="VERSION",
    help='A minor version such as "1.36", for its newest patch version, or a patch version '
    "(default: the newest supported minor, or the version in the directory).",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Take programs and images from this directory instead of upstream's releases.",
)
@click.option(
    "--os",
    "systems",
    type=click.Choice(["linux", "windows"]),
    multiple=True,
    help="Operating systems of nodes (default: both, or those in the directory).",
)
@click.option(
    "--with",
    "add_ons",
    metavar="ADD-ON",
    multiple=True,
    help="Include images of this network add-on, such as calico; with --from, "
    "those in the directory.",
)
def create(
    kubernetes: str | None, source: Path | None, systems: tuple[Os, ...], add_ons: tuple[str, ...]
) -> None:
    """Create a bundle, and print its digest.

    Downloads are checked against upstream's checksums, and an interrupted download resumes. The
    inventory's mirrors and proxies are used for releases and registries.
    """
    from lab.machines import caches as images

    made = images.create(kubernetes, source, systems, say, add_ons)
    echo(made.short)


@command.command("list")
@json_option()
def list_bundles(as_json: bool) -> None:
    """List every bundle on this machine."""
    from lab.machines.caches import store

    bundles = store().list()
    if as_json:
        echo_json(bundles)
        return
    rows = [("BUNDLE", "KUBERNETES", "FOR", "PROGRAMS", "IMAGES", "SIZE", "")]
    for bundle in bundles:
        size = f"{bundle.bytes / 1e6:.0f} MB"
        systems = " ".join(bundle.systems) or "-"
        counts = (str(bundle.programs), str(bundle.images))
        kubernetes = bundle.kubernetes or "unusable"
        rows.append((bundle.digest, kubernetes, systems, *counts, size, bundle.detail))
    echo_table(*rows)


@command.command("show")
@click.argument("digest", required=False)
@json_option("Print the whole manifest.")
def show(digest: str | None, as_json: bool) -> None:
    """Show the versions, programs and images of a bundle.

    DIGEST is a digest from 'lab bundle list', or a prefix of one; it may be omitted if there is
    only one bundle.
    """
    from lab.machines import caches as images

    manifest = images.chosen(digest)
    if as_json:
        echo(manifest.encoded().decode(), nl=False)
        return
    name = manifest.digest
    echo(f"bundle '{manifest.short}': Kubernetes {manifest.kubernetes}")
    echo(f"digest   {name}")
    echo(f"kept in  {images.store().directory(manifest)}")
    for component, version in manifest.versions:
        echo(f"version  {component} {version}")
    for os in sorted({program.os for program in manifest.programs}):
        names = [program.name for program in manifest.programs if program.os == os]
        echo(f"programs for {os}: {' '.join(names)}")
    for image in manifest.images:
        build = f" {image.os_version}" if image.os_version else ""
        size = sum(layer.blob.size for layer in image.layers) / 1e6
        echo(f"image    {image.name} ({image.os}{build}, {size:.0f} MB)")


@command.command("sbom")
@click.argument("digest", required=False)
def sbom(digest: str | None) -> None:
    """Print a bundle's software bill of materials, as CycloneDX 1.6 in JSON.

    It has every program and image with its version and SHA-256; licences are not known.
    """
    from lab.machines import caches as images
    from lab.machines.bundle.sbom import bill_of_materials

    echo(bill_of_materials(images.chosen(digest)), nl=False)


@command.command("verify")
@click.argument("digest", required=False)
def verify(digest: str | None) -> None:
    """Verify the digest of every file of one bundle, or of all bundles.

    The media that labs have made from them are verified too.
    """
    from lab.machines import caches as images

    echo(f"{quantity(images.verify(digest, say), 'bundle')} verified")


@command.command("gc")
@click.option("--yes", is_flag=True, help="Remove; without it, only say what would be removed.")
@json_option()
def gc(yes: bool, as_json: bool) -> None:
    """Remove superseded and damaged bundles, and interrupted downloads.

    The newest bundle of each Kubernetes minor version and the bundles that your labs use are kept.
    """
    from lab.machines import caches as images

    result = images.collect(yes)
    if as_json:
        echo_json(result)
        return
    for path in result.paths:
        say(path)
    echo_collected(len(result.paths), result.bytes, "lab bundle gc", yes=yes)
