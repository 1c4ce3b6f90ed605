"""Texts with a mask and a size, under the asynchronous scheme: every fake is judged with what belongs to it."""

import pytest

import paragan as pg
from tests.distributed import cases_tensors as cases
from tests.distributed.test_tensors import assert_close, weights_of
from tests.marks import slow

CASES = "tests.distributed.cases_tensors"
NO_DELAY = {"name": "asynchronous", "staleness": 0, "reuse": False}
REUSED = {"name": "asynchronous", "staleness": 0}
LATE = {"name": "asynchronous", "staleness": 1, "cached": 0.5}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The weights of runs with players in turn, by scheme."""
    return {
        scheme: weights_of(cases.trainer(tmp_path_factory.mktemp(scheme), scheme=scheme).run().folder)
        for scheme in ("synchronous", "shared_fakes")
    }


@pytest.mark.parametrize(("parts", "garbage"), [(1, 0.0), (4, 1e6)])
def test_two_threads_with_a_resume_equal_players_in_turn(tmp_path, plain, parts, garbage):
    chosen = {"parts": parts, "garbage": garbage, "scheme": REUSED}
    cases.trainer(tmp_path, **chosen, **{"train.kimg": 2 * cases.BATCH / 1000}).run()
    cases.trainer(tmp_path, **chosen).run()
    assert_close(weights_of(tmp_path), plain["shared_fakes"])


def test_texts_of_any_length_in_two_threads(tmp_path):
    runs = [
        cases.trainer(tmp_path / str(n), nets="ragged", scheme=s).run() for n, s in enumerate((REUSED, "shared_fakes"))
    ]
    assert_close(*(weights_of(run.folder) for run in runs))


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("ranks", "num_g", "reuse"), [slow(2, 1, False), (2, 1, True), (3, 1, False), slow(3, 2, True)]
)
def test_ranks_of_g_and_of_d_with_a_resume_equal_players_in_turn(tmp_path, request, plain, ranks, num_g, reuse):
    pool = request.getfixturevalue({2: "two_ranks", 3: "three_ranks"}[ranks])
    chosen = {
        "pair": "none",
        "parts": 4,
        "scheme": {**NO_DELAY, "ranks": {"g": num_g, "d": ranks - num_g}, "reuse": reuse},
    }
    for steps, trained in ((1, 1), (cases.STEPS, cases.STEPS - 1)):
        found = pool.run(f"{CASES}:train", folder=str(tmp_path), steps=steps, **chosen)
        assert found == [trained] * ranks
    assert_close(weights_of(tmp_path), plain["shared_fakes" if reuse else "synchronous"])


@pytest.mark.distributed
def test_workers_of_a_parameter_server_equal_players_in_turn(tmp_path, three_ranks, plain):
    server = {"name": "parameter_server", "staleness": 0}
    assert three_ranks.run(f"{CASES}:train", folder=str(tmp_path), pair="none", parts=4, scheme=server) == [4] * 3
    assert_close(weights_of(tmp_path), plain["synchronous"])


@pytest.mark.filterwarnings("ignore:generator. forward.* gradient is 0:UserWarning")  # G copies
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("nets", ["checked", "checked ragged"])
def test_a_late_or_cached_fake_keeps_its_text_in_two_threads(tmp_path, nets, reuse):
    """Two updates of D on batches of two, whose texts differ in length from batch to batch."""
    more = {"train.batch": 2, "train.kimg": 0.04, "d.updates_per_step": 2}
    cases.trainer(tmp_path, nets=nets, scheme={**LATE, "reuse": reuse}, **more).run()


@pytest.mark.distributed
def test_a_late_or_cached_fake_keeps_its_text_on_ranks(tmp_path, three_ranks):
    chosen = {"pair": "none", "parts": 1, "nets": "checked", "scheme": LATE, "d.updates_per_step": 2}
    assert three_ranks.run(f"{CASES}:train", folder=str(tmp_path), steps=20, **chosen) == [10] * 3


@pytest.mark.distributed
def test_texts_of_any_length_in_one_bucket_on_ranks(tmp_path, two_ranks, plain):
    chosen = {"pair": "none", "parts": 1, "nets": "ragged", "buckets": [cases.LENGTH], "scheme": NO_DELAY}
    assert two_ranks.run(f"{CASES}:train", folder=str(tmp_path), **chosen) == [cases.STEPS] * 2
    assert_close(weights_of(tmp_path), plain["synchronous"])


@pytest.mark.distributed
def test_texts_of_any_length_are_refused_on_ranks(tmp_path, two_ranks):
    with pytest.raises(Exception, match=r"'words' .* any length, .* scheme asynchronous"):
        two_ranks.run(f"{CASES}:train", folder=str(tmp_path), nets="ragged", pair="none", parts=1, scheme=LATE)


def test_another_batch_of_g_is_refused_before_a_file_is_written(tmp_path):
    with pytest.raises(pg.ConfigError, match=r"named tensors .* scheme\.g_batch=4"):
        cases.trainer(tmp_path / "run", scheme={**LATE, "g_batch": 4}).run()
    assert not (tmp_path / "run").exists()
