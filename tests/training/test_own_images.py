"""Recipe `own` on folders that nobody tuned: no run is lost by a number format that `auto` chooses."""

import json
import random
import statistics

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.hardware import precision

SEEDS = 3
LOST = 100.0  # largest R1 term: at most 3.5 in runs that held, 667 and more in lost ones


def letters(folder, count=1200):
    """Coloured letters on white, 64 px."""
    draws = random.Random(5)
    folder.mkdir()
    for number in range(count):
        image = Image.new("RGB", (64, 64), "white")
        font = ImageFont.load_default(draws.randint(36, 56))
        at = (32 + draws.randint(-4, 4), 32 + draws.randint(-4, 4))
        colour = tuple(draws.randrange(220) for _ in range(3))
        ImageDraw.Draw(image).text(at, draws.choice("ABCDEFGHKMNPRSTUWXYZabdeghkmnqrst2345678&"), colour, font, "mm")
        image.save(folder / f"{number:04}.png")
    return folder


def icons(folder, count=1500):
    """Shapes with dots on white, 64 px."""
    draws = random.Random(6)
    folder.mkdir()
    for number in range(count):
        large = Image.new("RGB", (256, 256), "white")
        pen = ImageDraw.Draw(large)
        x, y, radius = 128 + draws.randint(-20, 20), 128 + draws.randint(-20, 20), draws.randint(70, 100)
        colour = tuple(draws.randrange(220) for _ in range(3))
        box = (x - radius, y - radius, x + radius, y + radius)
        match draws.randrange(3):
            case 0:
                pen.ellipse(box, colour)
            case 1:
                pen.rounded_rectangle(box, 30, colour)
            case _:
                pen.regular_polygon((x, y, radius), draws.randint(3, 6), draws.randrange(90), colour)
        for _ in range(draws.randint(1, 3)):
            dot, a, b = draws.randint(8, 28), x + draws.randint(-45, 45), y + draws.randint(-45, 45)
            pen.ellipse((a - dot, b - dot, a + dot, b + dot), tuple(draws.randrange(220) for _ in range(3)))
        large.resize((64, 64), Image.Resampling.LANCZOS).save(folder / f"{number:04}.png")
    return folder


@pytest.mark.parametrize("recipe", ["own", "digits", "dcgan-mnist", "sngan-cifar10"])
def test_auto_computes_g_in_float32_where_bf16_is_fast(monkeypatch, tmp_path, recipe):
    monkeypatch.setattr(precision, "has_bf16", lambda device: True)
    data = f"data.path={icons(tmp_path / 'icons', 40)}" if recipe == "own" else "data.name=synthetic"
    config = read_recipe(recipe, [data, "evaluation.features=null"])
    gan = build.trainer(config, tmp_path / "run", print, stop=lambda: False).gan
    assert gan.g.training_network.calling.dtype is None
    assert gan.d.training_network.calling.dtype is torch.bfloat16


def trained(folder, size, seed, number_format, out):
    """(largest R1 term, last fd) of a run of 46 kimg."""
    words = {
        "data.path": str(folder), "data.size": size, "seed": seed, "train.kimg": 46, "every.score_kimg": 46,
        "evaluation.num_images": 1000, "g.precision": number_format, "d.precision": number_format, "rollback": None,
    }  # fmt: skip
    pg.train("own", words, out=out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    terms = [line["d/loss/r1"] for line in lines if line["kind"] == "step" and "d/loss/r1" in line]
    return max(terms), [line["fd[judge]"] for line in lines if line["kind"] == "score"][-1]


@pytest.mark.slow  # 12 runs of 3 to 16 minutes for each folder and size
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("make", [letters, icons])
def test_no_run_is_lost_and_auto_is_as_good_as_float32(tmp_path, make, size):
    folder = make(tmp_path / "images")
    found = {
        name: [trained(folder, size, seed, name, tmp_path / f"{name}-{seed}") for seed in range(SEEDS)]
        for name in ("fp32", "auto")
    }
    assert all(term < LOST for runs in found.values() for term, _ in runs), found
    fd = {name: [value for _, value in runs] for name, runs in found.items()}
    spread = 4.303 * statistics.stdev(fd["fp32"]) / SEEDS**0.5 + 4.303 * statistics.stdev(fd["auto"]) / SEEDS**0.5
    assert abs(statistics.mean(fd["auto"]) - statistics.mean(fd["fp32"])) <= spread, fd
