# a Redis as an optional second tier
libunseen_a_SOURCES += \
	src/front/begin.c \
	src/front/figures.c \
	src/front/front.c \
	src/front/front.h \
	src/front/front_impl.h \
	src/front/layout.c \
	src/front/layout.h \
	src/front/layout_read.c \
	src/front/link.c \
	src/front/link.h \
	src/front/reader_figures.c \
	src/front/reader_impl.h \
	src/front/reader_store.c \
	src/front/reader_store.h \
	src/front/reader_threads.c \
	src/front/reconcile.c \
	src/front/scripts.c \
	src/front/scripts.h \
	src/front/states.c \
	src/front/tier.c \
	src/front/user_question.c \
	src/front/user_question.h \
	src/front/writer.c
