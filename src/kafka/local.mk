libunseen_a_SOURCES += \
	src/kafka/dead_letters.h \
	src/kafka/kafka.h \
	src/kafka/message.h
