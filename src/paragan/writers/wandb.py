"""Weights & Biases run: values of steps, scores with their protocol, telemetry, config, samples."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paragan.core.files import create_subfolder
from paragan.writers import _tracker


@dataclass(frozen=True)
class Options:
    """Destination of the values; API key, entity and server are those of wandb's variables."""

    project: str = "paragan"
    """Project of the run; the variable WANDB_PROJECT has priority."""
    mode: Literal["offline", "online"] = "offline"
    """offline: files in RUN/wandb, for `wandb sync`. online: to the server. The variable WANDB_MODE
    has priority.
    """


class Writer(_tracker.TrackerWriter):
    """Writer of a Weights & Biases run; requires `pip install 'paragan[wandb]'`.

    One run, also over resumes; its identifier is in RUN/wandb/run_id.
    """

    def __init__(self, options: Options, folder: Path, step: int = 0) -> None:
        _tracker.require_package("wandb", "wandb")
        subfolder = create_subfolder(folder, "wandb")
        identifier = _tracker.read_run_id(subfolder)
        if identifier is None:
            identifier = secrets.token_hex(4)
            _tracker.save_run_id(subfolder, identifier)
        config = _tracker.run_config(folder)
        super().__init__("wandb", lambda: _WandbRun(options, folder, identifier, config))


class _WandbRun:
    """Run in wandb. A mode `online` that does not connect becomes offline."""

    def __init__(self, options: Options, folder: Path, identifier: str, config: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")  # also: no prompt for an API key
        import wandb

        self._step = 0  # of the newest row
        mode = os.environ.get("WANDB_MODE") or options.mode
        try:
            self._run = _init(mode, options, folder, identifier, config)
        except Exception as error:
            if mode != "online":
                raise
            reason = _tracker.printable_error(error)
            _tracker.print_warning(
                "wandb", f"no connection ({reason}); it is offline now, send it later with `wandb sync`"
            )
            wandb.teardown(1)  # the failed run holds its identifier
            self._run = _init("offline", options, folder, identifier, config)

    def log(self, entry: _tracker.Entry) -> None:
        """Log an entry as one row; the protocol of a score is in its row and in the summary."""
        import wandb

        row: dict[str, Any] = dict(entry.numbers)
        if entry.protocol:
            row["score/protocol"] = dict(entry.protocol)
        if entry.sheet is not None:
            row["samples"] = wandb.Image(entry.sheet)
        # wandb drops rows of earlier steps, such as scores in the background: these are in the newest one
        if entry.step < self._step:
            row["score/kimg"] = row.pop("kimg", None)
        self._step = max(self._step, entry.step)
        self._run.log(row, step=self._step)

    def finish(self, code: int) -> None:
        """Finish the run: finished, preempted (it can resume) or failed. code: exit code of the process."""
        if code in _tracker.STOPPED_CODES:
            self._run.mark_preempting()
        self._run.finish(exit_code=code)


def _init(mode: Any, options: Options, folder: Path, identifier: str, config: dict[str, Any]) -> Any:
    import wandb

    settings = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        save_code=False,
        init_timeout=_tracker.FINISH_S / 2,
        finish_timeout=_tracker.FINISH_S / 2,
        x_disable_machine_info=True,
        x_disable_meta=True,  # host, user, command line
        x_disable_stats=True,
        x_save_requirements=False,
    )
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT") or options.project,
        name=os.environ.get("WANDB_NAME") or folder.resolve().name,
        id=identifier,
        resume="allow",
        mode=mode,
        dir=str(folder.resolve()),
        config=config,
        settings=settings,
    )
