"""The option that says what pods are, alike for every command that has it."""

from __future__ import annotations

import click

pods_option = click.option(
    "--pods",
    type=click.Choice(["kubernetes", "namespaces"]),
    help="What pods are on real machines: a cluster's (the default there), or namespaces.",
)
