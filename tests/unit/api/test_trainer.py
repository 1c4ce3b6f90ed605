"""`pg.Trainer`: a run over any named tensors from Python, in a run folder."""

import json
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import paragan as pg
from paragan.config import read_recipe
from paragan.datasets.base.program_data import DatasetSource
from paragan.datasets.base.samples import SampleForm
from tests.tiny_run import newest

BATCH, STEPS = 8, 6
EPS = 1e-4  # Adam would magnify the rounding of gradients that are 0
TINY = {
    "train.batch": BATCH, "train.kimg": BATCH * STEPS / 1000, "every.log_steps": 1, "every.save_kimg": 0,
    "g.optimizer.lr": 1e-2, "d.optimizer.lr": 1e-2, "g.ema.half_life_kimg": 0.02,
    "g.optimizer.arguments.eps": EPS, "d.optimizer.arguments.eps": EPS,
}  # fmt: skip


class Maker(nn.Module):
    latent = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 + 4, 2)

    def forward(self, z, frames):
        return self.layer(torch.cat([z, frames], 1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2 + 4, 1)

    def forward(self, point, frames):
        return self.layer(torch.cat([point, frames], 1))


def tensors(count=20, dtype=torch.float64):
    draws = torch.Generator().manual_seed(1)
    frames = torch.randn(count, 4, generator=draws, dtype=dtype)
    return {"point": 2 * frames[:, :2], "frames": frames}


def distance(outputs, inputs):
    return (outputs.images - inputs.real.tensors["point"]).abs()


def trainer(out, data=None, g=Maker, d=Critic, settings=TINY, **arguments):
    torch.manual_seed(0)
    given = {"terms": [pg.Term(name="distance", function=distance, weight=2.0)], **arguments}
    return pg.Trainer(
        g().double(), d().double(), tensors() if data is None else data, settings=settings, out=out, **given
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run that is only read."""
    return trainer(tmp_path_factory.mktemp("tensors") / "run").run()


def plain_loop(run):
    """The same training in the plainest code; the order of the rows and the latents are the run's."""
    torch.manual_seed(0)
    g, d = Maker().double(), Critic().double()
    optimizers = {net: torch.optim.Adam(net.parameters(), lr=1e-2, eps=EPS) for net in (g, d)}
    source = pg.Trainer(g, d, tensors()).source
    loader = pg.loading.TensorBatches(source, BATCH, seed=0)
    prior = pg.Prior(seed=0, latent=3, dtype=torch.float64)
    for step, batch in zip(range(STEPS), loader, strict=False):
        point, frames = batch["point"], batch["frames"]
        rows = pg.Rows(step=step, first=0, count=BATCH, total=BATCH)
        fake = g(prior.draw("d", rows)[0], frames).detach()
        loss = (1 - d(point, frames)).relu().mean() + (1 + d(fake, frames)).relu().mean()
        step_of(optimizers[d], loss)
        fake = g(prior.draw("g", rows)[0], frames)
        step_of(optimizers[g], -d(fake, frames).mean() + 2 * (fake - point).abs().mean())
    return g, d


def step_of(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def saved(run, side="g"):
    from safetensors.torch import load_file

    return load_file(newest(run.folder) / f"{side}.safetensors")


def test_run_equals_the_plain_loop(run):
    g, d = plain_loop(run)
    for side, net in (("g", g), ("d", d)):
        for name, value in net.state_dict().items():
            torch.testing.assert_close(saved(run, side)[f"net/{name}"], value, rtol=0, atol=1e-12)


def test_run_folder_has_config_record_checkpoints_and_report(run):
    assert {path.name for path in run.folder.iterdir()} >= {"config.yaml", "metrics.jsonl", "report.html", "exit.json"}
    assert json.loads((run.folder / "exit.json").read_text())["code"] == 0
    assert run.is_finished and (run.folder / "samples" / "step-0000000.png").exists()
    assert [line["step"] for line in run.history] == list(range(1, STEPS + 1))
    assert run.history[-1]["g/loss/distance"] > 0
    config = read_recipe(str(run.folder / "config.yaml"))
    assert (config.data.name, config.model.name) == ("from_memory", "from_memory")
    assert config.data.options.tensors == {"point": "2 float64", "frames": "4 float64"}
    assert "weight=2.0" in config.penalties[0].options.settings
    assert "20 samples" in (run.folder / "report.html").read_text()


def test_generator_has_the_averaged_weights_of_the_newest_checkpoint(run):
    assert torch.equal(run.generator.layer.weight, saved(run)["ema/layer.weight"])
    assert not torch.equal(run.generator.layer.weight, saved(run)["net/layer.weight"])
    assert run.generator(torch.zeros(2, 3).double(), torch.zeros(2, 4).double()).shape == (2, 2)


def test_stopped_run_resumes_bit_for_bit(tmp_path, run):
    short = trainer(tmp_path, settings={**TINY, "train.kimg": BATCH * 4 / 1000}).run()
    assert [line["step"] for line in short.history] == [1, 2, 3, 4]
    longer = short.resume({"train.kimg": TINY["train.kimg"]})
    assert all(torch.equal(value, saved(longer)[name]) for name, value in saved(run).items())


class Points(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, row):
        sample = {name: tensor[row] for name, tensor in tensors().items()}
        return {**sample, "point": (sample["point"] + 0.1 * torch.randn(2).double()).numpy(), "size": row}


def test_dataset_of_mappings_trains_and_resumes(tmp_path):
    whole = trainer(tmp_path / "whole", Points()).run()
    trainer(tmp_path / "parts", Points(), settings={**TINY, "train.kimg": BATCH * 2 / 1000}).run()
    parts = trainer(tmp_path / "parts", Points()).run()
    assert all(torch.equal(value, saved(parts)[name]) for name, value in saved(whole).items())


class Drawn(nn.Module):
    latent = 3

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, latent):
        return self.net(latent)


class Seen(nn.Module):
    batches: ClassVar = []  # of all copies

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, image):
        self.batches.append(image.detach().clone())
        return self.gain * image.mean((1, 2, 3))


def test_augmentation_transforms_images_where_the_discriminator_sees_them(tmp_path):
    data = {"image": torch.ones(20, 3, 8, 8)}
    seen = {}
    for name, augment in (("plain", None), ("augmented", {"name": "diffaugment", "color": False, "cutout": False})):
        Seen.batches.clear()
        g = Drawn(nn.Sequential(nn.Linear(3, 192), nn.Unflatten(1, (3, 8, 8))))
        pg.Trainer(
            g, Seen(), data, settings={**TINY, "augment": augment, "evaluation.features": None}, out=tmp_path / name
        ).run()
        seen[name] = torch.cat(Seen.batches)
    assert (seen["plain"] == 1).all((1, 2, 3)).any()
    moved = (seen["augmented"] == 0).any((1, 2, 3))  # zeros enter at an edge
    assert moved.float().mean() > 0.5


class Moved(Points):
    """A data set of the same name and length, with other samples."""

    __qualname__ = "Points"

    def __getitem__(self, row):
        sample = super().__getitem__(row)
        return {**sample, "point": sample["point"] + 3}


def named_data(kind, points):
    """Data of which only the name, the length and the tensors are equal for different points."""
    source = DatasetSource(points, SampleForm())
    source.fingerprint = "mine"
    held = [points[row] for row in range(8)]
    return {"dataset": points, "source": source, "iterable": lambda epoch: held}[kind]


@pytest.mark.parametrize("kind", ["dataset", "source", "iterable"])
def test_other_content_is_refused_at_a_resume(tmp_path, kind):
    data = named_data(kind, Points())
    assert all(trainer(tmp_path, data).run().is_finished for _ in range(2))
    with pytest.raises(pg.CheckpointError, match=r"other settings \(data.fingerprint was .*fresh=True"):
        trainer(tmp_path, named_data(kind, Moved())).run()


def test_run_of_tensors_opens_with_its_program_only(run):
    with pytest.raises(
        pg.ConfigError, match=r"data\.name is from_memory: the tensors point, frames were passed from Python"
    ):
        pg.load(run.folder)
