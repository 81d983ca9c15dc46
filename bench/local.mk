# benchmarks: make bench/micro etc.

# The filter's codec (beside its rival) and the probe.
EXTRA_PROGRAMS += bench/micro
bench_micro_SOURCES = bench/micro.c bench/rival_planes.c bench/rival_planes.h
bench_micro_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)

# A load generator for unseen and for Redis; bench/run starts both.
EXTRA_PROGRAMS += bench/load
bench_load_SOURCES = bench/load.c

# One question's latency over one connection; scripts/run shows it.
EXTRA_PROGRAMS += bench/ask
bench_ask_SOURCES = bench/ask.c
