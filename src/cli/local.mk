# the subcommands
libunseen_a_SOURCES += \
	src/cli/backup.c \
	src/cli/check.c \
	src/cli/check_config.c \
	src/cli/cli.h \
	src/cli/client.c \
	src/cli/client.h \
	src/cli/clock.c \
	src/cli/export.c \
	src/cli/export_file.c \
	src/cli/export_file.h \
	src/cli/help.c \
	src/cli/load.c \
	src/cli/load_target.c \
	src/cli/load_target.h \
	src/cli/migrate.c \
	src/cli/migrate.h \
	src/cli/migrate_keys.c \
	src/cli/migrate_status.c \
	src/cli/migrate_verify.c \
	src/cli/months.c \
	src/cli/options.c \
	src/cli/options.h \
	src/cli/output.c \
	src/cli/output.h \
	src/cli/ping.c \
	src/cli/reply.c \
	src/cli/reply.h \
	src/cli/serve.c \
	src/cli/serve_backup.c \
	src/cli/serve_backup.h \
	src/cli/serve_config.c \
	src/cli/serve_config.h \
	src/cli/serve_watch.c \
	src/cli/serve_watch.h \
	src/cli/source.c \
	src/cli/source.h \
	src/cli/source_remote.c \
	src/cli/user.c \
	src/cli/version.c \
	src/cli/versions.h \
	src/cli/why.c

libunseen_a_SOURCES += \
	src/cli/distinct.c \
	src/cli/distinct.h \
	src/cli/import.c \
	src/cli/import_csv.c \
	src/cli/import_csv.h \
	src/cli/import_input.c \
	src/cli/import_input.h \
	src/cli/import_json.c \
	src/cli/import_json.h \
	src/cli/import_reader.c \
	src/cli/import_reader.h \
	src/cli/import_remote.c \
	src/cli/import_remote.h \
	src/cli/import_tally.c \
	src/cli/import_tally.h \
	src/cli/progress.c \
	src/cli/progress.h

libunseen_a_SOURCES += \
	src/cli/bench.c \
	src/cli/bench_engine.c \
	src/cli/bench_engine.h \
	src/cli/bench_ids.c \
	src/cli/bench_ids.h \
	src/cli/bench_report.c \
	src/cli/bench_report.h \
	src/cli/bench_scan.c \
	src/cli/bench_scan.h \
	src/cli/bench_work.c \
	src/cli/bench_work.h \
	src/cli/random.h \
	src/cli/zipf.c \
	src/cli/zipf.h
