"""Features of the images that a score generates, in blocks distributed over the ranks."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from paragan.core.collective import raise_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.errors import DivergedError
from paragan.core.metric import SampleFeatures
from paragan.core.printable import ProgressLines
from paragan.core.types import Rows
from paragan.features.base.extractor import FeatureExtractor
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_images

# (first row, count) -> x_BCHW in [-1, 1], requested labels
Generate = Callable[[int, int], tuple[Tensor, Tensor | None]]


def sample_generator(generator: CalledNetwork, prior: Prior, total: int, mode: Mode = "eval") -> Generate:
    """Return a function that generates rows of `total` images; latents depend on seed and `total`."""
    z_BZ, y_B = prior.draw("score", Rows(step=0, first=0, count=total, total=total))

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        z = z_BZ[first : first + count]
        y = None if y_B is None else y_B[first : first + count]
        x = generate_images(generator, z, y, mode=mode, seed=prior.seed, first=first)
        return x, y if prior.uses_labels else None  # else classes are not compared

    return generate


def row_blocks(num_rows: int, size: int) -> list[tuple[int, int]]:
    """Return first row and number of rows of blocks of at most this size."""
    return [(first, min(size, num_rows - first)) for first in range(0, num_rows, size)]


def compute_features(
    generate: Generate,
    extractor: FeatureExtractor,
    blocks: list[tuple[int, int]],
    world: World,
    log: Callable[[str], None] = lambda line: None,
    with_images: bool = False,
    is_sharded: bool = False,
) -> SampleFeatures:
    """Compute the features of all rows, gathered on every rank. Collective.

    blocks: first row and number of rows of each, distributed round-robin. Every rank calls the generator equally
    often. log: receives lines of progress. with_images: also return the images. is_sharded: the generator's forward
    has collectives. Raises `DivergedError` if images are not finite. An error of one of several ranks is raised on all
    after the last block, since the others wait in collectives for every block; one of a sharded forward at once, since
    they wait inside of it.
    """
    local_blocks = blocks[world.rank :: world.size]
    num_rounds = -(-len(blocks) // world.size)
    local_blocks += blocks[-1:] * (num_rounds - len(local_blocks))  # padding, which `_gather` leaves out
    last_first, last_count = blocks[-1]
    computed = []
    failure: Exception | None = None
    progress = ProgressLines(label="score", unit="images", total=last_first + last_count, log=log)
    for first, count in local_blocks:
        progress(first)
        x: Tensor | None = None
        try:
            x, labels = generate(first, count)
            features = extractor.compute(x, labels)
            computed.append(replace(features, image_BCHW=to_uint8(x)) if with_images else features)
        except Exception as error:  # never `StopRequested`: an extractor that trains has done so before
            if is_sharded and x is None:
                raise
            failure = failure or error
        require_finite(x, world)  # before the failure: an extractor fails because images are not finite
        if failure is not None and world.size == 1:
            raise failure
    raise_on_all_ranks(world, failure)  # with one error for all, the run can continue without this score
    return _gather(SampleFeatures.concatenate(computed), [count for _, count in blocks], world)


def _gather(local: SampleFeatures, counts: list[int], world: World) -> SampleFeatures:
    """Gather blocks of `counts` rows of all ranks, in order, without padding blocks. Collective."""
    if world.size == 1:
        return local
    columns = [
        None if column is None else world.gather_tensors(column)
        for column in (local.features_BF, local.logits_BK, local.requested_labels_B, local.image_BCHW)
    ]
    by_rank = []
    for rank in range(world.size):
        features, logits, labels, images = (None if column is None else column[rank] for column in columns)
        assert features is not None
        by_rank.append(
            SampleFeatures(features_BF=features, logits_BK=logits, requested_labels_B=labels, image_BCHW=images)
        )
    blocks: list[SampleFeatures] = []
    starts = [0] * world.size  # of the next block of each rank
    for number, count in enumerate(counts):
        rank = number % world.size
        blocks.append(by_rank[rank].rows(starts[rank], starts[rank] + count))
        starts[rank] += count
    return SampleFeatures.concatenate(blocks)


def to_uint8(x_BCHW: Tensor) -> Tensor:
    """Return images in [-1, 1] as data sets have them, uint8 on the CPU."""
    return ((x_BCHW.detach().clamp(-1, 1) + 1) * 127.5).round().to("cpu", torch.uint8)


def require_finite(x_BCHW: Tensor | None, world: World = ALONE) -> None:
    """Raise `DivergedError` on all ranks if some images are not finite. Collective. None: this rank has none."""
    if world.any(x_BCHW is not None and not x_BCHW.isfinite().all()):
        raise DivergedError(
            "score: generated images are not finite, the run has diverged; go back to an earlier checkpoint"
        )
