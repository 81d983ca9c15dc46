libunseen_a_SOURCES += \
	src/store/batch.c \
	src/store/ring.c \
	src/store/ring.h \
	src/store/store.h \
	src/store/sqlite/delivered.c \
	src/store/sqlite/delivered.h \
	src/store/sqlite/sqlite_store.h \
	src/store/sqlite/staged.c \
	src/store/sqlite/staged.h \
	src/store/sqlite/staged_impl.h \
	src/store/sqlite/staged_read.c
libunseen_a_SOURCES += src/store/sqlite/version.c
