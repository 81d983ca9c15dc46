libunseen_a_SOURCES += \
	src/filter/codec.c \
	src/filter/filter.c \
	src/filter/filter.h \
	src/filter/probe.c \
	src/filter/probe.h
EXTRA_DIST += docs/format.md
