"""What the node translates: Services to backends, and pods' packets that leave."""

from __future__ import annotations
