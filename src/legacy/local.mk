libunseen_a_SOURCES += \
	src/legacy/asking.c \
	src/legacy/asking.h \
	src/legacy/breaker.c \
	src/legacy/breaker.h \
	src/legacy/cluster.c \
	src/legacy/cluster.h \
	src/legacy/figures.c \
	src/legacy/priority_users.c \
	src/legacy/priority_users.h \
	src/legacy/migration_batch.c \
	src/legacy/migration_batch.h \
	src/legacy/handshake.c \
	src/legacy/handshake.h \
	src/legacy/legacy.c \
	src/legacy/legacy.h \
	src/legacy/redis_connection.c \
	src/legacy/redis_connection.h \
	src/legacy/master_keys.c \
	src/legacy/master_keys.h \
	src/legacy/migration.c \
	src/legacy/migration_impl.h \
	src/legacy/migration_state.c \
	src/legacy/migration_state.h \
	src/legacy/mirror.c \
	src/legacy/mirror.h \
	src/legacy/rate_limiter.c \
	src/legacy/rate_limiter.h \
	src/legacy/parse.c \
	src/legacy/parse.h \
	src/legacy/redis.h \
	src/legacy/redis_node.h \
	src/legacy/redis_words.c \
	src/legacy/redis_words.h \
	src/legacy/redis_reply.h \
	src/legacy/repeat.c \
	src/legacy/repeat.h \
	src/legacy/reply_limits.c \
	src/legacy/reply_limits.h \
	src/legacy/resolve.c \
	src/legacy/resolve.h \
	src/legacy/retry.c \
	src/legacy/retry.h \
	src/legacy/fetch_user.c \
	src/legacy/fetch_user.h \
	src/legacy/read_through.c \
	src/legacy/read_through.h \
	src/legacy/read_through_impl.h \
	src/legacy/read_through_line.c \
	src/legacy/read_through_line.h \
	src/legacy/read_through_port.c \
	src/legacy/redis_socket.h
if WITH_HIREDIS
libunseen_a_SOURCES += \
	src/legacy/redis.c \
	src/legacy/redis_node.c \
	src/legacy/redis_reply.c \
	src/legacy/redis_socket.c
else
libunseen_a_SOURCES += src/legacy/without_hiredis.c
endif
