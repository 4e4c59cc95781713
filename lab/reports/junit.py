"""One JUnit file over a whole night, with the provider in every suite's name."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from lab.reports.night import ScenarioNight

_COUNTS = ("tests", "failures", "errors", "skipped")


def merged(scenarios: tuple[ScenarioNight, ...], documents: Mapping[str, str]) -> str:
    """The JUnit XML of all scenarios.

    Parameters
    ----------
    scenarios
        One testsuite each, named ``hybridlab.PROVIDER.SCENARIO``. One that is neither green nor
        red has a testcase ``lab`` more, which is an error and says what happened; skipped where
        the provider can never have such a lab.
    documents
        JUnit XML of each scenario's run, by the scenario's name, where there is one.

    """
    root = ET.Element("testsuites", {"name": "hybridlab"})
    for one in scenarios:
        suite = _suite(one, documents.get(one.scenario))
        if one.fate not in {"green", "red"}:
            _add_error(suite, one)
        for case in suite.iter("testcase"):
            case.set("classname", f"{one.suite}.{case.get('classname') or one.lab}")
        root.append(suite)
    for count in _COUNTS:
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(one: ScenarioNight, document: str | None) -> ET.Element:
    found = ET.fromstring(document).find("testsuite") if document else None  # noqa: S314  pytest wrote it, for us
    suite = ET.Element("testsuite", dict.fromkeys(_COUNTS, "0")) if found is None else found
    suite.set("name", one.suite)
    suite.set("time", f"{one.seconds:.3f}")
    suite.attrib.pop("hostname", None)  # who publishes a report need not publish that
    return suite


def _add_error(suite: ET.Element, one: ScenarioNight) -> None:
    case = ET.SubElement(suite, "testcase", {"name": "lab", "time": f"{one.seconds:.3f}"})
    kind = "skipped" if one.unfit else "error"
    told = ET.SubElement(case, kind, {"message": f"{one.fate}: {one.detail}"})
    told.text = "\n".join(f"{done.stage}: {done.code}, {done.log}" for done in one.stages)
    for count in ("tests", "skipped" if one.unfit else "errors"):
        suite.set(count, str(int(suite.get(count, "0")) + 1))
