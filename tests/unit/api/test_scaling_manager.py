"""`pg.ScalingManager`: what it makes of a config and of the workers that there are, and the run that it leads."""

import json
import sys
import threading

import pytest
import torch

import paragan as pg
from paragan.core.errors import ConfigError
from tests.laws.poster_nets import Discriminator, Generator, PosterDiscriminator, PosterGenerator
from tests.unit.api.test_estimator import config


def pair():
    torch.manual_seed(0)
    return PosterGenerator(Generator()), PosterDiscriminator(Discriminator())


@pytest.fixture
def manager(tmp_path):
    """Makes managers of batches of 16, and closes them."""
    made = []

    def make(*words, bs=16, num_workers=1, **more):
        made.append(pg.ScalingManager(config(*words), bs, num_workers, out=tmp_path / "run", **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def trained(scale_mgr, gan=None, steps=None):
    gan = gan or pg.Estimator(*pair())
    for _ in range(len(scale_mgr.config.max_steps) if steps is None else steps):
        scale_mgr.train(gan)
    return scale_mgr


def records(scale_mgr, kind):
    return pg.Run(scale_mgr.trainer.checkpoints.folder.parent).records(kind)


def ending(folder):
    return json.loads((folder / "exit.json").read_text())


# the workers that there are


@pytest.mark.parametrize(
    ("bs", "num_workers", "said"),
    [
        (100, 8, "bs=100 for 8 workers is 12.5 images for the 1 of this run; pass a multiple of"),
        (4, 8, "bs=4 is less than one image for each of 8 workers"),
        (64.0, 1, "bs must be a whole number of at least 1, not 64.0"),
    ],
)
def test_a_batch_that_cannot_be_shared_is_one_line(manager, bs, num_workers, said):
    with pytest.raises(pg.ConfigError) as caught:
        manager(bs=bs, num_workers=num_workers)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rule", "factor"), [("sqrt", 0.5), ("linear", 0.25), ("none", 1.0)])
def test_both_learning_rates_follow_the_batch_by_rule(manager, rule, factor):
    words = ("g.optimizer.lr=1e-3", "d.optimizer.lr=4e-3", "g.schedule.warmup=5", "d.updates_per_step=2")
    before, now = config(*words), manager(*words, bs=512, num_workers=128, rule=rule).config
    assert (now.g.optimizer.lr, now.d.optimizer.lr) == (1e-3 * factor, 4e-3 * factor)
    assert (now.train.batch, now.max_steps) == (4, before.max_steps)
    assert (now.g.schedule, now.g.optimizer.arguments) == (before.g.schedule, before.g.optimizer.arguments)


def test_manager_refuses_scores_in_the_background(manager):
    with pytest.raises(ConfigError, match=r"evaluation\.mode=background .* a ScalingManager"):
        manager("evaluation.mode=background")


def test_an_unknown_rule_is_one_line(manager):
    with pytest.raises(pg.ConfigError, match=r"^rule must be one of sqrt, linear, none, not 'cubic'$"):
        manager(rule="cubic")


@pytest.mark.parametrize(
    ("words", "steps"),
    [(("train.kimg=0.064",), 4), (("train.kimg=0.065",), 5), (("train.kimg=0.065", "d.updates_per_step=3"), 2)],
)
def test_the_steps_of_a_config_are_those_of_its_run(manager, words, steps):
    assert config(*words).max_steps == range(steps)
    done = trained(manager(*words), steps=20)  # those beyond the end do nothing
    assert done.trainer.clock.step == steps
    assert done.trainer.is_finished


# the run


@pytest.fixture(scope="module")
def finished(quick_judge, tmp_path_factory):
    """A run that was scored; tests only read it."""
    words = ("evaluation.features=judge", "evaluation.num_images=20")
    scale_mgr = pg.ScalingManager(config(*words), 16, 1, out=tmp_path_factory.mktemp("finished") / "run")
    yield trained(scale_mgr)
    scale_mgr.close()


def test_fid_without_inception_says_that_the_judges_features_are_compared(finished, capsys):
    (scored,) = records(finished, "score")
    assert finished.eval(metric="fid") == scored["fd[judge]"]
    line = capsys.readouterr().out
    assert line.startswith(f"eval      fid is fd[judge] {scored['fd[judge]']:.4g}, compared in features of the judge, ")
    assert "not the published FID" in line and "evaluation.features=inception" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "features"),
    [("fd[inception_torchvision]", "inception_torchvision"), ("fd[mnist]", "mnist"), ("fd[dinov2]", "dinov2")],
)
def test_fid_of_any_other_extractor_is_not_called_the_published_one(finished, capsys, monkeypatch, name, features):
    monkeypatch.setitem(finished._begun_session.last_score, name, 2.5)
    monkeypatch.delitem(finished._begun_session.last_score, "fd[judge]")
    assert finished.eval("fid") == 2.5
    line = capsys.readouterr().out
    assert f"fid is {name} 2.5, compared in features of {features}: not the published FID" in line
    assert line.count("\n") == 1


def test_a_metric_by_its_name_is_its_number(finished, capsys):
    (scored,) = records(finished, "score")
    for name in ("fd[judge]", "coverage", "label_accuracy"):
        assert finished.eval(name) == scored[name]
    assert capsys.readouterr().out == ""


def test_a_run_that_is_not_scored_says_so(manager):
    with pytest.raises(pg.ConfigError, match=r"^eval needs an extractor, and evaluation\.features is null"):
        trained(manager(), steps=1).eval()


def test_eval_between_steps_returns_a_score_and_training_continues(quick_judge, manager):
    scale_mgr, gan = manager("evaluation.features=judge", "evaluation.num_images=20"), pg.Estimator(*pair())
    trained(scale_mgr, gan, steps=2)
    early = scale_mgr.eval("coverage")
    assert scale_mgr.eval("coverage") == early
    trained(scale_mgr, gan)
    assert [line["step"] for line in records(scale_mgr, "score")] == [2, 4]


def test_a_manager_before_its_first_step_or_closed_refuses_calls(manager):
    scale_mgr = manager()
    for ask in (scale_mgr.eval, scale_mgr.save, lambda: scale_mgr.trainer):
        with pytest.raises(pg.ConfigError, match=r"^ScalingManager: nothing is trained yet; call train\(gan"):
            ask()
    gan = pg.Estimator(*pair())
    scale_mgr.train(gan)
    scale_mgr.close()
    scale_mgr.close()
    for ask in (scale_mgr.eval, scale_mgr.save, lambda: scale_mgr.train(gan)):
        with pytest.raises(pg.ConfigError, match=r"^ScalingManager: this manager is closed; create a new one"):
            ask()


def test_one_manager_trains_one_pair(manager):
    scale_mgr = trained(manager(), steps=1)
    with pytest.raises(pg.ConfigError, match=r"^train: this ScalingManager trains another Estimator"):
        scale_mgr.train(pg.Estimator(*pair()))
    with pytest.raises(pg.ConfigError, match=r"^train: gan must be an Estimator"):
        manager().train(pair()[0])


def test_the_same_program_goes_on_where_it_left(manager, tmp_path, capsys):
    gan = pg.Estimator(*pair())
    scale_mgr = trained(manager(), gan, steps=2)
    scale_mgr.save()
    scale_mgr.train(gan)
    scale_mgr.close()
    reason = "the program ended early; not saved since step 2"
    assert ending(tmp_path / "run") == {"code": 85, "step": 3, "reason": reason}
    again = manager()
    again.train(gan)
    assert "resuming at step 2" in capsys.readouterr().out
    assert again.trainer.clock.step == 3
    trained(again, gan)
    assert ending(tmp_path / "run") == {"code": 0, "step": 4, "reason": "finished"}
    assert not any(line["commands"] for line in records(again, "start"))  # `paragan` has not these networks


def test_another_run_in_the_folder_is_refused_in_words_of_a_program(manager, tmp_path):
    trained(manager())
    with pytest.raises(pg.CheckpointError) as caught:
        trained(manager(bs=32))
    assert "other settings (g.optimizer.lr was " in str(caught.value)
    cures = "give the former values, choose another folder with out=DIR, or start anew with fresh=True"
    assert str(caught.value).endswith(f"train.batch was 16, now 32); {cures}")
    trained(manager(bs=32, fresh=True))
    assert ending(tmp_path / "run")["step"] == 4
    assert ending(tmp_path / "run.old-1")["step"] == 4


def test_code_that_fails_in_a_step_ends_the_run_with_its_error(manager, tmp_path):
    g, d = pair()
    gan, scale_mgr = pg.Estimator(g, d), manager()
    scale_mgr.train(gan)
    scale_mgr.trainer.players["d"].net.net._player.model_fn = lambda x, y: 1 / 0
    with pytest.raises(ZeroDivisionError):
        scale_mgr.train(gan)
    assert ending(tmp_path / "run") == {"code": 1, "step": 1, "reason": "division by zero"}
    with pytest.raises(
        pg.ConfigError, match=r"^ScalingManager: this manager ended with an error; create a new one, which"
    ):
        scale_mgr.train(gan)
    assert trained(manager()).trainer.is_finished  # the folder is free again


def test_two_threads_train_and_are_gone_at_the_end(manager):
    before = threading.active_count()
    done = trained(manager("scheme=asynchronous"))
    assert done.trainer.is_finished
    assert {name: player.version for name, player in done.trainer.players.items()} == {"g": 4, "d": 4}
    assert threading.active_count() == before
    left = trained(manager("scheme=asynchronous", fresh=True), steps=1)
    assert threading.active_count() > before
    left.close()
    assert threading.active_count() == before


def test_a_run_ends_where_its_ranks_hold_the_same(manager):
    scale_mgr, gan = manager("train.kimg=0.048"), pg.Estimator(*pair())
    trained(scale_mgr, gan, steps=1)
    scale_mgr.trainer.sync_period = 2  # as where ranks average their weights every other step
    for name in ("save", "eval"):
        with pytest.raises(pg.ConfigError, match=rf"^{name}: the ranks have not averaged their weights"):
            getattr(scale_mgr, name)()
    trained(scale_mgr, gan, steps=2)
    assert (scale_mgr.trainer.clock.step, scale_mgr.trainer.is_finished) == (4, True)


def test_the_folder_is_called_after_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program, name in (("a/my-gan.py", "my-gan"), ("-c", "gan"), ("", "gan")):
        monkeypatch.setattr(sys, "argv", [program])
        scale_mgr = trained(pg.ScalingManager(config(), 16, 1), steps=1)
        scale_mgr.close()
        assert (tmp_path / "runs" / name / "config.yaml").is_file()
