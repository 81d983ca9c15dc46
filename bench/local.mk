# benchmarks: make bench/micro etc.

# The filter's codec (beside its rival) and the probe.
EXTRA_PROGRAMS += bench/micro
bench_micro_SOURCES = bench/micro.c bench/rival_planes.c bench/rival_planes.h

# Reading messages of Kafka.
EXTRA_PROGRAMS += bench/message

# The same work for Redis, and the floor; bench/compare runs it and `unseen bench`.
EXTRA_PROGRAMS += bench/redis_peer

EXTRA_DIST += bench/NOTES.md bench/compare bench/import bench/run

# The share of never-played candidates that is hidden; bytes a play on disk.
EXTRA_PROGRAMS += bench/error bench/size

# A folder with many users, for bench/backup, bench/flush, bench/growth and bench/fleet (docs/scale.md).
EXTRA_PROGRAMS += bench/fill
EXTRA_DIST += bench/archive bench/attack bench/backup bench/cold bench/slow_disk.c bench/flush bench/fleet bench/giant bench/growth bench/layouts bench/served.py

# Scroll sessions, beside CRoaring and Redis.
if WITH_ROARING
EXTRA_PROGRAMS += bench/session_sets
bench_session_sets_LDADD = $(LDADD) -lroaring
else
bench/session_sets:
	@echo "$@ needs CRoaring, which configure did not find: install libroaring-dev and run configure again" >&2; exit 1
endif
EXTRA_DIST += bench/sessions bench/migrate bench/export bench/read_through bench/replica bench/failover bench/front

# A server of grpc++ that does nothing but answer, for bench/grpc. Nothing else here is C++: made when it is asked for.
bench/grpc_peer: $(top_srcdir)/bench/grpc_peer.cc $(top_srcdir)/proto/unseen/v1/unseen.proto
	@pkg-config --exists grpc++ protobuf || { echo "$@ needs libgrpc++-dev and libprotobuf-dev" >&2; exit 1; }
	@$(MKDIR_P) bench/grpc_peer.gen
	protoc -I $(top_srcdir)/proto --cpp_out=bench/grpc_peer.gen --grpc_out=bench/grpc_peer.gen \
		--plugin=protoc-gen-grpc="$$(command -v grpc_cpp_plugin)" unseen/v1/unseen.proto
	c++ -O2 -std=c++17 -Ibench/grpc_peer.gen $$(pkg-config --cflags grpc++ protobuf) -o $@ \
		$(top_srcdir)/bench/grpc_peer.cc bench/grpc_peer.gen/unseen/v1/*.cc $$(pkg-config --libs grpc++ protobuf)
EXTRA_DIST += bench/batch bench/limited bench/grpc bench/grpc_peer.cc bench/grpc_wire.py

# Fills a topic of Kafka and reads it back, for bench/kafka. The only program beside the module that needs librdkafka:
# made when it is asked for.
bench/kafka_peer: $(top_srcdir)/bench/kafka_peer.c libunseen.a
	@pkg-config --exists rdkafka || { echo "$@ needs librdkafka-dev" >&2; exit 1; }
	@$(MKDIR_P) bench
	$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) $$(pkg-config --cflags rdkafka) \
		-o $@ $(top_srcdir)/bench/kafka_peer.c $(unseen_LDADD) $$(pkg-config --libs rdkafka)
EXTRA_DIST += bench/kafka bench/kafka_peer.c

# Reads the keys of an object of Ceph, for bench/rados: made when it is asked for, as it alone needs librados.
bench/rados_peer: $(top_srcdir)/bench/rados_peer.c
	@$(MKDIR_P) bench
	$(CC) $(AM_CPPFLAGS) $(CPPFLAGS) $(UNSEEN_CFLAGS) $(CFLAGS) -o $@ $(top_srcdir)/bench/rados_peer.c -lrados
EXTRA_DIST += bench/rados bench/rados_peer.c

# All of them; scripts/test builds them, so that none is left behind by a change.
.PHONY: benches
benches: $(EXTRA_PROGRAMS)
