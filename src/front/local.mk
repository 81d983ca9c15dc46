# a Redis as an optional second tier
libunseen_a_SOURCES += \
	src/front/front.h \
	src/front/layout.c \
	src/front/layout.h \
	src/front/link.c \
	src/front/link.h \
	src/front/scripts.c \
	src/front/scripts.h \
	src/front/user_question.c \
	src/front/user_question.h
