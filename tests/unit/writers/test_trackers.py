"""Writers of experiment trackers: never in the way of training, one run over resumes, no secrets."""

import json
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.event import Event
from paragan.engine.multi_writer import MultiWriter
from paragan.writers import _tracker
from paragan.writers._tracker import Entry, TrackerWriter
from paragan.writers.wandb import Options as WandbOptions, _WandbRun

STEP = Event(kind="step", step=4, images=64, values={"d/loss/adversarial": 0.5, "eta_s": 3})
SAMPLES = Event(kind="samples", step=4, images=64, values={"path": "x"}, x_BCHW=torch.zeros(4, 3, 8, 8), columns=2)
SCORE = Event(
    kind="score", step=8, images=128, values={"fd[judge]": 3.25, "num_images": 10, "protocol": {"extractor": "judge"}}
)
END = Event(kind="end", step=8, images=128, values={"code": 0, "reason": "finished"})
CONFIG = "seed: 7\nmodel: {name: own, api_key: hunter2, url: 'https://me:hunter2@host/x'}\npenalties: [{name: r1}]\n"


class FakeTracker:
    """Tracker that records its calls; `fails` of the first entries raise, and `gate` holds it up."""

    def __init__(self, fails=0, gate=None):
        self.entries, self.code, self.fails, self.gate = [], None, fails, gate

    def log(self, entry):
        if self.gate is not None:
            self.gate.wait(30)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("https://me:hunter2@host is down")
        self.entries.append(entry)

    def finish(self, code):
        self.code = code


def writer_of(tracker):
    return TrackerWriter("fake", lambda: tracker)


def test_tracker_writer_passes_numbers_protocol_and_sheet(tmp_path):
    tracker = FakeTracker()
    writer = writer_of(tracker)
    for event in (Event(kind="start", step=0, images=0), STEP, SAMPLES, SCORE, END):
        writer.write(event)
    writer.close()
    step, samples, score = tracker.entries
    assert dict(step.numbers) == {"step/d/loss/adversarial": 0.5, "kimg": 0.064}
    assert samples.sheet.mode == "RGB"
    assert dict(score.numbers) == {"score/fd[judge]": 3.25, "kimg": 0.128}
    assert score.protocol == {"extractor": "judge"}
    assert (step.step, score.step, tracker.code) == (4, 8, 0)


def test_slow_tracker_drops_entries_with_one_warning_and_closes_in_time(capsys, monkeypatch):
    monkeypatch.setattr(_tracker, "FINISH_S", 0.3)
    gate = threading.Event()
    writer = writer_of(FakeTracker(gate=gate))
    for step in range(2 * _tracker._MAX_PENDING):
        writer.write(replace(STEP, step=step))  # would wait for the gate if it waited at all
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not finished within 0\.3 s"):
        writer.close()
    assert time.monotonic() - began < 25
    gate.set()
    assert capsys.readouterr().err.count("warning: writer fake") == 1


def test_failing_entry_is_reported_once_and_later_ones_arrive(capsys):
    tracker = FakeTracker(fails=3)
    writer = writer_of(tracker)
    for step in range(5):
        writer.write(replace(STEP, step=step))
    writer.close()
    assert [entry.step for entry in tracker.entries] == [3, 4]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: writer fake: values are missing there (https://***@host is down)")


def test_tracker_that_does_not_open_is_switched_off_in_one_line():
    def refuse():
        raise OSError("https://me:hunter2@host is down")

    events = []

    class Lines:
        def write(self, event):
            events.append(event)

        def close(self):
            pass

    writer = TrackerWriter("fake", refuse)
    writer._thread.join(30)
    both = MultiWriter([("jsonl", Lines()), ("fake", writer)])
    for _ in range(3):
        both.write(STEP)
    texts = [event.values["text"] for event in events if event.kind == "event"]
    assert texts == ["warning: writer fake failed (https://***@host is down) and is switched off; training continues"]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard", "prometheus"])
def test_writer_without_its_package_names_the_extra(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_tracker, "find_spec", lambda name: None)
    module = registry.load_module("writers", name)
    with pytest.raises(ConfigError, match=rf"writers: {name}(_client)? is not installed; run .*paragan\[{name}\]"):
        module.Writer(registry.options("writers", name)(), tmp_path, 0)


def test_config_of_a_run_has_no_secrets(tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert _tracker.run_config(tmp_path) == {
        "seed": 7,
        "model": {"name": "own", "api_key": "***", "url": "https://***@host/x"},
        "penalties": [{"name": "r1"}],
    }


def test_damaged_run_id_is_refused(tmp_path):
    (tmp_path / "run_id").write_text("../../x")
    with pytest.raises(ConfigError, match="does not hold the identifier"):
        _tracker.read_run_id(tmp_path)


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    monkeypatch.setattr(_tracker, "FINISH_S", 200.0)  # of a busy machine, too


def write_session(name, folder, events, step=0):
    module = registry.load_module("writers", name)
    writer = module.Writer(registry.options("writers", name)(), folder, step)
    for event in events:
        writer.write(event)
    writer.close()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Folder of a run, without variables of the trackers and without a home."""
    for variable in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(CONFIG)
    return tmp_path / "run"


def text_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.filterwarnings("ignore")  # of the package
def test_wandb_offline_writes_one_run_over_a_resume(folder):
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    write_session("wandb", folder, [STEP, SAMPLES, replace(END, values={"code": 85, "reason": "stopped"})])
    identifier = (folder / "wandb" / "run_id").read_text().strip()
    time.sleep(1.1)  # wandb names the files of a session by the second
    write_session("wandb", folder, [SCORE, END], step=4)
    parts = sorted((folder / "wandb").glob("offline-run-*"))
    assert [part.name.endswith(identifier) for part in parts] == [True, True]
    wandb.teardown()  # as at the exit of a program: its process has written everything
    written = text_of(folder / "wandb")
    for text in (b"step/d/loss/adversarial", b"score/fd[judge]", b"score/protocol", b"extractor", b"media/images"):
        assert text in written, text
    assert b"hunter2" not in text_of(folder.parent).replace(CONFIG.encode(), b"")
    assert {path.name for path in folder.parent.iterdir()} <= {"run", "home"}


@pytest.mark.filterwarnings("ignore")  # of the package
def test_wandb_row_of_an_earlier_step_is_not_dropped(tmp_path, monkeypatch):
    """wandb ignores rows of steps below the newest one: a score in the background moves to that."""
    rows = []
    run = SimpleNamespace(log=lambda row, step: rows.append((step, row)))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace())
    monkeypatch.setattr("paragan.writers.wandb._init", lambda *_: run)
    tracker = _WandbRun(WandbOptions(), tmp_path, "12345678", {})
    tracker.log(Entry(8, {"step/loss": 1.0, "kimg": 0.8}, {}))
    tracker.log(Entry(4, {"score/fd": 2.0, "kimg": 0.4}, {}))
    assert rows == [(8, {"step/loss": 1.0, "kimg": 0.8}), (8, {"score/fd": 2.0, "score/kimg": 0.4})]


def test_mlflow_local_store_has_one_run_over_a_resume(folder):
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    from mlflow.tracking import MlflowClient

    write_session("mlflow", folder, [STEP, SAMPLES, replace(END, values={"code": 85, "reason": "stopped"})])
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow/mlflow.db")
    (experiment,) = (found for found in client.search_experiments() if found.name == "paragan")
    (stopped,) = client.search_runs([experiment.experiment_id])
    assert stopped.info.status == "KILLED"
    write_session("mlflow", folder, [SCORE, END], step=4)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (stopped.info.run_id, "FINISHED")
    assert run.info.run_id == (folder / "mlflow" / "run_id").read_text().strip()
    assert run.data.params["seed"] == "7"
    assert run.data.params["penalties.0.name"] == "r1"
    assert run.data.tags["score.extractor"] == "judge"
    history = client.get_metric_history(run.info.run_id, "score/fd.judge")
    assert [(metric.step, metric.value) for metric in history] == [(8, 3.25)]
    artifacts = folder / "mlflow" / "artifacts" / run.info.run_id / "artifacts"
    assert json.loads((artifacts / "scores" / "step-8.json").read_text())["protocol"] == {"extractor": "judge"}
    assert list((artifacts / "images").glob("samples*step+4*.png"))
    assert b"hunter2" not in text_of(folder / "mlflow")


@pytest.mark.filterwarnings("ignore")  # of the package
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_unreachable_server_costs_one_warning_and_bounded_time(name, folder, monkeypatch, capfd):
    pytest.importorskip(name, reason=f"the extra `{name}` is not installed")
    monkeypatch.setattr(_tracker, "FINISH_S", 8.0)
    nowhere = "http://127.0.0.1:1"
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", nowhere)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", nowhere.replace("//", "//me:hunter2@"))
    module = registry.load_module("writers", name)
    writer = MultiWriter([(name, module.Writer(registry.options("writers", name)(), folder, 0))])
    for event in (STEP, END):
        writer.write(event)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 60
    output = capfd.readouterr().err
    assert output.count("warning:") == 1
    assert "hunter2" not in output
