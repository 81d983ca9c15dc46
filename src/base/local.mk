libunseen_a_SOURCES += \
	src/base/arena.h \
	src/base/buf.h \
	src/base/calendar.h \
	src/base/clock.h \
	src/base/err.h \
	src/base/guard.h \
	src/base/hash.h \
	src/base/log.h \
	src/base/slice.h \
	src/base/varint.h
