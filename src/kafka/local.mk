libunseen_a_SOURCES += \
	src/kafka/dead_letters.c \
	src/kafka/dead_letters.h \
	src/kafka/dead_letters_file.c \
	src/kafka/dead_letters_impl.h \
	src/kafka/figures.c \
	src/kafka/kafka.h \
	src/kafka/message.c \
	src/kafka/message.h \
	src/kafka/message_csv.c \
	src/kafka/message_impl.h \
	src/kafka/message_json.c \
	src/kafka/message_protobuf.c
