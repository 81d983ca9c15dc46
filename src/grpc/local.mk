# gRPC
libunseen_a_SOURCES += \
	src/grpc/message.h

# What clients are generated from.
unseenprotodir = $(datadir)/unseen/proto/unseen/v1
dist_unseenproto_DATA = proto/unseen/v1/unseen.proto
