libunseen_a_SOURCES += \
	src/registry/agent.h \
	src/registry/consul.c \
	src/registry/consul.h \
	src/registry/lease.c \
	src/registry/lease.h \
	src/registry/lease_state.c \
	src/registry/lease_state.h \
	src/registry/lock.c \
	src/registry/lock.h \
	src/registry/lock_consul.c \
	src/registry/lock_etcd.c \
	src/registry/lock_json.c \
	src/registry/lock_json.h \
	src/registry/lock_kubernetes.c \
	src/registry/lock_place.c \
	src/registry/lock_place.h \
	src/registry/registry.c \
	src/registry/registry.h
if WITH_CURL
libunseen_a_SOURCES += src/registry/agent.c
else
libunseen_a_SOURCES += src/registry/without_curl.c
endif
