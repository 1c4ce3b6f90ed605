"""What the ranks of one run must agree on before they train."""

import re
from types import SimpleNamespace

import pytest
import torch

from paragan.config import dump, read_recipe
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Side
from paragan.runs import rank_checks, run_lines


def gathering(*others):
    """A world whose other ranks say what is given."""
    return SimpleNamespace(size=1 + len(others), gather=lambda mine: [mine, *(change(mine) for change in others)])


def with_words(*words):
    return lambda mine: mine | {"config": dump(read_recipe("digits", words))}


def test_equal_settings_pass():
    same = with_words("data.size=16", "devices=4")  # devices: of a host
    rank_checks.check_same_config(read_recipe("digits"), gathering(with_words(), same))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (with_words("train.batch=32"), "train.batch is 64 on rank 0 and 32 on rank 2; give the same command"),
        (with_words("g.ema.half_life_kimg=3"), "g.ema.half_life_kimg is 2.0 on rank 0 and 3.0 on rank 2"),
        (with_words("penalties=[]"), "penalties.0.name is r1 on rank 0 and None on rank 2"),
        (lambda mine: mine | {"torch": "1.0"}, f"torch is {torch.__version__} on rank 0 and 1.0 on rank 2; install"),
    ],
)
def test_other_settings_are_refused_by_name(other, message):
    with pytest.raises(ConfigError, match=re.escape(f"ranks differ: {message}")) as caught:
        rank_checks.check_same_config(read_recipe("digits"), gathering(with_words(), other))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("batch", "each"), [(64, "32 of 64"), (63, "32 or 31 of 63")])
def test_the_first_lines_tell_where_everything_lies(batch, each):
    seated = {"g": {"strategy": "zero3"}, "d": {"strategy": "ddp"}}
    trainer = SimpleNamespace(world=World(size=2), roles=colocated_roles(World(size=2)), sync_period=1)
    assert (
        run_lines.ranks_line(trainer, seated, batch, 1) == f"ranks     2 on 1 host: G zero3, D ddp; {each} images each"
    )
    apart = SimpleNamespace(
        world=World(size=3),
        roles=Roles(world=World(size=3), batch_world=World(), ranks={Side.G: range(1), Side.D: [1, 2]}),
    )
    message = f"ranks     3 on 1 host: G zero3 on 0; D ddp on 1, 2; batches of {batch} images"
    assert run_lines.ranks_line(apart, seated, batch, 1) == message
    here = SimpleNamespace(local_rank=0, gather=lambda mine: [mine, 1, 2, 0, 1])
    assert run_lines.num_hosts(here) == 2


def test_a_rank_or_part_without_an_image_is_refused():
    config = read_recipe("digits", ["train.batch=7", "g.micro_batches=3"])
    rank_checks.check_batch(config, World(size=2))
    with pytest.raises(ConfigError, match=r"g\.micro_batches=3 is more than the 2 images of a rank"):
        rank_checks.check_batch(config, World(size=3))
    with pytest.raises(ConfigError, match=r"train\.batch=7 is less than one image for each of 8 ranks"):
        rank_checks.check_batch(config, World(size=8))


def test_ranks_on_different_disks_are_refused():
    trainer = SimpleNamespace(
        clock=SimpleNamespace(step=20), batches=SimpleNamespace(source=SimpleNamespace(fingerprint="a"))
    )
    rank_checks.check_same_state(trainer, gathering(lambda mine: mine))
    with pytest.raises(CheckpointError, match="of step 20 on rank 0 and 0 on rank 1; put the run folder on"):
        rank_checks.check_same_state(trainer, gathering(lambda mine: [0, "a"]))
    with pytest.raises(CheckpointError, match="the data is a on rank 0 and b on ranks 1, 2"):
        rank_checks.check_same_state(trainer, gathering(*[lambda mine: [20, "b"]] * 2))


@pytest.mark.parametrize("is_shared", [True, False])
def test_hosts_without_a_shared_working_folder_are_refused_at_an_address(tmp_path, is_shared):
    other = gathering(lambda mine: mine if is_shared or not isinstance(mine, bool) else False)
    other.local_size = 1
    other.is_main = True
    rank_checks.check_shared_folder("", tmp_path, other)
    if is_shared:
        rank_checks.check_shared_folder("s3://bucket/run", tmp_path, other)
    else:
        with pytest.raises(CheckpointError, match=f"rank 1 does not see {tmp_path} of rank 0.*set PARAGAN_CACHE"):
            rank_checks.check_shared_folder("s3://bucket/run", tmp_path, other)
    assert not list(tmp_path.iterdir())


def test_a_group_of_one_for_strategies_that_speak():
    plain = read_recipe("digits")
    assert not rank_checks.needs_group(plain)
