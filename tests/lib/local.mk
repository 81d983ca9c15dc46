# What unit tests, scenarios and benches share: the disks that fail and forget, a world to drive, fixtures.
check_LIBRARIES = tests/lib/libtest.a
tests_lib_libtest_a_CPPFLAGS = $(AM_CPPFLAGS) -DSRCDIR='"$(abs_top_srcdir)"'
tests_lib_libtest_a_SOURCES = \
	tests/lib/grown.c \
	tests/lib/grown.h \
	tests/lib/sent_list.h \
	tests/lib/load_wait.c \
	tests/lib/load_wait.h \
	tests/lib/memory_pool.c \
	tests/lib/memory_pool.h \
	tests/lib/no_nice.c \
	tests/lib/no_sync.c \
	tests/lib/notes_threads.c \
	tests/lib/part_rows.c \
	tests/lib/part_rows.h \
	tests/lib/random.h \
	tests/lib/rounds.h \
	tests/lib/send_bytes.h \
	tests/lib/vfs_fault.c \
	tests/lib/vfs_fault.h \
	tests/lib/vfs_power.c \
	tests/lib/vfs_power.h \
	tests/lib/world.c \
	tests/lib/world.h

# The fixtures speak cmocka.
if TESTS_ENABLED
tests_lib_libtest_a_SOURCES += \
	tests/lib/alloc.c \
	tests/lib/alloc.h \
	tests/lib/pool_fixture.c \
	tests/lib/pool_fixture.h \
	tests/lib/rados_fixture.c \
	tests/lib/rados_fixture.h \
	tests/lib/server_fixture.c \
	tests/lib/server_fixture.h \
	tests/lib/store_calls.c \
	tests/lib/store_calls.h \
	tests/lib/store_fixture.c \
	tests/lib/store_fixture.h \
	tests/lib/whole_folder.c \
	tests/lib/whole_folder.h \
	tests/lib/world_fixture.c \
	tests/lib/world_fixture.h \
	tests/unit/fake_kafka.c \
	tests/unit/fake_kafka.h \
	tests/unit/kafka_fixture.c \
	tests/unit/kafka_fixture.h \
	tests/unit/fake_store.c \
	tests/unit/fake_store.h \
	tests/unit/fake_tier.c \
	tests/unit/fake_tier.h
endif
if WITH_OPENSSL
if TESTS_ENABLED
tests_lib_libtest_a_SOURCES += \
	tests/lib/certificates.c \
	tests/lib/certificates.h
endif
endif

# Of all programs that are tests: small tables of staged rows where they are asked for (part_rows.h), no sync that takes
# time (no_sync.c), no thread that waits for a busy machine (no_nice.c), and whether there is one (notes_threads.c).
test_ldflags = $(UNSEEN_LDFLAGS) -Wl,-u,__wrap_parts_rows,--wrap=parts_rows -Wl,-u,fsync,-u,fdatasync \
	-Wl,-u,pthread_create \
	-Wl,-u,__wrap_background_enter,--wrap=background_enter
