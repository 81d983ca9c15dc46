# gRPC
libunseen_a_SOURCES += \
	src/grpc/call.h \
	src/grpc/grpc.h \
	src/grpc/health.h \
	src/grpc/message.c \
	src/grpc/message.h \
	src/grpc/message_write.c \
	src/grpc/reflection.h \
	src/grpc/server.h \
	src/grpc/status.c \
	src/grpc/status.h \
	src/grpc/unary.c \
	src/grpc/unary.h
if WITH_NGHTTP2
libunseen_a_SOURCES += \
	src/grpc/call.c \
	src/grpc/call_begin.c \
	src/grpc/call_many.c \
	src/grpc/call_pools.c \
	src/grpc/call_run.c \
	src/grpc/conn.c \
	src/grpc/h2.c \
	src/grpc/h2_memory.c \
	src/grpc/health.c \
	src/grpc/reflection.c \
	src/grpc/server.c \
	src/grpc/services.c
else
libunseen_a_SOURCES += src/grpc/without_nghttp2.c
endif

# What clients are generated from.
unseenprotodir = $(datadir)/unseen/proto/unseen/v1
dist_unseenproto_DATA = proto/unseen/v1/unseen.proto

# The services of the port, for those who ask the server for them: compiled in.
grpc_protos = \
	proto/unseen/v1/unseen.proto \
	proto/grpc/health/v1/health.proto \
	proto/grpc/reflection/v1/reflection.proto \
	proto/grpc/reflection/v1alpha/reflection.proto
EXTRA_DIST += $(grpc_protos)
if WITH_NGHTTP2
BUILT_SOURCES += gen/descriptors.h
CLEANFILES += gen/descriptors.h gen/descriptors.bin

gen/descriptors.h: $(grpc_protos)
	$(AM_V_GEN)$(MKDIR_P) gen && \
	(cd $(srcdir) && $(PROTOC) -I proto --descriptor_set_out='$(abs_builddir)/gen/descriptors.bin' $(grpc_protos)) && \
	(echo 'static const unsigned char descriptors[] = {' && \
	    od -An -v -tx1 gen/descriptors.bin | $(SED) 's/\([0-9a-f][0-9a-f]\)/0x\1,/g' && echo '};') > $@.tmp && mv $@.tmp $@
src/grpc/reflection.$(OBJEXT): gen/descriptors.h
endif
