"""What is found wrong with answer files: in broken ones, and in every mutation of the golden."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET

import answers
import pytest

from lab._errors import BrokenError
from lab.imaging.windows.answer_rules import CLONE, Facts, findings, verified
from lab.imaging.windows.answer_table import TABLE

NAMES = (*answers.INSTALLATIONS, *answers.CLONES)
CASES = sorted(answers.BROKEN.glob("*.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_broken_answer_file_is_found_out(case):
    broken = answers.Broken.read(case)
    assert broken.findings, "a case without findings proves nothing"
    assert broken.found() == broken.findings, f"meant so? {answers.RENEW}"


def test_no_finding_repeats_a_password_or_a_key():
    for case in CASES:
        said = "\n".join(answers.Broken.read(case).findings)
        assert answers.PASSWORD not in said
        assert "WX4NM" not in said


def test_refusal_lists_every_finding_and_says_whose_fault_it_is():
    broken = answers.Broken.read(answers.BROKEN / "several-at-once.json")
    with pytest.raises(BrokenError) as refused:
        verified(broken.document(), answers.facts(broken.of))
    assert all(f"\n    {finding}" in refused.value.happened for finding in broken.findings)
    assert "defect of hybridlab" in refused.value.cure
    assert refused.value.exit_code == 3


def test_document_without_findings_is_handed_back():
    document = answers.golden("clone")
    assert verified(document, CLONE) is document


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("2022-core-uefi-evaluation-virtio", ("bios", "virtio", "evaluation"), "BIOS starts no"),
        ("2022-datacenter-core-bios-volume-virtio", ("uefi", "virtio", "volume"), "UEFI needs EFI"),
        ("2022-datacenter-core-bios-volume-virtio", ("bios", "virtio", "evaluation"), "take no"),
        ("2022-core-uefi-evaluation-virtio", ("uefi", "virtio", "volume"), "need a product key"),
        ("2022-core-uefi-evaluation-virtio", ("uefi", "sata", "evaluation"), "needs none"),
        ("2022-desktop-bios-evaluation-sata", ("bios", "virtio", "evaluation"), "no path has"),
    ],
)
def test_right_document_for_another_machine_is_found_out(name, facts, said):
    assert any(
        said in finding for finding in findings(answers.golden(name), Facts("install", *facts))
    )


def test_installation_and_clone_are_told_apart():
    assert findings(answers.golden("clone"), Facts("install", "bios", "sata", "evaluation"))
    assert findings(answers.golden("2022-core-uefi-evaluation-virtio"), CLONE)


@pytest.mark.parametrize("document", [b"", b"\xff\xfe", b"<a", b"<a/>", b"{}", b"\0" * 100])
def test_what_is_no_answer_file_is_found_out(document):
    assert len(findings(document, CLONE)) == 1


FREE = {"Description", "FullName", "Organization", "Label", "TimeZone", "CommandLine", "Path"}
"""Text that may be any: another one is as good by the rules, and golden files compare it."""
OPTIONAL = {"Description", "RequiresUserInput", "Label"}
"""Elements that may be left out."""


def local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def mutations(root: ET.Element) -> Iterator[tuple[str, bytes]]:
    """Every document that differs from one in one place, and what was done to it."""
    parents = {child: parent for parent in root.iter() for child in parent}
    for number, target in enumerate([*root.iter()]):
        parent = parents.get(target)
        for kind, mutate in KINDS.items():
            if applies(kind, target, parent):
                tag, text, attributes = target.tag, target.text, dict(target.attrib)
                name = local(target)
                siblings = [] if parent is None else [*parent]
                mutate(target, parent)
                yield f"{number} {name} {kind}", ET.tostring(root)
                target.tag, target.text = tag, text
                target.attrib.update(attributes)
                if parent is not None:
                    parent[:] = siblings


def _attribute(target: ET.Element, _: ET.Element | None) -> None:
    target.set(next(key for key in target.attrib if not key.endswith("keyValue")), "other")


def _text(target: ET.Element, _: ET.Element | None) -> None:
    target.text = f"{target.text}!"


KINDS: dict[str, Callable[[ET.Element, ET.Element | None], None]] = {
    "removed": lambda target, parent: parent.remove(target),
    "renamed": lambda target, _: setattr(target, "tag", f"{target.tag}x"),
    "doubled": lambda target, parent: parent.append(copy.deepcopy(target)),
    "with other text": _text,
    "emptied": lambda target, _: setattr(target, "text", ""),
    "with another attribute": _attribute,
}


def applies(kind: str, target: ET.Element, parent: ET.Element | None) -> bool:
    """Whether there is something to change that must be found out."""
    name, leaf = local(target), not len(target)
    return {
        "removed": parent is not None and not spare(target, parent),
        "renamed": True,
        "doubled": parent is not None,
        "with other text": leaf and name not in FREE,
        "emptied": leaf,
        "with another attribute": bool(target.attrib),
    }[kind]


def spare(target: ET.Element, parent: ET.Element) -> bool:
    """Whether a document without it is as good: the last command of a list, a driver's path."""
    name = local(target)
    if name in {"RunSynchronousCommand", "SynchronousCommand"}:
        return parent[-1] is target and len(parent) > 1
    server_manager = target.get("name") == "Microsoft-Windows-ServerManager-SvrMgrNc"
    return server_manager or name in OPTIONAL | {"PathAndCredentials"}


@pytest.mark.parametrize("name", [name for name in NAMES if "all-drivers" not in name])
def test_every_mutation_of_a_golden_file_is_found_out(name):
    root = ET.fromstring(answers.golden(name))
    missed, tried = [], 0
    for what, changed in mutations(root):
        tried += 1
        if not findings(changed, answers.facts(name)):
            missed.append(what)
    assert missed == []
    assert tried > 200
    assert findings(ET.tostring(root), answers.facts(name)) == (), "it is as it was"


def test_every_component_of_the_table_is_in_a_golden_file():
    written = {
        (settings.get("pass"), component.get("name"))
        for name in NAMES
        for settings in ET.fromstring(answers.golden(name))
        for component in settings
    }
    assert written == {(step, name) for step, there in TABLE.items() for name in there}
