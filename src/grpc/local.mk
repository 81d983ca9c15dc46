# gRPC
libunseen_a_SOURCES += \
	src/grpc/message.c \
	src/grpc/message.h \
	src/grpc/wire.c \
	src/grpc/wire.h

# What clients are generated from.
unseenprotodir = $(datadir)/unseen/proto/unseen/v1
dist_unseenproto_DATA = proto/unseen/v1/unseen.proto
