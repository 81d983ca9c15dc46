# the request layer: the rules of every operation, for all edges
libunseen_a_SOURCES += \
	src/service/account.c \
	src/service/account.h \
	src/service/account_file.c \
	src/service/account_file.h \
	src/service/account_impl.h \
	src/service/account_memo.c \
	src/service/account_memo.h \
	src/service/authorization.c \
	src/service/login.c \
	src/service/login.h \
	src/service/login_thread.c \
	src/service/ask.c \
	src/service/ask_hedge.c \
	src/service/check.c \
	src/service/forget.c \
	src/service/impl.h \
	src/service/health.c \
	src/service/health.h \
	src/service/hedge.c \
	src/service/hedge.h \
	src/service/meter.c \
	src/service/meter.h \
	src/service/offload.c \
	src/service/offload.h \
	src/service/question.h \
	src/service/recorder.c \
	src/service/recorder.h \
	src/service/refusal.c \
	src/service/refusal.h \
	src/service/request.c \
	src/service/request.h \
	src/service/service.c \
	src/service/service.h \
	src/service/slowlog.c \
	src/service/slowlog.h
