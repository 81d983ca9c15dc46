# what was recorded, kept elsewhere: objects in a folder or a bucket, written once
libunseen_a_SOURCES += \
	src/archive/archive.c \
	src/archive/archive.h \
	src/archive/archive_impl.h \
	src/archive/begin.c \
	src/archive/catalog.c \
	src/archive/catalog.h \
	src/archive/cipher.h \
	src/archive/depot.c \
	src/archive/depot.h \
	src/archive/depot_file.c \
	src/archive/figures.c \
	src/archive/keys.c \
	src/archive/moment.c \
	src/archive/moment.h \
	src/archive/object.c \
	src/archive/object.h \
	src/archive/resume.c \
	src/archive/round.c \
	src/archive/round_end.c \
	src/archive/round_end.h \
	src/archive/segment.c \
	src/archive/sigv4.c \
	src/archive/sigv4.h \
	src/archive/sweep.c
if WITH_CURL
libunseen_a_SOURCES += src/archive/depot_s3.c
else
libunseen_a_SOURCES += src/archive/without_curl.c
endif
if WITH_OPENSSL
libunseen_a_SOURCES += src/archive/cipher.c
else
libunseen_a_SOURCES += src/archive/without_cipher.c
endif
