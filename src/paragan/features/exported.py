"""Network of a `torch.export` file, such as DINOv2. Loading the file may run code of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, ProgramPath
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.layers.image_input import ImageInput
from paragan.storage.exported_network import ExportedNetwork


@dataclass(frozen=True, kw_only=True)
class Options:
    """File of the network, its input and its output."""

    weights: ProgramPath | None = None
    """The file, .pt2, written by `torch.export.save`; required."""
    sha256: str | None = None
    """Required sha256 of the file; null: any."""
    size: Count | None = None
    """Height and width of the network's images in pixels; null: those of the file."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Mean of each channel of images in [0, 1], which is subtracted; by default of ImageNet."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, which divides."""
    resize: Literal["bilinear", "bicubic"] = "bicubic"
    """Antialiased filter for images of another size."""
    output: str | None = None
    """Output that has the features: its key in a mapping, otherwise its number as text;
    null: the first.
    """
    pool: Literal["first", "mean"] | None = None
    """Features of an output (B, T, F) or (B, F, H, W): the first token, or the mean over tokens or
    positions; null: the output is (B, F), of which every choice takes all.
    """


def prepare(options: Options, context: ExtractorContext) -> FeatureExtractor:
    """Read the network. Raises `ConfigError` for invalid options, `DataError` for an invalid file."""
    if options.weights is None:
        raise ConfigError(
            "evaluation.features.weights is required for the feature extractor 'exported'; pass "
            "evaluation.features.weights=FILE.pt2, written by torch.export.save"
        )
    program = ExportedNetwork(Path(options.weights), options.sha256)
    channels, height, width = _input_shape(program, options, context.train.shape[0])
    to_input = ImageInput(
        channels=channels, size=(height, width), mean=options.mean, std=options.std, resize=options.resize
    )
    output = program.output_names[0] if options.output is None else options.output
    if output not in program.output_names:
        raise ConfigError(
            f"evaluation.features.output={output} is not an output of {program.path}; choose one of "
            f"{', '.join(program.output_names)}"
        )
    common = context.call_settings(options, batch_size=50)
    common["resize"] = f"{options.resize} to {height}x{width}"  # done by `to_input`, and named here for the record
    return FeatureExtractor(
        name=context.name,
        network=_Features(program, to_input, output, options.pool),
        shape=(channels, height, width),
        num_classes=None,  # its output is features, even where these are logits
        sha256=program.sha256,
        takes_any_size=True,
        is_slow=True,
        settings={"mean": list(options.mean), "std": list(options.std), "output": output, "pool": options.pool},
        **common,
    )


class _Features(nn.Module):
    """One output of a program as features (B, F), for images in [-1, 1]."""

    def __init__(self, program: ExportedNetwork, to_input: ImageInput, output: str, pool: str | None) -> None:
        super().__init__()
        self.program = program
        self.to_input = to_input
        self.output = output
        self.pool = pool

    def forward(self, x_BCHW: Tensor) -> Tensor:
        output: Tensor = self.program(self.to_input(x_BCHW))[self.output]
        if output.dim() < 3:
            return output
        if self.pool is None:
            raise ConfigError(
                f"evaluation.features: output {self.output!r} has the shape {tuple(output.shape)}, not (B, F); pass "
                "evaluation.features.pool=mean, or first for the class token"
            )
        tokens_BTF = output if output.dim() == 3 else output.flatten(2).transpose(1, 2)
        return tokens_BTF[:, 0] if self.pool == "first" else tokens_BTF.mean(1)


def _input_shape(program: ExportedNetwork, options: Options, data_channels: int) -> tuple[int, int, int]:
    """Return (C, H, W) of the network's images; `options.size` where the program takes any (its shape has None)."""
    channels, *sizes = program.input_shape
    if data_channels not in (1, channels):
        raise ConfigError(
            f"evaluation.features.weights: {program.path} takes {channels} channels, but the data has "
            f"{data_channels}; use another extractor"
        )
    if not len(options.mean) == len(options.std) == channels or min(options.std) <= 0:
        raise ConfigError(
            f"evaluation.features: mean and std have {len(options.mean)} and {len(options.std)} values, and "
            f"{program.path} takes {channels} channels; pass one value for each channel, std above 0"
        )
    height, width = (size or options.size for size in sizes)
    if options.size is not None and (height, width) != (options.size, options.size):
        raise ConfigError(
            f"evaluation.features.size={options.size}, but {program.path} takes images of "
            f"{'x'.join(map(str, sizes))}; leave size out"
        )
    if height is None or width is None:
        raise ConfigError(f"evaluation.features.size is required: {program.path} takes images of any size")
    return channels, height, width
