# the subcommands
libunseen_a_SOURCES += \
	src/cli/cli.h \
	src/cli/client.c \
	src/cli/client.h \
	src/cli/help.c \
	src/cli/options.c \
	src/cli/options.h \
	src/cli/output.c \
	src/cli/output.h \
	src/cli/reply.c \
	src/cli/reply.h
