"""How the user calls paragan, for commands that messages hand over."""

from __future__ import annotations

import os


def me() -> str:
    """`./run`, as that script says, or `paragan`."""
    return os.environ.get("PARAGAN_COMMAND", "paragan")
