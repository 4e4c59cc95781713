"""Compiles the stand-ins of Wine nodes into the wheel: whoever installs it needs no compiler.

A machine without the compiler builds a wheel without them, unless HYBRIDLAB_COMPLETE is set.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = "lab/windows/wine"


class StandInsHook(BuildHookInterface[Any]):
    """Puts them into ``lab/windows/wine/compiled``; an editable installation compiles on demand."""

    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; ends a complete build with one sentence when there is no compiler."""
        if version == "editable" or not (Path(self.root) / ROOM).is_dir():
            return
        sys.path.insert(0, self.root)
        from lab._errors import LabError  # noqa: PLC0415  it is in the source, not installed
        from lab.windows.wine import standins  # noqa: PLC0415

        self._folder = Path(tempfile.mkdtemp(prefix="hybridlab-standins-"))
        try:
            standins.package(self._folder)
        except LabError as error:
            self.finalize(version, build_data, "")
            if os.environ.get("HYBRIDLAB_COMPLETE"):
                sys.exit(str(error))
            print(f"hybridlab compiles them when a lab needs them: {error}", file=sys.stderr)
            return
        build_data["force_include"][str(self._folder)] = f"{ROOM}/{standins.PACKAGED.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has a copy of."""
        del version, build_data, artifact_path
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
