"""`benchmarks.cellular_mnist`: the smallest study has equal arms, a table and a drawing."""

import copy
import re
import shutil

import pytest

from benchmarks import cellular_mnist as study, cellular_mnist_plots as plots, cellular_mnist_summary as summary
from paragan.cli.main import main
from paragan.datasets import digits
from paragan.features.judge import train_or_load

pytestmark = pytest.mark.slow  # about 20 s

WORDS = (
    *("train.threads=1", "train.batch=16", "data.size=8", "evaluation.num_images=64"),
    "scheme={name: skipping, every: 2}",
    *("model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", "penalties=[]", "evaluation.features=judge"),
    *("every.sample_kimg=0", "every.score_kimg=0", "g.ema=null"),
)
GRID = ("grid.shape=2x2", "grid.batches=2", "grid.fitness.num_images=16", "grid.mixture.num_images=32")
GENERATIONS, KIMG = 3, 0.048  # a generation has an update of D


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A judge for all runs: it is trained once."""
    out = tmp_path_factory.mktemp("study")
    train_or_load(*(digits.source(digits.Options(8), split) for split in ("train", "held_out")), out / "judge")
    for arm in study.ARMS:
        shutil.copytree(out / "judge", out / f"{arm}-0/judge")
    return study.Study(KIMG, out, (*WORDS, *GRID), "digits")


@pytest.fixture(scope="module")
def runs(small):
    """Trained in this process, which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "_train", lambda words, folder: main(["train", *words, "--out", str(folder)]))
        return study.measured(small, ["lipizzaner", "independent"], 1)


def test_all_are_updated_equally_often(runs):
    assert runs["lipizzaner"][0]["updates"] == {"g": [2 * GENERATIONS] * 4, "d": [GENERATIONS] * 4}
    study.refuse_unequal(runs)
    other = copy.deepcopy(runs)
    other["independent"][0]["updates"]["g"][3] += 1
    with pytest.raises(SystemExit, match="in independent, expected those of lipizzaner"):
        study.refuse_unequal(other)


def test_the_table_and_the_drawing(runs, capsys):
    found = summary.summed(runs)
    study.say(found)
    shown = capsys.readouterr().out
    assert f"| lipizzaner | best single | {runs['lipizzaner'][0]['fd']['best single']:.2f} |" in shown
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
    text = plots.plot(found)
    names = re.findall(r">(\w+: [^<]+)</text>", text)
    assert len([name for name in names if name.split(":")[0] in found["arms"]]) == 2 * 5 and "nan" not in text
