"""Ten steps in bf16, and with weights of bf16, report about the numbers of float32."""

from functools import cache

import pytest

from paragan import build
from paragan.config import read_recipe
from tests.tiny_run import SMALL, TINY, train_and_read


@cache
def reported(precision: str, folder) -> list[dict[str, float]]:
    words = (f"g.precision={precision}", f"d.precision={precision}", "train.kimg=0.16", "every.score_kimg=0")
    config = read_recipe("digits", [*TINY, *SMALL, *words])
    return train_and_read(build.trainer(config, folder, print, stop=lambda: False))[0]


@pytest.mark.parametrize("precision", ["bf16", "pure"])
def test_losses_and_gradient_norms_are_about_those_of_float32(tmp_path_factory, precision):
    exact, rough = (reported(name, tmp_path_factory.mktemp(name)) for name in ("fp32", precision))
    assert exact != rough
    names = [(step, name) for step, report in enumerate(exact) for name in report if "loss/" in name or "norm" in name]
    assert {name for _, name in names} >= {"d/loss/r1", "g/loss/adversarial", "d/gradient_norm", "g/gradient_norm"}
    for step, name in names:  # measured: losses within 1 %, R1 and norms within 8 %
        bound = 0.03 if name.endswith("adversarial") else 0.15
        assert rough[step][name] == pytest.approx(exact[step][name], rel=bound, abs=1e-3), (step, name)
