"""Export of a discriminator: weights, and programs that score samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from paragan import __version__
from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes, write_text
from paragan.core.network_factory import copy_networks
from paragan.core.outputs import DiscriminatorOutput, mean_per_sample
from paragan.export.export_folder import CARD, begin_card, check_no_export_of, check_no_other_files
from paragan.export.formats import ENDINGS, WRITERS
from paragan.export.generator_file import GeneratorInfo
from paragan.export.model_card import MAX_CLASS_NAMES, file_row, render
from paragan.export.traceable import LogitsOnly, Traceable

FORMAT = "paragan discriminator 1"
_NUM_IMAGES = 8  # in a batch that shows whether logits depend on labels, or on other images


@dataclass(frozen=True, kw_only=True)
class ExportedDiscriminator:
    """A trained discriminator. info: of its run's generator. tree: the config."""

    net: nn.Module
    info: GeneratorInfo
    tree: Mapping[str, Any]

    def write(self, folder: Path, formats: Sequence[str]) -> list[str]:
        """Write the weights, which `d.init` reads, programs, and the model card last; return a line per file.

        Programs map images (B, C, H, W) in [-1, 1] of the run's size to logits: (B,), (B, 1, h, w) of patches, or
        (B, D), the mean logit of each of several discriminators; high for real images under every loss here. Raises
        `ConfigError` for programs of another kind of data, and as `check_folder`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.check_folder(folder)
        begin_card(folder)
        paths = _paths(folder)
        lines = []
        for name in formats:
            if name in WRITERS:
                worst = WRITERS[name](self.traceable, paths[name])
                lines.append(f"{paths[name]}  (differs from the network by at most {worst:.1e})")
        write_bytes(paths["safetensors"], self._weights())
        stale = [paths[name] for name in WRITERS if name not in formats and paths[name].is_file()]
        for path in stale:
            path.unlink()
        removed = [f"removed {path}, which an earlier export had left" for path in stale]
        files = [path for name, path in paths.items() if name == "safetensors" or name in formats]
        write_text(folder / CARD, self._card(files))
        return [*removed, str(paths["safetensors"]), *lines, str(folder / CARD)]

    def check_folder(self, path: Path) -> None:
        """Raise `ConfigError` for a folder with an exported generator, or with files that no export has written."""
        check_no_export_of(path, "generator")
        paths = _paths(path)
        check_no_other_files(path, paths["safetensors"].name, [file.name for file in paths.values()])

    def _card(self, files: Sequence[Path]) -> str:
        """Return the model card. files: all that it is about."""
        inputs, logits, arguments = self._describe()
        names = self.info.class_names
        return render(
            "discriminator_card.md.j2",
            player="discriminator",
            result="logits",
            tree=self.tree,
            names=[path.name for path in files],
            weights=sum(weight.numel() for weight in self.net.parameters()),
            inputs=inputs,
            logits=logits,
            arguments=arguments,
            sizes="",  # no text on free sizes: those of the run alone
            classes=names[:MAX_CLASS_NAMES],
            more_classes=len(names) - MAX_CLASS_NAMES,
            losses=[part["name"] for part in (self.tree["loss"], *self.tree["penalties"])],
            step=self.info.step,
            rows=[file_row(path, self.info.step) for path in files],
        )

    @torch.no_grad()
    def _describe(self) -> tuple[str, str, dict[str, str]]:
        """Return inputs and output as text, and inputs of programs by name, as Python expressions."""
        try:
            network = self.traceable
        except ConfigError:  # of other samples than images: weights alone
            size = "x".join(map(str, self.info.shape))
            return f"samples of {size}, as the generator makes them", "logits", {}
        examples = dict(zip(network.names, network.traced_inputs(), strict=True))
        classes = len(self.info.class_names)
        texts = []
        arguments = {}
        for name, x in examples.items():
            if name == "labels":
                texts.append(f"labels (B,) from 0 to {classes - 1}")
                arguments[name] = f"torch.randint({classes}, ({len(x)},))"
            else:
                texts.append(f"{name} ({', '.join(['B', *map(str, x.shape[1:])])}) in [-1, 1]")
                arguments[name] = f"torch.zeros{tuple(x.shape)}"
        logits = network.net(*examples.values())
        return " and ".join(texts), f"logits ({', '.join(['B', *map(str, logits.shape[1:])])})", arguments

    def _weights(self) -> bytes:
        weights = {name: value.detach().contiguous().clone() for name, value in self.net.state_dict().items()}
        metadata = {
            "format": FORMAT,
            "shape": json.dumps(self.info.shape),
            "class_names": json.dumps(self.info.class_names),
            "step": str(self.info.step),
            "model": json.dumps(self.tree["model"], ensure_ascii=False),
            "paragan": __version__,
        }
        return save(weights, metadata)

    @torch.no_grad()
    def check_programs(self) -> None:
        """Raise `ConfigError` where there can be weights alone: other data, or logits that depend on other images.

        `export` calls it before `write`, so that nothing is written where a program was requested.
        """
        network = self.traceable
        inputs = network.inputs(_NUM_IMAGES, 0)  # batch, seed
        together, alone = network.net(*inputs)[:1], network.net(*(x[:1] for x in inputs))
        if (together - alone).abs().max() > 1e-3 * together.abs().max():
            raise ConfigError(
                "export --player d: logits of this discriminator depend on the other images of the batch, which a "
                "program for any batch size cannot do; leave --format out: its weights can be exported"
            )

    @cached_property
    def traceable(self) -> Traceable:
        """The network as a tracer sees it: images, then labels or the condition, if it takes them."""
        parameters = signature(self.net.forward).parameters
        takes_condition = self.info.condition_channels is not None and "condition" in parameters
        names: tuple[str, ...] = ("images",)
        if takes_condition:
            names = ("images", "condition")
        elif self._takes_labels():
            names = ("images", "labels")
        required = [parameter for parameter in parameters.values() if parameter.default is parameter.empty]
        if len(self.info.shape) != 3 or len(required) > 1:
            size = "x".join(map(str, self.info.shape))
            raise ConfigError(
                f"export --player d: programs are of discriminators of images, and this one takes samples of {size} as "
                f"{', '.join(p.name for p in required)}; leave --format out: its weights can be exported"
            )
        net = LogitsOnly(copy_networks(self.net).cpu(), takes_condition).eval()

        def inputs(batch: int, number: int) -> tuple[Tensor, ...]:  # the size is fixed: only other draws
            generator = torch.Generator().manual_seed(number)
            x = torch.rand((batch, *self.info.shape), generator=generator) * 2 - 1
            if takes_condition:
                return x, torch.rand((batch, *self.info.condition_shape), generator=generator) * 2 - 1
            return (x, torch.arange(batch) % len(self.info.class_names)) if "labels" in names else (x,)

        axes: tuple[dict[int, int], ...] = tuple({} for _ in names)  # none of free size
        return Traceable(net=net, names=names, axes=axes, inputs=inputs, player="discriminator", output="logits")

    @torch.no_grad()
    def _takes_labels(self) -> bool:
        num_classes = len(self.info.class_names)
        if num_classes < 2 or len(signature(self.net.forward).parameters) < 2:
            return False
        x = torch.rand((1, *self.info.shape), generator=torch.Generator().manual_seed(0)) * 2 - 1
        several = x.expand(min(num_classes, _NUM_IMAGES), *self.info.shape)
        output = DiscriminatorOutput.of(self.net(several, torch.arange(len(several))))
        logits = mean_per_sample(output.logits_B)
        return bool((logits != logits[0]).any())


def _paths(folder: Path) -> dict[str, Path]:
    """Return the paths of an exported discriminator by format."""
    return {name: folder / f"discriminator{ending}" for name, ending in ENDINGS.items()}
