libunseen_a_SOURCES += \
	src/kafka/claim.c \
	src/kafka/client.h \
	src/kafka/consumer.h \
	src/kafka/dead_letters.c \
	src/kafka/dead_letters.h \
	src/kafka/dead_letters_file.c \
	src/kafka/dead_letters_impl.h \
	src/kafka/figures.c \
	src/kafka/group.c \
	src/kafka/intake.c \
	src/kafka/kafka.c \
	src/kafka/kafka.h \
	src/kafka/message.c \
	src/kafka/message.h \
	src/kafka/message_csv.c \
	src/kafka/message_impl.h \
	src/kafka/message_json.c \
	src/kafka/message_protobuf.c \
	src/kafka/partitions.c \
	src/kafka/show.c \
	src/kafka/show.h \
	src/kafka/start.c \
	src/kafka/start.h \
	src/kafka/version.c \
	src/kafka/version.h

# The module: alone with librdkafka, with nothing visible but what module.h names. Never with a sanitizer, as unseen.so.
if WITH_RDKAFKA
pkglib_exec_PROGRAMS += unseen_kafka.so
unseen_kafka_so_SOURCES = src/kafka/module/rdkafka.c src/base/clock.c
unseen_kafka_so_CFLAGS = $(EXTENSION_CFLAGS) $(RDKAFKA_CFLAGS) -fPIC -fvisibility=hidden
unseen_kafka_so_LDFLAGS = -shared -Wl,-z,defs
unseen_kafka_so_LDADD = $(RDKAFKA_LIBS)
endif
