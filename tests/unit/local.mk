# unit tests

check_PROGRAMS += tests/unit/test_base tests/unit/test_guard
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_LDADD = $(LDADD) $(CMOCKA_LIBS)
tests_unit_test_guard_SOURCES = tests/unit/test_guard.c
tests_unit_test_guard_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_base tests/unit/test_guard
check_PROGRAMS += tests/unit/test_cli_output
tests_unit_test_cli_output_SOURCES = tests/unit/test_cli_output.c
tests_unit_test_cli_output_LDADD = $(LDADD) $(CMOCKA_LIBS)
TESTS += tests/unit/test_cli_output
