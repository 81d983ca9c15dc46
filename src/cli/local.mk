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

libunseen_a_SOURCES += \
	src/cli/import_csv.c \
	src/cli/import_csv.h \
	src/cli/import_input.c \
	src/cli/import_input.h \
	src/cli/import_json.c \
	src/cli/import_json.h \
	src/cli/import_reader.c \
	src/cli/import_reader.h \
	src/cli/progress.c \
	src/cli/progress.h
