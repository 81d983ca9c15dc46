# unit tests

check_PROGRAMS += tests/unit/test_base tests/unit/test_guard
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_base_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=realloc
tests_unit_test_guard_SOURCES = tests/unit/test_guard.c
tests_unit_test_guard_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_base tests/unit/test_guard
check_PROGRAMS += tests/unit/test_text tests/unit/test_timeline
tests_unit_test_text_SOURCES = tests/unit/test_text.c
tests_unit_test_text_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_timeline_SOURCES = tests/unit/test_timeline.c
tests_unit_test_timeline_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_text tests/unit/test_timeline
check_PROGRAMS += tests/unit/test_cli_output
tests_unit_test_cli_output_SOURCES = tests/unit/test_cli_output.c
tests_unit_test_cli_output_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_cli_output
check_PROGRAMS += tests/unit/test_serve_backup
tests_unit_test_serve_backup_SOURCES = tests/unit/test_serve_backup.c
tests_unit_test_serve_backup_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_serve_backup

# src/filter
check_PROGRAMS += tests/unit/test_filter tests/unit/test_filter_codec tests/unit/test_filter_nomem tests/unit/test_probe
TESTS += tests/unit/test_filter tests/unit/test_filter_codec tests/unit/test_filter_nomem tests/unit/test_probe
tests_unit_test_filter_SOURCES = tests/unit/test_filter.c tests/unit/grown.c tests/unit/grown.h tests/unit/random.h
tests_unit_test_filter_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_filter_codec_SOURCES = tests/unit/test_filter_codec.c tests/unit/random.h
tests_unit_test_filter_codec_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_filter_nomem_SOURCES = tests/unit/test_filter_nomem.c tests/unit/random.h
tests_unit_test_filter_nomem_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_filter_nomem_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
tests_unit_test_probe_SOURCES = tests/unit/test_probe.c tests/unit/random.h
tests_unit_test_probe_LDADD = $(LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_sieve
TESTS += tests/unit/test_sieve
tests_unit_test_sieve_SOURCES = tests/unit/test_sieve.c tests/unit/random.h
tests_unit_test_sieve_LDADD = $(LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_resp_parser tests/unit/test_resp_writer
tests_unit_test_resp_parser_SOURCES = tests/unit/test_resp_parser.c
tests_unit_test_resp_parser_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_resp_writer_SOURCES = tests/unit/test_resp_writer.c
tests_unit_test_resp_writer_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_resp_parser tests/unit/test_resp_writer
check_PROGRAMS += tests/unit/test_cli_reply
tests_unit_test_cli_reply_SOURCES = tests/unit/test_cli_reply.c
tests_unit_test_cli_reply_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_cli_reply

# Its allocations can be made to fail.
check_PROGRAMS += tests/unit/test_staged
tests_unit_test_staged_SOURCES = tests/unit/test_staged.c
tests_unit_test_staged_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_staged_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=reallocarray
TESTS += tests/unit/test_staged

check_PROGRAMS += tests/unit/test_staged_threads
tests_unit_test_staged_threads_SOURCES = tests/unit/test_staged_threads.c
tests_unit_test_staged_threads_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_staged_threads

check_PROGRAMS += tests/unit/test_doors
tests_unit_test_doors_SOURCES = tests/unit/test_doors.c
tests_unit_test_doors_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_doors

check_PROGRAMS += tests/unit/test_config
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_CPPFLAGS = $(AM_CPPFLAGS) -DSRCDIR='"$(abs_top_srcdir)"'
tests_unit_test_config_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_config
check_PROGRAMS += tests/unit/test_environment
tests_unit_test_environment_SOURCES = tests/unit/test_environment.c
tests_unit_test_environment_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_environment

import_tests = tests/unit/test_import tests/unit/test_import_input tests/unit/test_import_tally \
	tests/unit/test_import_command
check_PROGRAMS += $(import_tests)
TESTS += $(import_tests)
tests_unit_test_import_SOURCES = tests/unit/test_import.c
tests_unit_test_import_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_import_input_SOURCES = tests/unit/test_import_input.c
tests_unit_test_import_input_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_import_tally_SOURCES = tests/unit/test_import_tally.c
tests_unit_test_import_tally_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_import_command_SOURCES = tests/unit/test_import_command.c
tests_unit_test_import_command_LDADD = $(LDADD) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_dedup
tests_unit_test_dedup_SOURCES = tests/unit/test_dedup.c
tests_unit_test_dedup_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_dedup

check_PROGRAMS += tests/unit/test_cli_options
tests_unit_test_cli_options_SOURCES = tests/unit/test_cli_options.c
tests_unit_test_cli_options_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_cli_options

check_PROGRAMS += tests/unit/test_inbox
tests_unit_test_inbox_SOURCES = tests/unit/test_thread_queue.c
tests_unit_test_inbox_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_inbox

check_PROGRAMS += tests/unit/test_db
tests_unit_test_db_SOURCES = tests/unit/test_db.c tests/scenario/vfs_fault.c tests/scenario/vfs_fault.h \
	tests/scenario/vfs_power.c tests/scenario/vfs_power.h
tests_unit_test_db_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_db

check_PROGRAMS += tests/unit/test_ring
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c
tests_unit_test_ring_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_ring

check_PROGRAMS += tests/unit/test_delivered
tests_unit_test_delivered_SOURCES = tests/unit/test_delivered.c tests/unit/random.h
tests_unit_test_delivered_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_delivered_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=realloc
TESTS += tests/unit/test_delivered

check_PROGRAMS += tests/unit/test_cli_source
tests_unit_test_cli_source_SOURCES = tests/unit/test_cli_source.c
tests_unit_test_cli_source_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_cli_source

check_PROGRAMS += tests/unit/test_commands
tests_unit_test_commands_SOURCES = tests/unit/test_commands.c tests/unit/fake_store.c tests/unit/fake_store.h \
	tests/unit/server_fixture.c tests/unit/server_fixture.h
tests_unit_test_commands_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_commands
check_PROGRAMS += tests/unit/test_mailbox tests/unit/test_server
tests_unit_test_mailbox_SOURCES = tests/unit/test_loop_queue.c
tests_unit_test_mailbox_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_server_SOURCES = tests/unit/test_server.c tests/unit/fake_store.c tests/unit/fake_store.h \
	tests/unit/server_fixture.c tests/unit/server_fixture.h
tests_unit_test_server_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_mailbox tests/unit/test_server
check_PROGRAMS += tests/unit/test_server_memory
tests_unit_test_server_memory_SOURCES = tests/unit/test_server_memory.c tests/unit/fake_store.c tests/unit/fake_store.h \
	tests/unit/server_fixture.c tests/unit/server_fixture.h
tests_unit_test_server_memory_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_server_memory

check_PROGRAMS += tests/unit/test_server_turns
tests_unit_test_server_turns_SOURCES = tests/unit/test_server_turns.c tests/unit/fake_store.c tests/unit/fake_store.h \
	tests/unit/server_fixture.c tests/unit/server_fixture.h
tests_unit_test_server_turns_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_server_turns
check_PROGRAMS += tests/unit/test_meter tests/unit/test_metrics
tests_unit_test_meter_SOURCES = tests/unit/test_meter.c
tests_unit_test_meter_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_metrics_SOURCES = tests/unit/test_metrics.c
tests_unit_test_metrics_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_meter tests/unit/test_metrics

# The embedded store, on disks that fail; its larger allocations can be made to fail.
store_fixture = tests/unit/store_fixture.c tests/unit/store_fixture.h \
	tests/scenario/vfs_fault.c tests/scenario/vfs_fault.h tests/scenario/vfs_power.c tests/scenario/vfs_power.h
check_PROGRAMS += tests/unit/test_folder
tests_unit_test_folder_SOURCES = tests/unit/test_folder.c $(store_fixture)
tests_unit_test_folder_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_folder_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=fsync
TESTS += tests/unit/test_folder
check_PROGRAMS += tests/unit/test_mirror
tests_unit_test_mirror_SOURCES = tests/unit/test_mirror.c $(store_fixture)
tests_unit_test_mirror_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_mirror_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
TESTS += tests/unit/test_mirror

store_calls = $(store_fixture) tests/unit/store_calls.c tests/unit/store_calls.h
store_tests = tests/unit/test_store tests/unit/test_store_ring tests/unit/test_store_load tests/unit/test_store_readers \
	tests/unit/test_store_twins tests/unit/test_store_rows tests/unit/test_store_pair \
	tests/unit/test_store_export tests/unit/test_filter_bounds
check_PROGRAMS += $(store_tests)
TESTS += $(store_tests)
tests_unit_test_store_SOURCES = tests/unit/test_store.c $(store_calls)
tests_unit_test_store_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_ring_SOURCES = tests/unit/test_store_ring.c $(store_calls)
tests_unit_test_store_ring_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_ring_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_load_SOURCES = tests/unit/test_store_load.c $(store_calls)
tests_unit_test_store_load_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_load_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_readers_SOURCES = tests/unit/test_store_readers.c $(store_calls)
tests_unit_test_store_readers_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_readers_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_filter_bounds_SOURCES = tests/unit/test_filter_bounds.c $(store_calls) tests/unit/random.h
tests_unit_test_filter_bounds_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_filter_bounds_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_rows_SOURCES = tests/unit/test_store_rows.c $(store_calls)
tests_unit_test_store_rows_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_rows_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_pair_SOURCES = tests/unit/test_store_pair.c $(store_calls)
tests_unit_test_store_pair_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_pair_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_export_SOURCES = tests/unit/test_store_export.c $(store_calls)
tests_unit_test_store_export_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_export_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_store_twins_SOURCES = tests/unit/test_store_twins.c $(store_calls)
tests_unit_test_store_twins_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_store_twins_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=reallocarray

# The store over a folder with everything in it, while the disk fails at each operation in turn.
whole_folder = tests/unit/whole_folder.c tests/unit/whole_folder.h $(store_calls)
check_PROGRAMS += tests/unit/test_start tests/unit/test_liveness
TESTS += tests/unit/test_start tests/unit/test_liveness
tests_unit_test_start_SOURCES = tests/unit/test_start.c $(whole_folder)
tests_unit_test_start_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_start_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_test_liveness_SOURCES = tests/unit/test_liveness.c $(whole_folder)
tests_unit_test_liveness_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_liveness_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc

check_PROGRAMS += tests/unit/test_histogram tests/unit/test_zipf tests/unit/test_bench_scan tests/unit/test_bench
tests_unit_test_histogram_SOURCES = tests/unit/test_histogram.c tests/unit/random.h
tests_unit_test_histogram_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_zipf_SOURCES = tests/unit/test_zipf.c
tests_unit_test_zipf_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_bench_scan_SOURCES = tests/unit/test_bench_scan.c
tests_unit_test_bench_scan_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_bench_SOURCES = tests/unit/test_bench.c
tests_unit_test_bench_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_histogram tests/unit/test_zipf tests/unit/test_bench_scan tests/unit/test_bench

# The store and the domain above it.
world_fixture = tests/unit/world_fixture.c tests/unit/world_fixture.h \
	tests/scenario/vfs_fault.c tests/scenario/vfs_fault.h tests/scenario/vfs_power.c tests/scenario/vfs_power.h \
	tests/scenario/world.c tests/scenario/world.h
check_PROGRAMS += tests/unit/test_clock_model
tests_unit_test_clock_model_SOURCES = tests/unit/test_clock_model.c tests/unit/random.h $(world_fixture)
tests_unit_test_clock_model_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_clock_model
check_PROGRAMS += tests/unit/test_seal
tests_unit_test_seal_SOURCES = tests/unit/test_seal.c tests/unit/random.h $(world_fixture)
tests_unit_test_seal_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_seal

# The extension is linked in, not loaded, and its allocations can be made to fail.
check_PROGRAMS += tests/unit/test_extension
tests_unit_test_extension_SOURCES = tests/unit/test_extension.c $(extension_sources)
tests_unit_test_extension_CPPFLAGS = $(AM_CPPFLAGS) -DSQLITE_CORE
tests_unit_test_extension_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_extension_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
TESTS += tests/unit/test_extension

check_PROGRAMS += tests/unit/test_sessions
tests_unit_test_sessions_SOURCES = tests/unit/test_sessions.c tests/unit/random.h
tests_unit_test_sessions_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_sessions

check_PROGRAMS += tests/unit/test_schema
tests_unit_test_schema_SOURCES = tests/unit/test_schema.c $(world_fixture)
tests_unit_test_schema_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_schema

check_PROGRAMS += tests/unit/test_backup
tests_unit_test_backup_SOURCES = tests/unit/test_backup.c $(world_fixture)
tests_unit_test_backup_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_backup

# src/http
check_PROGRAMS += tests/unit/test_http
TESTS += tests/unit/test_http
tests_unit_test_http_SOURCES = tests/unit/test_http.c tests/unit/fake_store.c tests/unit/fake_store.h
tests_unit_test_http_LDADD = $(LDADD) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_parcel
tests_unit_test_parcel_SOURCES = tests/unit/test_user_snapshot.c
tests_unit_test_parcel_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_parcel

check_PROGRAMS += tests/unit/test_legacy
TESTS += tests/unit/test_legacy
tests_unit_test_legacy_SOURCES = tests/unit/test_legacy.c
tests_unit_test_legacy_LDADD = $(LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_reply_limits
TESTS += tests/unit/test_reply_limits
tests_unit_test_reply_limits_SOURCES = tests/unit/test_reply_limits.c
tests_unit_test_reply_limits_LDADD = $(LDADD) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_away
tests_unit_test_away_SOURCES = tests/unit/test_away.c tests/unit/fake_store.c tests/unit/fake_store.h \
	tests/unit/server_fixture.c tests/unit/server_fixture.h
tests_unit_test_away_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_away
check_PROGRAMS += tests/unit/test_through
TESTS += tests/unit/test_through
tests_unit_test_through_SOURCES = tests/unit/test_read_through.c
tests_unit_test_through_LDADD = $(LDADD) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_join
tests_unit_test_join_SOURCES = tests/unit/test_import_users.c $(store_fixture)
tests_unit_test_join_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_join_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
TESTS += tests/unit/test_join
