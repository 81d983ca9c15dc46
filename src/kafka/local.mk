libunseen_a_SOURCES += \
	src/kafka/dead_letters.h \
	src/kafka/figures.c \
	src/kafka/kafka.h \
	src/kafka/message.h
