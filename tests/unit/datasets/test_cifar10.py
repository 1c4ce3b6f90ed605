"""CIFAR-10 in its three forms: each is read right, and what is not what its name says is refused in one line."""

import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.datasets import cifar10
from tests.data_refusals import refusal
from tests.image_folders import add_member

LOSSLESS, JPEG, BINARY = "cifar10-lossless-first4000.npz", "cifar10-jpeg.tar.xz", "cifar-10-binary.tar.gz"
FILES = (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
LABELS = (np.arange(40) % 10).astype(np.uint8)


def read(path, split="train", variant="auto"):
    return cifar10.source(cifar10.Options(str(path), variant), split)


def refused(path, split="train", variant="auto"):
    return refusal(lambda: read(path, split, variant))


def tar(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            add_member(archive, name, data)
    return path


def jpeg(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95, subsampling=0)
    return stream.getvalue()


@pytest.fixture
def small(monkeypatch):
    """Binary files of four images instead of 10,000."""
    monkeypatch.setattr(cifar10, "_FILE_ROWS", 4)
    rows = {name: np.random.default_rng(n).integers(0, 10, (4, 3073), np.uint8) for n, name in enumerate(FILES)}
    for array in rows.values():
        array[:, 1025:2049] += 100  # the green plane
    return rows


@pytest.mark.parametrize("packed", [True, False])
def test_the_binary_files(tmp_path, small, packed):
    if packed:
        content = {f"cifar-10-batches-bin/{name}": rows.tobytes() for name, rows in reversed(small.items())}
        tar(tmp_path / BINARY, content, "w:gz")
    else:
        (tmp_path / "cifar-10-batches-bin").mkdir()
        for name, rows in small.items():
            (tmp_path / "cifar-10-batches-bin" / name).write_bytes(rows.tobytes())
    train, held_out = read(tmp_path), read(tmp_path, "held_out")
    assert (len(train), len(held_out)) == (20, 4)
    x, y = train.fetch(range(20)).values()
    expected = np.concatenate([small[name] for name in FILES[:5]])
    assert torch.equal(x, torch.from_numpy(expected[:, 1:].reshape(20, 3, 32, 32)))
    assert y.tolist() == expected[:, 0].tolist()
    assert x[:, 1].min() >= 100 > x[:, [0, 2]].max()
    assert held_out.fetch([0])["label"].item() == small["test_batch.bin"][0, 0]


def test_the_lossless_part(tmp_path):
    np.savez(tmp_path / LOSSLESS, images=PIXELS, labels=LABELS)
    train, held_out = read(tmp_path), read(tmp_path, "held_out")
    assert torch.bincount(train.fetch(range(30))["label"]).tolist() == [3] * 10 or len(train) == 36
    x = torch.cat([s.fetch(range(len(s)))["image"] for s in (train, held_out)])
    found = sorted(image.numpy().tobytes() for image in x)
    assert found == sorted(np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes() for image in PIXELS)


def test_the_jpeg_files(tmp_path):
    plain = np.full((32, 32, 3), (250, 10, 10), np.uint8)
    tar(tmp_path / JPEG, {"train/00000_6.jpg": jpeg(plain), "test/cat_0001_3.jpg": jpeg(plain)}, "w:xz")
    for split, label in (("train", 6), ("held_out", 3)):
        x, y = read(tmp_path, split).fetch([0]).values()
        assert y.tolist() == [label]
        assert (x[0, 0].float().mean() - 250).abs() < 3
        assert x[0, 1:].float().mean() < 15


def test_best_of_several_variants_is_used(tmp_path, small):
    np.savez(tmp_path / LOSSLESS, images=PIXELS, labels=LABELS)
    tar(tmp_path / JPEG, {"train/0_1.jpg": jpeg(PIXELS[0])}, "w:xz")
    assert len(read(tmp_path)) == 36
    assert len(read(tmp_path, variant="jpeg")) == len(read(tmp_path / JPEG)) == 1
    tar(tmp_path / BINARY, {name: rows.tobytes() for name, rows in small.items()}, "w:gz")
    assert len(read(tmp_path)) == 20
    assert len(read(tmp_path, variant="lossless")) == len(read(tmp_path / LOSSLESS)) == 36


def test_folder_without_cifar10_names_the_files(tmp_path):
    assert BINARY in refused(tmp_path) and LOSSLESS in refused(tmp_path)
    assert LOSSLESS not in refused(tmp_path, variant="jpeg")
    assert "data.path=DIR" in refused(tmp_path / "nowhere")
    (tmp_path / LOSSLESS).touch()
    message = f"data.path contains {LOSSLESS} instead of {BINARY}; pass data.variant=lossless to use it"
    assert refused(tmp_path, variant="binary") == message


def test_a_batch_of_another_length_is_refused(tmp_path, small):
    content = {name: rows.tobytes() for name, rows in small.items()}
    tar(tmp_path / BINARY, {**content, FILES[2]: content[FILES[2]][:-1]}, "w:gz")
    assert f"{FILES[2]}: 12,291 bytes instead of" in refused(tmp_path)
    del content[FILES[5]]
    tar(tmp_path / BINARY, content, "w:gz")
    assert f"{FILES[5]}: no data" in refused(tmp_path, "held_out")


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"0", lambda content: b""])
def test_an_unpacked_batch_of_another_length_is_named_as_the_file_that_it_is(tmp_path, small, change):
    content = {name: rows.tobytes() for name, rows in small.items()}
    for name in FILES:
        (tmp_path / name).write_bytes(change(content[name]) if name == FILES[2] else content[name])
    assert refused(tmp_path).startswith(f"{tmp_path}: {FILES[2]}: ")


def test_missing_batch_file_raises(tmp_path, small):
    (tmp_path / FILES[0]).write_bytes(small[FILES[0]].tobytes())
    assert "all six .bin files" in refused(tmp_path)


def test_an_unknown_label_is_refused(tmp_path, small):
    small[FILES[0]][1, 0] = 10
    tar(tmp_path / BINARY, {name: rows.tobytes() for name, rows in small.items()}, "w:gz")
    assert "invalid label 10" in refused(tmp_path)


@pytest.mark.parametrize(
    "arrays", [{"labels": LABELS + 1}, {"labels": LABELS[1:]}, {"images": PIXELS[:, 1:]}, {"images": PIXELS / 255}]
)
def test_other_arrays_are_refused(tmp_path, arrays):
    np.savez(tmp_path / LOSSLESS, **{"images": PIXELS, "labels": LABELS, **arrays})
    assert "instead of uint8 (N, 32, 32, 3)" in refused(tmp_path)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"train/a.jpg": jpeg(PIXELS[0])}, "'train/a.jpg' is not a 32x32 image"),
        ({"train/0_1.jpg": jpeg(PIXELS[0, :8])}, "'train/0_1.jpg' is not a 32x32 image"),
        ({"train/0_1.jpg": b"none"}, "not an image"),
        ({"test/0_1.jpg": jpeg(PIXELS[0])}, "no images train/NUMBER_LABEL.jpg"),
    ],
)
def test_invalid_jpeg_members_raise(tmp_path, files, found):
    tar(tmp_path / JPEG, files, "w:xz")
    assert found in refused(tmp_path)


@pytest.mark.parametrize(("name", "mode"), [(JPEG, "w:xz"), (BINARY, "w:gz")])
@pytest.mark.parametrize("cut", [0, 20, 0.5, -20])
def test_a_cut_archive_is_refused(tmp_path, small, name, mode, cut):
    content = {file: rows.tobytes() for file, rows in small.items()} if name == BINARY else {}
    path = tar(tmp_path / name, content or {f"train/{n}_1.jpg": jpeg(PIXELS[n]) for n in range(9)}, mode)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut) if isinstance(cut, float) else cut])
    assert str(path) in refused(tmp_path)


def test_the_real_lossless_images(data_root):
    train, held_out = (read(data_root / "cifar10", split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (3600, 400)
    labels = torch.cat([train.fetch(np.arange(3600))["label"], held_out.fetch(np.arange(400))["label"]])
    counts = torch.bincount(labels)
    assert counts.tolist() == [396, 366, 420, 384, 422, 393, 414, 385, 407, 413]
