# Scenarios: text files that run_scenario plays against a real store; and the power cuts.
check_PROGRAMS += tests/scenario/run_scenario tests/scenario/test_pair tests/scenario/test_power tests/scenario/test_restart

tests_scenario_run_scenario_SOURCES = \
	tests/scenario/run_scenario.c \
	tests/scenario/scenario.h \
	tests/scenario/scenario_commands.c \
	tests/scenario/scenario_disk.c \
	tests/scenario/scenario_text.c
tests_scenario_test_power_SOURCES = tests/scenario/ledger.c tests/scenario/ledger.h tests/scenario/test_power.c
tests_scenario_test_pair_LDFLAGS = $(unit_ldflags)
tests_scenario_run_scenario_LDFLAGS = $(test_ldflags)
tests_scenario_test_power_LDFLAGS = $(test_ldflags)
tests_scenario_test_restart_LDFLAGS = $(test_ldflags)

scenarios = \
	tests/scenario/scenarios/clock_a_month_ahead_in_a_flush.scn \
	tests/scenario/scenarios/clock_accepted.scn \
	tests/scenario/scenarios/clock_back_an_hour.scn \
	tests/scenario/scenarios/clock_dead.scn \
	tests/scenario/scenarios/clock_first_start.scn \
	tests/scenario/scenarios/clock_in_1970.scn \
	tests/scenario/scenarios/clock_in_2031.scn \
	tests/scenario/scenarios/clock_leap_goes_on.scn \
	tests/scenario/scenarios/clock_off_for_long.scn \
	tests/scenario/scenarios/clock_two_months_ahead.scn \
	tests/scenario/scenarios/crash_and_recover.scn \
	tests/scenario/scenarios/deliveries_out_of_order.scn \
	tests/scenario/scenarios/disk_full.scn \
	tests/scenario/scenarios/dropped_play_ends_nothing.scn \
	tests/scenario/scenarios/early_turns.scn \
	tests/scenario/scenarios/eio_at_commit.scn \
	tests/scenario/scenarios/event_times.scn \
	tests/scenario/scenarios/expiry_keeps_the_active.scn \
	tests/scenario/scenarios/expiry_missed_nights.scn \
	tests/scenario/scenarios/expiry_nights.scn \
	tests/scenario/scenarios/flush_fails_at_the_barrier.scn \
	tests/scenario/scenarios/flush_fails_emptying.scn \
	tests/scenario/scenarios/flush_fails_in_the_middle.scn \
	tests/scenario/scenarios/flush_retries_within_minutes.scn \
	tests/scenario/scenarios/foreign_files.scn \
	tests/scenario/scenarios/forget_damaged_outside.scn \
	tests/scenario/scenarios/forget_in_the_middle_of_a_flush.scn \
	tests/scenario/scenarios/forget_items.scn \
	tests/scenario/scenarios/forget_leaves_no_bytes.scn \
	tests/scenario/scenarios/forget_pipelined.scn \
	tests/scenario/scenarios/forget_user.scn \
	tests/scenario/scenarios/four_months_later.scn \
	tests/scenario/scenarios/ids_of_all_bytes.scn \
	tests/scenario/scenarios/late_event.scn \
	tests/scenario/scenarios/many_tables.scn \
	tests/scenario/scenarios/memory_full.scn \
	tests/scenario/scenarios/min_free.scn \
	tests/scenario/scenarios/months_end.scn \
	tests/scenario/scenarios/past_retention_at_flush.scn \
	tests/scenario/scenarios/quarantine_answer.scn \
	tests/scenario/scenarios/quarantine_error.scn \
	tests/scenario/scenarios/questions_never_wait.scn \
	tests/scenario/scenarios/repeated_plays.scn \
	tests/scenario/scenarios/ring_comes_round.scn \
	tests/scenario/scenarios/schema_newer.scn \
	tests/scenario/scenarios/seal.scn \
	tests/scenario/scenarios/seal_damage.scn \
	tests/scenario/scenarios/seal_expires_meanwhile.scn \
	tests/scenario/scenarios/seal_interrupted.scn \
	tests/scenario/scenarios/seal_waits.scn \
	tests/scenario/scenarios/shared_key.scn \
	tests/scenario/scenarios/slots_lowered.scn \
	tests/scenario/scenarios/slots_raised.scn \
	tests/scenario/scenarios/tomorrow.scn \
	tests/scenario/scenarios/truncated_files.scn \
	tests/scenario/scenarios/turn_missed.scn \
	tests/scenario/scenarios/unknown_user.scn

EXTRA_DIST += $(scenarios)
TESTS += tests/scenario/test_power tests/scenario/test_restart tests/scenario/test_pair $(scenarios)
