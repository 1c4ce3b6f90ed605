"""A run of a few seconds, made from Python: what tests of finished runs stand on."""

import hashlib
import json
from pathlib import Path

import paragan as pg
from paragan import build
from paragan.config import dump, read_recipe
from paragan.core.event import Event
from paragan.engine.training_loop import TrainingLoop

TINY = ("data.size=8", "train.batch=16", "train.kimg=0.064", "every.sample_kimg=0", "evaluation.features=null")
SMALL = ("model.width=4", "model.latent=8")


def train(folder: Path, *words: str, recipe: str = "digits") -> TrainingLoop:
    """A finished run folder; the recipe's settings are made small unless `words` say otherwise."""
    model = () if any(word.startswith("model=") for word in words) else SMALL
    config = read_recipe(recipe, [*TINY, *model, *words])
    trainer = build.trainer(config, folder, print, stop=lambda: False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(dump(config))
    for _ in trainer.run():
        pass
    return trainer


def train_and_read(trainer: TrainingLoop, *total) -> tuple[list[dict[str, float]], list[Event]]:
    """Train to the end; the numbers of every step, and the events."""
    step, numbers = trainer.scheme.step, []

    def read(gan, batches):
        report = step(gan, batches)
        numbers.append(report.read(*total))
        return report

    object.__setattr__(trainer.scheme, "step", read)
    events = list(trainer.run())
    return numbers, events


def train_whole_and_in_parts(folder: Path, recipe: str, settings: dict, kimg: float, first: float) -> pg.Run:
    """A finished run, whose weights are those of one that stopped after `first` kimg and was resumed."""
    whole = pg.train(recipe, {**settings, "train.kimg": kimg}, out=folder / "whole")
    for until in (first, kimg):
        pg.train(recipe, {**settings, "train.kimg": until}, out=folder / "parts")
    of_whole, of_parts = (
        {path.name: path.read_bytes() for path in newest(folder / name).glob("*.safetensors")}
        for name in ("whole", "parts")
    )
    assert of_whole == of_parts != {}
    return whole


def newest(folder: Path) -> Path:
    """The newest checkpoint."""
    return max((folder / "checkpoints").glob("step-*"))


def rewrite_state(folder: Path, change) -> None:
    """Change the values of the newest checkpoint, as if it had been saved so."""
    state = newest(folder) / "state.json"
    found = json.loads(state.read_text())
    change(found["values"])
    state.write_text(json.dumps(found))
    manifest = newest(folder) / "manifest.json"
    listed = json.loads(manifest.read_text())
    listed["files"]["state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(listed))
