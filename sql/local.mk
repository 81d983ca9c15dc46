# SQL stands in readable files and is compiled in.
SQL_FILES = sql/history.sql sql/month.sql sql/slot.sql sql/staging.sql sql/staging_2.sql sql/staging_3.sql sql/staging_4.sql sql/statements.sql
EXTRA_DIST += sql/embed.awk $(SQL_FILES)
BUILT_SOURCES += gen/sql.h
CLEANFILES += gen/sql.h

gen/sql.h: sql/embed.awk $(SQL_FILES)
	$(AM_V_GEN)$(MKDIR_P) gen && \
	$(AWK) -f $(srcdir)/sql/embed.awk $(addprefix $(srcdir)/,$(SQL_FILES)) > $@.tmp && mv $@.tmp $@

# Also for targets that BUILT_SOURCES doesn't reach, such as `make bench/micro`.
$(libunseen_a_OBJECTS): | gen/sql.h
