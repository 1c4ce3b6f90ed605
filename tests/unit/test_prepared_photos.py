"""Photos in every kind of source, packed into shards: training gives the weights of training from the source."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.datasets._prepare import prepare_shards
from tests.tiny_run import newest

SIDE = 16
NAMES = ("cats", "dogs")
WORDS = (
    *("train.batch=8", "train.kimg=0.032", "model.width=4", "model.latent=8"),
    *("every.score_kimg=0", "every.sample_kimg=0", "evaluation.features=null"),
)


def weights(run: Path, *words: str) -> dict[str, bytes]:
    """Files of the last checkpoint of a short run."""
    trainer = build.trainer(read_recipe("own", [*WORDS, *words]), run, lambda line: None, lambda: False)
    for _ in trainer.run():
        pass
    return {path.name: path.read_bytes() for path in newest(run).rglob("*.safetensors")}


@pytest.fixture(scope="module")
def photos(data_root, tmp_path_factory):
    """Sixteen photos for training and eight that are held out, of two classes, as JPEG files."""
    root = tmp_path_factory.mktemp("photos") / "photos"
    with tarfile.open(data_root / "facades" / "facades-train-val.tar") as archive:
        for number in range(24):
            stream = archive.extractfile(f"facades/train/{number + 1}.jpg")
            path = root / ("train" if number < 16 else "val") / NAMES[number % 2] / f"{number:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stream.read())
    return root


@pytest.fixture(scope="module")
def from_photos(photos, tmp_path_factory):
    return weights(tmp_path_factory.mktemp("run"), f"data.path={photos}", f"data.size={SIDE}")


def as_folder(photos, out):
    return photos


def as_zip(photos, out):
    with zipfile.ZipFile(out / "photos.zip", "w") as file:
        for path in photos.rglob("*.jpg"):
            file.write(path, path.relative_to(photos))
    return out / "photos.zip"


def as_tar(photos, out):
    with tarfile.open(out / "photos.tar", "w") as file:
        file.add(photos, ".")
    return out / "photos.tar"


def as_table(photos, split):
    """The photos of a split in the order of the folder, with class names as Hugging Face writes them."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    paths = sorted((photos / split).rglob("*.jpg"))
    images = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    table = pyarrow.table({"image": images, "label": [NAMES.index(path.parent.name) for path in paths]})
    features = {"label": {"names": list(NAMES), "_type": "ClassLabel"}}
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def as_parquet(photos, out):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for split, name in (("train", "train"), ("val", "validation")):
        parquet.write_table(as_table(photos, split), out / f"{name}-00000-of-00001.parquet")
    return out


def as_saved_dataset(photos, out):
    """What `save_to_disk` of Hugging Face's `datasets` writes, without the library."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for split, name in (("train", "train"), ("val", "test")):
        (out / name).mkdir()
        table = as_table(photos, split)
        path = str(out / name / "data-00000-of-00001.arrow")
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        (out / name / "state.json").write_text("{}")
    (out / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return out


@pytest.mark.parametrize("pack", [as_folder, as_zip, as_tar, as_parquet, as_saved_dataset])
def test_training_from_shards_of_photos_gives_the_weights_of_the_folder(photos, from_photos, tmp_path, pack):
    (tmp_path / "source").mkdir()
    source = pack(photos, tmp_path / "source")
    prepare_shards(str(source), tmp_path / "shards", samples_per_shard=5, threads=2)
    words = ("data.name=shards", f"data.path={tmp_path / 'shards'}", f"data.size={SIDE}")
    assert weights(tmp_path / "run", *words) == from_photos


def test_training_from_shards_of_arrays_gives_the_weights_of_the_arrays(photos, tmp_path):
    paths = sorted(photos.rglob("*.jpg"))
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE))) for path in paths])
    labels = np.array([NAMES.index(path.parent.name) for path in paths])
    np.savez(tmp_path / "photos.npz", images=pixels, labels=labels, class_names=NAMES)
    prepare_shards(str(tmp_path / "photos.npz"), tmp_path / "shards", samples_per_shard=5, threads=2)
    of_arrays = weights(tmp_path / "a", "data={name: npz}", f"data.path={tmp_path / 'photos.npz'}")
    words = ("data.name=shards", f"data.path={tmp_path / 'shards'}", f"data.size={SIDE}")
    assert weights(tmp_path / "b", *words) == of_arrays
