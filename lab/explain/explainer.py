"""From what was seen of machines to why a path does not carry what it should. Pure.

Differences are ordered by where a packet meets them first; the first is the answer. What only
follows from another one is left out or comes last.
"""

from __future__ import annotations
