"""The shell of the command line: words in, exit codes and lines out; nothing is written and torch stays out of it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

import paragan
from paragan.cli.main import command_line, main
from paragan.cli.train import train_command
from paragan.cli.verbs import VERBS
from paragan.core.errors import DataError, ParaganError, outcome
from paragan.core.printable import to_printable

pytestmark = pytest.mark.usefixtures("here")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(paragan.__file__).parents[1])}
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


class Later(ParaganError):
    """A child with an exit code of its own."""

    exit_code = 85


@pytest.fixture
def stub(monkeypatch):
    """Replaces a function of a module in paragan.runs; returns the list of its calls."""
    calls = []

    def replace(name: str, function: str, result=0):
        def record(*arguments, **options):
            calls.append((*arguments, *options.values()))
            if isinstance(result, BaseException):
                raise result
            return result

        module = ModuleType(f"paragan.runs.{name}")
        setattr(module, function, record)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return calls

    return replace


def shell(*words: str, code: str = "import sys; from paragan.cli.main import main; sys.exit(main())", **options):
    return subprocess.run([sys.executable, "-c", code, *words], text=True, timeout=120, env=ENVIRONMENT, **options)


# one for each data set that has a path
RECIPES_WITH_A_PATH = ("own", "superres", "colourise", "translate", "vocoder", "codec", "pix2pix-facades")
RECIPES_WITH_A_PATH += ("dcgan-mnist", "biggan-cifar10", "biggan-imagenet128", "biggan-tiny-imagenet")

NOT_PERMITTED = "; permit this user to use it, or choose another place"

SPY = """
import contextlib, io, json, sys
from paragan.cli.main import main
results = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    results.append((code, 'torch' in sys.modules, said.getvalue()))
print(json.dumps(results))
"""


def outcomes(commands):
    """Of commands in one process: exit code, whether torch is imported then, and what it says on standard error."""
    ended = shell(json.dumps(commands), code=SPY, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_help_and_config_errors_import_no_torch_and_write_nothing(here):
    (here / "bad.yaml").write_text("data: digits\nmodel: mlp\nloss: hinge\ntrain: {batchsize: 3}\nseed: no\n")
    (here / "bomb.yaml").write_text(BOMB)
    before = sorted(here.rglob("*"))
    good = [["--help"], ["train", "--help"], ["--version"], ["list", "--json"], ["config", "digits"]]
    bad = [["tarin"], ["train", "nothing"], ["train", "train.batch=no", "model=bigan", "--out", "run"]]
    bad += [["train", "bad.yaml", "--out", "run"], ["train", "bomb.yaml"]]
    for words, (code, has_torch, said) in zip([*good, *bad], outcomes([*good, *bad]), strict=True):
        assert (words, code, has_torch) == (words, 2 if words in bad else 0, False)
        assert "Traceback" not in said
    assert sorted(here.rglob("*")) == before


def test_train_passes_config_and_run_folder(stub, here):
    calls = stub("train", "train_run", result=85)
    (here / "mine.yaml").write_text("data: digits\nmodel: mlp\nloss: hinge\n")
    assert main(["train"]) == 85
    assert main(["train", "train.batch=7", "vanilla-mnist", "--out", "there", "--fresh"]) == 85
    assert main(["train", "./mine.yaml", "seed=-1"]) == 85
    (here / "mygan").mkdir()
    (here / "mine.yaml").rename(here / "mygan" / "recipe.yaml")
    assert main(["train", "mygan/recipe.yaml"]) == 85
    requests = [request for request, _ in calls]
    assert [(r.config.train.batch, r.config.seed, r.name, str(r.out), r.fresh) for r in requests] == [
        (64, 0, "digits", "runs/digits", False),
        (7, 0, "vanilla-mnist", "there", True),
        (64, -1, "./mine.yaml", "runs/mine", False),
        (64, 0, "mygan/recipe.yaml", "runs/mygan", False),
    ]
    assert not calls[0][-1].requested


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (DataError("x.gz: found 3 bytes, expected 16"), 2, "x.gz: found 3 bytes, expected 16\n"),
        (Later("stopped; saved"), 85, "stopped; saved\n"),
        (
            OSError(errno.ENOSPC, "No space left", "run/x"),
            2,
            "run/x: No space left; free space, and run the command again\n",
        ),
        (PermissionError(errno.EACCES, "Denied", "run"), 2, f"run: Denied{NOT_PERMITTED}\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"),
            2,
            "/proc/x: No such file or directory\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 2, "out of memory: MemoryError; lower train.batch or the model's width\n"),
        (DataError("a\x1b]0;b\x07\r.png: no\nbad:1: \u202egpj"), 2, "a?]0;b??.png: no\nbad:1: ?gpj\n"),
        (OSError(errno.EACCES, "no", "a\x1b[2J"), 2, f"a?[2J: no{NOT_PERMITTED}\n"),
    ],
)
def test_user_error_is_one_line_and_an_exit_code(stub, capsys, raised, code, message):
    stub("evaluate", "evaluate_run", result=raised)
    assert main(["eval", "run"]) == code
    assert capsys.readouterr() == ("", message)


def test_to_printable_replaces_control_characters():
    assert to_printable("caf\u00e9 \u732b, a line\nand another") == "caf\u00e9 \u732b, a line\nand another"
    controls = "\x00\x07\r\t\x1b\x7f\x9b\udcff" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    assert to_printable(controls) == "?" * len(controls)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (SystemExit(3), 3),
        (SystemExit(), 0),
        (SystemExit(-1), 255),
        (SystemExit("why"), 1),
        (EOFError(), 130),
        (BrokenPipeError(errno.EPIPE, "gone"), 1),
    ],
)
def test_outcome_of_other_exceptions_is_the_exit_code_of_the_process(raised, code):
    assert outcome(raised)[0] == code


@pytest.mark.parametrize("raised", [RuntimeError("ours"), FileNotFoundError(errno.ENOENT, "ours")])
def test_internal_error_is_raised_with_traceback(stub, raised):
    stub("evaluate", "evaluate_run", result=raised)
    with pytest.raises(type(raised), match="ours"):
        main(["eval", "run"])


def test_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        ended = shell("config", "digits", stdout=full, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (
        2,
        "output: No space left on device; free space, and run the command again\n",
    )


def test_train_on_files_that_do_not_exist_says_so_before_torch_is_imported(here):
    commands = [
        (["own"], "data.path"),
        *(([recipe, "data.path=nowhere"], "data.path: no folder") for recipe in RECIPES_WITH_A_PATH),
        (["own", "data.path=nowhere", "data.name=shards", "data.size=null"], "data.path: no folder"),
        (["own", "data.path=.", "data.labels=none.csv"], "data.labels: no file"),
        (["digits", "init.path=nowhere"], "init.path nowhere"),
        (["digits", "g.init.path=nowhere"], "g.init.path nowhere"),
    ]
    results = outcomes([["train", *words] for words, _ in commands])
    for (words, key), (code, has_torch, said) in zip(commands, results, strict=True):
        assert (words, code, has_torch) == (words, 2, False)
        assert said.startswith(key)


def test_help_of_all_verbs_is_read_without_their_imports(capsys):
    names = "{'yaml', 'paragan.config'}"
    code = f"import sys; from paragan.cli.main import main; main(['--help']); print(sorted({names} & set(sys.modules)))"
    read, _, imported = shell(code=code, stdout=subprocess.PIPE).stdout.strip().rpartition("\n")
    assert imported == "[]"
    command = typer.main.get_command(command_line())
    command(["--help"], prog_name="paragan", standalone_mode=False)
    assert read.split() == capsys.readouterr().out.split()
    assert {*VERBS} <= {*read.split()}


@pytest.mark.parametrize("words", [[], ["-h"], ["--version"]])
def test_words_of_the_help_alone_import_no_verb(words):
    assert all(info.callback.__module__ == "paragan.cli.verbs" for info in command_line(words).registered_commands)
    assert command_line([*words, "trian"]).registered_commands[0].callback is train_command
