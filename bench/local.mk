# benchmarks: make bench/micro etc.
