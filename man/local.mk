# Manual pages, made of what is written elsewhere: the help texts in src/cli, the sample configuration, docs/. What only
# a page says is in the .md file of its name, and common.md has what pages of subcommands share.
subcommand_pages = \
	man/unseen-account.1 \
	man/unseen-archive.1 \
	man/unseen-backup.1 \
	man/unseen-bench.1 \
	man/unseen-check-config.1 \
	man/unseen-check.1 \
	man/unseen-clock.1 \
	man/unseen-clone.1 \
	man/unseen-demo.1 \
	man/unseen-doctor.1 \
	man/unseen-export.1 \
	man/unseen-front.1 \
	man/unseen-import.1 \
	man/unseen-kafka.1 \
	man/unseen-load.1 \
	man/unseen-merge.1 \
	man/unseen-migrate.1 \
	man/unseen-months.1 \
	man/unseen-ping.1 \
	man/unseen-policy.1 \
	man/unseen-pool.1 \
	man/unseen-promote.1 \
	man/unseen-rados.1 \
	man/unseen-rejoin.1 \
	man/unseen-replica.1 \
	man/unseen-restore.1 \
	man/unseen-serve.1 \
	man/unseen-size.1 \
	man/unseen-user.1 \
	man/unseen-why.1

nodist_man_MANS = $(subcommand_pages) man/unseen.1 man/unseen.conf.5 man/unseen-commands.7
CLEANFILES += $(nodist_man_MANS)
EXTRA_DIST += $(page_sources) man/help.awk man/options.awk man/overview.awk man/unseen.md man/unseen.conf.md \
	man/unseen-commands.md
page_sources = $(subcommand_pages:.1=.md) man/common.md man/page.awk man/subcommand.md

# make_page NAME SECTION FILE ...: of Markdown. The date is today, or the one that a package's build asks for.
make_page = \
	make_page() { \
		page=$$1 section=$$2; shift 2; \
		$(AWK) -v name=$$page -v section=$$section -v version='$(VERSION)' -v sysconfdir='$(sysconfdir)' -v docdir='$(docdir)' \
		    -v date=`date -u -d "@$${SOURCE_DATE_EPOCH:-\`date +%s\`}" +%Y-%m-%d` -f $(srcdir)/man/page.awk "$$@" \
		    > man/$$page.$$section.tmp && mv man/$$page.$$section.tmp man/$$page.$$section; \
	}; $(MKDIR_P) man

# They name folders and the version.
$(nodist_man_MANS): Makefile

$(subcommand_pages): $(page_sources) man/help.awk src/main.c $(libunseen_a_SOURCES)
	$(AM_V_GEN)$(make_page) && name=`basename $@ .1 | $(SED) 's/^unseen-//'` && \
	$(AWK) -v name=$$name -f $(srcdir)/man/help.awk $(srcdir)/src/main.c \
	    $(srcdir)/src/cli/*/`echo $$name | tr - _`.c > $@.md && \
	make_page unseen-$$name 1 $@.md $(srcdir)/man/unseen-$$name.md $(srcdir)/man/subcommand.md \
	    $(srcdir)/man/common.md && rm -f $@.md

man/unseen.1: man/overview.awk man/page.awk man/unseen.md man/common.md src/main.c src/cli/lib/help.c
	$(AM_V_GEN)$(make_page) && \
	$(AWK) -f $(srcdir)/man/overview.awk $(srcdir)/src/main.c $(srcdir)/src/cli/lib/help.c > $@.md && \
	make_page unseen 1 $(srcdir)/man/unseen.md $@.md $(srcdir)/man/common.md && rm -f $@.md

man/unseen.conf.5: man/options.awk man/page.awk man/unseen.conf.md etc/unseen.conf
	$(AM_V_GEN)$(make_page) && \
	$(AWK) -f $(srcdir)/man/options.awk $(srcdir)/etc/unseen.conf > $@.md && \
	make_page unseen.conf 5 $(srcdir)/man/unseen.conf.md $@.md && rm -f $@.md

man/unseen-commands.7: man/page.awk man/unseen-commands.md docs/commands.md docs/http.md
	$(AM_V_GEN)$(make_page) && \
	make_page unseen-commands 7 $(srcdir)/man/unseen-commands.md $(srcdir)/docs/commands.md $(srcdir)/docs/http.md
