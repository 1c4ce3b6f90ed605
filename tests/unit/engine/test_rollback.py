"""Rollback: what counts as a collapse, what returns and what continues, and that stopping stays invisible."""

import json
from itertools import chain, islice, repeat

import pytest
import torch

from paragan import build
from paragan.checkpoint.reader import read_checkpoint
from paragan.config import read_recipe
from paragan.core.errors import CheckpointError, ConfigError, DivergedError
from paragan.evaluation.score import Score
from tests.tiny_run import SMALL, TINY, rewrite_state
from tests.unit.engine.test_collapse import COLLAPSED, GOOD, SATURATED, WRONG

RUN = (
    *TINY, *SMALL, "train.kimg=0.192", "every.sample_kimg=0.128", "every.save_kimg=0.048", "every.keep=2",
    "every.log_steps=2", "g.optimizer.lr=1e-3", "d.optimizer.lr=2e-3", 
    "g.schedule={name: linear, end: 40}", "g.ema.half_life_kimg=0.05",
    "rollback.max_rollbacks=2",
)  # fmt: skip


def trainer(folder, *words, bad=(), values=COLLAPSED, **options):
    """A run of 12 steps, measured at every second one, saved at every third. bad: steps that measure `values`."""
    run = build.trainer(read_recipe("digits", [*RUN, *words]), folder, print, lambda: False, **options)
    run.telemetry = lambda gan, scalars: values if gan.clock.step in bad else GOOD
    return run


def tensors(run) -> dict[str, torch.Tensor]:
    groups, _ = run.state()
    return {f"{group}/{name}": value.clone() for group, held in groups.items() for name, value in held.tensors.items()}


def differing(one, other) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name, value in one.items() if not torch.equal(value, other[name])]


def rollbacks(events) -> list[dict]:
    return [event.values["rollback"] for event in events if "rollback" in event.values]


def test_rollback_without_a_collapse_trains_the_same_run(tmp_path):
    plain, guarded = trainer(tmp_path / "a", "rollback=null"), trainer(tmp_path / "b")
    list(plain.run())
    events = list(guarded.run())
    assert rollbacks(events) == []
    assert differing(tensors(plain), tensors(guarded)) == []
    assert (guarded.clock.images, guarded.batches.position) == (plain.clock.images, plain.batches.position)


def test_rollback_restores_the_players_of_the_last_good_checkpoint_and_continues_with_other_data(tmp_path):
    run = trainer(tmp_path, bad=(6, 8))
    saved, events = {}, []
    for event in run.run():
        events.append(event)
        if event.kind == "checkpoint":
            saved[event.step] = (tensors(run), run.batches.position)
    (found,) = rollbacks(events)
    assert (found["name"], found["to_step"], found["count"]) == ("mode_collapse", 3, 1)
    assert differing(saved[8][0], saved[3][0]) == []
    assert differing(saved[6][0], saved[3][0]) != []
    assert saved[8][1] == 8  # batches after the rollback are those that follow
    assert run.images == 192 + 5 * 16 == run.clock.images
    assert [player.policy.lr for player in run.players.values()] == [5e-4, 1e-3]
    rates = [event.values["g/lr"] for event in events if event.kind == "step" and event.values]
    # a line to 0 in 40 updates; steps 10, 12, … are updates 4, 6, … again, at half the rate; 17 is the last
    expected = [1 - n / 40 for n in (1, 3, 5, 7)] + [0.5 - n / 80 for n in (4, 6, 8, 10, 11)]
    assert rates == pytest.approx([1e-3 * factor for factor in expected])


def test_rollback_records_the_numbers_of_the_players_it_returns_to(tmp_path):
    words = ("penalties=[{name: r1, interval: 4}]", "every.log_steps=1")
    run = trainer(tmp_path, *words, bad=(6, 8))
    numbers = {}
    r1 = {}
    for event in run.run():
        if event.kind == "checkpoint":
            numbers[event.step] = dict(read_checkpoint(run.checkpoints.path_of(event.step)).values["numbers"])
        elif event.kind == "step":
            r1[event.step] = event.values["d/loss/r1"]
    assert numbers[8] == numbers[3] != numbers[6]  # the rollback at step 8 returns to step 3
    assert r1[9] == r1[3] != r1[8]  # update 4 of D is due after it, update 3 is not
    assert r1[10] not in (r1[3], r1[8])


@pytest.mark.parametrize(
    ("values", "first", "second"),
    [
        (SATURATED, {"d": 0.1}, {"d": 0.001}),  # the first has not helped, so that the second one is twice as strong
        (WRONG, {}, {"g": 0.1, "d": 0.1}),  # one batch can cause it
        (COLLAPSED, {"g": 0.1, "d": 0.1}, {"g": 0.001, "d": 0.001}),
    ],
)
def test_rollback_slows_the_players_concerned(tmp_path, values, first, second):
    run = trainer(tmp_path, "rollback.lr_factor=0.1", "train.kimg=0.32", bad=(4, 6, 10, 12), values=values)
    events = list(run.run())
    assert [found["lr_factors"] for found in rollbacks(events)] == [pytest.approx(first), pytest.approx(second)]
    final = {"g": 1e-3 * second.get("g", 1), "d": 2e-3 * second.get("d", 1)}
    assert {side: player.policy.lr for side, player in run.players.items()} == pytest.approx(final)
    rate = [event.values["g/lr"] for event in events if event.kind == "step" and event.values][-1]
    assert rate == pytest.approx(final["g"] * (1 - (run.players["g"].version - 1) / 40))


def test_rollback_of_players_in_two_threads_equals_that_in_turns(tmp_path):
    turns = trainer(tmp_path / "turns", "scheme=shared_fakes", bad=(6, 8))
    threads = trainer(tmp_path / "threads", "scheme=asynchronous", "scheme.staleness=0", bad=(6, 8))
    of_turns, of_threads = (rollbacks(run.run()) for run in (turns, threads))
    assert of_turns == of_threads and len(of_turns) == 1
    assert differing(tensors(turns), tensors(threads)) == []


BAD = (4, 6, 10, 12)  # two rollbacks, at 6 and 12, which are also saved in between


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    run = trainer(tmp_path_factory.mktemp("straight"), bad=BAD)
    return run, list(run.run())


# Events of the first rollback: 1 telemetry, 2 the checkpoint that is due, 3 the rollback, 4 its checkpoint.
KILLS = [
    *((6, number) for number in (2, 3)),
    *(pytest.param(6, number, marks=pytest.mark.slow) for number in (1, 4)),
    *(pytest.param(step, 0, marks=[] if step == 14 else pytest.mark.slow) for step in (7, 9, 12, 14)),
]


@pytest.mark.parametrize(("step", "number"), KILLS)
def test_rollback_continues_bit_for_bit_after_a_kill(tmp_path, straight, step, number):
    run, events = straight
    steps = [(event.step, event.values["rollback"]["to_step"]) for event in events if rollbacks([event])]
    assert steps == [(6, 0), (12, 0)]
    near = [n for n, event in enumerate(events, start=1) if event.step == step and event.kind != "samples"]
    list(islice(trainer(tmp_path, bad=BAD).run(), near[number]))  # without the work of an end
    resumed = trainer(tmp_path, bad=BAD)
    assert resumed.resume()
    list(resumed.run())
    assert differing(tensors(run), tensors(resumed)) == []
    assert (resumed.clock.images, resumed.batches.position) == (run.clock.images, run.batches.position)
    assert resumed.state()[1] == run.state()[1]


def test_rollback_leaves_the_good_checkpoint_to_no_pruning(tmp_path):
    run = trainer(tmp_path, "rollback.patience=9", "every.save_kimg=0.016", bad=range(4, 99))
    list(run.run(num_steps=8))
    left = [path.name[-1] for path in run.checkpoints.paths()]
    assert {"0", "1", "8"} <= {*left} and len(left) < 8  # 1 is the newest good one
    resumed = trainer(tmp_path, "rollback.patience=9")
    assert resumed.resume()
    resumed.checkpoints.prune_before(resumed.checkpoints.path_of(8))
    assert [path.name[-1] for path in run.checkpoints.paths()] == left


@pytest.mark.parametrize("saves", [(1, 2), (5, 6), (9, 10)])
def test_rollback_checkpoint_names_no_good_one_that_its_pruning_removes(tmp_path, saves):
    # measured, and saved again, at steps 4, 8 and 12: the newest checkpoint before has become good in that step
    run = trainer(tmp_path, "every.keep=1", "every.save_kimg=0.064", "every.sample_kimg=0.256")
    for event in run.run():
        if event.kind == "step" and event.step in saves:
            run.save()
        if event.kind == "checkpoint":
            good = read_checkpoint(run.checkpoints.path_of(event.step)).values["rollback"]
            assert all(run.checkpoints.path_of(step).is_dir() for step in (good["good"], *good["older"])), good
    assert good["good"] == max(8, *saves)


def test_rollback_after_the_last_ends_the_run_in_one_line(tmp_path):
    run = trainer(tmp_path, bad=range(1, 99), values=SATURATED)
    with pytest.raises(DivergedError, match="step 12: another collapse after 2 rollbacks") as raised:
        list(run.run())
    assert "\n" not in str(raised.value) and "D is too strong" in str(raised.value)
    assert raised.value.exit_code == 2


def test_rollback_without_a_readable_good_checkpoint_ends_the_run(tmp_path):
    run = trainer(tmp_path, bad=(6, 8))
    list(run.run(num_steps=5))
    (tmp_path / "checkpoints" / "step-000000003" / "g.safetensors").write_bytes(b"damaged")
    with pytest.raises(DivergedError, match="step 8: no good checkpoint to roll back to: Samples are much closer"):
        list(run.run())


def scored(folder, kimg, *values):
    """A run with these scores, and then good ones."""
    run = trainer(folder, f"every.score_kimg={kimg}")
    scores = chain(map(float, values), repeat(4.0))
    run.score = lambda player, prior: Score(metrics={"fd": next(scores)}, num_images=10, protocol={})
    return run


def test_rollback_of_a_diverging_score_returns_to_the_best_but_repeats_only_the_bad_part(tmp_path):
    run = scored(tmp_path, 0.032, 9, 5, 4, 7, 7.5, 8, 8.1)
    (event,) = [event for event in run.run() if rollbacks([event])]
    found = event.values["rollback"]
    factors = {"g": 0.5, "d": 0.5}
    assert (event.step, found["name"], found["to_step"], found["lr_factors"]) == (12, "score_diverges", 4, factors)
    assert run.clock.step == 12 + (12 - 8)  # the last good score was at 8


@pytest.mark.parametrize(("bad", "best"), [((), 8), ((6, 8), 4), ((8,), 4)])
def test_rollback_best_checkpoint_is_not_one_with_a_sign_of_a_collapse(tmp_path, bad, best):
    run = scored(tmp_path, 0.032, 9, 8, 7, 7, 5, 9, 9)
    run.telemetry = lambda gan, scalars: COLLAPSED if gan.clock.step in bad else GOOD
    list(run.run(num_steps=8))
    assert read_checkpoint(run.best.folder).step == best


def test_rollback_of_a_score_that_diverges_at_the_end_trains_on(tmp_path):
    run = scored(tmp_path, 0.064, 7, 5, 10, 11)
    events = list(run.run())
    assert [(event.step, event.values["rollback"]["to_step"]) for event in events if rollbacks([event])] == [(12, 4)]
    scores = [(event.step, event.values["fd"]) for event in events if event.kind == "score"]
    assert scores == [(0, 7), (4, 5), (8, 10), (12, 11), (16, 4), (18, 4)]  # good until 6
    assert run.is_finished and run.saved_at == 18
    assert json.loads((run.best.path() / "score.json").read_text())["step"] == 16


def test_rollback_of_weights_that_are_not_finite_at_the_end_trains_what_was_lost(tmp_path):
    run = trainer(tmp_path, "train.kimg=0.176")
    step = run.scheme.step

    def spoilt_once(gan, batches):
        report = step(gan, batches)
        if gan.clock.step == 11:
            next(gan.g.net.parameters()).data.fill_(float("nan"))
        return report

    object.__setattr__(run.scheme, "step", spoilt_once)
    (event,) = [event for event in run.run() if rollbacks([event])]
    assert (event.step, event.values["rollback"]["to_step"]) == (11, 9)
    assert run.is_finished and run.saved_at == run.clock.step == 11 + 2


def test_rollback_after_one_that_has_not_helped_returns_to_an_older_checkpoint_at_lower_rates(tmp_path):
    run = trainer(tmp_path, "rollback.patience=1", bad=(10, 14), values=SATURATED)
    first, second = rollbacks(run.run())
    assert (first["to_step"], second["to_step"]) == (6, 3)  # not 10, whose players are those of step 6
    assert second["lr_factors"] == {"d": 0.5 * 0.5**2}
    assert run.clock.step == 12 + 14 - 3


def test_rollback_of_a_checkpoint_with_an_invalid_state_is_one_line(tmp_path):
    run = trainer(tmp_path)
    list(run.run(num_steps=3))
    good = run.state()[1]["rollback"]
    invalid = {"lr_factors": [1], "applied": {"g": 3}, "good": -1, "monitor": {"bad": {}, "best": "x"}}
    for key, value in invalid.items():
        rewrite_state(tmp_path, lambda values, changed={key: value}: values.update(rollback={**good, **changed}))
        with pytest.raises(CheckpointError, match=r"step-000000003: .*; start anew with --fresh"):
            run.resume()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("scheme=parameter_server",), "rollback .* scheme parameter_server"),
        (("evaluation.mode=background",), "rollback .* evaluation.mode=background .* set evaluation.mode=inline"),
    ],
)
def test_rollback_is_refused_by_name(tmp_path, words, text):
    with pytest.raises(ConfigError, match=text):
        build.trainer(read_recipe("digits", [*TINY, *SMALL, "rollback={}", *words]), tmp_path, print, lambda: False)
