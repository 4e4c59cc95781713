"""A Windows installation medium as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lab._log import table_lines
from lab.windows.images.medium import Use, WindowsMedium, version

_CHANNELS = {
    "evaluation": "evaluation: takes no product key",
    "volume": "volume licence",
    "retail": "retail",
    "unknown": "unknown licence",
}
_KINDS = {"bios": "BIOS", "uefi": "UEFI"}
_MEGA, _GIGA = 1e6, 1e9


def lines(medium: WindowsMedium, uses: Sequence[Use]) -> Iterator[str]:
    """The contents of the medium, and the recipes that can use it."""
    builds = dict.fromkeys(version(image) for image in medium.images)
    spoken = dict.fromkeys(language for image in medium.images for language in image.languages)
    made_for = dict.fromkeys(image.architecture for image in medium.images)
    yield f"medium     {medium.label}, {_size(medium.bytes)}"
    yield f"channel    {_CHANNELS[medium.channel]}"
    yield f"images     {', '.join(builds)} for {', '.join(made_for)}, in {medium.container}"
    yield f"languages  {', '.join(spoken) or 'unknown'}"
    yield f"boots by   {_describe_boot(medium)}"
    yield ""
    yield from table_lines(
        [
            ("NO", "NAME", "DISPLAYNAME", "INSTALLED"),
            *((str(i.index), i.name, i.display_name, _size(i.bytes)) for i in medium.images),
        ]
    )
    yield ""
    width = max((len(use.recipe) for use in uses), default=0)
    for use in uses:
        answer = f"no: {use.refusal}" if use.refusal else f"yes, installs '{use.image}'"
        yield f"{use.recipe.ljust(width)}  {answer}"


def document(medium: WindowsMedium, uses: Sequence[Use]) -> dict[str, object]:
    """The same as JSON values."""
    return {**asdict(medium), "uses": [asdict(use) for use in uses]}


def _describe_boot(medium: WindowsMedium) -> str:
    kinds = list(dict.fromkeys(boot.kind for boot in medium.boots))
    if not kinds:
        return "nothing: no firmware can start it"
    names = " and ".join(_KINDS[kind] for kind in kinds)
    if "uefi" not in kinds:
        return names
    if medium.no_prompt is None:
        return f"{names}; its only UEFI loader waits for a key press"
    return f"{names}; it has a UEFI loader that waits for no key press"


def _size(count: int) -> str:
    return f"{count / _GIGA:.2f} GB" if count >= _GIGA else f"{count / _MEGA:.1f} MB"
