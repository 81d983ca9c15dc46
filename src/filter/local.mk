libunseen_a_SOURCES += \
	src/filter/codec.c \
	src/filter/codec_impl.h \
	src/filter/codec_short.c \
	src/filter/codec_write.c \
	src/filter/compare.c \
	src/filter/compare.h \
	src/filter/error_budget.c \
	src/filter/error_budget.h \
	src/filter/filter.c \
	src/filter/filter.h \
	src/filter/probe.c \
	src/filter/probe.h \
	src/filter/sieve.c \
	src/filter/sieve.h
EXTRA_DIST += docs/format.md
