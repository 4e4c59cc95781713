r"""The stand-in's record of events for tests: ``C:\stand-in\record.json``. No secrets."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Record:
    """Events in order, written to the disk as soon as it exists."""

    path: Path | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, **facts: Any) -> None:
        with self._lock:
            self.events.append({"event": kind, **facts})
            self._write()

    def keep(self, path: Path) -> None:
        """Write to the file from now on, and append earlier events."""
        with self._lock:
            if path.exists():
                self.events = json.loads(path.read_text(encoding="utf-8")) + self.events
            self.path = path
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        made = self.path.with_suffix(".new")
        made.write_text(json.dumps(self.events, indent=1) + "\n", encoding="utf-8")
        made.replace(self.path)
