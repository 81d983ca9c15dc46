libunseen_a_SOURCES += \
	src/resp/parser.c \
	src/resp/parser.h \
	src/resp/server.h \
	src/resp/writer.c \
	src/resp/writer.h
