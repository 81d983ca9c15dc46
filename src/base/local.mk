libunseen_a_SOURCES += \
	src/base/arena.c \
	src/base/arena.h \
	src/base/buckets.c \
	src/base/buckets.h \
	src/base/buf.c \
	src/base/buf.h \
	src/base/calendar.c \
	src/base/calendar.h \
	src/base/clock.c \
	src/base/clock.h \
	src/base/err.c \
	src/base/err.h \
	src/base/figure.h \
	src/base/guard.c \
	src/base/guard.h \
	src/base/hash.c \
	src/base/hash.h \
	src/base/histogram.c \
	src/base/histogram.h \
	src/base/log.c \
	src/base/log.h \
	src/base/slice.c \
	src/base/slice.h \
	src/base/varint.h
