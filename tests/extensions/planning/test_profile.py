"""The profile of a run: measured on real updates, written, read, refused."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.extensions.planning import profile_run
from paragan.extensions.planning.profile import Curve, read_profile
from paragan.extensions.planning.profile_run import measure_profile, updates_fingerprint
from tests.simulated_workers import profile

WORDS = ["data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.threads=1"]


@pytest.fixture(scope="module")
def config():
    return read_recipe("digits", WORDS)


@pytest.fixture(scope="module")
def measured(config):
    threads = torch.get_num_threads()
    found = measure_profile(config, "digits", build.open_data(config), lambda batch: 1000 * batch, [4, 16])
    torch.set_num_threads(threads)
    return found


@pytest.mark.parametrize(("rows", "value"), [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0), (6, 6.0), (8, 10.0)])
def test_curve_is_linear_between_its_points_and_beyond(rows, value):
    assert Curve((2, 4, 5), (1.0, 2.0, 4.0)).at(rows) == pytest.approx(value)


def test_curve_of_one_point_is_proportional():
    assert Curve((4,), (2.0,)).at(1) == 0.5


def test_profile_has_the_sizes_of_the_networks(config, measured):
    game = build.gan(config, build.open_data(config), torch.device("cpu"))
    for player, found in ((game.g, measured.g), (game.d, measured.d)):
        assert found.parameters == sum(weight.numel() for weight in player.net.parameters())
        assert found.weight_bytes == 4 * found.parameters
        assert found.state_bytes == sum(v.numel() * v.element_size() for v in player.net.state_dict().values())
    assert measured.fake_bytes == 8 * 8 * 4 + 8 and measured.sample_bytes == 8 * 8 * 4 + 8


def test_fakes_of_samples_that_are_no_single_images_have_the_bytes_of_both(tmp_path):
    for name in ("A", "B"):
        (tmp_path / f"train{name}").mkdir()
        for number in range(6):
            pixels = np.full((16, 16, 3), 40 * number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"train{name}" / f"{number}.png")
    words = [f"data.path={tmp_path}", "data.size=16", "model.width=2", "train.batch=2", "train.threads=1"]
    config = read_recipe("translate", words)
    data = build.open_data(config)
    game = build.gan(config, data, torch.device("cpu"))
    worker = profile_run._Worker(config=config, data=data, game=game, device=torch.device("cpu"), size=2)
    worker.generate()
    assert worker.fake_bytes == 2 * (2 * 3 * 16 * 16 * 4)


def test_profile_has_times_of_each_batch_size(measured):
    assert measured.step_s.rows == (4, 16)
    assert all(
        value > 0 for value in (*measured.step_s.values, *measured.g.update_s.values, *measured.d.update_s.values)
    )
    assert measured.memory.values == (4000.0, 16000.0)
    assert all(0 < share <= 1 for share in measured.cpu_share.values)


def test_profile_counts_the_collectives_of_batch_norm(measured):
    """G has one batch norm: forward and backward in its own turn, forward alone for D's fakes; D has none."""
    assert measured.g.norms == 2 and measured.generate_norms == 1 and measured.d.norms == 0
    forward = (2 * 4 + 1) * 8  # sums, squares and the number of samples, in float64
    backward = 2 * 4 * 4
    assert measured.g.norm_bytes == forward + backward and measured.d.norm_bytes == 0


def test_profile_of_a_discriminator_that_never_trains_costs_nothing():
    flow = read_recipe("flow-digits", ["data.size=8", "model.width=16", "model.steps=2", "train.batch=4"])
    assert flow.adversarial.d_start_kimg > flow.train.kimg
    found = measure_profile(flow, "flow-digits", build.open_data(flow), lambda batch: 0, [4])
    assert (found.d.parameters, found.d.weight_bytes, found.d.norms, found.generate_norms) == (0, 0, 0, 0)
    assert found.d.state_bytes > 0 and found.g.weight_bytes > 0
    assert found.generate_s.values[0] + found.d.update_s.values[0] < 0.5 * found.g.update_s.values[0]


def test_profile_of_a_discriminator_that_trains_at_random_is_that_of_its_turns(config, measured):
    rare = replace(config, d=replace(config.d, update_probability=0.01))
    found = measure_profile(rare, "digits", build.open_data(rare), lambda batch: 0, [4])
    assert found.d.weight_bytes == measured.d.weight_bytes and found.generate_norms == 1
    assert found.d.update_s.values[0] > 0.2 * found.g.update_s.values[0]


def test_measurement_leaves_torchs_generator_unchanged(config):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    measure_profile(config, "digits", build.open_data(config), lambda batch: 0, [4])
    assert torch.equal(before, torch.get_rng_state())


def test_profile_is_read_as_it_was_written(tmp_path, measured):
    measured.write(tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == measured


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "JSONDecodeError"),
        ("[]", "ValueError"),
        ("[" * 100_000, "ValueError"),
        ('{"version": ' * 100_000, "ValueError"),
        ("{}", "KeyError"),
        ('{"version": 99}', "a profile of version 99, not 3; measure it again"),
        (json.dumps(asdict(profile()) | {"step_s": {"rows": [4, 2], "values": [1, 2]}}), "increasing rows"),
        (json.dumps(asdict(profile()) | {"speed": 1}), "speed"),
    ],
)
def test_file_that_is_no_profile_is_refused_in_one_line(tmp_path, text, problem):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as refused:
        read_profile(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


@pytest.mark.parametrize(
    "word", ["model.width=8", "loss=hinge", "d.updates_per_step=2", "penalties=[]", "adversarial.d_start_kimg=1e6"]
)
def test_fingerprint_follows_what_an_update_does(config, word):
    assert updates_fingerprint(read_recipe("digits", [*WORDS, word])) != updates_fingerprint(config)


@pytest.mark.parametrize(
    "word",
    [
        *("train.batch=32", "g.optimizer.lr=1", "scheme.name=synchronous", "devices=4", "seed=3"),
        *("adversarial.d_start_kimg=1", "d.update_probability=0.5"),
    ],
)
def test_fingerprint_ignores_what_a_plan_may_change(config, word):
    assert updates_fingerprint(read_recipe("digits", [*WORDS, word])) == updates_fingerprint(config)


@pytest.mark.slow
def test_plan_with_workers_writes_a_profile_and_uses_it_again(tmp_path, capsys):
    path = tmp_path / "profile.json"
    words = ["plan", "digits", *WORDS, "train.batch=4", "--workers", "1,4", "--profile-file", str(path)]
    assert main(words) == 0
    written = path.read_text()
    first = capsys.readouterr().out
    assert main(words) == 0
    assert path.read_text() == written
    again = capsys.readouterr().out
    assert "workers  batch" in first and first == again
    assert main([*words, "loss=hinge"]) == 2
    assert "is the profile of recipe digits with other networks" in capsys.readouterr().err


def test_plan_draws_its_forecast(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `plot`")
    written = tmp_path / "profile.json"
    profile(fingerprint=updates_fingerprint(read_recipe("digits", WORDS))).write(written)
    plot = tmp_path / "plan.svg"
    words = ["--workers", "1,4", "--profile-file", str(written), "--plot", str(plot)]
    assert main(["plan", "digits", *WORDS, *words]) == 0
    assert 'id="loss-4-compute"' in plot.read_text() and "workers  batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--workers", "two"], "--workers: 'two' is not a list of numbers such as 1,8,64"),
        (["--workers", "4", "--network", "carrier"], "unknown network 'carrier'; choose one of loopback"),
        (["--workers", "4", "--assume", "luck=1"], "--assume: unknown key 'luck'; choose one of cores"),
        (["--workers", "4", "--assume", "cores=0.5"], "--assume cores=0.5: cores must be a positive integer"),
        (["--workers", "4", "--assume", "workers_per_host=1.5"], "workers_per_host must be a positive integer"),
        (["--workers", "4", "--assume", "speed=0"], "speed must be a positive number"),
        (["--assume", "jitter=1"], "add --workers N"),
        (["--plot", "a.svg"], "add --workers N"),
        (["--workers", "4", "--plot", "a.pdf"], "--plot a.pdf: unknown format '.pdf'"),
    ],
)
def test_forecast_that_cannot_be_made_is_refused_in_one_line(tmp_path, capsys, words, problem):
    path = tmp_path / "profile.json"
    profile(fingerprint=updates_fingerprint(read_recipe("digits", WORDS))).write(path)
    given = [] if "add --workers" in problem else ["--profile-file", str(path)]
    assert main(["plan", "digits", *WORDS, *words, *given]) == 2
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())
