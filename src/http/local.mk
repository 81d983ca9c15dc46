# HTTP
libunseen_a_SOURCES += \
	src/http/api_ask.c \
	src/http/api_batch.c \
	src/http/api_pools.c \
	src/http/api_store.c \
	src/http/api_timeline.c \
	src/http/api_write.c \
	src/http/batch.h \
	src/http/conn.c \
	src/http/handlers.h \
	src/http/health.c \
	src/http/host.c \
	src/http/http.h \
	src/http/json.c \
	src/http/json.h \
	src/http/metrics.c \
	src/http/metrics.h \
	src/http/metrics_gather.c \
	src/http/openapi.c \
	src/http/page.c \
	src/http/parser.c \
	src/http/parser.h \
	src/http/parser_library.h \
	src/http/problem.c \
	src/http/request.c \
	src/http/routes.c \
	src/http/server.c \
	src/http/server.h \
	src/http/status.c \
	src/http/submit.c \
	src/http/submit.h \
	src/http/spans.c \
	src/http/timeline.c \
	src/http/spans.h \
	src/http/timeline.h \
	src/http/version.c \
	src/http/version.h
EXTRA_DIST += etc/alerts.yml etc/grafana-dashboard.json

# Files that are served as they are, compiled in.
EXTRA_DIST += src/http/embed.awk etc/openapi.json docs/http.md etc/page.html
BUILT_SOURCES += gen/openapi.h gen/page.h
CLEANFILES += gen/openapi.h gen/page.h

gen/openapi.h: src/http/embed.awk etc/openapi.json
	$(AM_V_GEN)$(MKDIR_P) gen && \
	$(AWK) -v name=openapi -f $(srcdir)/src/http/embed.awk $(srcdir)/etc/openapi.json > $@.tmp && mv $@.tmp $@

gen/page.h: src/http/embed.awk etc/page.html
	$(AM_V_GEN)$(MKDIR_P) gen && \
	$(AWK) -v name=page -f $(srcdir)/src/http/embed.awk $(srcdir)/etc/page.html > $@.tmp && mv $@.tmp $@

$(libunseen_a_OBJECTS): | gen/openapi.h gen/page.h
