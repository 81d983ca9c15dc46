# benchmarks: make bench/micro etc.

# The filter's codec (beside its rival) and the probe.
EXTRA_PROGRAMS += bench/micro
bench_micro_SOURCES = bench/micro.c bench/rival_planes.c bench/rival_planes.h
bench_micro_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)

# The same work for Redis, and the floor; bench/compare runs it and `unseen bench`.
EXTRA_PROGRAMS += bench/redis_peer
bench_redis_peer_SOURCES = bench/redis_peer.c

EXTRA_DIST += bench/compare bench/run
