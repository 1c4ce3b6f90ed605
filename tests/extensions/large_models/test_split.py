"""What splitting of layers chooses, leaves and refuses. Equality over ranks: tests/distributed."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.extensions.large_models.parallel import tensor
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.split import Split, _split_class, class_tables, split_layers
from paragan.layers.split_layers import EmbeddingRows, SplitByOutputs
from paragan.models.flow_unet import ZeroConv2d, ZeroEmbedding
from paragan.models.r3gan import FixupConv2d, FixupEmbedding, FixupLinear


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


FOUR = World(rank=1, size=4, group=object())  # a refusal needs no communication


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    net[1].weight = net[0].weight
    return net


def test_split_layers_on_one_rank_change_nothing():
    net = nn.Sequential(spectral_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 4))
    before = copy.deepcopy(net)
    split = split_layers(net, ALONE, {"0": Split.OUTPUTS, "2": Split.OUTPUTS})
    x = torch.randn(3, 6)
    assert split is net
    assert [type(layer) for layer in net] == [type(layer) for layer in before]
    assert torch.equal(net(x), before(x))


def test_class_tables_are_embeddings_and_norms_with_enough_rows():
    net = nn.ModuleDict(
        {
            "embed": spectral_norm(nn.Embedding(100, 4)),
            "few": nn.Embedding(99, 4),
            "norm": ConditionalBatchNorm(3, 100),
            "linear": nn.Linear(100, 100),
        }
    )
    assert class_tables(net, 100) == {"embed": Split.ROWS, "norm": Split.ROWS}


@pytest.mark.parametrize(
    ("layer", "how", "message"),
    [
        (nn.Embedding(3, 4), Split.ROWS, "0.weight: its 3 rows leave some of 4 ranks empty; use fewer"),
        (nn.Embedding(5, 4), Split.ROWS, "0.weight: its 5 rows leave some of 4 ranks empty; use fewer"),
        (ConditionalBatchNorm(8, 3), Split.ROWS, "0.gain: its 3 rows"),
        (nn.Linear(8, 3), Split.OUTPUTS, "0.weight: its 3 rows"),
        (nn.Embedding(8, 4, padding_idx=0), Split.ROWS, "0: Embedding cannot be split by rows; only Embedding"),
        (nn.Embedding(8, 4, sparse=True), Split.ROWS, "0: Embedding cannot be split by rows"),
        (nn.Conv2d(8, 8, 3, groups=2), Split.OUTPUTS, "0: Conv2d cannot be split by outputs"),
        (nn.ConvTranspose2d(8, 8, 3), Split.OUTPUTS, "0: ConvTranspose2d cannot be split by outputs; only Linear"),
        (Doubled(8, 8), Split.OUTPUTS, "0: Doubled cannot be split by outputs; only Linear"),
        (nn.Linear(8, 8), Split.ROWS, "0: Linear cannot be split by rows"),
        (weight_norm(nn.Linear(8, 8)), Split.OUTPUTS, "0.weight cannot be split: a parametrisation other than"),
        (spectral_norm(nn.Linear(8, 8, dtype=torch.complex64)), Split.OUTPUTS, "0.weight cannot be split: a param"),
        (spectral_norm(nn.Conv2d(8, 8, 3, dtype=torch.complex128)), Split.OUTPUTS, "0.weight cannot be split: a p"),
        (spectral_norm(nn.Embedding(8, 4, dtype=torch.complex64)), Split.ROWS, "0.weight cannot be split: a param"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_split_layers_with_unsupported_layer_refuse(layer, how, message):
    with pytest.raises(ConfigError) as refused:
        split_layers(nn.Sequential(layer), FOUR, {"0": how})
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("layer", "how", "expected"),
    [
        (FixupEmbedding(8, 4), Split.ROWS, EmbeddingRows),
        (spectral_norm(ZeroEmbedding(8, 4)), Split.ROWS, EmbeddingRows),
        (FixupConv2d(8, 8), Split.OUTPUTS, SplitByOutputs),
        (FixupLinear(8, 8), Split.OUTPUTS, SplitByOutputs),
        (ZeroConv2d(8, 8, 1), Split.OUTPUTS, SplitByOutputs),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layer_that_differs_only_in_its_initial_weights_is_split_as_its_base(layer, how, expected):
    assert _split_class("0", layer, how) is expected


def test_split_layers_with_shared_weight_refuse():
    with pytest.raises(ConfigError, match=r"0\.weight is shared by several layers and cannot be split; leave it out"):
        split_layers(tied(), FOUR, {"0": Split.OUTPUTS})


def test_split_layers_with_unknown_name_refuse():
    with pytest.raises(ConfigError, match="the network has no layer 'head' to split; leave it out"):
        split_layers(nn.Sequential(nn.Linear(8, 8)), FOUR, {"head": Split.OUTPUTS})


@pytest.mark.parametrize(
    ("layers", "advice", "options"),
    [
        ((nn.Embedding(10, 4), nn.Linear(4, 4)), "lower tensor.rows to 10, ", tensor.Options(rows=10)),
        ((nn.ReLU(), nn.Linear(4, 4)), "name layers in tensor.outputs, such as 1, or", tensor.Options(outputs=("1",))),
        ((ConditionalBatchNorm(3, 7), nn.ReLU()), "lower tensor.rows to 7, or use ddp", tensor.Options(rows=7)),
        ((Doubled(4, 4), nn.ReLU()), "none of its layers can be split: use ddp, zero2 or zero3", None),
    ],
)
def test_tensor_without_anything_to_split_advises_what_the_network_allows(layers, advice, options):
    net = nn.Sequential(*layers)
    for refused in (tensor.Options(), tensor.Options(outputs=("nothing.*",))):
        assert advice in tensor.Strategy(refused).refusal(net, 2)
    if options is not None:
        assert tensor.Strategy(options).refusal(net, 2) == ""


def test_patterns_of_all_layers_do_not_match_the_network_itself():
    net = nn.Sequential(nn.ReLU())
    splits = tensor.Strategy(tensor.Options(outputs=("*",)))._splits(net)
    assert list(splits) == ["0"]
