"""Tests that wait for `./run test all`, by the beginnings of their names: the larger brothers of others that stay.

A test that is slow as a whole has the mark `slow` where it stands; here are single cases of those with several.
"""

_VERIFY = "tests/extensions/verify/test_verify.py::test_verify_"
_RANKS = "tests/distributed/"
_BLOCK = "tests/unit/docs/test_docs.py::test_python_block_runs"
_TUNE = "tests/extensions/tuning/test_tune.py::"

SLOW = (
    # each of these has a brother of another norm, draw or scheme
    *(
        f"{_VERIFY}batch_norm_of_torch_is_exempt_from_frozen_means_frozen_and_fails_nothing[{n}"
        for n in ("G]", "D]", "wi")
    ),
    *(f"{_VERIFY}spectral_norm_of_torch_is_twice_differentiable_and_exempt_from_frozen[{n}" for n in ("silu", "leaky")),
    *(f"{_VERIFY}noise_in_forward_is_as_exact_as_in_the_trainer[{draw}]" for draw in ("numpy", "functional dropout")),
    f"{_VERIFY}dropout_hides_no_mean_over_the_batch[nn.AlphaDropout",
    *(
        f"tests/extensions/replay/test_replay.py::test_replay_of_any_scheme_is_equal[{scheme}]"
        for scheme in ("stacked", "extragradient", "skipping")
    ),
    *(
        f"{_TUNE}test_error_that_the_user_must_change_ends_the_study_and_its_trial_is_tried_again[{case}]"
        for case in ("0-error1", "0-error2", "2-error0", "2-error2")
    ),
    f"{_TUNE}test_process_that_ends_before_others_says_how_many_trials_run[2-",
    *(
        f"tests/extensions/planning/test_plan_players.py::test_a_penalty_on_some_samples_is_planned[{n}]"
        for n in (0.5, 1)
    ),
    f"{_TUNE}test_failed_trials_of_a_grid_are_tried_again_and_no_combination_twice",
    f"{_TUNE}test_goal_of_which_high_values_are_better_is_maximised",
    # pages whose feature has tests of its own
    *(f"{_BLOCK}[{page}" for page in ("tune-", "compare-runs-", "scores-", "cellular-")),
    *(
        f"tests/unit/docs/test_public_names.py::test_a_new_file_of_a_registry_has_a_public_name_without_another_edit[{file}"
        for file in ("penalties/", "schemes/", "losses/sharp")
    ),
    # ranks: the even split, where the uneven one stays; strategies and games beside others of their kind
    *(f"{_RANKS}test_laws.py::test_two_ranks_are_the_batch[{name}-even]" for name in ("zero1", "zero2", "zero3")),
    f"{_RANKS}test_checkpoints.py::test_what_two_ranks_save_any_number_resumes_under_another_strategy[zero1-ddp",
    *(
        f"{_RANKS}test_numerics.py::test_two_ranks_are_one_process[{game}"
        for game in ("LeCam", "contrastive", "RaGAN", "auxiliary", "WGAN-GP", "ADA, R1")
    ),
    f"{_RANKS}test_pool.py::test_failure_is_reported_and_the_next_case_runs[hangs_here",
    f"{_RANKS}test_split.py::test_two_ranks_equal_the_whole_network[vectors",
    f"{_RANKS}test_asynchronous.py::test_no_delay_is_synchrony_on_two_and_two[False",
    f"{_RANKS}test_communicators.py::test_many_workers_exchange_what_a_dictionary_holds[torus 3x3]",
    # laws and numerics
    "tests/laws/test_plain_loops.py::test_resumed_training_is_the_plain_loop[superres",
    "tests/laws/test_draws_by_row.py::test_compiled_networks_draw_as_uncompiled_ones[pix2pix",
    *(
        f"tests/laws/test_recorded_is_stacked.py::test_recorded_turns_are_turns[{g}"
        for g in ("r2", "conv", "one-loss", "sk")
    ),
    *(
        f"tests/laws/test_no_delay_is_synchrony.py::test_the_bound_is_kept_whatever_the_delays[{n}-1"
        for n in (0.0, 0.5)
    ),
    *(f"tests/laws/test_stopping_is_invisible.py::test_stop_and_go_on[more{n}]" for n in (1, 2)),
    *(
        f"tests/numerics/test_resume.py::test_a_resumed_game_ends_with_every_bit[{g}"
        for g in ("few steps", "ContraGAN")
    ),
    "tests/laws/test_python_is_the_command_line.py::test_train_from_python_writes_the_checkpoints_of_the_command_line[{'g",
    # units
    *(
        f"tests/unit/features/test_inception.py::test_inception_{law}[torchvision]"
        for law in ("rounds_images_to_8_bits_and_repeats_one_channel", "equals_the_graph_by_hand")
    ),
    *(
        f"tests/unit/datasets/test_picture_memory.py::test_decoding_stays_within_documented_memory[{kind}]"
        for kind in ("palette-at-the-limit", "16-bit")
    ),
    *(
        f"tests/unit/datasets/test_remote_shards.py::test_epoch_under_each_fault_is_that_of_the_disk[{fault}]"
        for fault in ("s3-0-cut", "s3-0-unavailable", "http-0-silent")
    ),
    "tests/unit/api/test_networks_of_the_field.py::test_asynchronous_threads_do_not_share_random_numbers[NoisyD]",
    "tests/unit/cli/test_file_modes.py::test_files_follow_the_umask[0o22]",
    "tests/unit/game/test_executors.py::test_compiled_is_as_written[gradient penalty",
    "tests/unit/runs/test_memory_advice.py::test_memory_runs_out_the_plan_is_the_advice[error1]",
    "tests/unit/recipes/test_vqgan_recipe.py::test_run_on_digits_resumes_to_the_same_weights",
    # training and examples; tests/walk.sh runs the notebook, too
    "tests/examples/test_notebook.py::test_notebook_trains_samples_and_loads",
    "tests/training/test_other_images.py::test_mnist_is_scored_by_its_extractor",
    "tests/training/test_rare_classes.py::test_an_extractor_that_fails_ends_no_grid[0]",
    "tests/training/test_rare_classes.py::test_a_rare_class_ends_no_run_and_no_score[a class in val only]",
    "tests/training/test_rare_classes.py::test_a_rare_class_ends_no_run_and_no_score[a first",
    "tests/examples/test_stopped_examples.py::test_interrupted_run_equals_the_uninterrupted_one[dmd2",
)
