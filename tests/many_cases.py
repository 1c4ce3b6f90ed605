"""Tests of many cases that cost much together: `./run test` runs four of each, `./run test all` every one.

The four are the first, the last and two between. Many cheap cases stay daily, as do all of `EVERY_CASE`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

NUM_CASES = 4
MAX_CASES_S = 2.0  # of CPU, of all daily cases of one test
EVERY_CASE = {  # folders where every case is daily, and why
    "tests/contract/": "a case is a file of a registry: nothing else looks at a new one",
    "tests/laws/": "a case is another game, scheme or strategy of an equality",
    "tests/numerics/": "a case is a loss, penalty or scheme beside its plain version",
    "tests/distributed/": "a case is another layout of ranks, strategy or player",
    "tests/architecture/": "a case is a rule, or an example that breaks one",
    "tests/unit/docs/": "a case is a page or an example that a reader copies; the long ones are in tests/nightly.py",
    "tests/extensions/verify/": "a case is a fault that one law of `verify` has to find",
}
FOUR_CASES: dict[str, tuple[str, ...]] = {  # file: tests without "test_"
    "tests/extensions/clusters/test_clusters.py": ("slurm_script_acts_by_the_exit_code",),
    "tests/extensions/grid/test_fitness.py": ("fitness_equals_a_loop_over_pairs",),
    "tests/unit/api/test_columns.py": ("columns_have_the_names_of_the_data",),
    "tests/unit/api/test_estimator.py": ("modules_and_objects_train_and_stay_as_they_are",),
    "tests/unit/api/test_hidden_state.py": (
        "state_of_a_term_outside_of_its_state_is_warned_of_by_name",
        "layers_that_have_changed_with_equal_weights_are_named_in_a_line",
    ),
    "tests/unit/api/test_numbers.py": (
        "draws_of_numpy_and_random_in_forward_resume_bit_for_bit",
        "draws_that_no_checkpoint_has_are_said_once",
    ),
    "tests/unit/api/test_terms_that_draw.py": ("what_draws_in_a_turn_resumes_bit_for_bit",),
    "tests/unit/api/test_trainer_hints.py": ("a_generator_that_cannot_reach_the_data_is_noticed",),
    "tests/unit/api/test_trainer_samples.py": ("samples_are_those_of_the_averaged_generator",),
    "tests/unit/checkpoint/test_bad_runs.py": ("exit_json_has_the_exit_code_of_the_process",),
    "tests/unit/checkpoint/test_checkpoint.py": ("restore_every_torch_optimizer_continues_bit_for_bit",),
    "tests/unit/checkpoint/test_foreign_wgan.py": ("usual_settings_train",),
    "tests/unit/checkpoint/test_published_studiogan.py": ("d", "g_with_classes"),
    "tests/unit/cli/test_launch_command.py": ("bad_input_is_one_line_and_exit_code_2",),
    "tests/unit/cli/test_outside.py": ("a_mistake_in_outside_code_is_one_line",),
    "tests/unit/config/test_removed_settings.py": ("removed_setting_says_what_to_do_instead",),
    "tests/unit/datasets/test_audio_files.py": (
        "parts_equal_those_of_the_whole_file_by_soundfile_and_soxr",
        "what_libsndfile_cannot_read_is_read_by_ffmpeg",
    ),
    "tests/unit/datasets/test_pair_files.py": ("files_of_equal_names_are_pairs",),
    "tests/unit/engine/test_advice.py": ("no_advice_names_what_is_on_already",),
    "tests/unit/evaluation/test_folder_scores.py": (
        "statistics_of_any_precision_and_byte_order_are_read",
        "statistics_that_do_not_fit_are_one_line",
    ),
    "tests/unit/evaluation/test_label_use.py": ("a_generator_that_uses_groups_of_labels_is_not_accused",),
    "tests/unit/export/test_application.py": ("apply_equals_the_network_called_by_hand",),
    "tests/unit/export/test_apply_arguments.py": ("options_without_a_meaning_are_refused",),
    "tests/unit/export/test_apply_files.py": ("tokens_of_no_file_are_named_and_the_others_are_decoded",),
    "tests/unit/export/test_card_and_summary.py": ("card_of_every_kind_has_lines_that_run",),
    "tests/unit/export/test_tiles.py": (
        "tiles_equal_the_whole_where_a_quarter_of_the_overlap_covers_the_receptive_field",
    ),
    "tests/unit/game/test_finite_differences.py": ("it_is_the_plain_loop",),
    "tests/unit/loading/test_pipeline.py": ("batches_are_those_of_the_loader_for_any_threads",),
    "tests/unit/models/test_model_stages.py": ("attention_is_where_it_is_placed",),
    "tests/unit/models/test_models.py": ("a_width_that_does_not_divide_is_refused",),
    "tests/unit/models/test_parameter_counts.py": ("networks_have_the_published_number_of_parameters",),
    "tests/unit/penalties/test_penalties.py": ("input_gradient_penalties_differentiate_d_of_augmented_images",),
    "tests/unit/penalties/test_weight_penalties.py": (
        "a_term_without_a_gradient_changes_no_weight_in_any_scheme",
        "orthogonal_moves_the_part_that_trains",
    ),
    "tests/unit/runs/test_published_generator.py": ("load_biggan_finds_sizes_classes_and_attention_in_the_file",),
}
_TESTS = {f"{file}::test_{test}" for file, tests in FOUR_CASES.items() for test in tests}


def extra_cases(names: Iterable[str]) -> set[str]:
    """Cases of the tests in `FOUR_CASES` beyond four. names: of all daily tests, in their order."""
    cases = defaultdict(list)
    for name in names:
        test = name.partition("[")[0]
        if test in _TESTS:
            cases[test].append(name)
    extra: set[str] = set()
    for group in cases.values():
        if len(group) > NUM_CASES:
            last = len(group) - 1
            extra |= set(group) - {group[round(place * last / (NUM_CASES - 1))] for place in range(NUM_CASES)}
    return extra


def costly(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Tests of more than four cases over `MAX_CASES_S` that are neither in `FOUR_CASES` nor of `EVERY_CASE`."""
    seconds = defaultdict(list)
    for report in reports:
        if not report.nodeid.startswith(tuple(EVERY_CASE)):
            seconds[report.nodeid.partition("[")[0]].append(dict(report.user_properties).get("cpu_s", 0.0))
    for test, of_cases in seconds.items():
        if len(of_cases) > NUM_CASES and sum(of_cases) > MAX_CASES_S and test not in _TESTS:
            yield f"{sum(of_cases):5.1f} s of CPU: {test}, {len(of_cases)} cases"
