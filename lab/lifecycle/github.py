"""The files by which a step of GitHub Actions tells GitHub what it has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab._errors import UsageError
from lab.reports.github import error_annotations, outputs, step_summary
from lab.reports.night import Night
from lab.state.failure import guarded_files

_SUMMARY, _OUTPUT = "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"


@dataclass(frozen=True, slots=True)
class Step:
    """The step in which a night runs."""

    summary: Path
    output: Path
    artifacts: str
    """Address of the files that the run keeps; empty if GitHub did not say it."""

    def write(self, night: Night, say: Callable[[str], None]) -> None:
        """Append the summary and the outputs to GitHub's files, and say the annotations.

        Raises StateError when a file cannot be written.
        """
        with guarded_files("writing the summary of the step of GitHub Actions"):
            with self.summary.open("a", encoding="utf-8") as file:
                file.write(step_summary(night, self.artifacts))
            with self.output.open("a", encoding="utf-8") as file:
                file.writelines(f"{name}={value}\n" for name, value in outputs(night).items())
        for line in error_annotations(night):
            say(line)


def find_step(environ: Mapping[str, str]) -> Step:
    """The step that this process is of.

    Raises UsageError when it is of none.
    """
    missing = [name for name in (_SUMMARY, _OUTPUT) if not environ.get(name)]
    if missing:
        raise UsageError(
            "writing the summary of a step of GitHub Actions",
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            "leave '--github' out where it is no such step",
        )
    parts = [environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    server, repository, run = parts
    artifacts = f"{server}/{repository}/actions/runs/{run}#artifacts" if all(parts) else ""
    return Step(Path(environ[_SUMMARY]), Path(environ[_OUTPUT]), artifacts)
