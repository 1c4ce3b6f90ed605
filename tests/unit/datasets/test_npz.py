"""Arrays in an npz file: each layout is read, and what does not fit is refused in one line that says why."""

import numpy as np
import pytest
import torch

from paragan.datasets import npz
from tests.data_refusals import refusal

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 6, 3), np.uint8)
LABELS = np.arange(40) % 4


def read(path, split="train", **options):
    return npz.source(npz.Options(path=str(path), **options), split)


@pytest.fixture
def save(tmp_path):
    def saved(**arrays):
        np.savez(tmp_path / "mine.npz", **arrays)
        return tmp_path / "mine.npz"

    return saved


def refused(path, **options):
    return refusal(lambda: read(path, **options))


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        (IMAGES, IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES.transpose(0, 3, 1, 2), IMAGES.transpose(0, 3, 1, 2)),
        (np.asfortranarray(IMAGES), IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES[..., 0], IMAGES[:, None, :, :, 0]),
        (IMAGES[..., :1], IMAGES[:, None, :, :, 0]),
        (IMAGES[..., [0, 1, 2, 0]], IMAGES[..., [0, 1, 2, 0]].transpose(0, 3, 1, 2)),
        (IMAGES.transpose(0, 3, 1, 2)[:, [0, 1, 2, 0, 1]], IMAGES.transpose(0, 3, 1, 2)[:, [0, 1, 2, 0, 1]]),
    ],
    ids=["NHWC", "NCHW", "by column", "NHW", "grey", "RGBA", "five"],
)
def test_each_layout_is_read(save, stored, seen):
    path = save(images=stored)
    x = torch.cat(
        [read(path, split).fetch(np.arange(len(read(path, split))))["image"] for split in ("train", "held_out")]
    )
    assert sorted(image.tobytes() for image in x.numpy()) == sorted(np.ascontiguousarray(i).tobytes() for i in seen)


def test_each_class_has_equal_held_out_share(save):
    path = save(images=IMAGES, labels=LABELS.astype(np.uint8), class_names=np.array(["a", "b", "c", "d"]))
    train, held_out = read(path), read(path, "held_out")
    assert train.class_names == ("a", "b", "c", "d")
    assert held_out.fetch(range(4))["label"].tolist() == [0, 1, 2, 3]
    assert torch.bincount(train.fetch(range(36))["label"]).tolist() == [9] * 4
    index = {image.tobytes(): int(label) for image, label in zip(IMAGES.transpose(0, 3, 1, 2), LABELS, strict=True)}
    x, y = train.fetch(range(36)).values()
    assert [index[image.numpy().tobytes()] for image in x] == y.tolist()


def test_other_names_of_arrays(save):
    path = save(x=IMAGES, y=LABELS)
    assert read(path, image_array="x", label_array="y").class_names == ("0", "1", "2", "3")
    assert "no array 'images'; the file has x, y" in refused(path)
    assert "no array 'z'" in refused(path, image_array="x", label_array="z")


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        (
            {"images": IMAGES.astype(np.float32) / 255},
            "value of all images, such as data.range=[",
        ),
        ({"images": IMAGES / np.nan}, "some values are not finite"),
        ({"images": IMAGES.astype(np.int64)}, "values of int64 from 0 to 255"),
        ({"images": IMAGES.astype(np.int16)}, "values of int16 from 0 to 255"),
        ({"images": IMAGES[:, :2, :2, [0, 0]]}, "(40, 2, 2, 2)"),
        ({"images": IMAGES[0, 0]}, "the shape is (6, 3)"),
        ({"images": IMAGES[0]}, "one image"),
        ({"images": IMAGES[0].transpose(2, 0, 1)}, "one image"),
        ({"images": IMAGES[0][..., [0, 1, 2, 0]]}, "one image"),
        ({"images": IMAGES[0][..., [0, 1, 2, 0]].transpose(2, 0, 1)}, "one image"),
        ({"images": IMAGES[0][..., :1]}, "one image"),
        ({"images": IMAGES[:0]}, "the shape is (0, 8, 6, 3)"),
        ({"images": IMAGES[:1]}, "only one image"),
        ({"images": IMAGES, "labels": LABELS[:-1]}, "(39,); save one integer or name per image, shape (40,)"),
        ({"images": IMAGES, "labels": LABELS - 1}, "labels range from -1 to 2"),
        ({"images": IMAGES, "labels": np.arange(40) + 40}, "labels range from 40 to 79"),
        (
            {"images": IMAGES, "labels": LABELS, "class_names": np.array(["a"])},
            "the array holds 1 names; save one name for each",
        ),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.arange(4)}, "save one name for each"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b", "a", "c"])}, "twice"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(save, arrays, found):
    assert found in refused(save(**arrays))


@pytest.mark.filterwarnings("ignore")
def test_python_objects_are_refused(save):
    assert "Python objects" in refused(save(images=np.array([{"a": 1}, None], dtype=object)))


def test_a_file_that_is_not_there(tmp_path):
    assert "data.path=FILE.npz" in refused("")
    assert "data.path=FILE.npz" in refused(tmp_path / "none.npz")


@pytest.mark.parametrize("cut", [0, 10, 1000, -10])
def test_a_cut_file_is_refused(save, cut):
    path = save(images=IMAGES)
    path.write_bytes(path.read_bytes()[:cut])
    assert "damaged zip file" in refused(path)


@pytest.mark.parametrize("bits", [8, 16])
def test_values_of_any_type_are_mapped_by_a_range(save, bits):
    for values, limits in ((IMAGES.astype(np.int16) * 9 - 500, (-500, 1000)), (IMAGES / 255.0 - 0.5, (-0.25, 0.5))):
        path = save(images=values)
        source = read(path, range=limits, bits=bits)
        levels = ((values - limits[0]) / (limits[1] - limits[0])).clip(0, 1) * (2**bits - 1)
        stored = np.stack([levels.transpose(0, 3, 1, 2)[row] for row in range(len(values))])
        x = torch.cat([read(path, split, range=limits, bits=bits).fetch(np.arange(4))["image"] for split in ("train",)])
        distances = np.abs(stored[:, None] - x.numpy()[None].astype(float)).max((2, 3, 4)).min(0)
        assert distances.max() <= 0.51
        assert source.tensors["image"].dtype == (torch.uint8 if bits == 8 else torch.uint16)


def test_16_bits_are_kept_and_a_narrow_range_is_said(save):
    deep = np.random.default_rng(0).integers(0, 65536, (40, 8, 6, 3), np.uint16)
    kept = read(save(images=deep), bits=16).fetch([0])["image"][0].numpy()
    assert any(np.array_equal(kept, image.transpose(2, 0, 1)) for image in deep)
    assert read(save(images=deep)).notices == ()
    (notice,) = read(save(images=deep // 16)).notices
    assert "data.range=[" in notice


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        (LABELS.astype(np.float32), tuple("0123")),
        (LABELS.astype(np.float16).reshape(40, 1), tuple("0123")),
        (LABELS % 2 == 0, ("0", "1")),
        (np.array(["a", "b", "c", "dög"])[LABELS], ("a", "b", "c", "dög")),
        (np.array([b"a", "ö".encode(), b"c", b"d"])[LABELS], ("a", "c", "d", "ö")),
    ],
    ids=["float", "column", "bool", "text", "bytes"],
)
def test_labels_of_any_type_are_classes(save, stored, names):
    path = save(images=IMAGES, labels=stored)
    train, held_out = read(path), read(path, "held_out")
    assert train.class_names == held_out.class_names == names
    assert sum(np.add(train.class_sizes(), held_out.class_sizes())) == 40
    by_pixels = {image.tobytes(): label for image, label in zip(IMAGES.transpose(0, 3, 1, 2), stored, strict=True)}
    x, y = held_out.fetch(range(len(held_out))).values()
    for image, label in zip(x, y, strict=True):
        value = by_pixels[image.numpy().tobytes()].reshape(()).item()
        text = value.decode() if isinstance(value, bytes) else str(value if isinstance(value, str) else int(value))
        assert names[label] == text


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (np.where(LABELS == 3, np.nan, LABELS), ("image 3", "nan")),
        (LABELS + np.array([0.0, 0.5] * 20), ("image 1", "1.5")),
        (np.eye(4)[LABELS], ("float64 (40, 4)", "(40,)")),
        (np.array(["a", "", "b", "c"])[LABELS], ("image 1", "no label")),
    ],
)
def test_labels_that_are_no_classes_are_refused_by_image(save, stored, words):
    message = refused(save(images=IMAGES, labels=stored))
    assert all(word in message for word in words)
