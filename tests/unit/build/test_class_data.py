"""Classes of a run: those with training images, labels drawn by their numbers, and names that a resume compares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan import build
from paragan.build.batches import batch_stream
from paragan.config import read_recipe
from paragan.core.errors import CheckpointError, ConfigError, DataError
from paragan.core.types import Rows
from paragan.datasets import digits, folder, synthetic
from paragan.export import generator_file
from paragan.export.generator_file import GeneratorFile, GeneratorInfo
from tests.tiny_run import SMALL

CPU = torch.device("cpu")


def fill(root, **counts):
    """Write images by the number of each folder; `__` stands for a slash."""
    for name, count in counts.items():
        folder = root / name.replace("__", "/")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def npz(path, labels, **arrays):
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 8, 8, 1), np.uint8)
    np.savez(path, images=images, labels=labels, **arrays)
    return path


def opened(*words):
    return build.open_data(read_recipe("own", ["data.size=8", *words]))


def test_classes_without_training_images_are_left_out_of_both_splits(tmp_path):
    counts = {"train__a": 3, "train__c": 2, "val__a": 1, "val__b": 4, "val__c": 2}
    data = opened(f"data.path={fill(tmp_path, **counts)}")
    assert data.train.class_names == data.held_out.class_names == ("a", "c")
    assert data.train.class_sizes() == [3, 2]
    labels = data.held_out.fetch(np.arange(len(data.held_out)))["label"]
    assert labels.tolist() == [0, 1, 1] == data.held_out.row_labels().tolist()
    assert "c/0.png" in data.held_out.where(1)
    assert "'b'" in data.train.notices[0]
    assert data.train.reading == "holds out 3" and len(data.held_out) == 3


def test_only_classes_of_the_held_out_split_are_refused_or_pass_without_labels(tmp_path):
    path = fill(tmp_path, train__a=3, train__c=2, val__b=4)
    with pytest.raises(DataError, match=r"data\.labels=false"):
        opened(f"data.path={path}")
    assert len(opened(f"data.path={path}", "data.labels=false").held_out) == 4


def prior_of(path, *words):
    config = read_recipe("digits", ["data.name=npz", f"data.path={path}", *SMALL, *words])
    return build.gan(config, build.open_data(config), CPU).prior


def test_labels_are_drawn_by_the_training_images_of_each_class(tmp_path):
    path = npz(tmp_path / "a.npz", np.repeat([0, 1], [90, 10]))
    assert prior_of(path).class_sizes == (81, 9)
    assert prior_of(path, "data.label_distribution=uniform").class_sizes == ()
    assert prior_of(path, "data.labels=false", "model.conditional=false").num_classes == 0
    _, y_B = prior_of(path).draw("g", Rows(step=0, first=0, count=1000, total=1000))
    assert 60 < int(y_B.sum()) < 140


def test_balance_draws_real_samples_evenly_and_says_that_labels_are_not(tmp_path):
    path = npz(tmp_path / "a.npz", np.repeat([0, 1], [90, 10]))
    words = ["data.name=npz", f"data.path={path}", "data.balance=classes", "train.batch=8"]
    config = read_recipe("digits", words)
    data = build.open_data(config)
    batches = batch_stream(config, data.train, 0, CPU)
    assert [next(batches).label.bincount().tolist() for _ in range(30)] == [[4, 4]] * 30
    (notice,) = data.train.notices
    assert "data.label_distribution=uniform" in notice
    assert build.open_data(read_recipe("digits", [*words, "data.label_distribution=uniform"])).train.notices == ()


@pytest.mark.parametrize("words", [["data.labels=false"], ["data.name=synthetic"]])
def test_balance_of_data_without_known_labels_is_refused(words):
    config = read_recipe("digits", [*words, "data.balance=classes"])
    with pytest.raises(ConfigError, match=r"data\.balance=classes"):
        batch_stream(config, build.open_data(config).train, 0, CPU)


def test_data_sets_with_classes_count_them(tmp_path):
    of_folder = folder.source(folder.Options(path=str(fill(tmp_path, a=3, b=2)), size=8), "train")
    for source in (
        of_folder,
        digits.source(digits.Options(8), "train"),
        synthetic.source(synthetic.Options(), "train"),
    ):
        assert len(source.class_sizes()) == len(source.class_names)


def trained(out, path, kimg=0.016):
    settings = {"data.name": "folder", "data.path": str(path), "data.size": 8, "data.channels": 3}
    settings |= {"model.width": 4, "model.latent": 8, "evaluation.features": None, "every.sample_kimg": 0}
    return pg.train("digits", {**settings, "train.kimg": kimg, "train.batch": 4}, out=out)


def messages(run):
    return [event["text"] for event in run.records("event")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "cats").rename(root / "lions"), "class 0 was 'cats', and now is 'dogs'"),
        (lambda root: (root / "dogs").rename(root / "wolves"), "class 1 was 'dogs', and now is 'wolves'"),
        (lambda root: fill(root, owls=3), "class 2 did not exist, and now is 'owls'"),
    ],
)
def test_a_resume_with_other_classes_is_refused(tmp_path, change, words):
    path = fill(tmp_path / "data", cats=8, dogs=4)
    trained(tmp_path / "run", path, kimg=0.008)
    change(path)
    with pytest.raises(CheckpointError, match=words) as refused:
        trained(tmp_path / "run", path)
    assert "\n" not in str(refused.value)


def swap(root):
    (root / "cats").rename(root / "x")
    (root / "dogs").rename(root / "cats")
    (root / "x").rename(root / "dogs")


def swap_labels(root):
    table = root / "metadata.csv"
    table.write_text(table.read_text().replace("cats\n", "x\n").replace("dogs\n", "cats\n").replace("x\n", "dogs\n"))


def write_table(root):
    rows = [f"{path.relative_to(root)},{path.parent.name}\n" for path in sorted(root.rglob("*.png"))]
    (root / "metadata.csv").write_text("file_name,label\n" + "".join(rows))


def move_most(root):
    for path in sorted((root / "cats").iterdir())[:6]:
        path.rename(root / "dogs" / path.name)


@pytest.mark.parametrize("change", [swap, swap_labels, move_most])
def test_a_resume_with_exchanged_classes_is_refused(tmp_path, change):
    path = fill(tmp_path / "data", cats=8, dogs=4)
    for number, file in enumerate(sorted(path.rglob("*.png"))):
        file.rename(file.parent / f"{number}.png")
    if change is swap_labels:
        write_table(path)
    trained(tmp_path / "run", path, kimg=0.008)
    change(path)
    with pytest.raises(CheckpointError, match=r"cats.*another class"):
        trained(tmp_path / "run", path)


def test_a_resume_after_one_image_was_sorted_anew_goes_on(tmp_path):
    path = fill(tmp_path / "data", cats=8, dogs=4)
    trained(tmp_path / "run", path, kimg=0.008)
    min((path / "cats").iterdir()).rename(path / "dogs" / "cat.png")
    assert any("data has changed" in line for line in messages(trained(tmp_path / "run", path)))


def test_a_resume_says_that_images_were_added_and_goes_on(tmp_path):
    path = fill(tmp_path / "data", cats=8, dogs=4)
    run = trained(tmp_path / "run", path, kimg=0.008)
    assert not any("data has changed" in line for line in messages(trained(tmp_path / "run", path, kimg=0.012)))
    fill(path, cats=20)
    run = trained(tmp_path / "run", path)
    (line,) = (line for line in messages(run) if "data has changed" in line)
    assert "training samples, now" in line


def test_samples_of_a_run_and_of_its_export_are_drawn_as_in_training(tmp_path):
    path = fill(tmp_path / "data", cats=60, dogs=4)
    run = trained(tmp_path / "run", path, kimg=0.008)
    labels = run.sample(500).labels
    assert 5 <= sum(labels) < 100
    written = GeneratorFile(weights={}, config="{}", info=run.generator.info, score={})
    generator_file.write(tmp_path / "g.safetensors", written)
    assert generator_file.read(tmp_path / "g.safetensors").info == run.generator.info
    cats, dogs = run.generator.info.class_sizes
    assert 45 < cats < 60
    assert 1 <= dogs <= 4


def test_thousands_of_classes_of_two_images_train_are_scored_and_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("paragan.features.base.classifier.STEPS", 10)  # of the judge
    path = npz(tmp_path / "a.npz", np.arange(6000) % 3000 + 1)
    settings = {"data.name": "npz", "data.path": str(path), "train.kimg": 0.016, "train.batch": 8}
    run = pg.train("digits", {**settings, "evaluation.num_images": 200, "model.width": 4}, out=tmp_path / "run")
    assert run.is_finished
    assert run.records("score")[-1]["fd[judge]"] > 0
    sampler = run.generator
    assert sampler.num_comparable_classes == len(sampler.class_names) == 3000
    assert sampler.sample(2, labels=["1", "3000"]).labels == (0, 2999)


@pytest.mark.parametrize("sizes", [[1], [1, -1], [0, 0], [1.0, 2], ["1", 2], [1 << 50, 1]])
def test_sizes_that_no_run_writes_are_refused(sizes):
    values = {"shape": [1, 2, 2], "class_names": ["a", "b"], "step": 0, "images": 0}
    assert GeneratorInfo.read({**values, "class_sizes": [0, 3]}).class_sizes == (0, 3)
    assert GeneratorInfo.read(values).class_sizes == ()
    with pytest.raises(ValueError, match="class_sizes"):
        GeneratorInfo.read({**values, "class_sizes": sizes})
