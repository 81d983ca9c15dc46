libunseen_a_SOURCES += \
	src/store/batch.c \
	src/store/store.h \
	src/store/sqlite/sqlite_store.h
