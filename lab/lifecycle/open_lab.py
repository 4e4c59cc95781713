"""An opened lab: its plan and Intent, its machines, and the directory of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import cast

from lab._errors import BrokenError, UsageError, did_you_mean
from lab.lifecycle import reconnect
from lab.lifecycle.compilation import Compiled, rebuild
from lab.lifecycle.names import again, check_name, unknown_lab
from lab.lifecycle.providers import choose
from lab.matrix.verdict import VERDICTS, RunResult
from lab.plan.plan import Plan
from lab.providers.failover import FailoverProvider
from lab.providers.provider import LabHandle, Provider
from lab.scenario.assertion import Assertion
from lab.scenario.scenario import Limit
from lab.state.directory import make_private
from lab.state.files import write_private
from lab.state.lock import WAIT_SECONDS, lab_lock
from lab.state.rows import RunRow
from lab.state.store import Store
from lab.topology.intent import Intent

REPORT = "report.html"
RESULT = "result.json"
JUNIT = "junit.xml"


@dataclass(frozen=True, slots=True)
class OpenLab:
    """One lab of the journal, with everything compiled from its scenario."""

    name: str
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]
    provider: Provider
    handle: LabHandle
    again: str
    banner: str
    scenario_text: str
    """Content of the scenario file that it was made from."""
    options: Mapping[str, object]
    store: Store
    assertions: tuple[Assertion, ...] = ()
    """Of its scenario; none on an existing cluster, which has none."""
    held_alone: bool = False
    """True if this process already holds the lab exclusively."""
    repeat_with: str = ""
    """The command that repeats a cell, without its id, of a lab that is taken down afterwards.

    Empty for ``lab test NAME -k``.
    """

    @property
    def disclaimer(self) -> str:
        """See :meth:`Provider.disclaimer`."""
        return self.provider.disclaimer(self.intent)

    @property
    def windows_rules_off(self) -> tuple[str, ...]:
        """Ids of the Windows rules that its emulated nodes do not obey."""
        off = self.options.get("windows_rules_off", ())
        return tuple(str(rule) for rule in off) if isinstance(off, list | tuple) else ()

    @property
    def edited_file(self) -> str:
        """The scenario's file if it is no longer what the lab was made from; else empty."""
        row = self.store.lab(self.name)
        if row is None or self.intent.existing:
            return ""
        file = Path(row.scenario_path)
        with suppress(OSError, ValueError):  # what cannot be read cannot be compared
            if file.is_file() and file.read_text(encoding="utf-8") != self.scenario_text:
                return str(file)
        return ""

    def last_success(self) -> float:
        """When the lab's last green run began, or else when it was brought up, since 1970."""
        runs = (run for run in self.store.runs(self.name) if run.token == self.handle.token)
        green = [datetime.fromisoformat(run.started).timestamp() for run in runs if run.green]
        return max([*green[-1:], *(step.at for step in self.store.steps(self.name))], default=0)

    def require_running(self, *, healthy: bool = True) -> None:
        """Raise if the lab is not running.

        ``healthy``: whether its machines must be healthy, too, for example a cluster's nodes Ready.

        Raises BrokenError with the lab's state, and how to bring it up again.
        """
        liveness = self.provider.liveness(self.handle, self.intent)
        if liveness.state != "running" and (healthy or not liveness.reachable):
            resumes = f"'{self.again}' resumes it"
            raise BrokenError(
                f"looking for the machines of lab '{self.name}'",
                f"the lab is {liveness.state}: {liveness.detail}",
                resumes if liveness.state == "suspended" else self.again,
            )

    def require_own(self, action: str, instead: str) -> None:
        """Raise if the lab is on an existing cluster, of which commands change nothing.

        Raises UsageError with ``instead``.
        """
        if self.intent.existing:
            happened = "it is on an existing cluster: only the probe pods are the lab's"
            raise UsageError(action, happened, instead)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """If the block fails because the lab is suspended or gone, say so.

        The lab is not checked before: one machine can be used while others, or the cluster on
        them, are broken.
        """
        try:
            yield
        except BrokenError:
            if self.provider.liveness(self.handle, self.intent).state in {"suspended", "absent"}:
                self.require_running()
            raise

    @contextmanager
    def in_use(
        self,
        command: str,
        say: Callable[[str], None],
        wait: float = WAIT_SECONDS,
        *,
        alone: bool = False,
        as_found: bool = False,
    ) -> Iterator[None]:
        """Hold the lab while it is tested: ``up``, ``down`` and ``gc`` wait, other tests do not.

        A machine that a killed failover test left cut off is reconnected first.

        ``command``, ``say`` and ``wait``: see :func:`~lab.state.lock.lab_lock`. ``alone``: whether
        other tests wait, too. ``as_found``: do not reconnect machines.

        Raises HeldError when another command works on the lab. If this command waited for another
        one, raises UsageError when that took the lab down, BrokenError when it recreated the lab.
        """
        if self.held_alone:
            yield
            return
        with lab_lock(self.handle.directory, command, wait=wait, shared=not alone, say=say):
            self._require_same(command)
            if not as_found:
                reconnect.reconnect_cut_off(
                    self.store, self.provider, self.handle, self.intent, say
                )
            yield

    def _require_same(self, command: str) -> None:
        """Check that the lab is still the one that was opened before the wait."""
        row = self.store.lab(self.name)
        action = f"using lab '{self.name}' for '{command}'"
        if row is None or row.status == "down":
            raise UsageError(action, "it has been taken down in the meantime", self.again)
        if (row.token, row.scenario_text) != (self.handle.token, self.scenario_text):
            raise BrokenError(action, "it has been recreated in the meantime", "repeat the command")

    def cut_off(self, machine: str) -> None:
        """Take the machine off its networks; recorded, so that a later command can reconnect it."""
        number = self.store.intend_fault(
            self.name, self.handle.token, reconnect.CUT_OFF, node=machine, peer=""
        )
        cast(FailoverProvider, self.provider).cut_off(self.handle, self.intent, machine)
        self.store.finish_fault(self.name, number)

    def reconnect(self, machine: str) -> None:
        """Reconnect the machine."""
        reconnect.reconnect_machine(self.store, self.provider, self.handle, self.intent, machine)

    def record(self, run: RunResult, intent: Intent | None = None) -> Path:
        """Record a run in the journal, then write its result; return the directory of its files.

        ``intent``: the Intent that was tested; None for the planned one. Pods of a cluster have
        other addresses than planned.

        Raises StateError when there is no space for it.
        """
        only = self.options.get("only")
        run = replace(
            run,
            scenario_text=self.scenario_text,
            only=only if isinstance(only, str) else None,
        )
        run = replace(run, number=self.store.record_run(_run_row(run, self.handle.token)))
        directory = self.store.run_directory(self.name, run.run)
        make_private(directory.parent)
        make_private(directory)
        from lab.reports.result import to_text  # noqa: PLC0415  only a run that is kept pays for it

        write_private(directory / RESULT, to_text(run, intent or self.intent))
        return directory

    def record_page(self, directory: Path, run: RunResult, intent: Intent | None = None) -> None:
        """Write the HTML report of a run into its directory; ``intent`` as for :meth:`record`.

        Raises StateError when it cannot be written.
        """
        from lab.reports.html import to_html  # noqa: PLC0415  only a run that is kept pays for it
        from lab.reports.topology import picture_of  # noqa: PLC0415  the same

        page = to_html(run, picture_of(intent or self.intent), self._run_before(run))
        write_private(directory / REPORT, page)

    def _run_before(self, run: RunResult) -> RunRow | None:
        """The last run whose report is there; None for a run whose lab is taken down at once.

        The report of such a run is read elsewhere, as in a night's directory.
        """
        if run.temporary:
            return None
        for row in reversed(self.store.runs(self.name)):
            if (
                row.id != run.run
                and (self.store.run_directory(self.name, row.id) / REPORT).is_file()
            ):
                return row
        return None

    def record_junit(self, directory: Path, text: str) -> None:
        """Write the JUnit of a run into its directory.

        Raises StateError when it cannot be written.
        """
        write_private(directory / JUNIT, text)


def open_any(name: str, providers: Mapping[str, Provider], store: Store) -> OpenLab:
    """Open the lab of this name. Its machines are not checked: see ``require_running``.

    Raises UsageError, with the nearest name and the existing labs, when there is no such lab.
    Raises ScenarioError when this version cannot read the scenario that the lab was made from.
    """
    check_name(name)
    row = store.lab(name)
    if row is None or row.status == "down":
        raise unknown_lab(f"opening lab '{name}'", name, [lab.name for lab in store.labs()])
    provider = choose(providers, row.provider)
    built = rebuild(row, store, provider)
    return OpenLab(
        name=name,
        plan=built.plan,
        intent=built.intent,
        limits=built.limits,
        assertions=built.scenario.assertions if isinstance(built, Compiled) else (),
        provider=provider,
        handle=LabHandle(name, store.lab_directory(name), row.token),
        again=again(row),
        banner=provider.banner(built.intent),
        scenario_text=row.scenario_text,
        options=row.options,
        store=store,
    )


def stored_runs(store: Store, lab: str) -> list[str]:
    """Ids of the lab's runs, oldest first; those that are missing from the journal come first."""
    recorded = [run.id for run in store.runs(lab)]
    files = store.lab_directory(lab).glob("runs/*/*")
    named = {path.parent.name for path in files if path.name in {RESULT, REPORT}}
    return [*sorted(named.difference(recorded)), *recorded]


def _run_row(run: RunResult, token: str) -> RunRow:
    return RunRow(
        id=run.run,
        lab=run.lab,
        token=token,
        scenario=run.scenario,
        provider=run.provider,
        started=run.started,
        seconds=run.seconds,
        green=run.green(),
        counts={verdict: run.count(verdict) for verdict in VERDICTS},
    )


def machine_name(opened: OpenLab, name: str, action: str) -> str:
    """Check that ``name`` is a machine of the lab, and return it.

    Raises UsageError if it is not, saying that it is a pod or suggesting the nearest name.
    """
    machines = [machine.name for machine in opened.intent.machines]
    if name in machines:
        return name
    for machine in opened.intent.machines:
        if name in {pod.name for pod in machine.pods}:
            raise UsageError(
                action,
                f"'{name}' is a pod on '{machine.name}', not a machine",
                f"lab shell {opened.name} {name}",
            )
    hint = f"{did_you_mean(name, machines)} the machines are {', '.join(machines)}".strip()
    raise UsageError(action, f"it has no machine '{name}'", hint)
