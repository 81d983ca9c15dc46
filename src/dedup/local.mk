libunseen_a_SOURCES += \
	src/dedup/asker.c \
	src/dedup/dedup.c \
	src/dedup/dedup.h \
	src/dedup/sessions.c \
	src/dedup/sessions.h
