"""What every data set keeps: declared tensors fetched by row, the same in any company, in two parts."""

import ast
import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.loading.loader import Loader
from tests.prepared_shards import prepared


def real(name):
    """Of the real data, if there is any."""
    return lambda request: str(request.getfixturevalue("data_root") / name)


def pictures(request):
    """Forty small pictures of two classes."""
    root = request.getfixturevalue("tmp_path")
    for number, pixels in enumerate(noise(40, 9, 7, 3)):
        path = root / f"class-{number % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    return str(root)


def wide_pictures(request):
    """Forty pairs, two pictures side by side in each."""
    root = request.getfixturevalue("tmp_path")
    for number, pixels in enumerate(noise(40, 16, 32, 3)):
        Image.fromarray(pixels).save(root / f"{number}.png")
    return str(root)


def recordings(request):
    """Twenty-four recordings, longer than a segment."""
    soundfile = pytest.importorskip("soundfile")
    root = request.getfixturevalue("tmp_path")
    for number, samples in enumerate(noise(24, 6000, 1)):
        soundfile.write(root / f"{number}.wav", samples / 256 - 0.5, 8000)
    return str(root)


def arrays(request):
    path = request.getfixturevalue("tmp_path") / "mine.npz"
    np.savez(path, images=noise(100, 8, 8, 3), labels=np.arange(100) % 3)
    return str(path)


def idx_files(request):
    root = request.getfixturevalue("tmp_path")
    for number, prefix in enumerate(("train", "t10k")):
        images = noise(20, 28, 28, seed=number)
        (root / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 20, 28, 28) + images.tobytes())
        labels = (np.arange(20) % 10).astype(np.uint8)
        (root / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 20) + labels.tobytes())
    return str(root)


def synsets(request):
    """Ten pictures of two classes of WordNet in each part."""
    root = request.getfixturevalue("tmp_path")
    for number, part in enumerate(("train", "val")):
        for wnid in ("n01440764", "n02119789"):
            folder = root / part / wnid
            folder.mkdir(parents=True)
            for row, pixels in enumerate(noise(5, 20, 30, 3, seed=number)):
                Image.fromarray(pixels).save(folder / f"{row}.JPEG")
    return str(root)


def prepared_pictures(request):
    """The forty small pictures as shards."""
    out = request.getfixturevalue("tmp_path_factory").mktemp("shards") / "out"
    prepared(Path(pictures(request)), out, samples_per_shard=7)
    return str(out)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def first_name(source):
    """Name of the first tensor of a sample: `image` of most data sets."""
    return next(iter(source.tensors))


PATHS = {  # for those that need something to read
    "audio": recordings,
    "cifar10": real("cifar10"),
    "fashion_mnist": idx_files,
    "folder": pictures,
    "grey": pictures,
    "low_resolution": pictures,
    "imagenet": synsets,
    "mnist": real("mnist"),
    "npz": arrays,
    "paired": wide_pictures,
    "shards": prepared_pictures,
    "tiny_imagenet": synsets,
    "unpaired": pictures,
}


@pytest.fixture(params=registry.names("datasets"))
def dataset(request):
    """The name of a data set, and settings with which it can be read."""
    name = request.param
    settings = {"path": PATHS[name](request)} if name in PATHS else {}
    settings |= {"paired": {"size": 8}, "speech": {"utterances": 20}}.get(name, {})
    if name in ("audio", "folder", "grey", "low_resolution", "paired", "shards", "unpaired"):
        settings["held_out"] = 0.5  # the tests look at six rows of each part
    return name, settings


@pytest.fixture
def make(dataset):
    """Opens one part of a data set, anew each time."""
    name, settings = dataset
    options = registry.options("datasets", name)(**settings)
    return lambda split: registry.load_module("datasets", name).source(options, split)


@pytest.fixture(scope="module")
def opened():
    return {}


@pytest.fixture
def parts(dataset, make, opened):
    """Both parts; those of real data, which take half a second to read, are opened once."""
    name = dataset[0] if dataset[0] in ("cifar10", "mnist") else None
    if name is None or name not in opened:
        opened[name] = {split: make(split) for split in ("train", "held_out")}
    return opened[name]


def test_samples_are_as_declared(parts):
    for source in parts.values():
        samples = source.fetch(np.array([0, len(source) - 1, 3]))
        assert {name: (tuple(x.shape), x.dtype) for name, x in samples.items()} == {
            name: ((3, *spec.shape), spec.dtype) for name, spec in source.tensors.items()
        }
        assert samples[first_name(source)].is_contiguous()
        assert "image" not in samples or source.tensors["image"].is_image
        assert ("label" in samples) == bool(source.class_names)
        assert all(0 <= label < len(source.class_names) for label in samples.get("label", torch.empty(0)).tolist())


def test_a_row_is_the_same_in_any_company(parts):
    for source in parts.values():
        rows = np.array([5, 0, 5, len(source) - 1])
        together = source.fetch(rows)
        alone = [source.fetch(rows[i : i + 1]) for i in range(4)]
        for name in source.tensors:
            assert torch.equal(together[name], torch.cat([each[name] for each in alone]))


def test_threads_fetch_the_same_at_once(parts):
    source = parts["train"]
    rows = [np.array([number % 5, 5 - number % 3]) for number in range(24)]
    alone = [source.fetch(pair) for pair in rows]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(source.fetch, rows, timeout=60))
    for fetched, expected in zip(together, alone, strict=True):
        assert all(torch.equal(fetched[name], expected[name]) for name in source.tensors)


def test_batches_depend_on_seed_and_position_alone(parts):
    """Also random crops: shares of ranks are rows of the batch, and held-out samples are the same at any place."""
    whole, first, rest = (
        Loader(parts["train"], 5, 7, torch.device("cpu"), share=share) for share in (None, (0, 2), (2, 3))
    )
    for position in (3, 0):  # resumed, rewound
        batch = whole.fetch(position)
        shares = [first.fetch(position), rest.fetch(position)]
        assert all(torch.equal(torch.cat([share[name] for share in shares]), batch[name]) for name in batch)
    still = parts["held_out"].fetch(np.array([1]))
    placed = parts["held_out"].fetch(np.array([1]), np.array([9]), 3)
    assert all(torch.equal(placed[name], still[name]) for name in still)


def test_rows_are_copies(parts):
    name = first_name(parts["train"])
    before = parts["train"].fetch(np.array([0]))[name]
    parts["train"].fetch(np.array([0]))[name].zero_()
    assert torch.equal(parts["train"].fetch(np.array([0]))[name], before)


def test_the_parts_agree_and_share_no_image(parts):
    train, held_out = parts["train"], parts["held_out"]
    assert (train.tensors, train.class_names) == (held_out.tensors, held_out.class_names)
    name = first_name(train)
    seen = {sample.numpy().tobytes() for sample in train.fetch(np.arange(min(5000, len(train))))[name]}
    unseen = {sample.numpy().tobytes() for sample in held_out.fetch(np.arange(min(1000, len(held_out))))[name]}
    assert not seen & unseen


def test_fingerprint_differs_between_splits_and_is_stable(make, parts):
    """Cheap: asked for before any image is fetched."""
    marks = {split: source.fingerprint for split, source in parts.items()}
    assert all(isinstance(mark, str) and len(mark) >= 8 for mark in marks.values())
    assert marks["train"] != marks["held_out"]
    assert marks == {split: make(split).fingerprint for split in marks}


@pytest.mark.parametrize("row", [-1, 10**9])
def test_rows_that_are_not_there_are_refused(parts, row):
    with pytest.raises((IndexError, RuntimeError)):
        parts["train"].fetch(np.array([row]))


@pytest.mark.parametrize("name", registry.names("datasets"))
def test_a_file_says_where_its_images_come_from(name):
    tree = ast.parse(registry.find_source("datasets", name).read_text(encoding="utf-8"))
    assert "Source:" in ast.get_docstring(tree)


def test_labels_that_are_left_out_reach_no_network_but_the_judge(dataset):
    name, settings = dataset
    words = [f"data.name={name}", *(f"data.{key}={json.dumps(value)}" for key, value in settings.items())]
    labelled, hidden = (build.open_data(read_recipe("digits", [*words, *more])) for more in ([], ["data.labels=false"]))
    assert hidden.num_classes == 0 and hidden.train.has_pairs == labelled.train.has_pairs
    for there, left, scored in zip(
        (labelled.train, labelled.held_out), (hidden.train, hidden.held_out), hidden.scored, strict=True
    ):
        assert (len(left), left.class_names) == (len(there), ())
        samples = left.fetch(np.array([3, 0]))
        assert samples.keys() == left.tensors.keys() == there.tensors.keys() - {"label"}
        name = first_name(there)
        assert torch.equal(samples[name], there.fetch(np.array([3, 0]))[name])
        assert scored.class_names == there.class_names
        assert (left.fingerprint == there.fingerprint) is (not there.class_names)
