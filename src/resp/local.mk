libunseen_a_SOURCES += src/resp/server.h
