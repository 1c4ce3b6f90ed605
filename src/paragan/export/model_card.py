"""Model card of an exported generator."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paragan import __version__
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler

_MAX_CLASS_NAMES = 20


def render_card(
    sampler: Sampler, tree: Mapping[str, Any], score: Mapping[str, Any], files: Sequence[Path], trust: bool
) -> str:
    """Render the card as Markdown.

    tree: the config. score: as in `score.json`, or empty. files: all that the card is about.
    """
    names = [path.name for path in files]
    model = tree["model"]
    data = tree["data"]
    return "\n".join(
        [
            f"# {_escape(model['name'])} trained on {_escape(data['name'])}\n",
            *(["![samples](samples.png)\n"] if "samples.png" in names else []),
            *_facts(sampler, tree),
            *_scores(score, sampler.info.step),
            *_usage(sampler, names, trust),
            *_files(files, sampler.info.step),
            *_LIMITS,
        ]
    )


def _facts(sampler: Sampler, tree: Mapping[str, Any]) -> list[str]:
    info = sampler.info
    names = [_escape(name) for name in sampler.class_names[:_MAX_CLASS_NAMES]]
    more = (
        f" and {len(sampler.class_names) - _MAX_CLASS_NAMES} more"
        if len(sampler.class_names) > _MAX_CLASS_NAMES
        else ""
    )
    weights = sum(p.numel() for p in sampler.net.parameters())
    rows = {
        "generator": f"{_escape(tree['model']['name'])}, {weights:,} weights, averaged where the run averages",
        "input": " and ".join(_inputs(sampler)),
        "output": _output(sampler),
        "data": _escape(tree["data"]["name"]),
        "classes": ", ".join(names) + more if names else "none",
        "loss": ", ".join(_escape(part["name"]) for part in (tree["loss"], *tree["penalties"])),
        "trained for": f"{info.step:,} steps of {tree['train']['batch']}, {info.images / 1000:g} thousand images",
        "seed": str(tree["seed"]),
        "made with": f"paragan {__version__}; the whole recipe is in the metadata of generator.safetensors",
    }
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items()), ""]


def _output(sampler: Sampler) -> str:
    size = "x".join("any length" if axis == -1 else str(axis) for axis in sampler.info.shape)
    if isinstance(sampler, TensorSampler):
        return f"{_escape(sampler.sample_name)} of {size}"
    return f"images of {size} (channels, height, width) in [-1, 1]"


def _inputs(sampler: Sampler) -> list[str]:
    if isinstance(sampler, TensorSampler):
        return [_escape(name) for name in sampler.inputs]
    image = f"an image of {'x'.join(map(str, sampler.info.shape))} in [-1, 1]"
    latent = f"{sampler.net.latent} standard normal numbers" if sampler.net.latent else ""
    return [*[image] * sampler.takes_condition, *[latent] * bool(latent), *["a class"] * bool(sampler.num_classes)]


def _scores(score: Mapping[str, Any], step: int) -> list[str]:
    values = {key: value for key, value in score.items() if isinstance(value, float) and key not in ("kimg", "seconds")}
    if not values:
        return ["## Scores\n", "This run was not scored.\n"]
    other = "" if score.get("step") == step else f" These weights are of step {step}, which was not scored."
    protocol = score.get("protocol")
    settings = protocol if isinstance(protocol, Mapping) else {}
    return [
        "## Scores\n",
        f"Of {_escape(score.get('num_images'))} images at step {_escape(score.get('step'))}.{other}\n",
        "| metric | value | held-out real images |\n|---|---|---|",
        *(f"| {_escape(key)} | {value:.4g} | {_real_value(score, key)} |" for key, value in values.items()),
        "\nProtocol, which has to be equal where two scores are compared:\n",
        *(f"- {_escape(key)}: {_escape(value)}" for key, value in settings.items()),
        "",
    ]


def _real_value(score: Mapping[str, Any], metric: str) -> str:
    real = score.get("real")
    value = real.get(metric) if isinstance(real, Mapping) else None
    return f"{value:.4g}" if isinstance(value, float) else ""


def _usage(sampler: Sampler, files: Sequence[str], trust: bool) -> list[str]:
    lines = ["## How to use it\n", "```python", *_example(sampler, ", trust=True" if trust else ""), "```\n"]
    if sampler.takes_condition:
        command = "paragan sample generator.safetensors --input FOLDER" + (" --trust" if trust else "")
        lines.append(f"`x` are the input images. For image files in a folder: `{command}`\n")
    if trust:
        lines.append(
            "Its config names code outside paragan, which has to be importable; `trust=True` lets it be imported.\n"
        )
    if "generator.pt2" in files:
        call = ", ".join(_arguments(sampler).values())
        load = 'generator = torch.export.load("generator.pt2").module()'
        code = ["import torch", load, f"images = generator({call})"]
        lines += ["With PyTorch alone, for any batch size:\n", "```python", *code, "```\n"]
    if "generator.onnx" in files:
        fed = ", ".join(f'"{name}": {value}.numpy()' for name, value in _arguments(sampler).items())
        load = 'session = onnxruntime.InferenceSession("generator.onnx")'
        code = ["import onnxruntime", "import torch", load, f"(images,) = session.run(None, {{{fed}}})"]
        lines += ["With ONNX Runtime, for any batch size:\n", "```python", *code, "```\n"]
    return lines


def _arguments(sampler: Sampler) -> dict[str, str]:
    """Return the inputs of the exported programs by name, as Python expressions of four random samples."""
    latents = f"torch.randn(4, {sampler.net.latent})"
    labels = f"torch.randint({sampler.num_classes}, (4,))"
    return {"z": latents, **({"labels": labels} if sampler.num_classes else {})}


def _files(files: Sequence[Path], step: int) -> list[str]:
    """Return the table of the files, all of the weights of one step."""
    rows = [file_row(path, step) for path in files]
    return ["## Files\n", "| file | step | sha256 |", "|---|---:|---|", *rows, ""]


def file_row(path: Path, step: int) -> str:
    """Return the row of a file in the table of files."""
    return f"| {path.name} | {step:,} | {hashlib.sha256(path.read_bytes()).hexdigest()} |"


def _example(sampler: Sampler, trust: str) -> list[str]:
    load = f'generator = pg.load("generator.safetensors"{trust})'
    labels = f", labels={sampler.num_classes - 1}" if sampler.num_classes else ""
    if isinstance(sampler, TensorSampler):
        call = ", ".join(f"{name}={name}" for name in sampler.inputs)
        return ["import paragan as pg", load, f"{sampler.sample_name} = generator.net({call})"]
    if not sampler.takes_condition:
        return ["import paragan as pg", load, f'generator.sample(16, seed=0{labels}).save("mine.png")']
    size = ", ".join(map(str, sampler.info.shape))
    call = f'generator.sample(1, seed=0{labels}, conditions=x).save("mine.png")'
    return ["import torch", "import paragan as pg", load, f"x = torch.zeros(1, {size})", call]


_LIMITS = [
    "## Limits\n",
    "It makes images like those it was trained on and inherits what they over- and under-represent. Its images are no",
    "record of anything real. It was not examined for memorised training images.\n",
    "## Licence\n",
    "Not stated. The publisher of these weights chooses it, in accordance with the terms of the training data.",
    "",
]


def _escape(value: Any) -> str:
    """Escape text for a Markdown table; names of folders and classes are untrusted."""
    return re.sub(r"([\\`*_\[\]|!#~])", r"\\\1", html.escape(" ".join(str(value).split())[:200], quote=False))
