"""Scores of runs on named tensors: metrics of audio, of codes and of one's own, by held-out samples."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.metric import SamplePairs
from paragan.core.option_types import SpectrumOptions
from paragan.metrics import codebook_perplexity, codebook_usage, log_mel_distance, mel_cepstral_distortion, psnr, ssim
from paragan.metrics._options import CodebookOptions, RangeOptions
from tests.unit.api.test_trainer import TINY, Drawn, tensors, trainer

OWN = '''"""Largest difference of a sample."""

import paragan as pg


class Metric(pg.PairMetric):
    name = "largest_difference"
    direction = pg.Direction.LOWER
    note = "Largest difference of a sample."

    def compare(self, made, target):
        return (made - target).abs().amax(1)
'''
SCORED = {**TINY, "every.score_kimg": 0.024, "evaluation.metrics": ["l1", "psnr"]}


def held_out(count=12):
    return {name: tensor[20:] for name, tensor in tensors(20 + count).items()}


def scores(run):
    return run.records("score")


def audio(seed, count=2, length=2000):
    return 0.3 * torch.randn(count, 1, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Quantised(nn.Module):
    """Frames with tokens of two codebooks of four codes: 0 and 1 are used in the first, 3 in the second."""

    latent = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, frames):
        first = torch.arange(3).expand(len(frames), 3) % 2
        tokens = torch.stack([first, torch.full_like(first, 3)], 1)
        return pg.GeneratorOutput(self.layer(frames), {"tokens": tokens})


def test_psnr_and_ssim_of_another_range_equal_those_of_images():
    draws = np.random.default_rng(0)
    made, target = (torch.from_numpy(draws.uniform(-1, 1, (3, 1, 14, 15))) for _ in range(2))
    for metric in (psnr, ssim):
        of_images = metric.Metric.from_reference().update(SamplePairs(made, target))
        halves = SamplePairs(made / 2 + 0.5, target / 2 + 0.5)
        of_halves = metric.Metric.from_reference(None, RangeOptions((0.0, 1.0))).update(halves)
        assert of_halves.compute() == pytest.approx(of_images.compute(), rel=1e-12)
        assert (of_images.protocol(), of_halves.protocol()) == ({}, {"range": [0.0, 1.0]})


def test_log_mel_distance_of_twice_the_amplitude_is_log_2():
    x = audio(0)
    found = log_mel_distance.Metric.from_reference().update(SamplePairs(2 * x, x)).compute()
    assert found == pytest.approx(math.log(2), rel=1e-4)


def test_mel_cepstral_distortion_ignores_loudness():
    x = audio(0)
    found = mel_cepstral_distortion.Metric.from_reference().update(SamplePairs(2 * x, x)).compute()
    assert found == pytest.approx(0, abs=1e-3)


def test_mel_cepstral_distortion_matches_definition():
    a, b = audio(0), audio(1)
    metric = mel_cepstral_distortion.Metric.from_reference(None, SpectrumOptions(n_mels=20))
    difference = (metric.log_mel(a) - metric.log_mel(b)).numpy()
    expected = []
    for frames in difference[:, 0]:
        for frame in frames.T:
            total = 0.0
            for d in range(1, 14):
                c = 2 / 20 * sum(value * math.cos(math.pi * d * (m + 0.5) / 20) for m, value in enumerate(frame))
                total += c * c
            expected.append(10 / math.log(10) * math.sqrt(2 * total))
    assert metric.update(SamplePairs(a, b)).compute() == pytest.approx(np.mean(expected), rel=1e-12)


def test_codebook_metrics_of_counted_tokens():
    tokens = torch.tensor([[[0, 0, 1, 1]], [[0, 0, 1, 1]]])
    pairs = SamplePairs(torch.zeros(2), torch.zeros(2), {"tokens": tokens})
    options = CodebookOptions(codes=4)
    assert codebook_usage.Metric.from_reference(None, options).update(pairs).compute() == 0.5
    assert codebook_perplexity.Metric.from_reference(None, options).update(pairs).compute() == pytest.approx(2)


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        (torch.zeros(2, 3), CodebookOptions(codes=4)),
        (torch.full((2, 3), -1), CodebookOptions(codes=4)),
        (torch.zeros(2, dtype=torch.int64), CodebookOptions(codes=4, codebooks=2)),
        (torch.zeros(2, 3, 5, dtype=torch.int64), CodebookOptions(codes=4, codebooks=2)),
        (torch.zeros(2, 3, 0, dtype=torch.int64), CodebookOptions(codes=4, codebooks=2)),
        (torch.zeros(0, dtype=torch.int64), CodebookOptions(codes=4, codebooks=2)),
        (torch.zeros(2, 0), CodebookOptions(codes=4)),
    ],
)
def test_tokens_that_are_no_codes_are_refused(tokens, options):
    pairs = SamplePairs(torch.zeros(2), torch.zeros(2), {"tokens": tokens})
    with pytest.raises(pg.ConfigError, match="set both to those of G"):
        codebook_usage.Metric.from_reference(None, options).update(pairs)


def test_run_scores_held_out_samples_by_named_metrics(tmp_path):
    run = trainer(tmp_path, held_out=held_out(), settings=SCORED).run()
    assert [line["step"] for line in scores(run)] == [0, 3, 6]
    found = scores(run)[-1]
    data = held_out()
    prior = pg.Prior(seed=0, latent=3, dtype=torch.float64)
    latent = torch.cat(
        [
            prior.draw("score", pg.Rows(step=0, first=first, count=count, total=12))[0]
            for first, count in ((0, 10), (10, 2))
        ]
    )
    with torch.no_grad():
        made = run.generator(latent, data["frames"])
    assert found["l1"] == pytest.approx(float((made - data["point"]).abs().mean()), rel=1e-9)
    assert run.score["l1"] == found["l1"]
    assert found["protocol"]["compared"] == {"with": "point of each sample", "split": "held_out", "num_images": 12}
    best = json.loads((tmp_path / "best" / "score.json").read_text())
    assert best["l1"] == min(line["l1"] for line in scores(run))
    assert "psnr" in (tmp_path / "report.html").read_text()


def test_metric_of_ones_own_in_ten_lines(tmp_path):
    file = tmp_path / "largest_difference.py"
    file.write_text(OWN)
    settings = {**SCORED, "evaluation.metrics": [str(file)]}
    run = trainer(tmp_path / "run", held_out=held_out(), settings=settings).run()
    values = [line["largest_difference"] for line in scores(run)]
    assert len(values) == 3 and min(values) > 0
    assert json.loads((run.folder / "best" / "score.json").read_text())["largest_difference"] == min(values)
    assert "largest_difference" in (run.folder / "report.html").read_text()
    assert len([line for line in OWN.splitlines() if line]) <= 10


@pytest.mark.parametrize(
    ("compare", "found"),
    [
        (lambda made, target: (made - target).square().mean(), r"a tensor of \(\)"),
        (lambda made, target: 0.5, "a float"),
    ],
)
def test_metric_that_is_no_value_per_sample_is_refused(compare, found):
    class Own(pg.PairMetric):
        name, direction, note = "mse", pg.Direction.LOWER, "Mean squared error."

        def compare(self, made, target):
            return compare(made, target)

    pairs = SamplePairs(torch.zeros(10, 1, 8), torch.ones(10, 1, 8))
    message = f"evaluation.metrics: mse returned {found} for 10 samples; return one value per sample"
    with pytest.raises(pg.ConfigError, match=message):
        Own.from_reference().update(pairs)


def test_scores_of_codes(tmp_path):
    codes = {"codes": 4, "codebooks": 2}
    metrics = [{"name": "codebook_usage", **codes}, {"name": "codebook_perplexity", **codes}]
    settings = {**SCORED, "evaluation.metrics": metrics}
    run = trainer(tmp_path, g=Quantised, held_out=held_out(), settings=settings).run()
    assert scores(run)[-1]["codebook_usage"] == (0.5 + 0.25) / 2
    shares = (2 / 3, 1 / 3)
    entropy = -sum(share * math.log(share) for share in shares)
    assert scores(run)[-1]["codebook_perplexity"] == pytest.approx((math.exp(entropy) + 1) / 2)


class Double(nn.Module):
    latent = 0

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, frames, frames_mask):
        return self.gain * 2 * frames + 9 * (~frames_mask)[:, :, None]


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, sound):
        return self.gain * sound.mean((1, 2))


def test_padding_is_not_compared(tmp_path):
    rows = [torch.full((length, 2), float(length)) for length in (2, 3, 5)]
    data = {"frames": rows, "sound": [2 * row + 1 for row in rows]}
    settings = {"train.batch": 2, "train.kimg": 0.002, "g.optimizer.lr": 1e-9, "evaluation.metrics": ["l1"]}
    run = pg.Trainer(Double(), Judge(), data, held_out=data, buckets=[8], settings=settings, out=tmp_path).run()
    assert scores(run)[0]["l1"] == pytest.approx(1)


def streamed(epoch):
    """The held-out samples, one after another."""
    data = held_out()
    return ({name: tensor[row] for name, tensor in data.items()} for row in range(12))


def metrics(*names):
    return {**SCORED, "evaluation.metrics": list(names)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": SCORED}, "evaluation.metrics needs held-out samples; pass held_out=DATA"),
        (
            {"held_out": streamed, "settings": SCORED},
            "evaluation.metrics needs held-out samples by number, not streamed ones",
        ),
        ({"held_out": held_out(), "settings": metrics("log_mel_distance")}, "log_mel_distance needs audio of 1xN"),
        ({"held_out": held_out(), "settings": metrics("codebook_usage")}, "codebook_usage needs the size of the code"),
        (
            {"held_out": held_out(), "settings": {**SCORED, "evaluation.mode": "background"}},
            "evaluation.mode=background .* named tensors",
        ),
    ],
)
def test_mistake_is_one_line(tmp_path, arguments, message):
    with pytest.raises(pg.ParaganError, match=message) as error:
        trainer(tmp_path / "run", **arguments).run()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["from_reference", "update", "merge", "compute"])
def test_a_metric_of_a_user_that_fails_anywhere_is_said_once_and_the_others_have_values(tmp_path, capsys, method):
    file = tmp_path / "broken.py"
    decorator = "    @classmethod\n" if method == "from_reference" else ""
    file.write_text(
        "from paragan.metrics.l1 import Metric as Base\n\n\nclass Metric(Base):\n    name = 'broken'\n\n"
        f"{decorator}    def {method}(self, *arguments):\n        raise LookupError('no table')\n"
    )
    run = trainer(tmp_path / "run", held_out=held_out(), settings=metrics(str(file), "psnr")).run()
    assert capsys.readouterr().err.count("warning: score: broken has no value: no table") == 1
    assert [name for name, value in run.score.items() if isinstance(value, float)] == ["psnr"]


def test_metric_of_pairs_needs_inputs_of_g(tmp_path):
    points = {"row": torch.randn(20, 2)}
    made = pg.Trainer(
        Drawn(nn.Linear(3, 2)), nn.Sequential(nn.Linear(2, 1)), points, held_out=points, settings=SCORED, out=tmp_path
    )
    with pytest.raises(pg.ConfigError, match="l1 needs pairs, which the data does not have"):
        made.run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"settings": metrics({"name": "codebook_usage", "codes": 4})},
            "codebook_usage needs tokens, which G does not return",
        ),
        (
            {"g": Quantised, "settings": metrics({"name": "codebook_usage", "codes": 3})},
            "the tokens of a sample are 2x3, torch.int64, the largest is 3, but codebooks=1 and codes=3",
        ),
    ],
)
def test_a_metric_that_does_not_fit_what_g_returns_is_said_once(tmp_path, capsys, arguments, message):
    trainer(tmp_path / "run", held_out=held_out(), **arguments).run()
    text = capsys.readouterr().err
    assert text.count("codebook_usage has no value") == 1
    assert message in text
