"""Runs at an address: only the bucket survives."""

import hashlib
import json
import shutil
import time
from types import SimpleNamespace

import obstore
import pytest

import paragan as pg
from paragan.cli.main import main
from paragan.engine.rollback_state import rollback_targets
from paragan.extensions.buckets import remote_run
from paragan.extensions.buckets.lease import LEASE, Lease
from paragan.extensions.buckets.mirrored_files import MirroredFiles
from tests.memory_bucket import ADDRESS, failing
from tests.tiny_run import SMALL, TINY

WORDS = ("train", "digits", *TINY, *SMALL, "train.timeout_s=20", "every.save_kimg=0.016")


@pytest.fixture(autouse=True)
def cache(bucket, tmp_path, monkeypatch):
    """An empty machine with a bucket: tests remove the cache to have another one."""
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("paragan.extensions.buckets.run_mirror._PAUSE_S", 0.05)
    monkeypatch.setattr("paragan.extensions.buckets.run_mirror._POLL_S", 0.01)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of the last checkpoint of a run in a folder."""
    out = tmp_path_factory.mktemp("runs") / "plain"
    assert main([*WORDS, "--out", str(out)]) == 0
    return digests(max((out / "checkpoints").iterdir()))


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def stored(bucket, step):
    """What the bucket has of a checkpoint."""
    prefix = f"checkpoints/step-{step:09d}/"
    names = [name for name in bucket.names() if name.startswith(prefix)]
    return {name.removeprefix(prefix): hashlib.sha256(bucket.content(name)).hexdigest() for name in names}


def train(*words):
    return main([*WORDS, *words, "--out", ADDRESS])


def test_run_on_an_empty_machine_resumes_from_the_bucket_bit_for_bit(bucket, cache, undisturbed, capsys):
    assert train("train.kimg=0.032") == 0
    assert LEASE not in bucket.names() and stored(bucket, 2)
    shutil.rmtree(cache)
    assert train() == 0
    assert "resuming at step 2: digits for 0.064 kimg (thousand images) in s3://bucket/run" in capsys.readouterr().out
    assert stored(bucket, 4) == undisturbed and LEASE not in bucket.names()
    record = [json.loads(line) for line in bucket.content("metrics.jsonl").splitlines()]
    assert [line["step"] for line in record if line["kind"] == "end"] == [2, 4]
    assert json.loads(bucket.content("exit.json"))["code"] == 0
    shutil.rmtree(cache)
    assert train() == 0
    assert "already finished at step 4: s3://bucket/run" in capsys.readouterr().out


def test_run_in_the_bucket_is_read_by_every_command(bucket, cache, capsys):
    assert train() == 0
    shutil.rmtree(cache)
    for words in (("watch", "--once"), ("report",), ("sample", "--num", "2"), ("export",), ("config",)):
        assert main([words[0], ADDRESS, *words[1:]]) == 0, words
    assert "step 4  finished" in capsys.readouterr().out
    assert len(pg.load(ADDRESS).sample(2, seed=0)) == 2
    assert not list(cache.glob("runs/*"))


def test_python_trains_and_resumes_at_an_address(bucket, cache):
    settings = dict(word.split("=") for word in WORDS[2:])
    settings = {key: json.loads(value) for key, value in settings.items()}
    run = pg.train("digits", {**settings, "train.kimg": 0.016}, out=ADDRESS)
    shutil.rmtree(cache)
    assert run.resume({"train.kimg": 0.032}).is_finished
    assert stored(bucket, 2) and LEASE not in bucket.names()


def test_damaged_newest_checkpoint_falls_back_and_the_run_ends_equal(bucket, cache, undisturbed, capsys):
    assert train("train.kimg=0.048") == 0
    name = "checkpoints/step-000000003/g.safetensors"
    content = bytearray(bucket.content(name))
    content[-1] ^= 1
    bucket.write(name, bytes(content))
    shutil.rmtree(cache)
    assert train() == 0
    said = capsys.readouterr()
    assert "g.safetensors is missing or damaged" in said.err and "trying the one before" in said.err
    assert "resuming at step 2" in said.out
    assert stored(bucket, 4) == undisturbed


def test_store_that_fails_does_not_stop_training_and_the_same_command_uploads_the_rest(bucket, undisturbed, capsys):
    bucket.faults["put"] = failing(when=lambda name: name != LEASE)
    assert train("train.timeout_s=1") == 75
    said = capsys.readouterr()
    assert "finished: step 4" in said.out and said.err.count("training continues") == 1
    assert "the end of the run is not uploaded" in said.err and "Traceback" not in said.err
    assert bucket.names() == []
    bucket.faults.clear()
    assert train("train.timeout_s=1") == 0
    assert "already finished at step 4" in capsys.readouterr().out
    assert stored(bucket, 4) == undisturbed


def test_working_folder_ahead_of_the_bucket_is_not_lost(bucket, undisturbed, capsys):
    bucket.faults["put"] = failing(when=lambda name: "step-000000001" not in name and name != LEASE and "/" in name)
    assert train("train.kimg=0.048", "train.timeout_s=1") == 75
    assert not stored(bucket, 3)
    bucket.faults.clear()
    assert train() == 0
    assert "resuming at step 3" in capsys.readouterr().out
    assert stored(bucket, 4) == undisturbed


def test_working_folder_of_another_history_is_not_used(bucket, cache, capsys):
    assert train("train.kimg=0.032") == 0
    for name in bucket.names():
        bucket.remove(name)  # the user starts anew
    assert train("train.kimg=0.016") == 0
    said = capsys.readouterr().out
    assert "the working folder does not continue the run of the bucket; it was moved to" in said
    assert "starting: digits" in said and not stored(bucket, 2)


def test_writer_whose_lease_was_taken_over_stops_with_code_2(bucket, monkeypatch, capsys):
    monkeypatch.setattr(remote_run, "Lease", lambda opened: Lease(opened, 0.3))
    other = b'{"owner": "other", "pid": 7, "host": "elsewhere"}'

    def fault(name, call):
        found = call()
        if name.startswith("checkpoints/") and bucket.content(LEASE) != other:
            bucket.write(LEASE, other)
            time.sleep(1)
        return found

    bucket.faults["put"] = fault
    assert train("train.kimg=9") == 2
    assert "in use by process 7 on elsewhere" in capsys.readouterr().err
    assert bucket.content(LEASE) == other and not any(name.endswith("manifest.json") for name in bucket.names())


def test_failed_run_releases_its_lease_and_fresh_is_refused(bucket, capsys):
    assert train("--fresh") == 2
    assert "--fresh is not available for s3://bucket/run; give another --out DIR" in capsys.readouterr().err
    assert train() == 0
    assert train("model.width=8") == 2
    assert "holds a run with other settings" in capsys.readouterr().err
    assert LEASE not in bucket.names()


def test_copy_for_readers_follows_a_run_that_began_anew(bucket, cache):
    assert train("train.kimg=0.032") == 0
    remote_run.open_copy(ADDRESS)
    for name in bucket.names():
        bucket.remove(name)
    shutil.rmtree(cache / "runs")
    assert train("train.kimg=0.016") == 0
    copy = remote_run.open_copy(ADDRESS)
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["step-000000001"]


def test_names_from_a_bucket_cannot_leave_the_folder(bucket, cache):
    bucket.write("config.yaml", b"x")
    for name in ("samples/deep/er.png", "run.lock", ".hidden", "samples/.hidden", "other/x"):
        bucket.write(name, b"x")
    copy = remote_run.open_copy(ADDRESS, checkpoints=False)
    assert [str(path.relative_to(copy)) for path in copy.rglob("*")] == ["config.yaml"]


def test_best_checkpoint_comes_back_and_a_better_one_replaces_it(bucket, cache, monkeypatch, tmp_path):
    assert train("train.kimg=0.032") == 0
    best = remote_run.working_folder(ADDRESS) / "best"
    newest = max((best.parent / "checkpoints").iterdir())
    shutil.copytree(newest, best)
    (best / "score.json").write_text('{"value": 1.0}')
    assert train("train.kimg=0.048") == 0
    assert len([name for name in bucket.names() if name.startswith("best/step-000000002/")]) == 5
    shutil.rmtree(cache)
    copy = remote_run.open_copy(ADDRESS)
    assert json.loads((copy / "best" / "score.json").read_text()) == {"value": 1.0}
    assert train() == 0
    assert digests(best) == digests(copy / "best")
    shutil.rmtree(best)
    shutil.copytree(max((best.parent / "checkpoints").iterdir()), best)
    (best / "score.json").write_text('{"value": 2.0}')
    assert train("train.kimg=0.08") == 0
    names = {name.split("/")[1] for name in bucket.names() if name.startswith("best/")}
    assert names == {"step-000000004"}


def test_run_on_another_machine_rolls_back_to_a_checkpoint_that_is_not_the_newest(bucket, cache, capsys):
    guarded = ("rollback.lr_factor=1e-27", "every.keep=1", "every.sample_kimg=0.032")
    assert train(*guarded) == 0
    newest = remote_run.working_folder(ADDRESS) / "checkpoints" / "step-000000004"
    targets = rollback_targets(newest)
    assert [path.name for path in targets]
    shutil.rmtree(cache)
    diverging = ("--change", "d.optimizer.lr=1e25", "train.kimg=0.128")
    assert train(*guarded, *diverging) == 0
    said = capsys.readouterr()
    assert f"rollback 1 of 3, to the players of step {int(targets[-1].name[5:])}" in said.out
    assert "cannot roll back" not in said.err


def test_damaged_checkpoint_to_roll_back_to_does_not_stop_the_mirror_or_a_restart(bucket, cache, capsys):
    guarded = ("rollback={}", "every.keep=1")
    assert train(*guarded, "train.kimg=0.032") == 0
    name = "checkpoints/step-000000000/g.safetensors"
    bucket.write(name, bucket.content(name)[:-1])
    shutil.rmtree(cache)
    assert train(*guarded) == 0
    assert "the run cannot roll back to step-000000000" in capsys.readouterr().err
    assert stored(bucket, 4)


@pytest.mark.parametrize("name", ["config.yaml", "exit.json", "score.json"])
def test_large_texts_of_a_bucket_are_not_downloaded(bucket, cache, capsys, name):
    assert train("train.kimg=0.016") == 0
    bucket.write(name, b"# " + b"x" * (1 << 20))
    shutil.rmtree(cache)
    is_config = name == "config.yaml"  # a run is nothing without it
    assert main(["sample", ADDRESS, "--num", "2"]) == (2 if is_config else 0)
    error = capsys.readouterr().err
    assert ("s3://bucket/run/config.yaml: more than 1,048,576 bytes; check the address" in error) is is_config
    assert not list(cache.glob(f"copies/*/{name}"))


def test_record_that_ends_before_its_checkpoints_is_said_in_one_line(bucket, cache, capsys):
    assert train("train.kimg=0.048") == 0
    lines = bucket.content("metrics.jsonl").splitlines(keepends=True)
    shutil.rmtree(cache)
    assert train("train.kimg=0.064") == 0
    assert "lines are missing" not in capsys.readouterr().err
    bucket.write("metrics.jsonl", lines[0])
    shutil.rmtree(cache)
    assert train("train.kimg=0.08") == 0
    said = "warning: the record ends at step 0, before the checkpoint of step 3: lines are missing"
    assert capsys.readouterr().err.splitlines() == [said]


def test_object_whose_name_no_client_can_list_is_named_in_one_line(bucket, capsys):
    def fault(name, call):
        raise obstore.exceptions.InvalidPathError('Error parsing Path "run/../x": illegal character sequence')

    bucket.faults["list"] = fault
    assert main(["sample", ADDRESS]) == 2
    said = "s3://bucket/run/: has an object with '..' or an empty part in its name; remove that object"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("error", [MemoryError("no memory"), RuntimeError("no memory"), UnicodeError("no memory")])
def test_mirror_that_meets_an_unexpected_error_says_so_and_tries_again(bucket, cache, capsys, monkeypatch, error):
    errors = [error]
    upload = MirroredFiles.upload

    def fail_once(self):
        if errors:
            raise errors.pop()
        upload(self)

    monkeypatch.setattr(MirroredFiles, "upload", fail_once)
    assert train("train.kimg=0.016") == 0
    assert capsys.readouterr().err.splitlines() == ["warning: no memory; training continues"]
    assert stored(bucket, 1) and "metrics.jsonl" in bucket.names()


@pytest.mark.parametrize(("stored_text", "is_continued"), [("seed: 1\n", True), ("seed: 2\n", False)])
def test_a_folder_without_a_checkpoint_continues_the_run_of_its_config_alone(tmp_path, stored_text, is_continued):
    """A run that was killed before its first upload of a checkpoint, and that of somebody else."""
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    checkpoints = SimpleNamespace(committed=list)
    bucket = SimpleNamespace(read=lambda name, most: (stored_text.encode(), None))
    assert remote_run._is_continued(checkpoints, bucket, tmp_path) is is_continued


@pytest.mark.parametrize("committed", [["step-000000002"], []], ids=["without the checkpoint", "without a config"])
def test_a_folder_that_lacks_what_the_bucket_has_does_not_continue_its_run(tmp_path, committed):
    checkpoints = SimpleNamespace(committed=lambda: committed, manifest=lambda name: b"{}")
    bucket = SimpleNamespace(read=lambda name, most: (b"seed: 1\n", None))
    assert not remote_run._is_continued(checkpoints, bucket, tmp_path)
