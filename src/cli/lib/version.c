#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>
#include <zstd.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/versions.h"
#include "grpc/grpc.h"
#include "http/version.h"
#include "kafka/version.h"
#include "legacy/redis.h"
#include "net/tls.h"
#include "net/version.h"
#include "registry/agent.h"
#include "service/account_file.h"
#include "store/factory.h"

static const char help[] =
    "Prints the versions of Unseen and its libraries, and which stores there are.\n\n"
    "Usage: unseen version [--json]\n\n"
    "librdkafka is that of the module for Kafka, from the package unseen-kafka, and librados that of\n"
    "the module for store = rados, from unseen-rados. Both are looked for where the program was\n"
    "installed, or in the folder $UNSEEN_MODULES.\n\n"
    "Options:\n"
    "      --json             print JSON\n\n"
    "Examples:\n"
    "  unseen version\n"
    "  unseen version --json\n";

void versions_get(struct versions *out)
{
    unsigned n = XXH_versionNumber();
    out->sqlite = store_sqlite_version();
    out->libuv = net_library_version();
    out->zstd = ZSTD_versionString();
    out->http_name = http_library_name();
    out->http = http_library_version();
    out->jansson = http_json_version();
    out->libxcrypt = account_library_version();
    out->hiredis = redis_library_version();
    out->nghttp2 = grpc_library_version();
    out->openssl = tls_library_version();
    out->libcurl = agent_library_version();
    snprintf(out->xxhash, sizeof out->xxhash, "%u.%u.%u", n / 10000, n / 100 % 100, n % 100);
}

void versions_json(struct json *j)
{
    struct versions v;
    versions_get(&v);
    const char *modules = getenv("UNSEEN_MODULES");
    json_text(j, "unseen", UNSEEN_VERSION);
    json_text(j, "sqlite", v.sqlite);
    json_text(j, "libuv", v.libuv);
    json_text(j, "xxhash", v.xxhash);
    json_text(j, "zstd", v.zstd);
    json_text(j, v.http_name, v.http);
    json_text(j, "jansson", v.jansson);
    json_text(j, "libxcrypt", v.libxcrypt);
    json_text(j, "hiredis", v.hiredis);
    json_text(j, "nghttp2", v.nghttp2);
    json_text(j, "openssl", v.openssl);
    json_text(j, "libcurl", v.libcurl);
    json_text(j, "librados", store_rados_version(modules));
    json_text(j, "librdkafka", kafka_library_version(modules));
    json_open(j, "stores", '[');
    for (size_t i = 0; i < store_engines_count; i++) {
        json_text(j, NULL, store_engines[i].name);
    }
    json_close(j, ']');
}

int cli_version(int argc, char **argv)
{
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"version", help, "no argument", 0, 0, flags, true};
    struct cli_options options;
    struct versions v;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    versions_get(&v);
    const char *modules = getenv("UNSEEN_MODULES");
    const char *librdkafka = kafka_library_version(modules), *librados = store_rados_version(modules);
    if (!json) {
        printf("unseen %s (SQLite %s, libuv %s, xxHash %s, zstd %s, %s %s, jansson %s, libxcrypt %s, hiredis %s, "
               "nghttp2 %s, OpenSSL %s, libcurl %s, librados %s, librdkafka %s; stores:",
               UNSEEN_VERSION, v.sqlite, v.libuv, v.xxhash, v.zstd, v.http_name, v.http, v.jansson, v.libxcrypt,
               v.hiredis, v.nghttp2, v.openssl, v.libcurl, librados, librdkafka);
        for (size_t i = 0; i < store_engines_count; i++) {
            printf(" %s", store_engines[i].name);
        }
        printf(")\n");
        return EXIT_GOOD;
    }
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    versions_json(&j);
    json_close(&j, '}');
    return EXIT_GOOD;
}
