"""Every recipe of the zoo, narrow and short, with its own losses, penalties and order of turns: its score falls.

Full size needs days on accelerators. Rates are higher here, for narrow networks bear it. 24 thousand images at most, of
64 px at most where there is attention.
"""

import json
import tarfile
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.core import registry

pytestmark = [pytest.mark.training, pytest.mark.slow]

OTHERS = ("vqgan", "flow", "fewstep")  # no generators from latents alone that start untrained
DATA = ("cifar10", "imagenet", "imagenet128")
ZOO = [
    name
    for name in registry.names("recipes")
    if name.rpartition("-")[2] in DATA and name.partition("-")[0] not in OTHERS
]
NARROW = {
    "sngan": ["model.width=8"],
    "sagan": ["model.width=8"],
    "biggan": ["model.width=8", "model.shared=16"],
    "biggan_deep": ["model.width=16", "model.shared=16"],
    "contragan": ["model.width=8", "model.shared=16", "model.embed=32"],
    "reacgan": ["model.width=8", "model.shared=16", "model.embed=32"],
    "stylegan2": ["model.width=24", "model.style=32", "model.latent=32", "model.base=512"],
    "r3gan": ["model.width=24", "model.groups=6", "model.latent=32"],
}
SHORT = ["train.threads=1", "every.sample_kimg=0", "every.save_kimg=0", "evaluation.num_images=1000"]


@pytest.fixture(scope="module")
def photos(data_root, tmp_path_factory) -> Path:
    """Classes of Tiny-ImageNet in ImageNet's layout."""
    root = tmp_path_factory.mktemp("ilsvrc")
    with tarfile.open(data_root / "tiny-imagenet-50" / "tiny-imagenet-50.tar.xz") as packed:
        packed.extractall(root / "packed", filter="data")
    (found,) = (path for path in (root / "packed").rglob("train") if path.is_dir())
    for split in ("train", "val"):
        for folder in sorted((found.parent / split).iterdir())[:10]:
            pictures = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg"))
            target = root / split / folder.name
            target.mkdir(parents=True)
            for picture in pictures[:100]:
                picture.rename(target / f"{picture.stem}.JPEG")
    return root


def where(name: str, data_root: Path, request) -> list[str]:
    if name.endswith("cifar10"):
        return ["data.variant=lossless", f"data.path={data_root / 'cifar10'}"]
    if name.endswith("imagenet128"):
        small = [] if name.startswith("sngan") else ["data.size=64"]  # attention takes 16 times as long at 128 px
        return [f"data.path={request.getfixturevalue('photos')}", "evaluation.num_images=300", *small]
    return [f"data.path={data_root / 'tiny-imagenet-50'}"]


def length(recipe, name: str) -> int:
    """Thousands of images: what is large is slow, and few turns of G, or a slow start, take longer."""
    if name.endswith("imagenet128"):
        return 3 if "deep" in name else 6
    return 24 if recipe.d.updates_per_step > 1 or recipe.model.name == "stylegan2" else 12


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ZOO)
def test_recipe_score_decreases(name, data_root, request, tmp_path, monkeypatch):
    from paragan import config
    from paragan.features.base import classifier as classifier

    if name.endswith("imagenet128"):
        monkeypatch.setattr(classifier, "STEPS", 100)  # of images so large it learns for minutes
    recipe = config.read_recipe(name)
    kimg = length(recipe, name)
    words = [
        *NARROW[recipe.model.name],
        *SHORT,
        "train.batch=16",
        f"train.kimg={kimg}",
        f"every.score_kimg={kimg}",
    ]
    if recipe.g.optimizer.lr < 1e-3:
        words += [f"{side}.optimizer.lr=1e-3" for side in "gd"]
    if recipe.g.ema is not None:
        words += ["g.ema.half_life_kimg=0.2", "g.ema.start_kimg=0"]
    words += where(name, data_root, request)
    assert main(["train", name, *words, "--out", str(tmp_path / "run")]) == 0
    told = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    untrained, *_, trained = (line for line in told if line["kind"] == "score")
    (distance,) = (key for key in trained if key.startswith("fd["))
    print(f"{name}: {distance} {untrained[distance]:.4g} to {trained[distance]:.4g}")
    assert trained[distance] < 0.9 * untrained[distance]
