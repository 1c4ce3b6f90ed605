"""The door: the core is complete without `extensions/`, and a plain run imports nothing of it."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paragan.cli.verbs import VERBS
from tests.checkout_copy import CheckoutCopy
from tests.needs_extensions import ALL, NEEDED
from tests.processes import environment

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "paragan"
EXTENSIONS = sorted(path.parent for path in (PACKAGE / "extensions").glob("*/__init__.py"))
MAX_MODULES = 250  # of paragan, in `train digits`; may only fall
IMPORTED = """
import sys
from paragan.cli.main import main
from paragan.features.base import classifier
classifier.STEPS = 5
code = main(sys.argv[1:])
print(*sorted(name for name in sys.modules if name.split(".")[0] == "paragan"), file=sys.stderr)
sys.exit(code)
"""
TINY = ("digits", "train.kimg=0.128", "model.width=4", "evaluation.features=null")


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A copy of the package without its extensions."""
    copy = tmp_path_factory.mktemp("core") / "paragan"
    shutil.copytree(PACKAGE, copy)
    shutil.rmtree(copy / "extensions")
    return copy.parent


def run(package, folder, *words, code="import sys; from paragan.cli.main import main; sys.exit(main())"):
    command = [sys.executable, "-c", code, *words]
    options = {"env": environment(PYTHONPATH=str(package)), "cwd": folder, "timeout": 120, "check": False}
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_train_and_sample_need_no_extension(core, tmp_path):
    commands = (["train", *TINY], ["sample", "runs/digits", "--num", "4"])
    code = f"import sys; from paragan.cli.main import main; sys.exit(any(main(words) for words in {commands}))"
    ended = run(core, tmp_path, code=code)
    assert ended.returncode == 0, ended.stderr
    assert "finished: step 2" in ended.stdout


REFUSED = {
    "train digits grid.shape=2x2": "grid: this installation of paragan was made without extensions/grid",
    "train digits g.strategy=tensor": "unknown strategy 'tensor'; choose one of ddp",
    "train digits scheme=parameter_server": "unknown scheme 'parameter_server'; choose one of asynch",
    "train digits --out s3://bucket/run": "--out s3://bucket/run: this installation of paragan was",
    "train digits --plan auto": "--plan: this installation of paragan was made without",
    "plan digits": "No such command 'plan'",
}


def test_what_an_extension_provides_is_refused_by_name_without_it(core, tmp_path):
    code = (
        "import sys; from paragan.cli.main import main\n"
        "for words in sys.argv[1:]:\n"
        "    print(f'[{words}]', file=sys.stderr)\n"
        "    print(main(words.split()))"
    )
    refused = run(core, tmp_path, *REFUSED, code=code)
    assert refused.stdout.split() == ["2"] * len(REFUSED)
    for words, line in REFUSED.items():
        assert line in refused.stderr.partition(f"[{words}]")[2].partition("[")[0]
    assert "Traceback" not in refused.stderr


def test_a_plain_run_imports_no_extension_and_few_modules(tmp_path):
    ended = run(PACKAGE.parent, tmp_path, "train", "digits", *TINY[1:3], "evaluation.num_images=50", code=IMPORTED)
    assert ended.returncode == 0, ended.stderr
    names = ended.stderr.splitlines()[-1].split()
    assert [name for name in names if name.startswith("paragan.extensions")] == []
    assert len(names) <= MAX_MODULES


def imports_at_the_top(tree: ast.AST) -> list[str]:
    """Modules of extensions that a module imports when it is imported itself."""
    names = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paragan.extensions"):
            names.append(node.module)
        is_later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if not is_later and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            names += imports_at_the_top(node)
    return names


def test_api_and_cli_import_extensions_inside_of_functions(modules):
    wrong = {str(m.path): names for m in modules if m.floor in ("api", "cli") and (names := imports_at_the_top(m.tree))}
    assert wrong == {}


@pytest.mark.parametrize("folder", EXTENSIONS, ids=lambda folder: folder.name)
def test_an_extension_says_what_it_is_for_and_how_far_it_is_proven(folder):
    text = (folder / "__init__.py").read_text()
    assert "State: " in text and len(text.splitlines()) >= 4


def test_verbs_name_extensions_that_exist():
    named = {verb.extension for verb in VERBS.values()} - {None}
    assert named <= {folder.name for folder in EXTENSIONS}


def test_each_extension_has_its_tests():
    assert {folder.name for folder in EXTENSIONS} == ALL
    assert {
        folder.name for folder in EXTENSIONS if any((ROOT / "tests/extensions" / folder.name).glob("test_*.py"))
    } == ALL


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_tests_of_the_core_pass_without_extensions(tmp_path):
    copy = CheckoutCopy(tmp_path)
    listed = copy.run("pytest", "--collect-only", "-q", timeout_s=300).stdout.splitlines()
    beginnings = [beginning for tests in NEEDED.values() for beginning in tests]
    assert [text for text in beginnings if not any(line.startswith(text) for line in listed)] == []

    for folder in EXTENSIONS:
        shutil.rmtree(copy.folder / folder.relative_to(ROOT))
    words = ["-q", "-n", "2", "-m", "not slow and not gpu and not browser and not chaos and not distributed"]
    done = copy.run("pytest", *words, timeout_s=3000)
    assert done.returncode == 0, done.stdout
