libunseen_a_SOURCES += \
	src/dedup/asker.c \
	src/dedup/dedup.c \
	src/dedup/dedup.h
