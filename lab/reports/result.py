"""A run as JSON: complete, versioned, the same bytes for the same run.

Sets are written as sorted lists; keys stand in a fixed order. ``counts`` is for people and
other programs; reading a run back counts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab._errors import BrokenError
from lab.cluster.versions import NodeVersion
from lab.cluster.workload_checks import WorkloadResult
from lab.matrix.cell import Cell, Endpoint, Expectation
from lab.matrix.coverage import Coverage, Part
from lab.matrix.explain.finding import Finding
from lab.matrix.failover import Failover, Turn
from lab.matrix.verdict import VERDICTS, CellResult, RunResult, Verdict
from lab.providers.failing import Silence
from lab.providers.provider import Outcome
from lab.reports.picture import Attachment, DrawnMachine, DrawnPod, Picture, picture_of
from lab.scenario.scenario import FAMILIES, Family
from lab.topology.intent import Intent
from lab.topology.segment import Segment

FORMAT = 3
"""Version of the JSON. 2 has what a run needs to be reproduced: the scenario's text, and which
nodes were kept; 1 is read as a run without. 3 has refusals that Kubernetes promises, and clients
that keep their backend; in older ones there were none."""
_READ = frozenset({1, 2, FORMAT})


def to_json(run: RunResult, intent: Intent) -> dict[str, Any]:
    """The run and the picture of its Intent, as values that :mod:`json` can write."""
    places = _places(run)
    return {
        **_head(run, intent, places),
        "cells": [_result_json(result, places) for result in run.results],
    }


def _places(run: RunResult) -> dict[Finding, int]:
    """Where each thing found stands among the findings."""
    findings = dict.fromkeys(one.finding for one in run.results if one.finding)
    return {finding: number for number, finding in enumerate(findings)}


def _head(run: RunResult, intent: Intent, findings: Iterable[Finding]) -> dict[str, Any]:
    """Everything but the cells."""
    return {
        "format": FORMAT,
        "run": run.run,
        "lab": run.lab,
        "scenario": run.scenario,
        "summary": run.summary,
        "topology": run.topology,
        "provider": run.provider,
        "banner": run.banner,
        "emulated_nodes": list(run.emulated_nodes),
        "windows_rules_off": list(run.windows_rules_off),
        "only": run.only,
        "scenario_text": run.scenario_text,
        "version": run.version,
        "started": run.started,
        "seconds": run.seconds,
        "green": run.green(),
        "counts": counts(run),
        "coverage": asdict(run.coverage) if run.coverage else None,
        "nodes": [asdict(one) for one in run.nodes],
        "workloads": [asdict(one) for one in run.workloads],
        "failover": _failover_json(run.failover),
        "hosts": dict(run.hosts),
        "picture": _picture_json(picture_of(intent)),
        "findings": [asdict(one) for one in findings],
    }


def to_text(run: RunResult, intent: Intent) -> str:
    """The same as it is stored: a part a line, and a cell a line.

    Of a large run it is some 60 MB, so that no more than a cell is ever held besides the text.
    """
    places = _places(run)
    parts = [f"{_line(name)}: {_line(value)}" for name, value in _head(run, intent, places).items()]
    cells = ",\n ".join(_line(_result_json(result, places)) for result in run.results)
    return "{\n" + ",\n".join(parts) + f',\n"cells": [\n {cells}\n]\n}}\n'


_line = json.JSONEncoder(separators=(",", ":")).encode


def from_json(document: Mapping[str, Any]) -> tuple[RunResult, Picture]:
    """The run and the picture that :func:`to_json` wrote.

    Raises
    ------
    BrokenError
        When the document has another format, or lacks a part.

    """
    doing = "reading the JSON of a run"
    found = document.get("format")
    if not isinstance(found, int) or found not in _READ:
        raise BrokenError(
            doing,
            f"its format is {found!r}, and this version of lab reads {FORMAT}",
            "read it with the version of lab that wrote it, or run 'lab test' again",
        )
    try:
        run = _run(document)
        _check(run)
        return run, _picture(document["picture"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise BrokenError(
            doing,
            f"a part is missing or malformed: {type(error).__name__} {error}",
            "run 'lab test' again",
        ) from error


def counts(run: RunResult) -> dict[str, Any]:
    """Cells per verdict (all six), and per family that occurs and its verdicts that occur."""
    verdicts: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    families: dict[Family, dict[Verdict, int]] = {
        family: dict.fromkeys(VERDICTS, 0) for family in FAMILIES
    }
    for result in run.results:
        verdicts[result.verdict] += 1
        families[result.cell.family][result.verdict] += 1
    return {
        "cells": len(run.results),
        "verdicts": verdicts,
        "families": {
            family: {verdict: count for verdict, count in found.items() if count}
            for family, found in families.items()
            if any(found.values())
        },
    }


def _result_json(result: CellResult, places: Mapping[Finding, int]) -> dict[str, Any]:
    cell, expectation = result.cell, result.expectation
    return {
        "id": cell.id,
        "family": cell.family,
        "verdict": result.verdict,
        "detail": result.detail,
        "source": _endpoint_json(cell.source),
        "target": _endpoint_json(cell.target),
        "protocol": cell.protocol,
        "size": cell.size,
        "relation": cell.relation,
        "entry": cell.entry,
        "name_form": cell.name_form,
        "backends": list(cell.backends),
        "sources": sorted(cell.sources),
        "answer": cell.answer,
        "mtu": cell.mtu,
        "refusal": cell.refusal,
        "sticky": cell.sticky,
        "entry_os": cell.entry_os,
        "expectation": {
            "works": expectation.works,
            "rule": expectation.rule,
            "reason": expectation.reason,
            "source": expectation.source,
            "refusal": expectation.refusal,
            "promised": expectation.promised,
        },
        "attempts": [_outcome_json(outcome) for outcome in result.attempts],
        "retried": result.retried,
        "repeat": result.repeat,
        "finding": places[result.finding] if result.finding else None,
    }


def _endpoint_json(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "kind": endpoint.kind,
        "os": endpoint.os,
        "node": endpoint.node,
        "address": endpoint.address,
        "port": endpoint.port,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "key": outcome.key,
        "status": outcome.status,
        "detail": outcome.detail,
        "source_seen": outcome.source_seen,
        "backends": list(outcome.backends),
        "answer": outcome.answer,
        "latency_ms": outcome.latency_ms,
        "other_sources": list(outcome.other_sources),
    }


def _picture_json(picture: Picture) -> dict[str, Any]:
    return {
        "pod_mtu": picture.pod_mtu,
        "node_mtu": picture.node_mtu,
        "segments": [
            {"name": segment.name, "cidr": segment.cidr, "mtu": segment.mtu}
            for segment in picture.segments
        ],
        "machines": [_machine_json(machine) for machine in picture.machines],
        "hypervisors": [_machine_json(machine) for machine in picture.hypervisors],
    }


def _machine_json(machine: DrawnMachine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "kind": machine.kind,
        "os": machine.os,
        "attachments": [
            {"segment": attachment.segment, "address": attachment.address}
            for attachment in machine.attachments
        ],
        "pods": [
            {"name": pod.name, "role": pod.role, "address": pod.address} for pod in machine.pods
        ],
        "tunnel": machine.tunnel,
        "routes": machine.routes,
        "host": machine.host,
        "gateways": list(machine.gateways),
    }


def _run(document: Mapping[str, Any]) -> RunResult:
    findings = [Finding(**one) for one in document.get("findings", ())]
    return RunResult(
        run=document["run"],
        lab=document["lab"],
        scenario=document["scenario"],
        summary=document["summary"],
        topology=document["topology"],
        provider=document["provider"],
        banner=document["banner"],
        emulated_nodes=tuple(document["emulated_nodes"]),
        version=document["version"],
        started=document["started"],
        seconds=document["seconds"],
        results=tuple(_result(cell, findings) for cell in document["cells"]),
        windows_rules_off=tuple(document["windows_rules_off"]),
        scenario_text=document.get("scenario_text", ""),
        only=document.get("only"),
        nodes=tuple(NodeVersion(**one) for one in document.get("nodes", ())),
        workloads=tuple(WorkloadResult(**one) for one in document.get("workloads", ())),
        coverage=_coverage(document.get("coverage")),
        failover=_failover(document.get("failover")),
        hosts=tuple(document.get("hosts", {}).items()),
    )


def _check(run: RunResult) -> None:
    """Raise TypeError or ValueError where a part that reports look up by is no such thing."""
    if not isinstance(run.seconds, (int, float)):
        raise TypeError(f"seconds: {run.seconds!r}")
    for text in (run.started, *run.windows_rules_off, *(one.cell.id for one in run.results)):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
    for one in run.results:
        if one.verdict not in VERDICTS:
            raise ValueError(f"verdict {one.verdict!r} of cell '{one.cell.id}'")


def _failover_json(found: Failover | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **asdict(found),
        "well": found.well,
        "trouble": found.trouble,
        "longest_seconds": {"away": found.away.longest, "back": found.back.longest},
    }


def _failover(found: Mapping[str, Any] | None) -> Failover | None:
    if found is None:
        return None
    away, back = (
        Turn(
            silences=tuple(Silence(**one) for one in found[turn]["silences"]),
            holders=found[turn]["holders"],
            wrong=tuple(found[turn]["wrong"]),
        )
        for turn in ("away", "back")
    )
    return Failover(found["lost"], found["before"], away, back)


def _coverage(found: Mapping[str, Any] | None) -> Coverage | None:
    if found is None:
        return None
    parts = {name: Part(**value) for name, value in found.items() if isinstance(value, dict)}
    return Coverage(**{**found, **parts})


def _result(found: Mapping[str, Any], findings: Sequence[Finding]) -> CellResult:
    place = found.get("finding")
    cell = Cell(
        id=found["id"],
        family=found["family"],
        source=Endpoint(**found["source"]),
        target=Endpoint(**found["target"]),
        protocol=found["protocol"],
        size=found["size"],
        relation=found["relation"],
        entry=found["entry"],
        name_form=found["name_form"],
        backends=tuple(found["backends"]),
        sources=frozenset(found["sources"]),
        answer=found["answer"],
        mtu=found["mtu"],
        refusal=found.get("refusal"),
        sticky=found.get("sticky", False),
        entry_os=found.get("entry_os"),
    )
    return CellResult(
        cell=cell,
        expectation=Expectation(**found["expectation"]),
        verdict=found["verdict"],
        detail=found["detail"],
        attempts=tuple(
            Outcome(
                **{
                    **outcome,
                    "backends": tuple(outcome["backends"]),
                    "other_sources": tuple(outcome["other_sources"]),
                }
            )
            for outcome in found["attempts"]
        ),
        retried=found["retried"],
        repeat=found["repeat"],
        finding=None if place is None else findings[place],
    )


def _picture(found: Mapping[str, Any]) -> Picture:
    return Picture(
        segments=tuple(Segment(**segment) for segment in found["segments"]),
        machines=tuple(_machine(machine) for machine in found["machines"]),
        pod_mtu=found["pod_mtu"],
        node_mtu=found["node_mtu"],
        hypervisors=tuple(_machine(machine) for machine in found.get("hypervisors", ())),
    )


def _machine(found: Mapping[str, Any]) -> DrawnMachine:
    return DrawnMachine(
        **{
            **found,
            "attachments": tuple(Attachment(**each) for each in found["attachments"]),
            "pods": tuple(DrawnPod(**pod) for pod in found["pods"]),
            "gateways": tuple(found.get("gateways", ())),
        }
    )
