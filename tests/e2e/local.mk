# The end-to-end tests are Python (pytest); scripts/test runs them. Here is the one client that is built.
if WITH_HIREDIS
noinst_PROGRAMS = tests/e2e/hiredis_client
tests_e2e_hiredis_client_SOURCES = tests/e2e/hiredis_client.c
tests_e2e_hiredis_client_CFLAGS = $(AM_CFLAGS) $(HIREDIS_CFLAGS)
tests_e2e_hiredis_client_LDADD = $(HIREDIS_LIBS)
endif

# A folder, an export and a configuration of each release (release.py), which test_releases.py opens.
EXTRA_DIST += tests/data/releases

# What is answered to each field of each operation (test_fields.py).
EXTRA_DIST += tests/data/fields
