"""Runs of two steps of generators that `paragan serve` and `apply` use with files, and their servers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paragan as pg
from paragan.export.sampler import Sampler
from paragan.extensions.serving.sample_server import SampleServer
from tests.unit.export.image_runs import RUNS, noise

_TINY = {"train.batch": 2, "train.kimg": 0.004, "every.score_kimg": 0, "writers": ["jsonl"]}


def train(root: Path, name: str) -> Path:
    """The folder of a run of `superres`, `translate` or `codec`."""
    if name == "codec":
        words = {"model.width": 4, "model.windows": [256], "data.utterances": 4, "data.segment": 512}
        pg.train("codec", {**words, **_TINY}, out=root / name)
        return root / name
    recipe, words, data = RUNS[name]
    for folder in ("two/a", "two/b") if data == "two" else (data,):
        (root / folder).mkdir(parents=True)
        for number in range(6):
            noise(32, 32, number).save(root / folder / f"{number}.png")
    pg.train(recipe, {**words, **_TINY, "data.path": str(root / data), "data.size": 32}, out=root / name)
    return root / name


@contextmanager
def serving(sampler: Sampler, title: str = "run") -> Iterator[SampleServer]:
    """A server of a generator, in a thread."""
    with SampleServer(sampler, title, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
