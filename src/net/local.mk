# the loops and connections
libunseen_a_SOURCES += \
	src/net/address.c \
	src/net/address.h \
	src/net/aside.c \
	src/net/aside.h \
	src/net/budget.h \
	src/net/conn.c \
	src/net/conn.h \
	src/net/conn_impl.h \
	src/net/conn_read.c \
	src/net/conn_write.c \
	src/net/health.c \
	src/net/health.h \
	src/net/listener.c \
	src/net/listener.h \
	src/net/logins.c \
	src/net/logins.h \
	src/net/mailbox.c \
	src/net/mailbox.h \
	src/net/meter.c \
	src/net/meter.h \
	src/net/password.c \
	src/net/password.h \
	src/net/peer.c \
	src/net/peer.h \
	src/net/room.c \
	src/net/room.h \
	src/net/slowlog.c \
	src/net/slowlog.h \
	src/net/recorder.c \
	src/net/recorder.h \
	src/net/tour.c \
	src/net/tour.h \
	src/net/version.c \
	src/net/version.h \
	src/net/worker.c \
	src/net/worker.h
