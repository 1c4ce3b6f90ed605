"""A run folder as training leaves it, made up: every kind of line, as many of them as asked for."""

import json
import math
import random
from pathlib import Path

from PIL import Image

ROWS = ["plane", "car", "<script>alert(1)</script>", "cat & dog", '"deer"', "dog", "frog", "horse", "ship", "truck"]
STEPS_KIMG = 0.064


def make(folder: Path, steps: int = 300, scores: int = 5, samples: int = 6, size: tuple[int, int] = (340, 340)) -> Path:
    """`steps` step lines (20 steps apart), evaluations and pictures spread over them; no end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("data: {name: digits}  # <b>bold</b>\ntrain:\n  kimg: 1000\n", encoding="utf-8")
    draw = random.Random(0)
    lines, pictured, scored = [start(steps)], due(steps, samples), due(steps, scores)
    for number in range(steps + 1):
        if number:
            lines.append(step_line(number * 20, number / steps, draw))
        if number in pictured:
            lines.append(picture(folder, number * 20, size, draw))
        if number in scored:
            lines += [score(number * 20, number / steps, draw), telemetry(number * 20, number / steps, draw)]
    lines += closing(steps * 20)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def append(folder: Path, *lines: dict) -> None:
    """More lines at the end of the record."""
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def due(of: int, times: int) -> set[int]:
    """So many numbers spread over 0..of, both among them."""
    return {round(n * of / max(1, times - 1)) for n in range(times)}


def line(kind: str, step: int, **values: object) -> dict:
    return {"kind": kind, "step": step, "kimg": step * STEPS_KIMG, "seconds": step * 0.05, **values}


def start(steps: int) -> dict:
    players = {
        "g": {"weights": 402_113, "precision": "fp32", "device": "cpu"},
        "d": {"weights": 287_553, "precision": "fp32", "device": "cpu"},
    }
    data = {"name": "folder", "shape": [3, 32, 32], "images": 4000, "class_names": ROWS}
    commands = {
        "resume": "./run train runs/zoo/config.yaml --out runs/zoo",
        "sample": "./run sample runs/zoo --num 64",
        "export": "./run export runs/zoo",
    }
    changed = {"d.optimizer.lr": [0.0002, 0.0004], "data.path": [None, "pictures/<zoo>"], "train.batch": [64, 128]}
    total = steps * 20 * STEPS_KIMG * 1.25
    told = {"recipe": "sngan-zoo", "resumed": False, "total_kimg": total, "players": players, "data": data}
    return line("start", 0, **told, changed=changed, commands=commands)


def step_line(step: int, at: float, draw: random.Random) -> dict:
    noise = draw.gauss
    values = {
        "d/loss/adversarial": 1.1 - 0.4 * at + noise(0, 0.12),
        "g/loss/adversarial": 0.8 + 0.5 * math.sqrt(at) + noise(0, 0.15),
        "d/loss/r1": math.exp(-3 - at + noise(0, 0.5)),
        "d/real": 0.9 + 0.7 * at + noise(0, 0.25),
        "d/fake": -0.6 - 0.6 * at + noise(0, 0.25),
        "d/gradient_norm": math.exp(0.8 - 0.5 * at + noise(0, 0.25)) * (12 if draw.random() < 0.004 else 1),
        "g/gradient_norm": math.exp(0.2 + 0.4 * at + noise(0, 0.3)),
        "d/lr": 4e-4 * (1 - 0.8 * at),
        "g/lr": 2e-4 * (1 - 0.8 * at),
        "images_per_s": 1180 + noise(0, 30) - 300 * (0.4 < at < 0.45),
        "data_wait": abs(noise(0.012, 0.004)),
    }
    return line("step", step, **values)


def score(step: int, at: float, draw: random.Random) -> dict:
    protocol = {"extractor": "judge", "reference": {"split": "train", "num_images": 4000}, "k": 5}
    return line(
        "score",
        step,
        **{"fd[judge]": 12 + 110 * math.exp(-5 * at) + 9 * max(0, at - 0.8) + draw.gauss(0, 1.5)},
        label_accuracy=min(0.99, 0.1 + 0.85 * (1 - math.exp(-4 * at)) + draw.gauss(0, 0.01)),
        coverage=min(0.99, 0.05 + 0.7 * (1 - math.exp(-3 * at)) + draw.gauss(0, 0.01)),
        class_variance_min=0.2 + 0.6 * at,
        num_images=2000,
        protocol=protocol,
    )


def telemetry(step: int, at: float, draw: random.Random) -> dict:
    values = {
        "d/accuracy_train": 0.75 + 0.2 * at,
        "d/accuracy_held_out": 0.75 - 0.1 * at,
        "d/accuracy_fake": 0.8,
        "d/held_out": 0.8 + 0.1 * at,
        "d/overfitting": 0.3 * at,
        "d/saturation": 0.1 + 0.3 * at,
        "gradient_norm_ratio": 2.2 - at + draw.gauss(0, 0.1),
        "diversity": 0.9 - 0.2 * at,
        "d/top_singular_value": 1.0 + 0.01 * at,
        "g/top_singular_value": 2.0 + 3 * at,
    }
    return line("telemetry", step, **values)


def picture(folder: Path, step: int, size: tuple[int, int], draw: random.Random) -> dict:
    """Ten rows of ten noisy tiles; no two pictures are alike."""
    name = f"samples/step-{step:07d}.png"
    (folder / "samples").mkdir(exist_ok=True)
    small = Image.frombytes("RGB", (size[0] // 4, size[1] // 4), draw.randbytes(3 * (size[0] // 4) * (size[1] // 4)))
    small.resize(size, Image.Resampling.BILINEAR).save(folder / name, compress_level=1)
    return line("samples", step, path=name, columns=10, rows=ROWS, shape=[3, 32, 32], num=100)


def closing(step: int) -> list[dict]:
    means = "D is right about 95 % of its training images but 65 % of held-out ones: it learns them by heart."
    return [
        line(
            "advice",
            step,
            name="D overfits",
            value=0.3,
            means=means,
            **{"try": "augment.name=diffaugment, or more images."},
        ),
        line("checkpoint", step // 2, path=f"checkpoints/step-{step // 2}"),
        line("checkpoint", step, path=f"checkpoints/step-{step}"),
        line("event", step, text="writer tensorboard failed: disk <full>; it is switched off"),
    ]
