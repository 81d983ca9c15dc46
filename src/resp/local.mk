libunseen_a_SOURCES += \
	src/resp/args.c \
	src/resp/args.h \
	src/resp/cmd_admin.c \
	src/resp/cmd_ask.c \
	src/resp/cmd_backup.c \
	src/resp/cmd_block.c \
	src/resp/cmd_client.c \
	src/resp/cmd_command.c \
	src/resp/cmd_connection.c \
	src/resp/cmd_explain.c \
	src/resp/cmd_write.c \
	src/resp/command.h \
	src/resp/info.c \
	src/resp/large.c \
	src/resp/large.h \
	src/resp/multi.c \
	src/resp/parser.c \
	src/resp/parser.h \
	src/resp/server.c \
	src/resp/server.h \
	src/resp/session.c \
	src/resp/session.h \
	src/resp/table.c \
	src/resp/task.c \
	src/resp/task.h \
	src/resp/writer.c \
	src/resp/writer.h
