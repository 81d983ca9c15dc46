# Fuzz targets: tests/fuzz/fuzz_X.c has LLVMFuzzerTestOneInput, its corpus is tests/data/fuzz/X. An ordinary build
# links replay_main.c, and `make check` gives every file of the corpus to the target. With --enable-fuzz (and
# CC=clang) libFuzzer is linked instead:
#   tests/fuzz/fuzz_X -max_total_time=60 NEW_FOLDER TOP_SRCDIR/tests/data/fuzz/X
# A target is added by its name in fuzz_targets and its three variables; its corpus by EXTRA_DIST.
fuzz_targets =

fuzz_targets += tests/fuzz/fuzz_filter
tests_fuzz_fuzz_filter_SOURCES = tests/fuzz/fuzz_filter.c $(fuzz_main)
tests_fuzz_fuzz_filter_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_CORPUS='"$(abs_top_srcdir)/tests/data/fuzz/filter"'
tests_fuzz_fuzz_filter_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/data/fuzz/filter
EXTRA_PROGRAMS += tests/fuzz/make_filter_seeds
tests_fuzz_make_filter_seeds_SOURCES = tests/fuzz/make_filter_seeds.c

fuzz_targets += tests/fuzz/fuzz_delivered
tests_fuzz_fuzz_delivered_SOURCES = tests/fuzz/fuzz_delivered.c $(fuzz_main)
tests_fuzz_fuzz_delivered_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_CORPUS='"$(abs_top_srcdir)/tests/data/fuzz/delivered"'
tests_fuzz_fuzz_delivered_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/data/fuzz/delivered

fuzz_targets += tests/fuzz/fuzz_import
tests_fuzz_fuzz_import_SOURCES = tests/fuzz/fuzz_import.c $(fuzz_main)
tests_fuzz_fuzz_import_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_CORPUS='"$(abs_top_srcdir)/tests/data/fuzz/import"'
tests_fuzz_fuzz_import_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/data/fuzz/import

fuzz_targets += tests/fuzz/fuzz_resp
tests_fuzz_fuzz_resp_SOURCES = tests/fuzz/fuzz_resp.c $(fuzz_main)
tests_fuzz_fuzz_resp_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_CORPUS='"$(abs_top_srcdir)/tests/data/fuzz/resp"'
tests_fuzz_fuzz_resp_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/data/fuzz/resp

fuzz_targets += tests/fuzz/fuzz_export
tests_fuzz_fuzz_export_SOURCES = tests/fuzz/fuzz_export.c $(fuzz_main)
tests_fuzz_fuzz_export_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_CORPUS='"$(abs_top_srcdir)/tests/data/fuzz/export"'
tests_fuzz_fuzz_export_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/data/fuzz/export

check_PROGRAMS += $(fuzz_targets)
if FUZZ_ENABLED
fuzz_main =
fuzz_ldflags = $(AM_LDFLAGS) -fsanitize=fuzzer
else
fuzz_main = tests/fuzz/replay_main.c
fuzz_ldflags = $(AM_LDFLAGS)
TESTS += $(fuzz_targets)
endif
