# a second machine
libunseen_a_SOURCES += \
	src/replica/absent.c \
	src/replica/ack.h \
	src/replica/change.c \
	src/replica/change.h \
	src/replica/change_impl.h \
	src/replica/event.h \
	src/replica/feeder.h \
	src/replica/follower.h \
	src/replica/merge.c \
	src/replica/replica.h
