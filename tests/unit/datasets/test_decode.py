"""How any kind of picture is decoded: upright, 8 bits, as many channels as asked for, the square asked for."""

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.datasets import folder


def both(root, size=8, **options):
    """The two parts of two pictures."""
    return [
        folder.source(folder.Options(path=str(root), size=size, **options), split) for split in ("train", "held_out")
    ]


def first(image, tmp_path, suffix=".png", channels=3, **options):
    """What becomes of this picture: (C, H, W)."""
    image.save(tmp_path / f"0{suffix}")
    return of_first(tmp_path, channels=channels, **options)


def of_first(root, **options):
    """The picture 0 in the folder, beside another."""
    Image.new("RGB", (8, 8)).save(root / "1.png")
    (source,) = [source for source in both(root, **options) if "/0." in source.where(0)]
    return source.fetch([0])["image"][0]


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
def test_16_bits_become_8(tmp_path, suffix):
    levels = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    x_CHW = first(Image.fromarray(levels), tmp_path, suffix)
    assert torch.equal(x_CHW[0], torch.from_numpy((levels // 257).astype(np.uint8)))


def test_a_palette_with_a_transparent_colour(tmp_path):
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 9, 9, 9])
    image.info["transparency"] = 1
    assert first(image, tmp_path).unique().tolist() == [255]


def test_the_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    frames[0].save(tmp_path / "0.gif", save_all=True, append_images=frames[1:])
    assert of_first(tmp_path).min() == 255


@pytest.mark.parametrize(("crop", "red"), [("center", 0.0), ("squash", 0.5)])
def test_the_middle_or_the_whole(tmp_path, crop, red):
    wide = Image.new("RGB", (32, 16), "blue")
    wide.paste((255, 0, 0), (0, 0, 8, 16))
    wide.paste((255, 0, 0), (24, 0, 32, 16))
    x_CHW = first(wide, tmp_path, crop=crop)
    assert abs(x_CHW[0].float().mean() / 255 - red) < 0.02


def test_shrinking_averages(tmp_path):
    board = np.indices((64, 64)).sum(0) % 2 * 255
    x_CHW = first(Image.fromarray(board.astype(np.uint8)), tmp_path)
    assert x_CHW.float().std() < 8
    assert abs(x_CHW.float().mean() - 127.5) < 4
