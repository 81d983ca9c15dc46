# the subcommands
libunseen_a_SOURCES += \
	src/cli/cli.h \
	src/cli/help.c \
	src/cli/options.c \
	src/cli/options.h \
	src/cli/output.c \
	src/cli/output.h
