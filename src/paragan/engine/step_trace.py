"""Trace of chosen steps by torch's profiler, as a file for chrome://tracing or ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.profiler import profile

from paragan.core.event import Event
from paragan.core.files import create_subfolder, refuse_link
from paragan.core.phases import Phase, phase


class StepTrace:
    """Trace of the steps `first` to `last` of this rank, and of the periodic work between them.

    The trace begins after the step before, or after the start of a session that begins later.
    """

    def __init__(self, steps: tuple[int, int] | None, folder: Path, rank: int) -> None:
        self._steps = steps
        self._folder = folder
        self._rank = rank
        self._profile: Any = None

    def follow(self, event: Event) -> str:
        """Begin or end the trace at an event; return what was written, empty for nothing."""
        if self._steps is None or event.kind not in ("start", "step", "end"):
            return ""
        first, last = self._steps
        if self._profile is None and first - 1 <= event.step < last:
            self._begun = event.step + 1
            self._profile = profile()
            self._profile.start()
        elif self._profile is not None and event.step >= last:
            return self._write(event.step)
        return ""

    def close(self) -> None:
        """End a trace that lasts, without a file."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    @phase(Phase.CHECKPOINT)
    def _write(self, step: int) -> str:
        taken = self._profile
        self.close()
        name = f"rank-{self._rank}-steps-{self._begun}-{step}.json.gz"
        path = create_subfolder(self._folder, "traces") / name
        refuse_link(path)
        try:
            taken.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            return f"warning: the trace of steps {self._begun} to {step} cannot be written ({error})"
        return f"trace of steps {self._begun} to {step}: {path}"
