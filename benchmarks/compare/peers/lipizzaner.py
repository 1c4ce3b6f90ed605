"""Lipizzaner: an iteration of its trainer for one cell, on the MNIST images that ours has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.compare.revision import revision
from benchmarks.compare.works import BATCHES, Prepared, data

SOURCE = "src/training/ea/lipizzaner_gan_trainer.py"
FOLDERS = ("src",)
WORKS = ("cell",)
STAND_INS = (
    "torchvision", "pymongo", "bson", "losswise", "flask", "psutil", "netifaces", "netaddr", "requests", "tqdm",
    "pandas", "tensorflow", "matplotlib", "imageio", "skimage", "sklearn",
)  # fmt: skip
BATCH, NUM_FITNESS = 100, 1000
PARAMS = {
    "population_size": 1, "tournament_size": 2, "n_replacements": 1, "default_adam_learning_rate": 2e-4,
    "mutation_probability": 0.5, "alpha": 1e-4, "discriminator_skip_each_nth_step": 1, "enable_selection": False,
    "mixture_sigma": 0.01, "fitness": {"fitness_sample_size": NUM_FITNESS, "fitness_mode": "average"},
    "score": {"enabled": False, "cuda": False, "sample_size": 1000},
}  # fmt: skip


class Images:
    """MNIST as Lipizzaner's data loaders give it: normalised batches with labels."""

    n_batches, batch_size, n_input_neurons, num_classes = BATCHES, BATCH, 784, 10

    def __init__(self, *arguments: Any) -> None:
        from benchmarks.cellular_comparison import images

        self.pixels = images(data())[: BATCH * max(BATCHES, 50)] / 127.5 - 1

    def load(self, train: bool = True) -> Images:
        """Return the batches, which a trainer iterates and counts."""
        return self

    def __len__(self) -> int:
        return len(self.pixels) // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.pixels)).split(BATCH)
        return ((self.pixels[rows], torch.zeros(BATCH, dtype=torch.long)) for rows in order)

    def transpose_data(self, batch: Tensor) -> Tensor:
        """Flatten the images."""
        return batch.reshape(len(batch), -1)

    def save_images(self, *arguments: Any) -> None:
        """No images are written."""


def prepare(work: str, path: Path | None) -> Prepared:
    from distribution.client_environment import ClientEnvironment
    from helpers.configuration_container import ConfigurationContainer
    from training.ea import lipizzaner_gan_trainer

    lipizzaner_gan_trainer.DbLogger = lambda **named: SimpleNamespace(is_enabled=False)
    cc: Any = ConfigurationContainer.instance()
    cc.class_maps["compare"] = (__name__, "Images")
    cc.settings = _settings()
    cc.output_dir = cc.settings["general"]["output_dir"]
    ClientEnvironment.port = 5000
    images = Images()
    factory = cc.create_instance("four_layer_perceptron", images.n_input_neurons)
    trainer = cc.create_instance("lipizzaner_gan", images, factory)
    trainer.log_results = lambda *arguments, **named: (None, None)
    g, d = (population.individuals[0].genome.net for population in (trainer.population_gen, trainer.population_dis))
    return Prepared(lambda: trainer.train(1), (g, d), revision(path))


def _settings() -> dict[str, Any]:
    folder = mkdtemp()
    node = {"address": "127.0.0.1", "port": 5000}
    general = {
        "output_dir": folder, "num_workers": 0, "seed": 0, "logging": {"enabled": False, "image_format": "none"},
        "distribution": {"client_nodes": [node], "client_id": 0}, "losswise": {"enabled": False},
    }  # fmt: skip
    trainer = {"name": "lipizzaner_gan", "n_iterations": 1, "params": PARAMS}
    trainer["mixture_generator_samples_mode"] = "exact_proportion"
    return {
        "general": general, "trainer": trainer, "dataloader": {"dataset_name": "compare", "batch_size": BATCH},
        "network": {"name": "four_layer_perceptron", "loss": "bceloss"}, "master": {},
    }  # fmt: skip
