# Fuzz targets: tests/fuzz/fuzz_X.c, named here once, has LLVMFuzzerTestOneInput; its corpus is tests/data/fuzz/X. In an
# ordinary build main() is that of replay_main.c, and `make check` gives every file of the corpus to the target. With
# --enable-fuzz (and CC=clang) it is libFuzzer's:
#   tests/fuzz/fuzz_X -max_total_time=60 NEW_FOLDER TOP_SRCDIR/tests/data/fuzz/X
fuzz_targets = \
	tests/fuzz/fuzz_accounts \
	tests/fuzz/fuzz_authorization \
	tests/fuzz/fuzz_consul \
	tests/fuzz/fuzz_dead_letter \
	tests/fuzz/fuzz_delivered \
	tests/fuzz/fuzz_export \
	tests/fuzz/fuzz_feed_events \
	tests/fuzz/fuzz_filter \
	tests/fuzz/fuzz_front \
	tests/fuzz/fuzz_http \
	tests/fuzz/fuzz_import \
	tests/fuzz/fuzz_kafka_message \
	tests/fuzz/fuzz_rados \
	tests/fuzz/fuzz_resp
if WITH_HIREDIS
fuzz_targets += tests/fuzz/fuzz_cluster
endif
if WITH_NGHTTP2
fuzz_targets += tests/fuzz/fuzz_grpc_frames tests/fuzz/fuzz_grpc_message
endif
if WITH_OPENSSL
fuzz_targets += tests/fuzz/fuzz_tls
endif

check_PROGRAMS += $(fuzz_targets)
EXTRA_PROGRAMS += tests/fuzz/make_filter_seeds
EXTRA_DIST += tests/data/fuzz tests/fuzz/fuzz.h
if FUZZ_ENABLED
$(fuzz_targets): AM_LDFLAGS = $(UNSEEN_LDFLAGS) -fsanitize=fuzzer
else
tests_lib_libtest_a_SOURCES += tests/fuzz/replay_main.c
TESTS += $(fuzz_targets)
endif
