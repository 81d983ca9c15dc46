#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/lib/server.h"
#include "kafka/version.h"
#include "net/listener.h"
#include "net/tls.h"
#include "store/factory.h"

enum { EXPIRES_SOON_DAYS = 14, DAY_S = 24 * 3600 };

bool doctor_info(const struct doctor *d, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    if (d->info.len == 0) {
        return false;
    }
    const char *end = d->info.data + d->info.len;
    for (const char *line = d->info.data, *next; line != NULL && line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop != NULL ? stop + 1 : end;
        if ((size_t)(next - line) > len && memcmp(line, name, len) == 0 && line[len] == ':') {
            size_t n = strcspn(line + len + 1, "\r\n"); /* the text is ended by NUL: ask_info() */
            snprintf(out, size, "%.*s", (int)n, line + len + 1);
            return true;
        }
    }
    return false;
}

static bool info_says(const struct doctor *d, const char *name, const char *value)
{
    char text[64];
    return doctor_info(d, name, text, sizeof text) && strcmp(text, value) == 0;
}

static bool info_counts(const struct doctor *d, const char *name)
{
    char text[64];
    return doctor_info(d, name, text, sizeof text) && strtoull(text, NULL, 10) > 0;
}

static int ask_info(struct doctor *d, struct err *err)
{
    const struct slice words[] = {slice_str("INFO")};
    const struct reply *reply;
    int rc = client_call(d->client, words, 1, &reply, err);
    if (rc == 0 && reply->kind != REPLY_TEXT) {
        return server_something_else(client_address(d->client), "INFO", "a text", err);
    }
    rc = rc < 0 ? rc : buf_add(&d->info, reply->text.data, reply->text.len);
    return rc < 0 || buf_add(&d->info, "", 1) == 0 ? rc : err_set(err, ERR_NOMEM, "out of memory");
}

static void find_troubles(struct doctor *d)
{
    char cause[FINDING_ADVICE], version[32];
    const char *address = client_address(d->client);
    int before = d->n;
    if (info_says(d, "loading", "1")) {
        doctor_finds(d, FINDING_NOTE, "server", NULL, "%s still reads what was staged", address);
    }
    if (doctor_info(d, "writes_refused_cause", cause, sizeof cause) && cause[0] != '\0') {
        doctor_finds(d, FINDING_WRONG, "server", "see its log", "%s takes no plays: %s", address, cause);
    }
    if (doctor_info(d, "aof_last_write_status", cause, sizeof cause) && strcmp(cause, "ok") != 0) {
        doctor_finds(d, FINDING_WRONG, "server", "see its log and the disk's",
                     "the last write to the disk of %s failed", address);
    }
    if (info_counts(d, "quarantined") || info_counts(d, "damaged_answers")) {
        doctor_finds(d, FINDING_WARNING, "server", "unseen check lists it, and can repair", "%s has met damaged data",
                     address);
    }
    if (doctor_info(d, "unseen_version", version, sizeof version) && strcmp(version, UNSEEN_VERSION) != 0) {
        doctor_finds(d, FINDING_WARNING, "server", "restart the service", "%s runs version %s, this program is %s",
                     address, version, UNSEEN_VERSION);
    }
    if (d->n == before) {
        doctor_finds(d, FINDING_GOOD, "server", NULL, "%s answers", address);
    }
}

void doctor_server(struct doctor *d)
{
    struct err err;
    char address[CONFIG_TEXT + 16] = "";
    /* That no file says who serves the folder is no error: the folder has no server, or is none yet. */
    if (server_address_of(d->cfg, address, sizeof address, &err) < 0 || address[0] == '\0') {
        doctor_finds(d, FINDING_NOTE, "server", NULL, "none has the folder %s", d->cfg->data);
        return;
    }
    int rc = server_connect(d->cfg, address, &d->client, &err);
    d->served = rc == 0 || rc == ERR_LOADING || d->cfg->store == STORE_ENGINE_SQLITE;
    rc = rc < 0 ? rc : ask_info(d, &err);
    if (rc == 0) {
        find_troubles(d);
    } else if (rc == ERR_LOADING || rc == ERR_INVALID) { /* it is there, and refuses: a password is missing, or wrong */
        doctor_finds(d, FINDING_NOTE, "server", rc == ERR_LOADING ? NULL : "set UNSEEN_USER and UNSEEN_PASSWORD",
                     "can't be asked: %s", err.text);
    } else if (d->served) {
        doctor_finds(d, FINDING_WRONG, "server", "see its log", "%s", err.text);
    } else {
        doctor_finds(d, FINDING_NOTE, "server", NULL, "no node answers: %s", err.text);
    }
    if (rc < 0) {
        client_close(d->client);
        d->client = NULL;
    }
}

void doctor_ports(struct doctor *d)
{
    static const struct {
        const char *option;
        size_t offset;
    } lists[] = {{"listen", offsetof(struct config, listen)},
                 {"http", offsetof(struct config, http)},
                 {"grpc", offsetof(struct config, grpc)}};
    struct listeners all = {0};
    struct err err;
    int before = d->n;
    if (d->served) {
        return; /* they are its own */
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (listeners_add_tcp(&all, lists[i].option, (const char *)d->cfg + lists[i].offset, "", NULL, NULL, &err) <
            0) {
            doctor_finds(d, FINDING_WRONG, "ports", "end what has it (ss -ltnp), or change the option", "%s: %s",
                         lists[i].option, err.text);
        }
    }
    if (d->n == before) {
        doctor_finds(d, FINDING_GOOD, "ports", NULL, "%d address%s can be listened on", all.n, all.n == 1 ? "" : "es");
    }
    listeners_free(&all);
}

static void find_certificate(struct doctor *d)
{
    const struct tls_files files = tls_files_to_listen(d->cfg);
    struct tls_context *context = NULL;
    struct err err;
    if (files.cert[0] == '\0') {
        return;
    }
    if (tls_server(&files, &context, &err) < 0) {
        doctor_finds(d, FINDING_WRONG, "certificate", NULL, "%s", err.text);
        return;
    }
    int64_t left_s = tls_expires(context) - clock_wall_ms() / 1000;
    if (left_s <= 0) {
        doctor_finds(d, FINDING_WRONG, "certificate", "renew it, then reload the service", "%s has expired",
                     files.cert);
    } else {
        bool soon = left_s < (int64_t)EXPIRES_SOON_DAYS * DAY_S;
        doctor_finds(d, soon ? FINDING_WARNING : FINDING_GOOD, "certificate",
                     soon ? "renew it, then reload the service" : NULL, "%s expires in %" PRId64 " days", files.cert,
                     left_s / DAY_S);
    }
    tls_context_free(context);
}

static void find_readers(struct doctor *d, const char *path, const char *what)
{
    struct stat st;
    if (path[0] != '\0' && stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0004) != 0) {
        doctor_finds(d, FINDING_WARNING, "secrets", "chmod o= the file",
                     "every user of the machine can read %s, which has %s", path, what);
    }
}

/* Whether the file itself has a password or the like in it. */
static bool file_has_secret(const struct config *cfg)
{
    for (size_t i = 0; i < config_options_count; i++) {
        if (cfg->origin[i] > 0 && config_options[i].type == CONFIG_SECRET) {
            return true;
        }
    }
    return cfg->kafka_properties[0] != '\0';
}

void doctor_secrets(struct doctor *d)
{
    const struct config *cfg = d->cfg;
    const char *const passwords[] = {cfg->requirepass_file,    cfg->legacy_password_file,  cfg->kafka_password_file,
                                     cfg->registry_token_file, cfg->replica_password_file, cfg->front_password_file,
                                     cfg->lock_password_file};
    find_certificate(d);
    if (d->config_path != NULL && file_has_secret(cfg)) {
        find_readers(d, d->config_path, "a password");
    }
    for (size_t i = 0; i < sizeof passwords / sizeof *passwords; i++) {
        find_readers(d, passwords[i], "a password");
    }
    find_readers(d, cfg->accounts, "the accounts");
    find_readers(d, cfg->archive_keys_file, "the keys of a bucket");
    find_readers(d, cfg->lock_token_file, "a token");
    find_readers(d, cfg->lock_key, "a certificate's key");
    find_readers(d, cfg->tls_key[0] != '\0' ? cfg->tls_key : cfg->tls_cert, "the certificate's key");
}

static void find_module(struct doctor *d, bool needed, const char *version, const char *package)
{
    if (needed && (version[0] < '0' || version[0] > '9')) {
        doctor_finds(d, FINDING_WRONG, "modules", "install it, of this program's version", "%s is needed, and is %s",
                     package, version);
    }
}

void doctor_modules(struct doctor *d)
{
    const struct config *cfg = d->cfg;
    find_module(d, cfg->kafka_brokers[0] != '\0', kafka_library_version(cfg->modules), "unseen-kafka");
    find_module(d, cfg->store == STORE_ENGINE_RADOS, store_rados_version(cfg->modules), "unseen-rados");
}
