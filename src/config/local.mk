libunseen_a_SOURCES += \
	src/config/address.c \
	src/config/archive.c \
	src/config/archive.h \
	src/config/backup_at.c \
	src/config/backup_root.c \
	src/config/config.c \
	src/config/config.h \
	src/config/environment.c \
	src/config/kafka.c \
	src/config/kafka.h \
	src/config/live.c \
	src/config/lock.c \
	src/config/lock.h \
	src/config/options.c \
	src/config/options_archive.inc \
	src/config/options_edges.inc \
	src/config/options_front.inc \
	src/config/options_kafka.inc \
	src/config/options_legacy.inc \
	src/config/options_lock.inc \
	src/config/options_rados.inc \
	src/config/options_registry.inc \
	src/config/options_replica.inc \
	src/config/passwords.c \
	src/config/policy.c \
	src/config/policy.h \
	src/config/redis_at.c \
	src/config/redis_at.h \
	src/config/registry.c \
	src/config/registry.h \
	src/config/replica.c \
	src/config/replica.h \
	src/config/sample.c \
	src/config/value.c

EXTRA_DIST += etc/unseen.conf
