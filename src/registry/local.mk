libunseen_a_SOURCES += \
	src/registry/agent.h \
	src/registry/consul.c \
	src/registry/consul.h \
	src/registry/registry.c \
	src/registry/registry.h
if WITH_CURL
libunseen_a_SOURCES += src/registry/agent.c
else
libunseen_a_SOURCES += src/registry/without_curl.c
endif
