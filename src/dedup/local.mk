libunseen_a_SOURCES += \
	src/dedup/answers.c \
	src/dedup/asker.c \
	src/dedup/asker_impl.h \
	src/dedup/dedup.c \
	src/dedup/dedup.h \
	src/dedup/role.c \
	src/dedup/role.h \
	src/dedup/session_ids.c \
	src/dedup/session_ids.h \
	src/dedup/session_set.c \
	src/dedup/session_set.h \
	src/dedup/session_shard.c \
	src/dedup/session_shard.h \
	src/dedup/sessions.c \
	src/dedup/sessions.h \
	src/dedup/tier.c \
	src/dedup/tier.h \
	src/dedup/tier_pool.c \
	src/dedup/tier_pool.h \
	src/dedup/view_probe.c \
	src/dedup/view_probe.h
