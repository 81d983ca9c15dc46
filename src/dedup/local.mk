libunseen_a_SOURCES += src/dedup/dedup.h
