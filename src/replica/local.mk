# a second machine
libunseen_a_SOURCES += \
	src/replica/ack.c \
	src/replica/ack.h \
	src/replica/adopt.c \
	src/replica/adopt.h \
	src/replica/change.c \
	src/replica/change.h \
	src/replica/change_impl.h \
	src/replica/clone_mark.c \
	src/replica/clone_mark.h \
	src/replica/cursor.c \
	src/replica/cursor.h \
	src/replica/event.c \
	src/replica/event.h \
	src/replica/feeder.c \
	src/replica/feeder.h \
	src/replica/feeder_sent.c \
	src/replica/feeder_sent.h \
	src/replica/follower.c \
	src/replica/figures.c \
	src/replica/figures.h \
	src/replica/follower.h \
	src/replica/follower_apply.c \
	src/replica/follower_impl.h \
	src/replica/follower_link.c \
	src/replica/follower_pools.c \
	src/replica/merge.c \
	src/replica/step_down.c \
	src/replica/pages.c \
	src/replica/pages.h \
	src/replica/replica.c \
	src/replica/replica.h \
	src/replica/second.c \
	src/replica/second.h \
	src/replica/siblings.c \
	src/replica/siblings.h
