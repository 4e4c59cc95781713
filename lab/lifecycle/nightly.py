"""A night: bring up, test and take down every scenario, several at a time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError, UsageError
from lab._log import CAUSE
from lab.inventory.loader import current
from lab.lifecycle.api import opened_store, providers
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.interruption import postponed, terminable
from lab.lifecycle.names import LONGEST, NIGHTLY, repro_name
from lab.lifecycle.open_lab import JUNIT, REPORT, RESULT
from lab.lifecycle.ownership import all_marks, same_directory
from lab.lifecycle.providers import choose, chosen
from lab.matrix.verdict import RunResult
from lab.providers.provider import MACHINES, Pods, Provider
from lab.reports.night import (
    Done,
    Night,
    NightCause,
    ScenarioNight,
    ScenarioOutcome,
    Stage,
    failed_tests,
    judge,
)
from lab.reports.result import read_run
from lab.scenario.findings import FileFinding
from lab.scenario.loader import check, shipped
from lab.shells.checkout import made_here
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import open_regular, read_regular, replacing
from lab.topology import registry
from lab.topology.intent import Intent

DOWN_SECONDS = 600.0
"""For taking a lab down, in addition to the scenario's deadline."""
GATHER_SECONDS = 300.0
EVIDENCE = "evidence.tar.gz"
EMULATED_SECONDS = 600.0
"""Default deadline of a scenario on emulated machines, where one takes seconds."""
REAL_SECONDS = 7200.0
"""Default deadline on real machines, which may build images and boot Windows."""

_SIGNAL_SECONDS = 1.0
"""Longest wait for a lock: a signal just before the wait does not end it."""

Say = Callable[[str], None]
Run = Callable[[Sequence[str], Path, Deadline, Callable[[], bool]], int | None]
"""Runs ``lab`` with these arguments: see :func:`run_lab`."""


@dataclass(frozen=True, slots=True)
class NightOperations:
    """The operations that a night uses."""

    run: Run
    exists: Callable[[str], bool]
    """Whether anything of the lab with this name exists."""
    runs: Callable[[str], Mapping[str, Path]]
    """Directory of every run of labs with this name, by the run's id, oldest first."""


_LONGEST = LONGEST - len(NIGHTLY)
"""Characters of a job's name; a longer one, such as a spec with many options, is shortened."""


@dataclass(frozen=True, slots=True)
class Job:
    """One scenario of the night."""

    name: str
    source: str
    """The argument of ``lab up``: a shipped scenario's name, or a path."""
    unfit: str = ""
    """Why the night's provider can never run this lab; if set, it is not tried."""
    file: str = ""
    """The file of ``source``; empty for a shipped scenario and for a spec string."""
    findings: tuple[FileFinding, ...] = ()
    """The errors in it."""

    @property
    def lab(self) -> str:
        """The name of its lab."""
        return f"{NIGHTLY}{self.name}"


@dataclass(frozen=True, slots=True)
class NightRequest:
    """A request of ``lab nightly``. ``deadline``: seconds for each scenario, without ``down``."""

    jobs: tuple[Job, ...]
    provider: str
    output: Path
    parallel: int
    deadline: float
    only: str | None = None
    pods: Pods | None = None
    """None for the provider's default."""
    expression: str = ""
    """Chooses the cells that are tested, as pytest's ``-k``; empty for all."""
    tests: tuple[str, ...] = ()
    """Files and directories with tests of the user's own."""


def jobs_of(named: Sequence[str], shipped: Sequence[str]) -> tuple[Job, ...]:
    """One job for each name or path in ``named``, or for every shipped scenario if it is empty.

    Raises UsageError when two would have the same name.
    """
    jobs = tuple(Job(_stem(source), source) for source in named or shipped)
    names = [job.name for job in jobs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            "choosing the scenarios of a night",
            f"two of them would be called '{twice[0]}'",
            "name each once, and give files different names",
        )
    return jobs


def _stem(source: str) -> str:
    stem = Path(source).name.removesuffix(".yaml").removesuffix(".yml").lower()
    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem)
    stem = stem.rstrip("-") or "scenario"
    if len(stem) <= _LONGEST:
        return stem
    return f"{stem[: _LONGEST - 9]}-{sha256(source.encode()).hexdigest()[:8]}"


def run_night(
    request: NightRequest, operations: NightOperations, say: Say
) -> tuple[Night, BaseException | None]:
    """Run every job; return the night, and the exception that ended it early, if any.

    Ctrl-C and SIGTERM stop the running commands, take their labs down, and skip the other jobs.
    """
    begun, started = time.monotonic(), datetime.now(UTC)
    stop = Event()
    ended_by: BaseException | None = None
    futures: dict[Job, Future[ScenarioNight]] = {}

    def submit(pool: ThreadPoolExecutor) -> None:
        with postponed():  # else a job could run without being in futures, and start twice
            for job in request.jobs:
                if job not in futures:
                    futures[job] = pool.submit(_run_job, job, request, operations, stop, say)
        while wait(futures.values(), _SIGNAL_SECONDS).not_done:
            pass

    with terminable(), ThreadPoolExecutor(request.parallel) as pool:
        try:
            submit(pool)
        except KeyboardInterrupt as stopped:
            ended_by = stopped
            with postponed(discard=True):
                stop.set()
                say("stopping: taking down the labs that are up first")
                submit(pool)  # jobs that have not started are only recorded as stopped
    nights = tuple(futures[job].result() for job in request.jobs)
    night = Night(
        name=request.output.name,
        provider=request.provider,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - begun,
        scenarios=nights,
        provenance=made_here(),
        expression=request.expression,
    )
    return night, ended_by


def _run_job(
    job: Job, request: NightRequest, operations: NightOperations, stop: Event, say: Say
) -> ScenarioNight:
    """Run one scenario; an error of any kind becomes its outcome and does not end the night."""
    begun = time.monotonic()
    work = _ScenarioRun(job, request, operations, stop)
    try:
        night = work.result("refused", job.unfit) if job.unfit else work.run_all()
    except LabError as error:
        night = work.result("broken", error.cause)
    except Exception as error:  # noqa: BLE001  a night goes on after a failure of any kind
        night = work.result("broken", f"{type(error).__name__}: {error}")
    say(
        f"{job.name}: {night.outcome}, {time.monotonic() - begun:.0f} s"
        + (f"; {night.detail}" if night.detail else "")
    )
    return night


class _ScenarioRun:
    """Runs the stages of one scenario and records them."""

    def __init__(
        self, job: Job, request: NightRequest, operations: NightOperations, stop: Event
    ) -> None:
        self.job, self.request, self.operations, self.stop = job, request, operations, stop
        self.folder = request.output / job.name
        self.begun = time.monotonic()
        self.stages: list[Done] = []
        self.run: RunResult | None = None

    def run_all(self) -> ScenarioNight:
        """Sweep, bring up, test, gather evidence of a failure, and take down."""
        lab = self.job.lab
        make_private(self.folder)
        earlier = set(self.operations.runs(lab))
        try:
            if self.operations.exists(lab):
                self._take_down("sweep")
            if not self.stop.is_set():
                self._up_and_test(Deadline(self.request.deadline))
                self.run = self._copy_run(earlier)
                self._gather()
        finally:
            if self.operations.exists(lab):
                self._take_down("down")
        outcome, detail = judge(
            self.stages, self.run, stopped=self.stop.is_set(), left=self.operations.exists(lab)
        )
        return self.result(outcome, detail)

    def result(self, outcome: ScenarioOutcome, detail: str) -> ScenarioNight:
        """The record of the scenario so far."""
        return ScenarioNight(
            scenario=self.job.name,
            lab=self.job.lab,
            provider=self.request.provider,
            outcome=outcome,
            detail=detail,
            seconds=time.monotonic() - self.begun,
            stages=tuple(self.stages),
            run=self.run,
            report=self._there(REPORT),
            junit=self._there(JUNIT),
            evidence=self._there(EVIDENCE),
            source=self.job.file,
            findings=self.job.findings,
            repro=repro_name(self.run.scenario) if self.run else "",
            own_tests=self._failed_tests(),
        )

    def _failed_tests(self) -> tuple[NightCause, ...]:
        file = self.folder / JUNIT
        with guarded_files(f"reading '{file}'"):
            return failed_tests(file.read_text(), self.job.lab) if file.is_file() else ()

    def _up_and_test(self, deadline: Deadline) -> None:
        only = ("--only", self.request.only) if self.request.only else ()
        pods = ("--pods", self.request.pods) if self.request.pods else ()
        named = ("--name", self.job.lab, "--provider", self.request.provider)
        if self._do("up", ("up", *named, *only, *pods, "--", self.job.source), deadline).code == 0:
            repeat = f"lab repro {shlex.quote(str(self.folder))}"  # the lab will be down
            chosen = ("-k", self.request.expression) if self.request.expression else ()
            words = ("test", self.job.lab, "--repeat-with", repeat, *chosen, *self.request.tests)
            self._do("test", words, deadline)

    def _gather(self) -> None:
        """Gather evidence of a failure while the lab still exists."""
        failed = any(done.code != 0 for done in self.stages if done.stage in {"up", "test"})
        if failed and not self.stop.is_set() and self.operations.exists(self.job.lab):
            target = str(self.folder / EVIDENCE)
            self._do(
                "gather", ("gather", self.job.lab, "--output", target), Deadline(GATHER_SECONDS)
            )

    def _take_down(self, stage: Stage) -> None:
        self._do(stage, ("down", self.job.lab), Deadline(DOWN_SECONDS), stoppable=False)

    def _do(
        self, stage: Stage, words: Sequence[str], deadline: Deadline, *, stoppable: bool = True
    ) -> Done:
        log = self.folder / f"{stage}.log"
        begun = time.monotonic()
        stopped = self.stop.is_set if stoppable else lambda: False
        code = self.operations.run(words, log, deadline, stopped)
        relative = str(log.relative_to(self.request.output))
        words = find_last_line(log) if code is None else cause(log) or find_last_line(log)
        self.stages.append(Done(stage, code, time.monotonic() - begun, relative, words))
        return self.stages[-1]

    def _copy_run(self, earlier: set[str]) -> RunResult | None:
        """Copy the new run into the night's directory, and read it."""
        new = [
            path for run, path in self.operations.runs(self.job.lab).items() if run not in earlier
        ]
        if not new:
            return None
        with guarded_files(f"copying the run '{new[-1].name}'"):
            for name in (RESULT, REPORT, JUNIT):
                if os.path.lexists(new[-1] / name):
                    with (
                        open_regular(new[-1] / name) as kept,
                        replacing(self.folder / name) as copy,
                    ):
                        shutil.copyfileobj(kept, copy)
        return read_run(self.folder / RESULT)

    def _there(self, name: str) -> str | None:
        path = self.folder / name
        return str(path.relative_to(self.request.output)) if path.is_file() else None


def cause(log: Path) -> str:
    """Why the command failed, in one line; empty if it did not record it. Removes the file."""
    file = cause_file(log)
    try:
        return read_regular(file).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        file.unlink(missing_ok=True)


def find_last_line(log: Path) -> str:
    """The last line of a command's output, without hints and "interrupted"."""
    if not log.is_file():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in lines if line.strip() not in {"", "interrupted"}]
    words = [line.strip() for line in lines if not line.startswith("  try:")]
    return words[-1] if words else ""


def operations() -> NightOperations:
    """The operations of a real night: ``lab`` commands, and the user's journal."""
    return NightOperations(run_lab, _is_there, _run_directories)


def choose_provider(given: str | None) -> Provider:
    """The provider of a night: ``given``, else the default one.

    Raises PreflightError when its machines are emulated and ``given`` is None.
    """
    provider = choose(providers(), chosen(given, current(os.environ, Path.cwd())))
    if given is None and MACHINES not in provider.abilities:
        raise PreflightError(
            "choosing the provider of a night",
            "there are no hypervisors, and a night on the embedded provider says nothing about "
            "real machines",
            f"name hypervisors in lab.toml, or ask for it: lab nightly --provider {provider.name}",
        )
    return provider


def deadline(provider: Provider) -> float:
    """Default seconds for each scenario on this provider."""
    return REAL_SECONDS if MACHINES in provider.abilities else EMULATED_SECONDS


def select_jobs(
    jobs: Sequence[Job], provider: Provider, only: str | None, pods: Pods | None
) -> tuple[tuple[Job, ...], int]:
    """The jobs, with ``unfit`` set where the provider can never run one, and how many labs fit.

    That is how many labs of the other jobs may be up at once. Errors in a scenario's file are left
    to ``lab up``.
    """
    selected, fit = [], []
    for job in jobs:
        intent = _intent(job, provider, only, pods)
        unfit = provider.unfit(intent) if intent else ""
        file = job.source if job.source not in shipped() and Path(job.source).is_file() else ""
        wrong = bool(file) and intent is None
        findings = check(Path(file), topology_check=registry.check)[1] if wrong else ()
        selected.append(replace(job, unfit=unfit, file=file, findings=findings))
        if intent and not selected[-1].unfit:
            fit.append(intent)
    return tuple(selected), provider.labs_at_once(fit)


def _intent(job: Job, provider: Provider, only: str | None, pods: Pods | None) -> Intent | None:
    real = MACHINES in provider.abilities
    try:
        return compile_scenario(job.source, only, None, pods or provider.pods, real=real).intent
    except LabError:
        return None


def _is_there(name: str) -> bool:
    with opened_store() as store:
        row = store.lab(name)
        if row is not None and row.status != "down":
            return True
        directory = store.lab_directory(name)
    return any(same_directory(mark.directory, directory) for _, mark in all_marks(providers()))


def _run_directories(name: str) -> Mapping[str, Path]:
    with opened_store() as store:
        return {run.id: store.run_directory(name, run.id) for run in store.runs(name)}


_ROOT = Path(__file__).parents[2]
_GRACE_SECONDS = 60.0
"""For a command that received SIGTERM to write to the journal."""
_EVERY = 0.05
_ENDING = ("setpriv", "--pdeathsig", "TERM", "--")


def run_lab(
    words: Sequence[str], log: Path, deadline: Deadline, stopped: Callable[[], bool]
) -> int | None:
    """Run ``lab WORDS...``; append its standard output and error to ``log``.

    It runs in its own session, so that Ctrl-C on the terminal reaches only the caller. It is sent
    SIGTERM when the caller is killed, and at the deadline or when ``stopped`` returns True; in
    these two cases SIGKILL a minute later.

    The command may write the cause of a failure to the file of :func:`cause_file`.

    Returns the exit code; None if it was stopped.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with (
        open(log, "ab", opener=_open_unlinked) as output,
        subprocess.Popen(  # noqa: S603  our own command
            [*_ENDING, sys.executable, "-P", "-m", "lab", *words],
            env={**os.environ, "PYTHONPATH": path, CAUSE: str(cause_file(log)), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            deadline.wait(
                f"running 'lab {words[0]}'",
                lambda: process.poll() is not None or stopped(),
                every=_EVERY,
            )
        except DeadlineError:
            _end(process)
            return None
        except BaseException:
            _end(process)
            raise
        if process.poll() is None:
            _end(process)
            return None
        return process.returncode


def _open_unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def cause_file(log: Path) -> Path:
    """The file for the one-line cause of a failure, beside its log."""
    return log.with_suffix(".cause")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
