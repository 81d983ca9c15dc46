# Unit tests: tests/unit/test_X.c is one program, named here once. It is linked with tests/lib/libtest.a and cmocka, and
# what it allocates passes through tests/lib/alloc.h.
unit_tests =

# Those of TLS are programs of a build with OpenSSL.
tls_tests = \
	tests/unit/test_tls \
	tests/unit/test_tls_server
if WITH_OPENSSL
unit_tests += $(tls_tests)
endif
EXTRA_PROGRAMS += $(tls_tests)
# Those that parse replies with hiredis.
hiredis_tests = tests/unit/test_cluster
if WITH_HIREDIS
unit_tests += $(hiredis_tests)
endif
EXTRA_PROGRAMS += $(hiredis_tests)
# That of librdkafka, and its module.
kafka_tests = tests/unit/test_kafka_mock
if WITH_RDKAFKA
unit_tests += $(kafka_tests)
endif
EXTRA_PROGRAMS += $(kafka_tests)
# That of the module that knows librados, by its header alone.
rados_tests = tests/unit/test_librados
if WITH_RADOS
unit_tests += $(rados_tests)
endif
EXTRA_PROGRAMS += $(rados_tests)
if WITH_NGHTTP2
unit_tests += tests/unit/test_grpc_reflection
endif

# Those that take longest come first, so that none is alone at the end.
unit_tests += \
	tests/unit/test_seal \
	tests/unit/test_recover \
	tests/unit/test_liveness \
	tests/unit/test_clock_model \
	tests/unit/test_backup \
	tests/unit/test_store_conformance \
	tests/unit/test_start \
	tests/unit/test_import_users \
	tests/unit/test_server_memory \
	tests/unit/test_server_turns \
	tests/unit/test_bench \
	tests/unit/test_rados \
	tests/unit/test_pool \
	tests/unit/test_pool_plain \
	tests/unit/test_late \
	tests/unit/test_accounts \
	tests/unit/test_ack \
	tests/unit/test_archive \
	tests/unit/test_archive_round \
	tests/unit/test_ask_hedge \
	tests/unit/test_asker \
	tests/unit/test_away \
	tests/unit/test_base \
	tests/unit/test_bench_scan \
	tests/unit/test_budget \
	tests/unit/test_cli_options \
	tests/unit/test_cli_output \
	tests/unit/test_cli_reply \
	tests/unit/test_cli_source \
	tests/unit/test_client \
	tests/unit/test_pipeline \
	tests/unit/test_sending \
	tests/unit/test_clock_waits \
	tests/unit/test_commands \
	tests/unit/test_compare \
	tests/unit/test_config \
	tests/unit/test_config_kafka \
	tests/unit/test_consul \
	tests/unit/test_courier \
	tests/unit/test_db \
	tests/unit/test_dead_letters \
	tests/unit/test_dedup \
	tests/unit/test_delivered \
	tests/unit/test_depot_file \
	tests/unit/test_doors \
	tests/unit/test_environment \
	tests/unit/test_extension \
	tests/unit/test_feed \
	tests/unit/test_node \
	tests/unit/test_own_schema \
	tests/unit/test_feeder \
	tests/unit/test_exposure \
	tests/unit/test_fields \
	tests/unit/test_filter \
	tests/unit/test_filter_bounds \
	tests/unit/test_filter_codec \
	tests/unit/test_filter_codec_plain \
	tests/unit/test_filter_nomem \
	tests/unit/test_folder \
	tests/unit/test_follower \
	tests/unit/test_follow_file \
	tests/unit/test_import_letters \
	tests/unit/test_memory_limit \
	tests/unit/test_master_keys \
	tests/unit/test_forget_groups \
	tests/unit/test_front_layout \
	tests/unit/test_grpc_message \
	tests/unit/test_grpc_unary \
	tests/unit/test_guard \
	tests/unit/test_gzip \
	tests/unit/test_histogram \
	tests/unit/test_http \
	tests/unit/test_http_parser \
	tests/unit/test_import \
	tests/unit/test_import_command \
	tests/unit/test_import_input \
	tests/unit/test_import_tally \
	tests/unit/test_kept \
	tests/unit/test_kafka_begin \
	tests/unit/test_kafka_course \
	tests/unit/test_kafka_shown \
	tests/unit/test_kafka_message \
	tests/unit/test_cold \
	tests/unit/test_kafka \
	tests/unit/test_lease \
	tests/unit/test_legacy \
	tests/unit/test_lying_peers \
	tests/unit/test_log_format \
	tests/unit/test_log_ring \
	tests/unit/test_logins \
	tests/unit/test_loop_queue \
	tests/unit/test_meta \
	tests/unit/test_merge \
	tests/unit/test_meter \
	tests/unit/test_metrics \
	tests/unit/test_mirror \
	tests/unit/test_peers \
	tests/unit/test_pool_fetch \
	tests/unit/test_pool_facts \
	tests/unit/test_positions \
	tests/unit/test_probe \
	tests/unit/test_rados_clock \
	tests/unit/test_rados_fenced \
	tests/unit/test_rados_kafka \
	tests/unit/test_rados_damage \
	tests/unit/test_rados_faults \
	tests/unit/test_rados_layout \
	tests/unit/test_rados_memory \
	tests/unit/test_rados_night \
	tests/unit/test_rados_server \
	tests/unit/test_rados_walk \
	tests/unit/test_reach \
	tests/unit/test_read_through \
	tests/unit/test_relay \
	tests/unit/test_replica_event \
	tests/unit/test_reply_limits \
	tests/unit/test_resp_parser \
	tests/unit/test_resp_writer \
	tests/unit/test_ring \
	tests/unit/test_schema \
	tests/unit/test_clone \
	tests/unit/test_clone_copy \
	tests/unit/test_role \
	tests/unit/test_serve_backup \
	tests/unit/test_server \
	tests/unit/test_sessions \
	tests/unit/test_sieve \
	tests/unit/test_spans \
	tests/unit/test_staged \
	tests/unit/test_staged_threads \
	tests/unit/test_slot_parts \
	tests/unit/test_slot_stream \
	tests/unit/test_store \
	tests/unit/test_store_export \
	tests/unit/test_store_load \
	tests/unit/test_store_memory \
	tests/unit/test_store_pair \
	tests/unit/test_store_cold \
	tests/unit/test_store_readers \
	tests/unit/test_store_recent \
	tests/unit/test_store_ring \
	tests/unit/test_store_rows \
	tests/unit/test_store_twins \
	tests/unit/test_text \
	tests/unit/test_task \
	tests/unit/test_thread_queue \
	tests/unit/test_tier_pool \
	tests/unit/test_timeline \
	tests/unit/test_tombstones \
	tests/unit/test_user \
	tests/unit/test_user_compare \
	tests/unit/test_user_snapshot \
	tests/unit/test_zipf

check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
$(unit_tests): AM_LDFLAGS = $(unit_ldflags)
unit_ldflags = $(test_ldflags) -Wl,-u,__wrap_malloc \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray

# What some need beyond that.
tests_unit_test_archive_round_LDFLAGS = $(unit_ldflags) -Wl,--wrap=archive_part_bytes,--wrap=link
tests_unit_test_config_CPPFLAGS = $(AM_CPPFLAGS) -DSRCDIR='"$(abs_top_srcdir)"'
tests_unit_test_depot_file_LDFLAGS = $(unit_ldflags) \
	-Wl,--wrap=mkdir,--wrap=link,--wrap=rename,--wrap=fsync,--wrap=close,--wrap=write
tests_unit_test_extension_SOURCES = tests/unit/test_extension.c $(extension_sources)
tests_unit_test_extension_CPPFLAGS = $(AM_CPPFLAGS) -DSQLITE_CORE
tests_unit_test_fields_CPPFLAGS = $(AM_CPPFLAGS) -DSRCDIR='"$(abs_top_srcdir)"'
tests_unit_test_filter_codec_plain_SOURCES = tests/unit/test_filter_codec.c src/filter/codec.c
tests_unit_test_filter_codec_plain_CPPFLAGS = $(AM_CPPFLAGS) -DBITS_PLAIN
tests_unit_test_folder_LDFLAGS = $(unit_ldflags) -Wl,--wrap=fsync -Wl,--wrap=flock
tests_unit_test_follow_file_LDFLAGS = $(unit_ldflags) \
	-Wl,--wrap=write,--wrap=read,--wrap=fsync,--wrap=rename,--wrap=flock
tests_unit_test_import_letters_LDFLAGS = $(unit_ldflags) -Wl,--wrap=fopen,--wrap=fdopen,--wrap=fflush,--wrap=fwrite \
	-Wl,--wrap=getline,--wrap=__getdelim,--wrap=fsync,--wrap=flock,--wrap=fchmod,--wrap=rename
tests_unit_test_librados_SOURCES = tests/unit/test_librados.c src/store/rados/module/librados_blocking.c \
	src/store/rados/module/librados_impl.h
tests_unit_test_kafka_mock_CPPFLAGS = $(AM_CPPFLAGS) $(RDKAFKA_CFLAGS) -DBUILDDIR='"$(abs_top_builddir)"'
tests_unit_test_kafka_mock_LDADD = $(LDADD) $(RDKAFKA_LIBS)
tests_unit_test_pool_plain_SOURCES = tests/unit/test_pool.c src/dedup/pool_match.c
tests_unit_test_pool_plain_CPPFLAGS = $(AM_CPPFLAGS) -DBITS_PLAIN
