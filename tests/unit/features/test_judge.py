"""The judge: good on unseen images, the same every time, kept and reused, and no bother to the training around it."""

import json

import numpy as np
import pytest
import torch

from paragan.datasets import digits
from paragan.datasets.base.in_memory import InMemorySource
from paragan.features import judge as judging
from paragan.features.base import classifier, extractor
from paragan.features.judge import train_or_load
from paragan.loading.normalise import normalise
from paragan.loading.order import Order

KEPT = ("judge.json", "judge.safetensors")


@pytest.fixture(scope="module")
def small():
    """The digits at 8 pixels: (train, held out)."""
    return tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """A folder with the judge of `small`, and that judge."""
    folder = tmp_path_factory.mktemp("run") / "judge"
    return folder, train_or_load(*small, folder)


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of that folder, to be spoilt."""
    for name in KEPT:
        (tmp_path / name).write_bytes((kept[0] / name).read_bytes())
    return tmp_path


@pytest.fixture
def fits(monkeypatch):
    """How often a judge is trained; the training itself is replaced."""
    calls = []
    monkeypatch.setattr(
        judging, "train_classifier", lambda train, seed, progress: calls.append(seed) or untrained(train)
    )
    return calls


def untrained(train):
    return judging.build_classifier(train.shape, len(train.class_names), seed=0)


def same(a, b):
    weights = (a.network.state_dict(), b.network.state_dict())
    return all(torch.equal(x, y) for x, y in zip(*(w.values() for w in weights), strict=True))


@pytest.mark.slow
def test_judge_recognizes_held_out_digits():
    """The bar for scores of the digits recipe, at its size; by default `tests/training` looks at it."""
    parts = [digits.source(digits.Options(16), split) for split in ("train", "held_out")]
    assert train_or_load(*parts, None).accuracy >= 0.97


def test_judge_accuracy_is_of_held_out_images(kept, small):
    x, y = small[1].fetch(np.arange(360)).values()
    judged = kept[1].compute(normalise(x), y)
    assert float((judged.logits_BK.argmax(1) == judged.requested_labels_B).double().mean()) == kept[1].accuracy > 0.9


def test_judge_result_is_independent_of_batch(kept, small):
    """In evaluation mode: the company of an image does not change what is seen in it."""
    x = normalise(small[1].fetch(np.arange(20))["image"])
    alone = torch.cat([kept[1].compute(row[None]).features_BF for row in x])
    assert torch.allclose(kept[1].compute(x).features_BF, alone, atol=1e-5)


def test_compute_rows_are_in_order_with_labels(kept, small, monkeypatch):
    whole = kept[1].compute_rows(small[1], 50)
    monkeypatch.setattr(extractor, "REAL_AT_ONCE", 7)
    cut = kept[1].compute_rows(small[1], 50)
    rows = Order(len(small[1]), 0).at(np.arange(50))  # files may lie class by class
    assert torch.equal(whole.requested_labels_B, small[1].fetch(rows)["label"])
    assert torch.allclose(cut.features_BF, whole.features_BF, atol=1e-5)


def test_judge_training_is_deterministic(small, monkeypatch):
    """Another global random state, two threads, no gradients: bit for bit the same; and all of it is left as found."""
    monkeypatch.setattr(classifier, "STEPS", 60)
    first = train_or_load(*small, None)
    torch.manual_seed(99)
    torch.set_num_threads(2)
    before = torch.get_rng_state()
    with torch.no_grad():
        again = train_or_load(*small, None)
        assert not torch.is_grad_enabled()
    assert same(again, first)
    assert again.sha256 == first.sha256
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_judge_is_saved_and_reused(kept, small, folder, fits):
    again = train_or_load(*small, folder)
    assert fits == []
    assert same(again, kept[1])
    assert (again.accuracy, again.sha256, again.name) == (kept[1].accuracy, kept[1].sha256, "judge")
    assert json.loads((folder / "judge.json").read_text())["accuracy"] == again.accuracy
    assert sorted(p.name for p in folder.iterdir()) == sorted(KEPT)


@pytest.mark.parametrize("changed", ["train image", "train label", "held-out image", "held-out rows", "names", "seed"])
def test_judge_other_data_or_seed_is_trained_again(small, folder, fits, changed):
    train, held_out = (InMemorySource(s.images_NCHW.clone(), s.labels_N.clone(), s.class_names) for s in small)
    match changed:
        case "train image":
            train.images_NCHW[700, 0, 3, 3] ^= 1
        case "train label":
            train.labels_N[700] = (train.labels_N[700] + 1) % 10
        case "held-out image":
            held_out.images_NCHW[200, 0, 3, 3] ^= 1
        case "held-out rows":
            held_out = InMemorySource(held_out.images_NCHW[1:], held_out.labels_N[1:], held_out.class_names)
        case "names":
            train.class_names = tuple("abcdefghij")
    train_or_load(train, held_out, folder, seed=int(changed == "seed"))
    assert len(fits) == 1


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-1] + b"0", None])
def test_judge_damaged_file_is_trained_again(small, folder, fits, name, spoil):
    path = folder / name
    path.unlink() if spoil is None else path.write_bytes(spoil(path.read_bytes()))
    train_or_load(*small, folder)
    assert fits == [0]
    train_or_load(*small, folder)  # the new one is whole
    assert fits == [0]


def test_judge_without_classes_learns_rotations(small):
    judge = train_or_load(*(InMemorySource(s.images_NCHW, None, (), "plain") for s in small), None)
    assert (judge.num_classes, judge.accuracy > 0.8) == (4, True)  # digits have an up


def test_judge_with_one_class_learns_rotations(small, fits):
    parts = [InMemorySource(s.images_NCHW, torch.zeros_like(s.labels_N), ("digit",), "plain") for s in small]
    assert train_or_load(*parts, None).num_classes == 4


def test_judge_unwritable_folder_is_ignored_if_optional(small, tmp_path, fits):
    (tmp_path / "file").touch()
    judge = train_or_load(*small, tmp_path / "file" / "judge", must_save=False)
    assert (fits, judge.accuracy is None) == ([0], False)


@pytest.mark.parametrize(("shape", "turns"), [((1, 6, 6), 4), ((1, 4, 6), 2)])
def test_rotated_source_rows_and_labels(shape, turns):
    images = torch.arange(3 * shape[1] * shape[2], dtype=torch.uint8).view(3, *shape)
    turned = judging.RotatedSource(InMemorySource(images))
    x, y = turned.fetch(np.arange(3 * turns)).values()
    assert len(turned) == 3 * turns
    assert y.tolist() == [turn for turn in range(turns) for _ in range(3)]
    assert torch.equal(x[:3], images)
    assert torch.equal(x[3], images[0].rot90(4 // turns, (1, 2)))
    assert torch.equal(x[-1], images[2].rot90(-4 // turns, (1, 2)))


@pytest.mark.parametrize(
    ("shape", "reduced"), [((3, 128, 128), (64, 64)), ((1, 300, 260), (75, 65)), ((3, 1024, 1024), (64, 64))]
)
def test_judge_of_large_images_costs_as_much_as_one_of_small_images(shape, reduced):
    large = classifier.build_classifier(shape, 4, seed=0).eval()
    small = classifier.build_classifier((shape[0], *reduced), 4, seed=0).eval()
    for weight, of_small in zip(large.state_dict().values(), small.state_dict().values(), strict=True):
        assert torch.equal(weight, of_small)
    x = torch.rand(1, *shape)
    area = x.view(shape[0], reduced[0], shape[1] // reduced[0], reduced[1], -1).mean((2, 4))
    torch.testing.assert_close(large(x), small(area[None]))


@pytest.mark.parametrize("side", [16, 64, 96])
def test_judge_of_small_images_sees_every_pixel(side):
    net = classifier.build_classifier((3, side, side), 4, seed=0)
    assert isinstance(net.features[0], torch.nn.Conv2d)
