"""On an accelerator: augmentation as on the CPU and without a host sync, telemetry, a judge, sampling from a run."""

import pytest
import torch

from paragan import build
from paragan.augment.diffaugment import Augment, Options
from paragan.config import read_recipe
from paragan.core import rng
from paragan.core.types import Rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
ROWS = Rows(step=0, first=0, count=16, total=16)
SMALL = ["data.size=16", "model.width=8", "train.batch=32", "train.kimg=0.64", "every.score_kimg=0.32"]


def test_augmentation_is_the_same_there():
    x = rng.normal(0, "x", ROWS, (3, 16, 16))
    augment = Augment(Options())
    assert torch.allclose(augment(x.cuda(), 0, "s", ROWS).cpu(), augment(x, 0, "s", ROWS), atol=1e-5)


def test_augmentation_does_not_wait_for_the_device():
    x, augment = torch.zeros(16, 3, 16, 16, device="cuda"), Augment(Options())
    augment(x, 0, "s", ROWS)
    torch.cuda.set_sync_debug_mode("error")
    try:
        augment(x, 1, "s", ROWS)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_with_telemetry_augmentation_and_scores(tmp_path, precision):
    both = [f"g.precision={precision}", f"d.precision={precision}"]
    words = [*SMALL, *both, "augment=diffaugment", "every.sample_kimg=0.32", "evaluation.num_images=100"]
    events = list(build.trainer(read_recipe("digits", words), tmp_path, print, lambda: False).run())
    looks = [event.values for event in events if event.kind == "telemetry"]
    assert len(looks) == 3
    assert {"d/accuracy_train", "diversity", "g/top_singular_value"} <= looks[-1].keys()
    scores = [event.values["fd[judge]"] for event in events if event.kind == "score"]
    assert scores and torch.tensor(scores).isfinite().all()


def test_samples_of_a_run(tmp_path, monkeypatch):
    import paragan as pg
    from paragan.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *SMALL, "evaluation.features=null", "--out", "run"]) == 0
    loaded = pg.load("run")
    assert next(loaded.net.parameters()).is_cuda
    assert torch.allclose(loaded.sample(8).tensor[:4], loaded.sample(4).tensor, atol=1e-4)
