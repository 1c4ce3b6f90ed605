"""MLflow run: values of steps, scores with their protocol, telemetry, config, samples."""

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.files import create_subfolder
from paragan.core.settings_tree import flatten
from paragan.writers import _tracker

_INVALID = re.compile(r"[^\w\-. :/]")  # in the name of a metric
_MAX_PARAMS = 100  # of one request
_MAX_PARAM_CHARACTERS = 500


class Writer(_tracker.TrackerWriter):
    """Writer of an MLflow run; requires `pip install 'paragan[mlflow]'`.

    One run, also over resumes; its identifier is in RUN/mlflow/run_id. It is in the experiment
    MLFLOW_EXPERIMENT_NAME (default: paragan) of the server MLFLOW_TRACKING_URI (default: a local store in RUN/mlflow).
    """

    def __init__(self, options: object, folder: Path, step: int = 0) -> None:
        _tracker.require_package("mlflow", "mlflow")
        subfolder = create_subfolder(folder, "mlflow").resolve()
        config = _tracker.run_config(folder)
        super().__init__("mlflow", lambda: _MlflowRun(subfolder, config))


class _MlflowRun:
    """Run in MLflow. A run that the store does not know is created."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        _set_defaults()
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        is_local = not uri
        self._client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}" if is_local else uri)
        self._id = self._resume(_tracker.read_run_id(folder))
        if self._id is None:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "paragan"
            artifacts = (folder / "artifacts").as_uri() if is_local else None
            self._id = self._create(experiment, artifacts, folder.parent.name)
            _tracker.save_run_id(folder, self._id)
            self._log_params(config)
        self._client.log_dict(self._id, dict(config), "config.yaml")

    def log(self, entry: _tracker.Entry) -> None:
        """Log numbers and sheet; the protocol of a score as tags and as a file of its step."""
        from mlflow.entities import Metric, RunTag

        now = int(time.time() * 1000)
        metrics = [Metric(metric_name(name), value, now, entry.step) for name, value in entry.numbers.items()]
        tags = [RunTag(f"score.{key}", str(value)[:_MAX_PARAM_CHARACTERS]) for key, value in entry.protocol.items()]
        self._client.log_batch(self._id, metrics=metrics, tags=tags)
        if entry.protocol:
            score = {"step": entry.step, **entry.numbers, "protocol": dict(entry.protocol)}
            self._client.log_dict(self._id, score, f"scores/step-{entry.step}.json")
        if entry.sheet is not None:
            self._client.log_image(self._id, entry.sheet, key="samples", step=entry.step, synchronous=True)

    def finish(self, code: int) -> None:
        """Finish the run: finished, killed (it can resume) or failed."""
        status = "FINISHED" if code == 0 else "KILLED" if code in _tracker.STOPPED_CODES else "FAILED"
        self._client.set_terminated(self._id, status=status)

    def _resume(self, identifier: str | None) -> str | None:
        """Set a stored run to running; None if there is none, or the store does not know it."""
        from mlflow.exceptions import MlflowException

        if identifier is None:
            return None
        try:
            self._client.update_run(identifier, status="RUNNING")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return identifier

    def _create(self, experiment: str, artifacts: str | None, name: str) -> str:
        existing = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment, artifacts) if existing is None else existing.experiment_id
        identifier: str = self._client.create_run(number, run_name=name).info.run_id
        return identifier

    def _log_params(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        settings = flatten(config).items()
        params = [Param(metric_name(key), str(value)[:_MAX_PARAM_CHARACTERS]) for key, value in settings]
        for first in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._id, params=params[first : first + _MAX_PARAMS])


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: `score/fd[judge]` -> `score/fd.judge`."""
    return _INVALID.sub("_", name.replace("[", ".").replace("]", ""))


def _set_defaults() -> None:
    """Switch MLflow's usage statistics off and bound its requests, unless variables say otherwise."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, round(_tracker.FINISH_S / 4))))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
