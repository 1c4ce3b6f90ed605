"""Codebook metrics of padded samples: tokens of the padding do not count."""

import math

import pytest
import torch
from torch import nn

import paragan as pg
from tests.unit.api.test_tensor_scores import Judge, scores


class Coded(nn.Module):
    """Waves with a token for each `ratio` places: 0 in silence, else 1 or 2."""

    latent = 0

    def __init__(self, ratio=2, has_mask=False, count=None):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.ratio, self.has_mask, self.count = ratio, has_mask, count

    def forward(self, sound):
        places = sound[:, :, :: self.ratio]
        tokens = torch.where(places == 0, 0, 1 + torch.arange(places.shape[2]) % 2)[:, 0, : self.count]
        extra = {"tokens_mask": tokens > 0} if self.has_mask else {}
        return pg.GeneratorOutput(self.gain * sound, {"tokens": tokens, **extra})


def coded(folder, g, **arguments):
    waves = [torch.ones(1, length) for length in (3, 4, 6, 7)]
    codes = {"codes": 4}
    metrics = [{"name": "codebook_usage", **codes}, {"name": "codebook_perplexity", **codes}]
    settings = {"train.batch": 2, "train.kimg": 0.002, "evaluation.metrics": metrics}
    data = {"sound": waves}
    return pg.Trainer(g, Judge(), data, held_out=data, settings=settings, out=folder, **arguments)


@pytest.mark.parametrize("g", [Coded(1), Coded(2), Coded(3, has_mask=True)], ids=["1", "2", "mask"])
def test_codes_of_padding_do_not_count(tmp_path, g):
    """Without buckets a held-out sample is not padded; the tokens of 3, 4, 6 and 7 places count."""
    found = [scores(coded(tmp_path / str(n), g, buckets=lengths).run())[0] for n, lengths in enumerate(([], [8], [16]))]
    tokens = [1 + place % 2 for length in (3, 4, 6, 7) for place in range(-(-length // g.ratio))]
    shares = [tokens.count(code) / len(tokens) for code in (1, 2)]
    for line in found:
        assert line["codebook_usage"] == 0.5
        assert line["codebook_perplexity"] == pytest.approx(math.exp(-sum(s * math.log(s) for s in shares)))


def test_tokens_of_no_whole_ratio_are_refused(tmp_path, capsys):
    coded(tmp_path, Coded(1, count=3), buckets=[8]).run()
    text = "the score of step 1 failed: evaluation.metrics: G returns 3 tokens for a sample of 3 values padded to 8"
    assert text in capsys.readouterr().err
