# the loops and connections
libunseen_a_SOURCES += \
	src/net/address.c \
	src/net/address.h \
	src/net/budget.h \
	src/net/client.c \
	src/net/client.h \
	src/net/conn.c \
	src/net/conn.h \
	src/net/conn_impl.h \
	src/net/conn_read.c \
	src/net/conn_tls.c \
	src/net/conn_write.c \
	src/net/line.c \
	src/net/line.h \
	src/net/listener.c \
	src/net/listener.h \
	src/net/logins.c \
	src/net/logins.h \
	src/net/loop_queue.c \
	src/net/loop_queue.h \
	src/net/password.c \
	src/net/password.h \
	src/net/patience.h \
	src/net/peer.c \
	src/net/peer.h \
	src/net/reply.c \
	src/net/reply.h \
	src/net/room.c \
	src/net/room.h \
	src/net/relay.c \
	src/net/relay.h \
	src/net/stray.c \
	src/net/stray.h \
	src/net/stream.c \
	src/net/stream.h \
	src/net/tls.h \
	src/net/tls_impl.h \
	src/net/version.c \
	src/net/version.h \
	src/net/worker.c \
	src/net/worker_line.c \
	src/net/worker.h
if WITH_OPENSSL
libunseen_a_SOURCES += \
	src/net/tls.c \
	src/net/tls_context.c
else
libunseen_a_SOURCES += src/net/without_tls.c
endif
