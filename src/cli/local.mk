# the subcommands
libunseen_a_SOURCES += \
	src/cli/account/account.c \
	src/cli/account/account_edit.c \
	src/cli/account/account_edit.h \
	src/cli/account/password_input.c \
	src/cli/account/password_input.h \
	src/cli/inspect/backup.c \
	src/cli/inspect/check.c \
	src/cli/serve/check_config.c \
	src/cli/cli.h \
	src/cli/inspect/clock.c \
	src/cli/transfer/export.c \
	src/cli/transfer/export_file.c \
	src/cli/transfer/export_file.h \
	src/cli/kafka/kafka.c \
	src/cli/front/front.c \
	src/cli/front/front_pass.c \
	src/cli/front/front_pass.h \
	src/cli/lib/help.c \
	src/cli/transfer/load.c \
	src/cli/transfer/load_target.c \
	src/cli/transfer/load_target.h \
	src/cli/transfer/pool.c \
	src/cli/migrate/migrate.c \
	src/cli/migrate/migrate.h \
	src/cli/migrate/migrate_keys.c \
	src/cli/migrate/migrate_status.c \
	src/cli/migrate/migrate_verify.c \
	src/cli/inspect/months.c \
	src/cli/lib/options.c \
	src/cli/lib/options.h \
	src/cli/lib/output.c \
	src/cli/lib/output.h \
	src/cli/inspect/ping.c \
	src/cli/rados/pool_advice.c \
	src/cli/rados/pool_facts.c \
	src/cli/rados/pool_facts.h \
	src/cli/rados/rados.c \
	src/cli/replica/promote.c \
	src/cli/serve/serve.c \
	src/cli/serve/serve_backup.c \
	src/cli/serve/serve_backup.h \
	src/cli/serve/serve_config.c \
	src/cli/serve/serve_config.h \
	src/cli/serve/serve_front.c \
	src/cli/serve/serve_front.h \
	src/cli/serve/serve_rados.c \
	src/cli/serve/serve_rados.h \
	src/cli/serve/serve_lease.c \
	src/cli/serve/serve_lease.h \
	src/cli/serve/serve_watch.c \
	src/cli/serve/serve_watch.h \
	src/cli/lib/server.c \
	src/cli/lib/server.h \
	src/cli/lib/source.c \
	src/cli/lib/source.h \
	src/cli/lib/source_remote.c \
	src/cli/inspect/user.c \
	src/cli/lib/version.c \
	src/cli/lib/versions.h \
	src/cli/inspect/why.c

libunseen_a_SOURCES += \
	src/cli/import/distinct.c \
	src/cli/import/distinct.h \
	src/cli/import/follow.c \
	src/cli/import/follow.h \
	src/cli/import/follow_file.c \
	src/cli/import/follow_file.h \
	src/cli/import/import.c \
	src/cli/import/import_impl.h \
	src/cli/import/import_input.c \
	src/cli/import/import_input.h \
	src/cli/import/import_json.c \
	src/cli/import/import_json.h \
	src/cli/import/import_letters.c \
	src/cli/import/import_letters.h \
	src/cli/import/import_reader.c \
	src/cli/import/import_reader.h \
	src/cli/import/import_remote.c \
	src/cli/import/import_remote.h \
	src/cli/import/import_tally.c \
	src/cli/import/import_tally.h \
	src/cli/import/letters.c \
	src/cli/import/letters.h \
	src/cli/lib/progress.c \
	src/cli/lib/progress.h

libunseen_a_SOURCES += \
	src/cli/bench/bench.c \
	src/cli/bench/bench_conn.c \
	src/cli/bench/bench_conn.h \
	src/cli/bench/bench_engine.c \
	src/cli/bench/bench_engine.h \
	src/cli/bench/bench_ids.c \
	src/cli/bench/bench_ids.h \
	src/cli/bench/bench_report.c \
	src/cli/bench/bench_report.h \
	src/cli/bench/bench_scan.c \
	src/cli/bench/bench_scan.h \
	src/cli/bench/bench_work.c \
	src/cli/bench/bench_work.h \
	src/cli/lib/random.h \
	src/cli/bench/zipf.c \
	src/cli/bench/zipf.h

libunseen_a_SOURCES += \
	src/cli/replica/clone.c \
	src/cli/replica/clone_copy.c \
	src/cli/replica/clone_copy.h \
	src/cli/replica/mend.c \
	src/cli/replica/mend.h \
	src/cli/replica/clone_folder.c \
	src/cli/replica/clone_folder.h \
	src/cli/replica/other_node.c \
	src/cli/replica/other_node.h \
	src/cli/replica/rejoin.c \
	src/cli/replica/rejoin_forgets.c \
	src/cli/replica/rejoin_impl.h \
	src/cli/replica/rejoin_theirs.c \
	src/cli/replica/rejoin_users.c \
	src/cli/replica/replica.c \
	src/cli/replica/replica.h \
	src/cli/replica/replica_status.c \
	src/cli/replica/replica_verify.c \
	src/cli/replica/store_wait.c \
	src/cli/replica/store_wait.h
