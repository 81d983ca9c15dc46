# What `make install` puts beside the programs. The packages take whatever it installs, so nothing is listed twice.

# The configuration is the sample, in which every option stands with its default, but for the Unix socket: an
# administrator gets in there when max_clients are connected. One that is there already stays.
EXTRA_DIST += etc/unseen.conf
noinst_DATA = packaging/unseen.conf
CLEANFILES += packaging/unseen.conf
packaging/unseen.conf: etc/unseen.conf Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && \
	$(SED) -e 's|^#unix_socket =$$|unix_socket = /run/unseen/unseen.sock|' \
	    -e 's|^#unix_socket_mode =.*|unix_socket_mode = 0660|' '$(srcdir)/etc/unseen.conf' > $@.tmp && mv $@.tmp $@

install-data-local: packaging/unseen.conf
	$(MKDIR_P) '$(DESTDIR)$(sysconfdir)/unseen'
	test -e '$(DESTDIR)$(sysconfdir)/unseen/unseen.conf' || \
	    $(INSTALL_DATA) packaging/unseen.conf '$(DESTDIR)$(sysconfdir)/unseen/unseen.conf'

# One that was changed is its owner's, and stays too.
uninstall-local: packaging/unseen.conf
	! cmp -s packaging/unseen.conf '$(DESTDIR)$(sysconfdir)/unseen/unseen.conf' || \
	    rm -f '$(DESTDIR)$(sysconfdir)/unseen/unseen.conf'
	rmdir '$(DESTDIR)$(sysconfdir)/unseen' 2>/dev/null || :

# A trial installation stays out of /etc.
AM_DISTCHECK_CONFIGURE_FLAGS = --sysconfdir='$${datarootdir}/etc'

sysusersdir = $(prefix)/lib/sysusers.d
tmpfilesdir = $(prefix)/lib/tmpfiles.d
dist_sysusers_DATA = packaging/systemd/sysusers.d/unseen.conf
nodist_tmpfiles_DATA = packaging/systemd/tmpfiles.d/unseen.conf
nodist_systemdsystemunit_DATA = packaging/systemd/unseen.service
EXTRA_DIST += packaging/systemd/unseen.service.in packaging/systemd/tmpfiles.d/unseen.conf.in
CLEANFILES += $(nodist_systemdsystemunit_DATA) $(nodist_tmpfiles_DATA)

$(nodist_systemdsystemunit_DATA) $(nodist_tmpfiles_DATA): Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && \
	$(SED) -e 's|@bindir[@]|$(bindir)|g' -e 's|@sysconfdir[@]|$(sysconfdir)|g' -e 's|@docdir[@]|$(docdir)|g' \
	    '$(srcdir)/$@.in' > $@.tmp && mv $@.tmp $@
packaging/systemd/unseen.service: packaging/systemd/unseen.service.in
packaging/systemd/tmpfiles.d/unseen.conf: packaging/systemd/tmpfiles.d/unseen.conf.in

# The links between the documents are relative, so the folders are kept.
docsdir = $(docdir)/docs
dist_doc_DATA = README.md CONTRIBUTING.md HACKING.md NEWS.md SECURITY.md llms.txt
dist_docs_DATA = \
	docs/architecture.md \
	docs/backup.md \
	docs/clients.md \
	docs/commands.md \
	docs/comparison.md \
	docs/configuration.md \
	docs/format.md \
	docs/front.md \
	docs/grpc.md \
	docs/http.md \
	docs/inspect.md \
	docs/install.md \
	docs/kafka.md \
	docs/limits.md \
	docs/migrate.md \
	docs/monitoring.md \
	docs/move.md \
	docs/operations.md \
	docs/page.png \
	docs/performance.md \
	docs/pilot.md \
	docs/policies.md \
	docs/rados.md \
	docs/registries.md \
	docs/replicas.md \
	docs/runbook.md \
	docs/scale.md \
	docs/security.md \
	docs/sharding.md \
	docs/sizing.md \
	docs/store.md \
	docs/troubleshooting.md \
	docs/users-rights.md

# Programs that docs/clients.md links to.
nobase_dist_doc_DATA = \
	tests/integration/c/loop.c \
	tests/integration/go-redis/gohash/main.go \
	tests/integration/go-redis/goredis/main.go \
	tests/integration/go/example/main.go \
	tests/integration/java/dubbo/src/main/java/Example.java \
	tests/integration/java/grpc/src/main/java/Example.java \
	tests/integration/java/redis/src/main/java/HashExample.java \
	tests/integration/java/redis/src/main/java/JedisExample.java \
	tests/integration/java/redis/src/main/java/LettuceExample.java \
	tests/integration/java/redis/src/main/java/SpringExample.java \
	tests/integration/node/example.mjs \
	tests/integration/node/ioredis.mjs \
	tests/integration/php/predis.php \
	tests/integration/python/loop_asyncio.py

examplesdir = $(docdir)/examples
dist_examples_DATA = \
	etc/alerts.yml \
	etc/consul-unseen.json \
	etc/grafana-dashboard.json \
	etc/haproxy-unseen.cfg \
	etc/kubernetes.yaml \
	etc/openapi.json

# It asks the program itself for subcommands and options.
bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = packaging/bash-completion/unseen

# The recipes themselves, so that the tarball can be packaged on any system.
EXTRA_DIST += packaging/debian packaging/rpm packaging/container scripts/package scripts/packages.bash scripts/release
