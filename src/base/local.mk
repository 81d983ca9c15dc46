# When this was built, as configure found it: alone in a file, so that a new configure compiles nothing else again.
BUILT_SOURCES += gen/built.h
CLEANFILES += gen/built.h
gen/built.h: Makefile
	$(AM_V_GEN)$(MKDIR_P) gen && echo '#define BUILT_S INT64_C($(BUILT_S))' > $@.tmp && mv $@.tmp $@
src/base/clock.$(OBJEXT) src/base/unseen_kafka_so-clock.$(OBJEXT): gen/built.h

libunseen_a_SOURCES += \
	src/base/arena.c \
	src/base/arena.h \
	src/base/backoff.h \
	src/base/background.c \
	src/base/background.h \
	src/base/bits.h \
	src/base/buckets.c \
	src/base/buckets.h \
	src/base/gzip.c \
	src/base/gzip.h \
	src/base/hide.c \
	src/base/hide.h \
	src/base/heartbeat.c \
	src/base/heartbeat.h \
	src/base/buf.c \
	src/base/buf.h \
	src/base/calendar.c \
	src/base/calendar.h \
	src/base/clock.c \
	src/base/clock.h \
	src/base/csv.c \
	src/base/csv.h \
	src/base/err.c \
	src/base/err.h \
	src/base/figure.h \
	src/base/folder_sync.c \
	src/base/folder_sync.h \
	src/base/glob.c \
	src/base/glob.h \
	src/base/guard.c \
	src/base/guard.h \
	src/base/hash.c \
	src/base/hash.h \
	src/base/histogram.c \
	src/base/histogram.h \
	src/base/json_scan.c \
	src/base/json_scan.h \
	src/base/keyslot.c \
	src/base/keyslot.h \
	src/base/log.c \
	src/base/log.h \
	src/base/log_ring.c \
	src/base/log_ring.h \
	src/base/memory_limit.c \
	src/base/memory_limit.h \
	src/base/module.c \
	src/base/module.h \
	src/base/settle.c \
	src/base/settle.h \
	src/base/task.c \
	src/base/task.h \
	src/base/sha256.c \
	src/base/sha256.h \
	src/base/siphash.c \
	src/base/siphash.h \
	src/base/slice.c \
	src/base/notify.c \
	src/base/notify.h \
	src/base/owner.c \
	src/base/owner.h \
	src/base/plural.h \
	src/base/prefetch.h \
	src/base/slice.h \
	src/base/text.c \
	src/base/text.h \
	src/base/unix_time.c \
	src/base/unix_time.h \
	src/base/uses.h \
	src/base/varint.h \
	src/base/wire.c \
	src/base/wire.h
