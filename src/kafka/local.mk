libunseen_a_SOURCES += \
	src/kafka/dead_letters.h \
	src/kafka/kafka.h \
	src/kafka/message.c \
	src/kafka/message.h \
	src/kafka/message_csv.c \
	src/kafka/message_impl.h \
	src/kafka/message_json.c \
	src/kafka/message_protobuf.c
