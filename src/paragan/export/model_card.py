"""Model card of an exported generator, from `model_card.md.j2`."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from paragan import __version__
from paragan.core.tensor_game import LATENT
from paragan.export.sampler import Sampler
from paragan.export.summary import metric_values
from paragan.export.tensor_sampler import TensorSampler
from paragan.export.traceable import Traceable, traceable

MAX_CLASS_NAMES = 20
OWN_ROW = "| made with | paragan "  # of both model cards: no other README has it


def render_card(
    sampler: Sampler, tree: Mapping[str, Any], score: Mapping[str, Any], files: Sequence[Path], trust: bool
) -> str:
    """Render the card as Markdown.

    tree: the config. score: as in `score.json`, or empty. files: all that the card is about. trust: `pg.load` needs
    `trust=True`, since the config names code outside paragan.
    """
    info = sampler.info
    metrics = metric_values(score)
    real = _mapping(score.get("real"))
    network = _network(sampler, files)
    return render(
        "model_card.md.j2",
        player="generator",
        tree=tree,
        info=info,
        names=[path.name for path in files],
        weights=sum(p.numel() for p in sampler.net.parameters()),
        origin=sampler.origin,
        inputs=_safe(sampler, sampler.input_texts()),
        output=_safe(sampler, [sampler.output_text()])[0],
        classes=sampler.class_names[:MAX_CLASS_NAMES],
        more_classes=len(sampler.class_names) - MAX_CLASS_NAMES,
        losses=[part["name"] for part in (tree["loss"], *tree["penalties"])],
        score={"num_images": None, "step": None, **score},
        metrics=metrics,
        real={name: real.get(name) for name in metrics},
        protocol=_mapping(score.get("protocol")),
        example=_example(sampler, ", trust=True" if trust else ""),
        input_kind=sampler.input_kind,
        result=network.output if network else "images",
        trust=trust,
        sizes=_sizes(network),
        arguments=_arguments(sampler, network),
        rows=[file_row(path, info.step) for path in files],
    )


def render(template: str, **values: Any) -> str:
    """Render a template of this folder as Markdown; `e` in it is `_escape`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"e": _escape, "figure": _figure, "plain": _plain}
    return environment.get_template(template).render(version=__version__, **values)


def _safe(sampler: Sampler, texts: Sequence[str]) -> list[str]:
    """Escape texts that have names of a user's tensors."""
    return list(map(_escape, texts)) if isinstance(sampler, TensorSampler) else list(texts)


def _network(sampler: Sampler, files: Sequence[Path]) -> Traceable | None:
    """Return the network of the exported programs.

    None without programs, and for images from latents and labels, whose inputs need no example.
    """
    programs = [path for path in files if path.suffix in (".pt2", ".onnx", ".py")]
    if not programs or not (isinstance(sampler, TensorSampler) or sampler.takes_condition):
        return None
    stem = programs[0].stem
    return traceable(sampler, None if stem == "generator" else stem)


def _arguments(sampler: Sampler, network: Traceable | None) -> dict[str, str]:
    """Return the inputs of the exported programs by name, as Python expressions of some samples."""
    if network is not None:
        inputs = zip(network.names, network.traced_inputs(), strict=True)
        return {name: f"torch.zeros{tuple(x.shape)}" for name, x in inputs}
    latents = f"torch.randn(4, {sampler.net.latent})"
    labels = f"torch.randint({sampler.num_classes}, (4,))"
    return {"z": latents, **({"labels": labels} if sampler.num_classes else {})}


def _sizes(network: Traceable | None) -> str:
    """Return the words after "any batch size": sizes of images that the programs take; empty: those of the run."""
    if network is None:
        return ""
    multiples = {multiple for axes in network.axes for multiple in axes.values()}
    return " and any size" if multiples <= {1} else f" and any multiple of {max(multiples)} as the size"


def file_row(path: Path, step: int) -> str:
    """Return the row of a file in the table of files, all of the weights of one step."""
    return f"| {path.name} | {step:,} | {hashlib.sha256(path.read_bytes()).hexdigest()} |"


def _example(sampler: Sampler, trust: str) -> list[str]:
    load = f'generator = pg.load("generator.safetensors"{trust})'
    results = [f"result = {call}" for call in sampler.call_texts()]
    match sampler.input_kind:
        case "image":
            image = 'image = Image.new("RGB", (64, 48))  # or Image.open(FILE), of any size'
            return ["from PIL import Image", "import paragan as pg", load, image, *results, 'result.save("result.png")']
        case "audio":
            audio = f"audio = torch.zeros({sampler.info.shape[0]}, 8000)  # channels, samples in [-1, 1]; of any length"
            return ["import torch", "import paragan as pg", load, audio, *results]
    if isinstance(sampler, TensorSampler):
        is_sampled = sampler.inputs == (LATENT,)  # others need tensors of the user, which an example does not have
        return ["import paragan as pg", load, results[0] if is_sampled else f"# {results[0]}"]
    return ["import paragan as pg", load, f'{sampler.call_texts()[0]}.save("mine.png")']


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else ""


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(_plain, value)) if isinstance(value, (list, tuple)) else str(value)


def _escape(value: Any) -> str:
    """Escape text for a Markdown table; names of folders and classes are untrusted."""
    return re.sub(r"([\\`*_\[\]|!#~])", r"\\\1", html.escape(" ".join(str(value).split())[:200], quote=False))
