"""The parts of the asynchronous scheme: cutting fakes, the alarm, what is refused and told."""

import json
import math
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from threading import Event
from types import SimpleNamespace

import pytest
import torch

from paragan.core.capabilities import Capability
from paragan.core.dist import World
from paragan.core.errors import ConfigError, RankError
from paragan.core.roles import Roles, colocated_roles
from paragan.core.source import image_specs
from paragan.core.types import Rows, Side
from paragan.engine.step_log import DelayLog, mean_delays
from paragan.game.scheme import FunctionScheme
from paragan.schemes.asynchronous import Options, Scheme
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender, overlapping_ranks
from paragan.schemes.asynchronous.player_step import GradientAlarm
from paragan.schemes.asynchronous.players_at_once import PlayersAtOnce
from paragan.schemes.asynchronous.players_in_turns import PlayersInTurns
from paragan.schemes.asynchronous.thread_step import ThreadLink, ThreadStep
from paragan.schemes.base import update_order as update_order
from tests.laws.small_gan import batches, small_game


@pytest.mark.parametrize(
    ("total", "num_g", "num_d"), [(8, 1, 1), (8, 2, 2), (7, 3, 2), (5, 1, 4), (9, 4, 1), (2, 3, 3)]
)
@pytest.mark.parametrize("labelled", [False, True])
def test_every_image_comes_once_and_in_order_to_the_rank_whose_row_it_is(total, num_g, num_d, labelled):
    links = {pair: ThreadLink() for pair in overlapping_ranks(total, num_g, num_d)}
    images = torch.arange(total * 4.0).view(total, 1, 2, 2)
    held = {"image": images, **({"label": torch.arange(total) + 10} if labelled else {})}
    like = {name: tensor[0] for name, tensor in held.items()}
    for i, rows in enumerate(Rows(step=0, first=0, count=total, total=total).shares(num_g)):
        post = FakesSender([links.get((i, j)) for j in range(num_d)])
        post.send(rows, {name: tensor[rows.window] for name, tensor in held.items()}, version=3, note=i)
    come = []
    for j, rows in enumerate(Rows(step=0, first=0, count=total, total=total).shares(num_d)):
        inbox = FakesReceiver([links[i, j] for i in range(num_g) if (i, j) in links], like)
        found = inbox.receive(1.0) if rows.count else None
        if found is not None:
            assert (len(found.tensors["image"]), found.version) == (rows.count, 3)
            come.append(found.tensors)
            assert inbox.receive(0.0) is None
    assert all(torch.cat([one[name] for one in come]).equal(tensor) for name, tensor in held.items())


def test_a_delivery_waits_for_its_last_part():
    links = [ThreadLink(), ThreadLink()]
    inbox = FakesReceiver(links, {"image": torch.empty(1, 1, 1)})
    first, second = Rows(step=0, first=0, count=2, total=4), Rows(step=0, first=2, count=2, total=4)
    FakesSender(links[:1]).send(first, {"image": torch.zeros(2, 1, 1, 1)}, 0)
    assert inbox.receive(0.05) is None
    FakesSender(links[1:]).send(second, {"image": torch.ones(2, 1, 1, 1)}, 0, note=1)
    found = inbox.receive(0.05)
    assert found.tensors["image"].flatten().tolist() == [0, 0, 1, 1] and found.note == 1


def test_the_alarm_rings_at_what_lasts_and_not_at_what_is_usual():
    usual = [1.0, 3.0, 0.5, 2.0] * 10
    alarm = GradientAlarm(10.0)
    assert not any(alarm.triggers(norm) for norm in usual)
    assert not alarm.triggers(20.0)  # one step; a mean of five is below
    rung = [alarm.triggers(40.0) for _ in range(5)]
    assert rung[-1]
    fresh = GradientAlarm(10.0)
    assert not any(fresh.triggers(1e9 if n == 3 else 1.0) for n in range(19)), "too few to tell"
    scaled, plain = GradientAlarm(10.0, scaled=True), GradientAlarm(10.0)
    assert not any(scaled.triggers(norm) for norm in [*usual, math.inf, math.inf])
    assert any(plain.triggers(norm) for norm in [*usual, math.nan])


def test_exploding_gradients_trigger_the_alarm():
    scheme, gan, stream = Scheme(Options(fall_back=5.0)), small_game(), batches()
    for _ in range(25):
        scheme.step(gan, stream)
    assert scheme.staleness_logs["d"].in_step_at is None
    with torch.no_grad():
        gan.d.net.blocks[1].linear.parametrizations.weight.original.fill_(math.nan)
    for _ in range(8):
        scheme.step(gan, stream)
    scheme.quiesce()
    assert all(log.in_step_at > 25 for log in scheme.staleness_logs.values())
    before = {name: dict(log.lags) for name, log in scheme.staleness_logs.items()}
    for _ in range(6):
        scheme.step(gan, stream)
    for name, log in scheme.staleness_logs.items():
        assert {lag for lag in log.lags if log.lags[lag] > before[name].get(lag, 0)} == {0}
    scheme.close()


@pytest.mark.parametrize(("g_batch", "images"), [(None, 8), (3, 3), (20, 20)])
def test_g_may_have_a_batch_of_its_own(g_batch, images):
    scheme, gan, stream = Scheme(Options(g_batch=g_batch)), small_game(), batches()
    scheme.step(gan, stream)
    scheme.quiesce()
    assert (gan.g.images, gan.d.images) == (images, 8)
    scheme.close()


def test_error_in_the_g_thread_is_raised_with_its_traceback():
    scheme, gan = Scheme(Options(staleness=0)), small_game()
    gan.g.net.blocks[0].linear = None
    with pytest.raises(TypeError, match="NoneType"):
        scheme.step(gan, batches())
    scheme.close()


def test_a_game_that_needs_more_than_images_and_labels_is_refused():
    with pytest.raises(ConfigError, match=r"pairs .* scheme asynchronous"):
        Scheme().refuse(small_game(), image_specs((1, 8, 8), condition=1))
    relativistic = replace(small_game(), loss=replace(small_game().loss, g_needs_real=True))
    with pytest.raises(ConfigError, match=r"the loss .* real samples in G's turn, .* scheme asynchronous"):
        Scheme().refuse(relativistic, tensors={})


@pytest.mark.parametrize("ranks", [{"g": 2}, {"g": 1, "d": 2}, {"d": 1, "g": 1}, {"g": 1, "fake_score": 1}])
def test_ranks_that_do_not_fit_are_refused(ranks):
    scheme = Scheme(Options(ranks=ranks))
    for assign in (partial(scheme.roles, World(size=2), 1.0), partial(scheme.assign, 2)):
        with pytest.raises(
            ConfigError, match=r"scheme.ranks=.* does not fit 2 ranks; give .*, g first, whose sum is 2"
        ):
            assign()


@pytest.mark.parametrize("option", [{"g_batch": 4}, {"cached": 0.5}, {"state_dtype": "bf16"}, {"fakes_dtype": "bf16"}])
def test_option_without_a_meaning_in_turns_is_refused(option):
    (name,) = option
    with pytest.raises(ConfigError, match=rf"scheme.{name} does not apply to players that take turns"):
        Scheme(Options(staleness=0, reuse=False, **option)).refuse(small_game(), image_specs((1, 8, 8)))
    Scheme(Options(staleness=0, **option)).refuse(small_game(), image_specs((1, 8, 8)))


LINES = [
    {"kind": "start", "step": 0},
    {"kind": "delays", "g": {"used": [[5, 9]]}, "d": {"used": [[5, 9], [5, 9]]}},
    {"kind": "start", "step": 0},
    {"kind": "delays", "g": {"used": [[0, 1]]}, "d": {"used": [[1, 2], [1, 1]]}},
    {"kind": "step"},
    {"kind": "delays", "g": {"used": [[2]]}, "d": {"used": [[3], [2]]}},
    {"kind": "start", "step": 3},
    {"kind": "delays", "g": {"used": [[7]]}, "d": {"used": [[8], [8]]}},
]


def record(folder, lines, end=""):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + end)
    return folder


def test_order_of_the_last_session_from_a_step_is_read(tmp_path):
    folder = record(tmp_path, LINES, end='{"kind": "del')
    assert update_order.read_used(folder, Side.G) == [[0, 1, 2]]
    assert update_order.read_used(folder, Side.D) == [[1, 2, 3], [1, 1, 2]]
    assert update_order.read_used(folder, Side.G, start=3) == [[7]]
    world = World(rank=2, size=3)
    roles = Roles(world=world, batch_world=World(rank=1, size=2), ranks={Side.G: range(1), Side.D: range(1, 3)})
    assert update_order.read_order(folder, roles, small_game()) == {Side.D: [1, 1, 2]}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "has no delays of g in a session from step 0; pass the run folder of an asynchronous run"),
        ([LINES[0], {"kind": "delays", "g": {"used": [["1"]]}}], "has an invalid line of delays"),
        ([LINES[0], {"kind": "delays", "g": [1]}], "has an invalid line of delays"),
        (
            [LINES[0], {"kind": "delays", "g": {"used": [[1]]}}, {"kind": "delays", "g": {"used": [[1], [2]]}}],
            "has an invalid line of delays",
        ),
        (
            [LINES[0], {"kind": "delays", "g": {"used": [[1]]}}, {"kind": "delays", "d": {"used": [[1]]}}],
            "has an invalid line of delays",
        ),
        (
            [LINES[0], {"kind": "delays", "g": {"used": [[1]]}, "d": {"used": [[1], [1]]}}],
            "has a record of 2 ranks of d, but this run has 1",
        ),
    ],
)
def test_an_order_that_cannot_be_followed_is_refused(tmp_path, lines, said):
    with pytest.raises(ConfigError, match=said):
        update_order.read_order(record(tmp_path, lines), colocated_roles(World()), small_game())
    with pytest.raises(ConfigError, match="No such file"):
        update_order.read_used(tmp_path / "nowhere", Side.G)
    going_on = small_game()
    going_on.clock.step = 3
    with pytest.raises(ConfigError, match="in a session from step 3"):
        update_order.read_order(record(tmp_path, LINES[:4]), colocated_roles(World()), going_on)


def test_an_order_ends_with_its_record(tmp_path):
    record(tmp_path, [LINES[0], {"kind": "delays", "g": {"used": [[0, 1]]}, "d": {"used": [[1, 2]]}}])
    scheme, gan, stream = Scheme(Options(staleness=0, order=str(tmp_path))), small_game(), batches()
    for _ in range(2):
        scheme.step(gan, stream)
    with pytest.raises(ConfigError, match="ends after 2 updates, but the run is longer"):
        scheme.step(gan, stream)
    scheme.close()


def told(side="g", **more):
    lags = {"0": 1, "2": 3} if side == "g" else {"1": 8}
    return {"lags": lags, "waits_ms": {"0": 3, "16": 1}, "wait_s": 0.012, "used": [1, 2], "in_step_at": None, **more}


def test_delays_are_merged_over_ranks_and_reported_once():
    by_rank = [{"g": told()}, {"g": told(used=[1, 1])}, {"d": told("d", in_step_at=7)}]
    world = SimpleNamespace(gather=lambda mine: by_rank)
    delays = DelayLog(SimpleNamespace(describe=lambda: {}), SimpleNamespace(is_split=True, world=world))
    found = delays.read()
    assert found["g"]["lag"] == {"0": 2, "2": 6} and found["g"]["used"] == [[1, 2], [1, 1]]
    assert found["d"]["age"] == {"1": 8} and found["d"]["in_step_at"] == 7
    assert mean_delays(found) == {"d/age": 1.0, "d/wait_ms": 3.0, "g/lag": 1.5, "g/wait_ms": 3.0}
    (line,) = delays.fallback_messages(found)
    assert line.startswith("warning: d: its gradients exploded: from update 7 on")
    assert delays.fallback_messages(found) == []
    scheme = FunctionScheme(lambda gan, batches: None)
    assert DelayLog(scheme, SimpleNamespace(is_split=False)).read() == {}


@pytest.mark.parametrize("failed", [0, 1, 2, None])
def test_d_that_stops_for_a_failed_step_of_g_names_its_cause(failed):
    """Of G's pending steps any may have failed; those before it were fine."""
    pending = [Future() for _ in range(3)]
    for number, step in enumerate(pending):
        if number == failed:
            step.set_exception(ValueError("of G"))
        elif number < (failed or 0):
            step.set_result(None)

    def stopped(reals):
        raise RankError("G has stopped")

    scheme_step = SimpleNamespace(
        **{"_pending": pending, "_is_stopping": Event(), "_penalties": (), "_device": torch.device("cpu"), "gan": None},
        _thread=SimpleNamespace(submit=lambda *_: Future()),
        _g_step=None,
        discriminator=SimpleNamespace(step=stopped),
    )
    scheme_step._failed_step = partial(ThreadStep._failed_step, scheme_step)
    with pytest.raises(RankError if failed is None else ValueError, match="G"):
        ThreadStep.step(scheme_step, [])
    assert scheme_step._is_stopping.is_set()


@pytest.mark.parametrize(
    ("options", "case"),
    [
        ({}, PlayersAtOnce),
        ({"staleness": 0}, PlayersAtOnce),
        ({"reuse": False}, PlayersAtOnce),
        ({"staleness": 0, "reuse": False}, PlayersInTurns),
    ],
)
def test_players_take_turns_only_without_delay_and_without_reuse(options, case):
    assert type(Scheme(Options(**options))) is case


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "shared_fakes"), ({"reuse": False}, "synchronous"), ({"reuse": False, "staleness": 0}, None)],
)
def test_without_delays_it_is_another_scheme(options, name):
    assert Scheme(Options(**options)).exact_scheme == name


def test_only_threads_of_one_process_cannot_compile():
    turns = Scheme(Options(reuse=False, staleness=0))
    assert Capability.COMPILE in turns.capabilities
    assert Capability.COMPILE not in Scheme().capabilities
