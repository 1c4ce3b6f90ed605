"""A scheme in one file outside the package is planned, checked, replayed and verified by what it says of itself."""

from types import SimpleNamespace

import pytest

import paragan as pg
from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.config.sections import ANY
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.planning import candidates
from paragan.extensions.replay.replay_plan import plan_replay
from paragan.extensions.verify import verify_networks
from paragan.runs import rank_checks
from tests.processes import ROOT

NAME = "scratchpkg.pauses"
SMALL = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "train.kimg=0.032", "train.threads=1"),
    *(
        "every.sample_kimg=0",
        "every.save_kimg=0",
        "every.score_kimg=0",
        "every.log_steps=1",
        "evaluation.features=null",
    ),
    f"scheme={NAME}",
)


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "scratch"))


def config(*words):
    return read_recipe("digits", [*SMALL, *words], ANY)


def test_run_says_what_to_expect_and_a_step_without_d_is_replayed(capsys):
    assert main(["train", "digits", *SMALL, "--out", "run"]) == 0
    assert "\npauses    D trains at every step of 3\n" in capsys.readouterr().out
    assert [line["step"] for line in pg.Run("run").history] == list(range(1, 11))  # D is updated at 1, 4, 7 and 10
    assert main(["replay", "run", "--step", "5", "--trust"]) == 0
    assert "equal" in capsys.readouterr().out


def test_replay_of_an_unrecorded_order_is_refused(tmp_path, monkeypatch):
    chosen = config()
    monkeypatch.setattr(type(build.scheme(chosen)), "is_concurrent", True)
    with pytest.raises(ConfigError, match=r"scheme\.name=scratchpkg\.pauses cannot be replayed"):
        plan_replay(tmp_path, chosen, 1)


def test_plan_compares_its_options(monkeypatch):
    monkeypatch.setattr(candidates, "_candidate", lambda source, name, settings, margin: (name, settings))
    monkeypatch.setattr(candidates, "_allows", lambda source, game, settings: False)
    source = candidates.PlanSource(config(), None, None)
    game = SimpleNamespace(g_penalties=(), d_penalties=(), loss=SimpleNamespace(compares=True))
    assert list(candidates.candidates(source, game, 4, None))[:2] == [
        ("as configured", {}),
        ("D every 4 steps", {"scheme.every": 4}),
    ]


def test_ranks_of_players_in_threads_make_no_group():
    assert not rank_checks.needs_group(config("g.strategy=ddp"))
    assert rank_checks.needs_group(config("g.strategy=ddp", "scheme=shared_fakes"))


def test_verify_runs_the_scheme_that_it_equals():
    request = verify_networks.VerifyRequest(target="digits", overrides=SMALL, shape=(1, 8, 8), classes=0, trust=True)
    verified, _, _ = verify_networks._config(request)
    assert verified.scheme.name == "extragradient"


def test_grid_refuses_it(capsys):
    assert main(["train", "digits", *SMALL, "grid.shape=1x2", "--out", "run"]) == 2
    assert "which scheme pauses does not support" in capsys.readouterr().err


def test_updates_are_those_of_the_steps():
    scheme = build.scheme(config())
    assert [scheme.updates(Side.D, step) for step in range(1, 5)] == [True, False, False, True]
