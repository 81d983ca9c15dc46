# a second machine
libunseen_a_SOURCES += \
	src/replica/ack.c \
	src/replica/ack.h \
	src/replica/event.c \
	src/replica/event.h \
	src/replica/feeder.h \
	src/replica/follower.h \
	src/replica/replica.h
