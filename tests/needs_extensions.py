"""Which tests outside of `tests/extensions` need an extension, by the beginnings of their names; ALL: the whole house.

Files that import an extension at their top need no line here. `FILE::` is a whole file, which is then not collected.
"""

from tests.processes import ROOT

EXTENSIONS = frozenset(path.parent.name for path in (ROOT / "src/paragan/extensions").glob("*/__init__.py"))
ALL = frozenset(
    {
        *("grid", "planning", "verify", "replay", "tuning", "serving", "clusters", "buckets"),
        *("parameter_server", "large_models"),
    }
)

_CLI = "tests/unit/cli/"
_MISTAKE = f"{_CLI}test_mistakes.py::test_mistake_prints_the_message_and_exits_with_code_2"
_REMOVED = "tests/unit/config/test_removed_settings.py::test_removed_setting_says_what_to_do_instead"
_OLDER = "tests/unit/config/test_removed_settings.py::test_run_of_an_older_version_is_refused_in_one_line"
_UNTRAINED = "tests/unit/adapters/test_trained_part_refused.py::test_part_that_cannot_train_is_refused"
_BLOCK = "tests/unit/docs/test_docs.py::test_python_block_runs"
_MOVED = "tests/unit/runs/test_moved_code.py::"
_STOPPED = "tests/unit/evaluation/test_stopped_score.py::test_run_stopped_during_judge_training_saves_and_resumes"

NEEDED: dict[str | frozenset[str], tuple[str, ...]] = {
    "grid": (
        f"{_CLI}test_discriminators_run.py::test_settings_that_do_not_fit_several_discriminators_are_one_line[grid]",
        *(f"{_MISTAKE}[{case}" for case in ("unknown-class-of-a-cell", "diet-that", "grid-on-several-devices")),
        *(f"{_BLOCK}[{page}" for page in ("cellular-", "lipizzaner-")),
        "tests/unit/evaluation/test_packaged_extractors.py::test_mnist_recipes_score_with_official_files[cellular",
        f"{_STOPPED}[of a grid]",
        "tests/unit/runs/test_first_minutes.py::test_first_sheet_is_written_before_the_classifier_trains[grid]",
        "tests/distributed/test_communicators_mishaps.py::",
        "tests/training/test_rare_classes.py::test_an_extractor_that_fails_ends_no_grid",
        "tests/unit/losses/test_relativistic_average.py::test_a_stack_refuses_it",
        "tests/laws/test_python_is_the_command_line.py::test_train_from_python_writes_the_checkpoints_of_the_command",
    ),
    "planning": (
        "tests/gpu/test_large_images.py::",
        f"{_MISTAKE}[missing-plan]",
        f"{_OLDER}[plan]",
        *(f"{_BLOCK}[{page}" for page in ("plan-", "scaling-")),
        f"{_MOVED}test_moved_code_opens_by_its_folder_if_its_content_is_that_of_the_run[plan]",
    ),
    "verify": (
        f"{_BLOCK}[verify-",
        f"{_MOVED}test_verify",
        "tests/unit/runs/test_trust.py::test_no_verb_imports",
        "tests/unit/runs/test_trust.py::test_verify",
    ),
    "replay": (
        f"{_BLOCK}[replay-",
        f"{_MOVED}test_moved_code_opens_by_its_folder_if_its_content_is_that_of_the_run[replay]",
        "tests/unit/engine/test_rollback_collapses.py::test_replay_after",
    ),
    "tuning": (f"{_BLOCK}[tune-",),
    "serving": ("tests/unit/export/test_project.py::test_project_", f"{_CLI}test_planted_links.py::"),
    "clusters": (
        f"{_CLI}test_launch_command.py::",
        f"{_BLOCK}[launch-",
        f"{_MOVED}test_moved_code_opens_by_its_folder_if_its_content_is_that_of_the_run[launch]",
    ),
    "buckets": (f"{_BLOCK}[object-stores-",),
    "parameter_server": (
        f"{_BLOCK}[parameter-server-",
        "tests/unit/engine/test_rollback.py::test_rollback_is_refused_by_name[words0",
    ),
    "large_models": (
        f"{_UNTRAINED}_before_the_first_step[settings5",
        f"{_UNTRAINED}_before_the_first_step[settings6",
        f"{_REMOVED}[parallel.pipeline",
        f"{_REMOVED}[parallel.tensor",
    ),
    ALL: (
        "tests/architecture/",
        "tests/attacks/test_attacks.py::test_a_few_fuzzed_inputs",
        "tests/chaos/test_campaigns.py::test_every_phase_that_faults_begin_in_is_there",
        "tests/contract/test_settings.py::",
        "tests/unit/report/test_published_plots.py::",
        "tests/contract/test_benchmarks.py::",
        "tests/numerics/test_map.py::",
        "tests/unit/benchmarks/",
        f"{_BLOCK}[concepts-",
        *(f"tests/unit/docs/test_{name}.py::" for name in ("docs_names", "public_names", "site", "release")),
        f"{_CLI}test_command.py::test_help_describes_every_verb",
        f"{_CLI}test_run_script.py::test_usage",
        f"{_MOVED}test_every_verb",
    ),
}


def needed_by(test: str) -> set[str]:
    """The extensions that a test, by its node id, needs."""
    _, _, own = test.partition("tests/extensions/")
    needed = {own.split("/")[0]} if own else set()
    for names, tests in NEEDED.items():
        if test.startswith(tests):
            needed |= {names} if isinstance(names, str) else names
    return needed
