"""Images installed unattended by a vendor's own installer; the medium is read, never rewritten.

Kernel and initramfs are extracted from the medium and started directly with the recipe's arguments;
the answers come as a second initramfs, or on a separate medium beside the vendor's.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.machines.images import bootstrap, medium
from lab.machines.images.bootstrap import host_sources
from lab.machines.images.cloud import adopt
from lab.machines.images.golden import Built
from lab.machines.images.job import BuildJob, Installation
from lab.machines.images.recipe import Answers, Iso, Recipe
from lab.shells import programs

_LABELS: Mapping[Answers, str] = {"cidata": "cidata", "oemdrv": "OEMDRV"}
_ENDING = ".j2"
_HINT = "give the vendor's complete ISO"
_CONTENT = 4 << 30
"""Upper limit of the bytes that a server system without a desktop takes."""


def build(job: BuildJob) -> Built:
    """Fill the scratch directory with the disk.

    Raises PreflightError when the medium, a program, a hypervisor, a mirror or disk space is
    missing. Raises BrokenError when the installation fails or does not end in time, with the
    console's last lines.
    """
    recipe, parts = job.recipe, job.recipe.iso
    assert parts is not None, "chosen by the recipe's kind"
    programs.need(job.action, "qemu-img", "setpriv")
    if job.installer is None:
        raise PreflightError(
            job.action,
            "no hypervisor is available to run its installer",
            "add one to the inventory",
        )
    vendor = job.inputs.fetch_file()
    job.room(_CONTENT, "the installed disk")
    work = job.scratch / "work"
    work.mkdir()
    job.tell("extracting the kernel from the medium")
    kernel, initrd = work / "kernel", work / "initrd"
    with medium.opened(vendor, f"reading the medium '{vendor}'", _HINT) as disc:
        values = context(job, disc.label)
        for path, target in ((parts.kernel, kernel), (parts.initrd, initrd)):
            target.write_bytes(disc.read(path))
    files = answers(recipe, values)
    media = (vendor, *_medium(parts, files, initrd, work))
    arguments = render(parts.arguments, values)
    deadline = Deadline(parts.minutes * 60.0)
    installation = Installation(recipe, parts, media, kernel, initrd, arguments, deadline)
    _install(job, installation, work / "disk")
    size = adopt(job, work / "disk")
    shutil.rmtree(work)
    job.inputs.remove_downloads()
    return Built(virtual_gib=size)


def _install(job: BuildJob, installation: Installation, disk: Path) -> None:
    """Run it; its console is kept beside the downloads, whatever the result."""
    assert job.installer is not None, "build() has checked"
    job.logs.mkdir(exist_ok=True)
    log = job.logs / f"{job.recipe.name}.log"
    job.tell(f"its console is written to '{log}'")
    with log.open("wb", buffering=0) as out:

        def keep(content: bytes) -> None:
            out.write(content)

        job.installer.install(installation, disk, job.tell, keep)


def _medium(parts: Iso, files: Mapping[str, bytes], initrd: Path, work: Path) -> tuple[Path, ...]:
    """Prepare the answers for the installer; returns the media to attach beside the vendor's."""
    if parts.answers == "initrd":
        with initrd.open("ab") as out:
            out.write(bytes(-out.tell() % 4))  # the next archive begins at a multiple of four
            out.write(bootstrap.archive(files))
        return ()
    made = work / "answers.iso"
    made.write_bytes(medium.medium(_LABELS[parts.answers], files))
    return (made,)


def context(job: BuildJob, label: str) -> dict[str, object]:
    """Values for the templates.

    Raises PreflightError when the answers need a package mirror and this machine's apt has none.
    """
    recipe, parts = job.recipe, job.recipe.iso
    assert parts is not None, "chosen by the recipe's kind"
    values: dict[str, object] = {
        "label": label,
        "user": recipe.user,
        "packages": parts.packages,
        "done": parts.done,
        "proxy": job.inputs.inventory.proxies.http or "",
    }
    if parts.mirror:
        apt_sources = host_sources(parts.mirror, parts.suite or "")
        if not apt_sources:
            raise PreflightError(
                job.action,
                f"its installer needs a package mirror, and apt on this machine has none for "
                f"'{parts.mirror}'",
                "build it on a machine that has one",
            )
        split = urlsplit(apt_sources[0].uri)
        values |= {
            "mirror": apt_sources[0].uri,
            "mirror_host": split.netloc,
            "mirror_path": split.path,
        }
    return values


def answers(recipe: Recipe, values: Mapping[str, object]) -> dict[str, bytes]:
    """The answer files: rendered templates without ``.j2``, other files unchanged."""
    answers_by_name = {}
    for name, content in recipe.files.items():
        if name.endswith(_ENDING):
            filled = render(content.decode(), values)
            answers_by_name[name.removesuffix(_ENDING)] = filled.encode()
        else:
            answers_by_name[name] = content
    return answers_by_name


def render(template: str, values: Mapping[str, object]) -> str:
    """Render a template; an undefined name is an error of the recipe."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  slow, and rarely needed

    filler = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701  no HTML
    return filler.from_string(template).render(values)
