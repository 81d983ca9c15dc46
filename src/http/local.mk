# HTTP, on libmicrohttpd
libunseen_a_SOURCES += \
	src/http/auth.c \
	src/http/conn.c \
	src/http/handlers.h \
	src/http/health.c \
	src/http/http.h \
	src/http/json.c \
	src/http/json.h \
	src/http/metrics.c \
	src/http/metrics.h \
	src/http/metrics_gather.c \
	src/http/problem.c \
	src/http/request.c \
	src/http/routes.c \
	src/http/server.c \
	src/http/server.h \
	src/http/version.c \
	src/http/version.h
EXTRA_DIST += etc/alerts.yml etc/grafana-dashboard.json
