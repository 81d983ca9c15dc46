# The extension for the sqlite3 shell: one object, compiled from the program's own sources, with nothing visible but
# sqlite3_unseen_init(). Never with a sanitizer, since the plain sqlite3 must load it; tests/unit/test_extension is.
extension_sources = \
	src/extension/delivered_table.c \
	src/extension/extension.h \
	src/extension/functions.c \
	src/extension/seed.c

pkglib_exec_PROGRAMS += unseen.so
unseen_so_SOURCES = $(extension_sources) \
	src/base/arena.c \
	src/base/buf.c \
	src/base/err.c \
	src/base/hash.c \
	src/base/slice.c \
	src/filter/codec.c \
	src/filter/codec_short.c \
	src/filter/filter.c \
	src/store/user/deliveries_pack.c
unseen_so_CFLAGS = $(EXTENSION_CFLAGS) $(SQLITE_CFLAGS) $(XXHASH_CFLAGS) $(ZSTD_CFLAGS) -fPIC -fvisibility=hidden
unseen_so_LDFLAGS = -shared -Wl,-z,defs
unseen_so_LDADD = $(ZSTD_LIBS)
EXTRA_DIST += docs/inspect.md
