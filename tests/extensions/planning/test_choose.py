"""Settings of a run on many workers: memory, margins, learning rates, goals."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from paragan import build
from paragan.cli.plan import format_decisions
from paragan.config import dump, read_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.planning import choose
from paragan.extensions.planning.candidates import Candidate, PlanSource, to_words
from paragan.extensions.planning.cluster import Link
from paragan.extensions.planning.plan import ParallelPlan
from paragan.extensions.planning.planned_training import plan_here, settings_of_run
from paragan.extensions.planning.profile import Curve
from paragan.extensions.planning.profile_run import updates_fingerprint
from paragan.game.options import EmaOptions, OptimizerOptions, PlayerOptions, ScheduleOptions
from paragan.hardware import device
from paragan.parallel import ddp, local_sgd
from paragan.schemes import asynchronous
from tests.simulated_workers import cluster, game, player_profile, profile

LINK = Link(1e-4, 1e8)
COSTS = {Side.G: 0.001, Side.D: 0.003}
HALF = {"g.strategy": {"name": "local_sgd", "every": 2}}
WORDS = [
    "data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.threads=1", "train.kimg=1",
    "evaluation.num_images=100", "evaluation.metrics=fd", "evaluation.resamples=0",
]  # fmt: skip


def source_of(*words):
    config = read_recipe("digits", [*WORDS, *words])
    return PlanSource(config, build.open_data(config), profile(fingerprint=updates_fingerprint(config)))


@pytest.fixture
def plan(monkeypatch):
    """Choose among given candidates, for a batch of 64, players with default options and invented costs."""

    def planned(
        batch=64, workers=4, margin=0.1, players=None, others=None, decoded=False, limit=None, rule=None, **costs
    ):
        asked = []

        def candidates(source, game_, workers, strategy):
            asked.append(strategy)
            rarely = local_sgd.Strategy(local_sgd.Options(every=2))
            yield Candidate("as configured", game(strategy=ddp.Strategy(), batch=batch, **costs))
            if strategy is None:
                half = game(strategy=rarely, batch=batch, **costs)
                yield from others or [Candidate("H = 2", half, HALF, margin)]

        monkeypatch.setattr(choose, "all_candidates", candidates)
        monkeypatch.setattr(choose.build, "gan", lambda *given, **named: None)
        config = read_recipe("digits", ["train.batch=64", "train.kimg=100", "loading.prefetch=null"])
        config = replace(config, **(players or dict.fromkeys("gd", PlayerOptions())))
        data = SimpleNamespace(train=SimpleNamespace(is_decoded=decoded))
        source = PlanSource(config, data, profile(**costs))
        return choose.choose_plan(source, cluster(workers, LINK), batch, limit, rule), asked

    return planned


def test_candidate_whose_gain_clears_its_margin_is_chosen(plan):
    made, _ = plan(margin=0.1, g_s=0.01, d_s=0.01)
    assert made.chosen == "H = 2" and made.settings["g.strategy"] == HALF["g.strategy"]
    assert made.predictions[0].gain > 0.1 and made.images_per_s == made.predictions[0].images_per_s
    reason = next(one.reason for one in made.decisions if one.key == "g.strategy")
    assert "more than its margin of 10%" in reason and "images/s predicted" in reason


def test_candidate_below_its_margin_is_not_chosen(plan):
    made, _ = plan(margin=0.9)
    assert made.chosen == "as configured" and made.settings == {"train.batch": 64}
    assert len(made.predictions) == 2


@pytest.mark.parametrize(
    ("limit", "strategy", "parts"),
    [
        (75e6, None, 1),  # 16 rows: 75 MB
        (74e6, None, 2),
        (61e6, None, 8),  # 2 rows: 61 MB
        (50e6, "zero1", 4),  # 13.5 MB of state fewer
        (38e6, "zero3", 16),
    ],
)
def test_memory_limit_decides_micro_batches_first_then_the_strategy(plan, limit, strategy, parts):
    made, asked = plan(limit=int(limit))
    assert asked == [strategy]
    assert made.settings.get("g.micro_batches", 1) == parts == made.settings.get("d.micro_batches", 1)
    assert made.settings.get("d.strategy.name") == strategy


def test_memory_limit_splits_the_micro_batches_of_the_config(plan):
    players = {"g": PlayerOptions(micro_batches=2), "d": PlayerOptions(micro_batches=4)}
    made, _ = plan(limit=74_000_000, players=players)
    assert [made.settings[f"{side.value}.micro_batches"] for side in Side] == [4, 8]


def test_memory_that_nothing_fits_is_refused(plan):
    with pytest.raises(ConfigError, match=r"no strategy fits into 0.001 GB on 4 workers: one sample needs 0.0375 GB"):
        plan(limit=1_000_000)


@pytest.mark.parametrize(
    ("optimizer", "rule", "factor"),
    [("Adam", None, 2.0), ("SGD", None, 4.0), ("Adam", "linear", 4.0), ("SGD", "none", 1.0)],
)
def test_learning_rates_follow_the_batch_by_rule(plan, optimizer, rule, factor):
    player = PlayerOptions(optimizer=OptimizerOptions(optimizer, lr=1e-3, groups=({"match": "*.bias", "lr": 1e-4},)))
    made, _ = plan(256, rule=rule, players=dict.fromkeys("gd", player))
    assert made.settings["g.optimizer.lr"] == pytest.approx(1e-3 * factor)
    assert made.settings["d.optimizer.groups"][0]["lr"] == pytest.approx(1e-4 * factor)
    assert ("g.schedule.warmup" in made.settings) == (factor > 1)


def test_warm_up_of_the_config_is_kept_if_it_is_longer(plan):
    player = PlayerOptions(schedule=ScheduleOptions(warmup=5000))
    made, _ = plan(256, players=dict.fromkeys("gd", player))
    assert made.settings["d.schedule.warmup"] == 5000


def test_average_of_too_few_updates_becomes_longer(plan):
    player = PlayerOptions(ema=EmaOptions(half_life_kimg=1.0))
    made, _ = plan(256, players={"g": player, "d": PlayerOptions()})
    assert made.settings["g.ema.half_life_kimg"] == 2.56 and "d.ema.half_life_kimg" not in made.settings


@pytest.mark.parametrize("batch", [32, 64])
def test_average_stays_where_the_batch_is_not_larger(plan, batch):
    player = PlayerOptions(ema=EmaOptions(half_life_kimg=0.1))
    made, _ = plan(batch, players=dict.fromkeys("gd", player))
    assert not [key for key in made.settings if "ema" in key]


def test_reading_that_takes_long_is_done_ahead(plan):
    slow = plan(decoded=True, load_s=0.1)[0]
    quick = plan(decoded=True, load_s=0.0001)[0]
    assert slow.settings["loading.prefetch"] == "auto" and "loading.prefetch" not in quick.settings


def test_printed_plan_names_its_goal(plan):
    made, _ = plan()
    text = format_decisions(made)
    assert f"images/s predicted, {made.hours:,.3g} hours to 100 kimg" in text.splitlines()[0]
    assert ParallelPlan.of(asdict(made)) == made


def test_batch_without_a_sample_for_each_worker_is_refused(plan):
    with pytest.raises(ConfigError, match="a batch of 64 has no sample for each of 100 workers"):
        plan(workers=100)


@pytest.mark.parametrize("word", ["scheme={name: skipping, every: 3}", "scheme.name=shared_fakes"])
def test_existing_run_keeps_the_settings_that_a_plan_chose(tmp_path, word):
    planned = read_recipe(
        "digits", [word, "scheme={name: asynchronous, ranks: {g: 1, d: 1}}", "d.strategy={name: local_sgd}"]
    )
    (tmp_path / "config.yaml").write_text(dump(planned))
    config = read_recipe("digits", [word])
    words = to_words(settings_of_run(config, tmp_path))
    assert read_recipe("digits", [word, *words]) == planned


@pytest.mark.parametrize(("memory", "model", "parts"), [(89e6, None, 1), (72e6, None, 8), (72e6, object(), 1)])
def test_plan_of_this_host_fits_into_its_memory(monkeypatch, memory, model, parts):
    """0.85 of a process's memory is used. That of networks from memory is not planned."""
    monkeypatch.setattr(device, "memory_per_process", lambda kind, num: int(memory) if num == 1 else 0)
    monkeypatch.setattr(choose.build, "gan", lambda *given, **named: None)
    source = replace(source_of(), model=model)
    made = plan_here(source, 1, 16)
    assert made.settings.get("g.micro_batches", 1) == parts
    reasons = [one.reason for one in made.decisions]
    assert any("within" in reason for reason in reasons) == (model is None)


@pytest.mark.parametrize(("limit", "is_left"), [(75e6, False), (92e6, True), (None, True)])
def test_candidate_whose_ranks_have_too_many_samples_is_left_out(plan, limit, is_left):
    """16 samples on each of four workers take 75 MB; 32 on each of the two ranks of a player 91."""

    separate = game(asynchronous.Scheme(asynchronous.Options(ranks={"g": 2, "d": 2})), ddp.Strategy(), batch=64)
    made, _ = plan(others=[Candidate("separate", separate)], limit=None if limit is None else int(limit))
    assert ("separate" in [one.name for one in made.predictions]) is is_left


def per_row(seconds):
    return Curve((1, 65), (seconds, 65 * seconds))


def test_ranks_of_g_are_chosen_for_an_asynchronous_config():
    """D's turn costs three times G's: most ranks are D's. A number that the config sets stays."""
    source = source_of("preset=paragan")
    costs = {side: player_profile(1000, per_row(s)) for side, s in COSTS.items()}
    whole = dict.fromkeys(("step_s", "alone_step_s"), per_row(sum(COSTS.values())))
    source = replace(source, profile=replace(source.profile, g=costs[Side.G], d=costs[Side.D], **whole))
    made = choose.choose_plan(source, cluster(8, LINK), 64)
    assert sorted(one.name for one in made.predictions) == [
        "2 ranks of G",
        "3 ranks of G",
        "4 ranks of G",
        "as configured",
    ]
    assert made.settings["scheme.ranks"] == {"g": 2, "d": 6} and made.chosen == "2 ranks of G"
    fixed = replace(source, config=read_recipe("digits", ["preset=paragan", "scheme.ranks={g: 4, d: 4}"]))
    assert "scheme.ranks" not in choose.choose_plan(fixed, cluster(8, LINK), 64).settings
