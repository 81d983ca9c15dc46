# the loops and connections
libunseen_a_SOURCES += src/net/version.c src/net/version.h
