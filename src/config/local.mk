libunseen_a_SOURCES += src/config/config.h
