"""Checkpoints are whole or absent, and nothing in them is unpickled."""

import hashlib
import itertools
import json
import os
import pickle
import random

import pytest
import torch

from paragan.checkpoint import writer as module
from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import ALONE
from paragan.core.errors import CheckpointError
from paragan.core.layout import Pieces, StoredTensors, TensorLayout
from paragan.core.option_types import TORCH_OPTIMISERS
from paragan.core.types import Side
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.state import restore, state_of
from paragan.parallel import MemoryOptions, none
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, distance, game, network, play, player


def example(step: int) -> tuple[int, dict[str, Pieces], dict[str, int]]:
    tensors = {"g": {"net/w": torch.full((3,), float(step))}, "d": {"net/w": torch.zeros(2)}}
    return step, {group: Pieces(held) for group, held in tensors.items()}, {"position": step}


def again(pieces: Pieces, values):
    """What a checkpoint gives back of what one process saved."""
    return StoredTensors.of(pieces.tensors), values


@pytest.fixture
def store(tmp_path):
    said: list[str] = []
    store = CheckpointWriter(folder=tmp_path / "checkpoints", keep=3, log=said.append)
    store.__dict__["said"] = said
    return store


def files_of(path):
    return sorted(p.name for p in path.iterdir())


@pytest.mark.parametrize(("keep", "left"), [(1, (1, 3, 4, 5)), (3, (1, 2, 3, 4, 5))])
def test_prune_before_removes_leftovers_and_nothing_newer(store, keep, left):
    for step in range(1, 6):
        CheckpointWriter(folder=store.folder, keep=9).save(*example(step))
    CheckpointWriter(folder=store.folder, keep=keep).prune_before(store.path_of(4))
    assert [p.name for p in store.paths()] == [f"step-{n:09d}" for n in left]


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("gaps", [(1, 1), (7, 7), (3, 20)])
def test_thinning_leaves_a_checkpoint_from_before_any_step_at_the_cost_of_a_logarithm(store, keep, gaps):
    draws = random.Random(0)
    writer = CheckpointWriter(folder=store.folder, keep=keep)
    saved = list(itertools.accumulate(draws.randint(*gaps) for _ in range(60)))
    for count, newest in enumerate(saved, 1):
        writer.path_of(newest).mkdir(parents=True)
        writer.prune_before(writer.path_of(newest))
        left = [int(path.name[5:]) for path in writer.paths()]
        assert left[0] == saved[0] and set(saved[:count][-keep:]) <= set(left)
        assert len(left) <= keep + newest.bit_length()
        for collapse in saved[: count - 1]:
            before = max(step for step in left if step <= collapse)
            assert newest - before <= 8 * (newest - collapse)


def test_thinning_leaves_other_folders_and_protected_checkpoints(store):
    """7 is protected, 8, 6, 2 and 1 are the oldest at distances of 1, 2 to 3, 4 to 7, and 8."""
    writer = CheckpointWriter(folder=store.folder, keep=1, protected={7})
    for name in ["step-notes", *(f"step-{n:09d}" for n in range(1, 10))]:
        (store.folder / name).mkdir(parents=True)
    writer.prune_before(writer.path_of(9))
    assert [path.name.lstrip("step-0") for path in writer.paths()] == ["1", "2", "6", "7", "8", "9"]
    assert (store.folder / "step-notes").is_dir()


def test_writer_round_trip_keeps_the_last(store):
    for step in range(1, 6):
        store.save(*example(step))
    assert [p.name for p in store.paths()][-3:] == [f"step-{n:09d}" for n in (3, 4, 5)]
    found = store.newest()
    assert (found.step, found.values) == (5, {"position": 5})
    assert torch.equal(found.groups["g"]["net/w"], torch.full((3,), 5.0))
    assert files_of(found.path) == ["d.safetensors", "g.safetensors", "manifest.json", "state.json"]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage"),
    [(name, damage) for name in ("g.safetensors", "state.json") for damage in (truncate, flip, os.unlink)]
    + [("manifest.json", truncate), ("manifest.json", os.unlink)],
)
def test_newest_damaged_is_skipped_with_message(store, name, damage):
    store.save(*example(1))
    damage(store.save(*example(2)) / name)
    assert store.newest().step == 1
    (line,) = store.__dict__["said"]
    assert "step-000000002" in line
    assert name in line
    store.save(*example(2))  # the step is reached again
    assert store.newest().step == 2


def test_prune_damaged_later_checkpoints_keeps_good_ones(store):
    for step in (1, 8, 9):
        store.save(*example(step))
    for step in (8, 9):
        truncate(store.folder / f"step-{step:09d}" / "g.safetensors")
    assert store.newest().step == 1
    store.save(*example(2))
    assert [p.name for p in store.paths()] == ["step-000000001", "step-000000002"]
    assert (store.folder / "damaged-step-000000009").exists()


def test_writer_same_step_damaged_twice_is_set_aside(store):
    for _ in range(2):
        store.save(*example(4))
        truncate(store.save(*example(8)) / "g.safetensors")
        store.save(*example(6))
    assert [p.name for p in store.paths()] == ["step-000000004", "step-000000006"]


def test_writer_tied_weights_are_saved_under_both_names(store):
    gan = fresh_game()
    gan.g.net.register_buffer("tied", next(gan.g.net.parameters()).detach())
    store.save(1, {"g": state_of(gan.g)[0]}, {})
    assert "net/tied" in store.newest().groups["g"]


def test_newest_all_damaged_raises_with_advice(store):
    truncate(store.save(*example(1)) / "d.safetensors")
    with pytest.raises(CheckpointError, match="all checkpoints are damaged; start anew with --fresh"):
        store.newest()


def test_reader_newer_format_is_refused(store):
    path = store.save(*example(1))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(
        CheckpointError,
        match="has format 99, but this paragan reads only format 1; use the paragan version that wrote it",
    ):
        read_checkpoint(path)


def test_save_with_missing_piece_raises(store):
    store.save(*example(1))
    with pytest.raises(CheckpointError, match=r"g: net/w: pieces are missing .*; earlier checkpoints are intact"):
        store.save(2, {"g": Pieces({"net/w": torch.zeros(2)}, {"net/w": TensorLayout.rows((4,), 0, 2)})}, {})
    assert files_of(store.folder) == ["step-000000001"]


def test_save_piece_of_another_shape_than_its_layout_raises(store):
    pieces = Pieces({"net/w": torch.zeros(3)}, {"net/w": TensorLayout.rows((4,), 0, 1)})
    with pytest.raises(CheckpointError, match=r"net/w has shape \(3,\), its layout \[4\]"):
        store.save(1, {"g": pieces}, {})


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb-went-off",)


def test_reader_pickle_under_valid_manifest_is_refused(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = store.save(*example(1))
    (path / "g.safetensors").write_bytes(pickle.dumps(Bomb()))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["g.safetensors"] = hashlib.sha256((path / "g.safetensors").read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="not a safetensors file; pickled weights are never read"):
        read_checkpoint(path)
    assert not (tmp_path / "bomb-went-off").exists()


def test_save_interrupted_leaves_no_checkpoint(store, monkeypatch):
    store.save(*example(1))
    monkeypatch.setattr(module, "file_sha256", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.save(*example(2))
    monkeypatch.undo()
    assert [p.name for p in store.paths()] == ["step-000000001"]
    assert store.save(*example(2)).is_dir()  # over the debris


def fresh_game():
    return game(*(player(side, none.Strategy()) for side in Side))


def test_restore_player_continues_bit_for_bit():
    straight, first, second = fresh_game(), fresh_game(), fresh_game()
    play(straight, synchronous, batches(), steps=5)
    stream = batches()
    play(first, synchronous, stream, steps=2)
    for mine, theirs in ((second.g, first.g), (second.d, first.d)):
        restore(mine, *again(*state_of(theirs)))
    play(second, synchronous, stream, steps=3)
    for a, b in ((straight.g, second.g), (straight.d, second.d)):
        assert distance(dict(a.net.state_dict()), dict(b.net.state_dict())) == 0
        assert (a.version, a.images, int(a.updates)) == (b.version, b.images, int(b.updates))
    assert distance(dict(straight.g.ema.net.state_dict()), dict(second.g.ema.net.state_dict())) == 0


@pytest.mark.parametrize("name", TORCH_OPTIMISERS)
def test_restore_every_torch_optimizer_continues_bit_for_bit(name):
    kind = getattr(torch.optim, name)

    def build():
        return game(
            *(
                Player(side=side, net=network(side), strategy=none.Strategy(), policy=Policy(kind=kind, lr=1e-2))
                for side in Side
            )
        )

    straight, first, second = build(), build(), build()
    play(straight, synchronous, batches(), steps=4)
    stream = batches()
    play(first, synchronous, stream, steps=2)
    restore(second.g, *again(*state_of(first.g)))
    restore(second.d, *again(*state_of(first.d)))
    play(second, synchronous, stream, steps=2)
    assert distance(dict(straight.g.net.state_dict()), dict(second.g.net.state_dict())) == 0
    assert distance(dict(straight.g.net.state_dict()), dict(network(Side.G).state_dict())) > 1e-4


def test_restore_other_model_is_refused_and_changes_nothing():
    gan = fresh_game()
    pieces, values = state_of(gan.g)
    before = {name: value.clone() for name, value in gan.g.net.state_dict().items()}
    wrong = {**pieces.tensors, "net/blocks.0.embed.weight": torch.zeros(99, 4, dtype=torch.float64)}
    with pytest.raises(CheckpointError, match=r"g: blocks\.0\.embed\.weight is \(99, 4\) there and \(3, 4\) in this"):
        restore(gan.g, StoredTensors.of(wrong), values)
    assert distance(before, dict(gan.g.net.state_dict())) == 0


def bf16_player(pure: bool) -> Player:
    """One weight held in bf16, its optimiser's in float32; or all in float32."""
    net = torch.nn.Linear(3, 2)
    memory = MemoryOptions(weight_dtype=torch.bfloat16) if pure else MemoryOptions()
    strategy = none.Strategy(None, memory)
    return Player(
        side=Side.D,
        net=strategy.prepare(lambda: net, ALONE),
        strategy=strategy,
        policy=Policy(kind=torch.optim.Adam, lr=1e-3),
    )


def step(*players: Player) -> None:
    for number in range(3):
        for seat in players:
            for weight in seat.net.parameters():
                weight.grad = torch.full_like(weight, 0.1 * (number + 1))
            seat.optimizer.step()


def test_restore_low_precision_weights_with_float32_copies():
    straight, again_pure, plain = bf16_player(True), bf16_player(True), bf16_player(False)
    step(straight)
    saved = state_of(straight)[0]
    exact = saved.tensors["optimizer/weight/master"].clone()
    assert not torch.equal(exact, saved.tensors["net/weight"].float())
    for seat in (again_pure, plain):
        restore(seat, *again(*state_of(straight)))
    assert torch.equal(plain.net.weight, exact)
    assert "optimizer/weight/master" not in state_of(plain)[0].tensors  # at the next resume it would be out of date
    step(straight, again_pure)
    assert distance(dict(state_of(straight)[0].tensors), dict(state_of(again_pure)[0].tensors)) == 0


def test_restore_full_precision_weights_into_low_precision():
    plain, pure = bf16_player(False), bf16_player(True)
    step(plain)
    restore(pure, *again(*state_of(plain)))
    assert torch.equal(pure.net.weight, plain.net.weight.bfloat16())
    assert torch.equal(state_of(pure)[0].tensors["optimizer/weight/master"], plain.net.weight)
