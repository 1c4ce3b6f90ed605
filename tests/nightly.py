"""Tests that wait for `./run test all`: the larger brothers of others that stay.

A test that is slow as a whole may have the mark `slow` where it stands; cases of one that has many: many_cases.py.
"""

# file: {test without "test_": the beginnings of its cases; none: the whole test}
LARGER: dict[str, dict[str, tuple[str, ...]]] = {
    # whole runs and examples; tests/walk.sh runs the notebook, too
    "tests/training/test_bad_settings.py": {
        "bad_setting_is_named_and_the_printed_command_has_no_advice": ("g.optimizer", "penalties"),
    },
    "tests/training/test_other_images.py": {
        "mnist_is_scored_by_its_extractor": (),
    },
    "tests/training/test_rare_classes.py": {
        "an_extractor_that_fails_ends_no_grid": ("0]",),
        "a_rare_class_ends_no_run_and_no_score": ("a class in val only]", "a first"),
    },
    "tests/examples/test_notebook.py": {
        "notebook_trains_samples_and_loads": (),
    },
    "tests/examples/test_stopped_examples.py": {
        "interrupted_run_equals_the_uninterrupted_one": ("dmd2",),
    },
    # laws: games, schemes and layouts beside others of their kind
    "tests/laws/test_draws_by_row.py": {
        "compiled_networks_draw_as_uncompiled_ones": ("pix2pix",),
    },
    "tests/laws/test_loop_is_stacked.py": {
        "fifty_steps_end_at_the_same_weights": ("r1",),
    },
    "tests/laws/test_no_delay_is_synchrony.py": {
        "the_bound_is_kept_whatever_the_delays": ("0.0-1", "0.5-1"),
    },
    "tests/laws/test_plain_loops.py": {
        "resumed_training_is_the_plain_loop": ("superres", "translate"),
    },
    "tests/laws/test_poster_is_the_library.py": {
        "the_posters_loop_is_the_library": ("shared fakes",),
    },
    "tests/laws/test_python_is_the_command_line.py": {
        "train_from_python_writes_the_checkpoints_of_the_command_line": ("{'g",),
    },
    "tests/laws/test_recorded_is_stacked.py": {
        "recorded_turns_are_turns": ("r2", "conv", "one-loss", "sk", "two-d", "synchronous-few"),
    },
    "tests/laws/test_stacked_networks_with_state.py": {
        "stacked_cells_restore_the_buffers_of_a_skipped_update": ("dcgan-", "sngan", "dropout", "new", "half"),
        "stacked_cells_with_state_equal_the_loop": ("sngan", "dcgan-r1", "half"),
        "stacked_cells_under_plain_adam_differ_in_biases_before_norms_alone": ("sngan",),
    },
    "tests/laws/test_stopping_is_invisible.py": {
        "stop_and_go_on": ("more1]", "more2]"),
    },
    "tests/numerics/test_resume.py": {
        "a_resumed_game_ends_with_every_bit": ("DMD2", "balancer", "few steps", "ContraGAN"),
    },
    # ranks: the even split, where the uneven one stays; strategies and games beside others of their kind
    "tests/distributed/test_asynchronous.py": {
        "the_bound_is_kept_by_two_and_two": ("3]",),
        "no_delay_is_synchrony_on_two_and_two": ("False",),
    },
    "tests/distributed/test_checkpoints.py": {
        "what_two_ranks_save_any_number_resumes_under_another_strategy": ("zero1-ddp",),
    },
    "tests/distributed/test_communicators.py": {
        "many_workers_exchange_what_a_dictionary_holds": ("torus 3x3]",),
    },
    "tests/distributed/test_draws.py": {
        "drawing_blocks_in_a_pipeline_of_micro_batches_are_the_batch": ("2-True-stylegan2]",),
        "drawing_networks_on_two_ranks_are_the_batch": ("zero3-zero3-stylegan2]", "pipeline-ddp-stylegan2]"),
    },
    "tests/distributed/test_laws.py": {
        "two_ranks_are_the_batch": ("zero1-even]", "zero2-even]", "zero3-even]"),
    },
    "tests/distributed/test_numerics.py": {
        "three_ranks_are_one_process": ("DiffAugment", "orthogonal", "feature matching"),
        "two_ranks_are_one_process": (
            "LeCam",
            "contrastive",
            "RaGAN",
            "auxiliary",
            "WGAN-GP",
            "ADA, R1",
            "reconstruction",
            "ADA in parts",
        ),
    },
    "tests/distributed/test_pipeline.py": {
        "pipeline_of_zoo_networks_two_ranks_are_the_batch": ("dcgan", "stylegan2"),
        "pipeline_of_deep_networks_on_four_ranks_is_the_batch": ("uneven]",),
    },
    "tests/distributed/test_pool.py": {
        "failure_is_reported_and_the_next_case_runs": ("hangs_here",),
    },
    "tests/distributed/test_split.py": {
        "two_ranks_equal_the_whole_network": ("vectors",),
    },
    "tests/distributed/test_tensor.py": {
        "checkpoint_is_read_by_any_other": ("2-read_on0-pipeline]",),
        "tensor_two_ranks_are_the_batch": ("tables]",),
    },
    "tests/gpu/test_cells.py": {
        "the_device_computes_what_the_cpu_computes": ("cpu",),
    },
    "tests/gpu/test_ranks.py": {
        "a_recipe_trains_in_bf16": ("cpu",),
    },
    "tests/distributed/test_strategies.py": {
        "pure_holds_weights_low_and_steps_them_in_full": ("ddp]",),
        "a_whole_run": ("zero3]",),
    },
    "tests/distributed/test_parameter_server.py": {
        "workers_without_delay_are_the_whole_batch": ("1]",),
    },
    "tests/distributed/test_tensors.py": {
        "four_micro_batches_equal_the_whole_batch": ("shared_fakes]",),
    },
    "tests/distributed/test_norms.py": {
        "a_layer_that_a_rank_leaves_out_is_named": ("False-2.norm",),
    },
    # units: other sizes, formats and cases, and what `./run check` or a law looks at, too
    "tests/unit/api/test_networks_of_the_field.py": {
        "asynchronous_threads_do_not_share_random_numbers": ("NoisyD]",),
    },
    "tests/unit/cli/test_file_modes.py": {
        "files_follow_the_umask": ("0o22]",),
    },
    "tests/unit/cli/test_working_directory.py": {
        "planted_modules_in_the_working_directory_are_not_imported": ("verb0", "verb2"),
    },
    "tests/unit/datasets/test_picture_memory.py": {
        "decoding_stays_within_documented_memory": ("palette-at-the-limit]", "16-bit]"),
    },
    "tests/unit/datasets/test_remote_shards.py": {
        "epoch_under_each_fault_is_that_of_the_disk": ("s3-0-cut]", "s3-0-unavailable]", "http-0-silent]"),
    },
    "tests/unit/docs/test_docs.py": {
        "python_block_runs": (
            "tune-",
            "compare-runs-",
            "cost-",
            "scores-",
            "cellular-",
            "scaling-",
            "few-step-",
            "concepts-",
            "plan-",
            "rollback-",
            "lipizzaner-",
            "stylegan-",
            "studiogan-",
            "biggan-pytorch-",
            "pix2pix-",
            "adversarial-",
            "zoo-",
            "replay-",
            "poster-",
            "asynchronous-",
        ),
    },
    "tests/unit/docs/test_own_files_pages.py": {
        "page_applies_to_files_of_every_size": ("audio-codec]",),
        "page_refuses_results_of_other_weights": ("audio-codec]",),
    },
    "tests/unit/docs/test_public_names.py": {
        "a_new_file_of_a_registry_has_a_public_name_without_another_edit": ("penalties/", "schemes/", "losses/sharp"),
        "mypy_infers_the_type_of_every_public_name": (),
    },
    "tests/unit/engine/test_rollback_collapses.py": {
        "rollback_counts_skipped_updates_across_a_kill": (),
    },
    "tests/unit/evaluation/test_packaged_extractors.py": {
        "mnist_recipes_score_with_official_files": ("cellular",),
    },
    "tests/unit/export/test_export.py": {
        "export_torch_program_equals_network": ("mlp", "dcgan"),
    },
    "tests/unit/features/test_cas.py": {
        "cas_falls_for_mixed_classes_and_for_noise": (),
    },
    "tests/unit/features/test_inception.py": {
        "inception_rounds_images_to_8_bits_and_repeats_one_channel": ("torchvision]",),
        "inception_equals_the_graph_by_hand": ("torchvision]",),
    },
    "tests/unit/features/test_inception_weights.py": {
        "imported_weights_of_torchvision_have_names_of_their_own": (),
    },
    "tests/unit/game/test_executors.py": {
        "compiled_is_as_written": ("gradient penalty",),
    },
    "tests/unit/layers/test_initial_outputs.py": {
        "r3gan_starts_with_the_authors_logits_and_images": ("3]", "1000]"),
        "hifigan_is_the_authors_generator_and_starts_with_its_audio": ("v1]",),
    },
    "tests/unit/models/test_fastgan.py": {
        "maps_and_decoded_images_at_every_size": ("(128", "(256", "(512", "(1024"),
    },
    "tests/unit/models/test_model_stages.py": {
        "attention_of_other_models_is_at_half_the_image": ("biggan_deep", "reacgan"),
    },
    "tests/unit/models/test_models.py": {
        "smallest_and_largest_images_pass_through_both_networks": ("contragan", "reacgan"),
    },
    "tests/unit/recipes/test_codec_recipe.py": {
        "run_resumes_to_the_same_weights": (),
    },
    "tests/unit/recipes/test_vqgan_recipe.py": {
        "run_on_digits_resumes_to_the_same_weights": (),
    },
    "tests/unit/runs/test_memory_advice.py": {
        "memory_runs_out_the_plan_is_the_advice": ("error1]",),
    },
    # extensions: other networks, faults and settings of the same law
    "tests/extensions/grid/test_grid_report.py": {
        "a_long_run_of_a_large_grid_gives_a_small_page": (),
    },
    "tests/extensions/planning/test_plan.py": {
        "turn_without_an_adversarial_loss_is_that_of_its_penalties": (),
        "a_penalty_with_an_interval_counts_by_its_share": (),
        "pairs_are_planned_from_their_shape": (),
        "a_plan_leaves_no_fake_tensor_behind": (),
    },
    "tests/extensions/planning/test_plan_players.py": {
        "a_penalty_on_some_samples_is_planned": ("0.5]", "1]"),
    },
    "tests/extensions/planning/test_profile.py": {
        "profile_of_a_discriminator_that_trains_at_random_is_that_of_its_turns": (),
    },
    "tests/extensions/replay/test_replay.py": {
        "replay_of_any_scheme_is_equal": ("stacked]", "extragradient]", "skipping]", "pix2pix]", "shared_fakes]"),
        "replay_repeats_a_resumed_session_in_its_order": (),
    },
    "tests/extensions/tuning/test_tune.py": {
        "error_that_the_user_must_change_ends_the_study_and_its_trial_is_tried_again": (
            "0-error1]",
            "0-error2]",
            "2-error0]",
            "2-error2]",
        ),
        "process_that_ends_before_others_says_how_many_trials_run": ("2-",),
        "failed_trials_of_a_grid_are_tried_again_and_no_combination_twice": (),
        "goal_of_which_high_values_are_better_is_maximised": (),
        "same_command_continues_and_repeats_nothing": (),
        "grid_trains_each_combination_once": (),
    },
    "tests/extensions/tuning/test_tune_runs.py": {
        "each_trial_ends_with_a_sheet": (),
    },
    "tests/extensions/verify/test_verify.py": {
        "verify_batch_norm_of_torch_is_exempt_from_frozen_means_frozen_and_fails_nothing": (
            "G]",
            "D]",
            "wi",
            "no statistics",
        ),
        "verify_spectral_norm_of_torch_is_twice_differentiable_and_exempt_from_frozen": ("silu", "leaky", "relu-param"),
        "verify_noise_in_forward_is_as_exact_as_in_the_trainer": ("numpy]", "functional dropout]", "with dropout]"),
        "verify_dropout_hides_no_mean_over_the_batch": ("nn.AlphaDropout",),
        "verify_recipe_uses_its_game": (),
        "verify_other_state_beside_the_spectral_norm_of_torch_still_fails": (),
    },
}
SLOW = tuple(
    f"{file}::test_{test}{case and '['}{case}"
    for file, tests in LARGER.items()
    for test, cases in tests.items()
    for case in cases or ("",)
)
