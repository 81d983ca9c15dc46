#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory_limit.h"
#include "cli/doctor/doctor.h"
#include "cli/lib/output.h"
#include "cli/lib/server.h"
#include "cli/serve/serve_config.h"

/* Whether something keeps the machine's clock right, as the kernel was told. */
static void find_time_server(struct doctor *d)
{
    struct timex t = {.modes = 0};
    int state = adjtimex(&t);
    if (state < 0) {
        doctor_finds(d, FINDING_NOTE, "clock", NULL, "whether a time server sets it can't be told: %s",
                     strerror(errno));
    } else if (state == TIME_ERROR || (t.status & STA_UNSYNC) != 0) {
        doctor_finds(
            d, FINDING_WARNING, "clock",
            "timedatectl set-ntp true, or install chrony; in a virtual machine or container this is the host's",
            "no time server sets it: months and windows go by it");
    } else {
        doctor_finds(d, FINDING_GOOD, "clock", NULL, "a time server sets it, its error is at most %ld ms",
                     t.maxerror / 1000);
    }
}

static void find_belief(struct doctor *d)
{
    const struct slice words[] = {slice_str("CLOCK")};
    const struct reply *map;
    struct err err;
    char state[32], reason[FINDING_ADVICE];
    if (server_ask_map(d->client, words, 1, "state", &map, &err) < 0) {
        doctor_finds(d, FINDING_NOTE, "clock", NULL, "what the server believes of it can't be told: %s", err.text);
        return;
    }
    reply_copy(map, "state", state, sizeof state);
    reply_copy(map, "reason", reason, sizeof reason);
    if (strcmp(state, "believed") != 0) {
        doctor_finds(d, FINDING_WRONG, "clock", "set the machine's clock right, or see unseen clock",
                     "the server doubts it: %s", reason);
    }
}

void doctor_clock(struct doctor *d)
{
    char built[OUTPUT_TEXT], now[OUTPUT_TEXT];
    find_time_server(d);
    if (clock_wall_ms() < clock_built_ms()) {
        doctor_finds(d, FINDING_WRONG, "clock", "set it right: timedatectl, chronyc",
                     "it says %s, which is before this program was built, %s", date_text(clock_wall_ms(), now),
                     date_text(clock_built_ms(), built));
    }
    if (d->client != NULL) {
        find_belief(d);
    }
}

void doctor_memory(struct doctor *d)
{
    const char *from;
    char sum_text[OUTPUT_TEXT], limit_text[OUTPUT_TEXT];
    int64_t limit = process_memory_limit("", &from), sum = serve_config_memory(d->cfg);
    size_text((uint64_t)sum, sum_text);
    if (limit == 0) {
        doctor_finds(d, FINDING_NOTE, "memory", NULL, "the options allow %s; how much there is can't be told",
                     sum_text);
        return;
    }
    size_text((uint64_t)limit, limit_text);
    if (sum > limit) {
        doctor_finds(d, FINDING_WARNING, "memory", "set staging_memory = auto, or less",
                     "the options allow %s, and there are %s by the %s: the kernel may end the server, and again at "
                     "each start",
                     sum_text, limit_text, from);
    } else {
        doctor_finds(d, FINDING_GOOD, "memory", NULL, "the options allow %s of the %s of the %s", sum_text, limit_text,
                     from);
    }
}

/* A server says itself what it has come to; before it runs, all that is known is the limit of who asks. */
void doctor_files(struct doctor *d)
{
    char most[32];
    struct rlimit limit;
    long long need = (long long)serve_config_files(d->cfg);
    if (doctor_info(d, "maxclients", most, sizeof most)) {
        if (strtoll(most, NULL, 10) < d->cfg->max_clients) {
            doctor_finds(d, FINDING_WARNING, "open files", "raise LimitNOFILE= of the service, or ulimit -n",
                         "the server takes %s clients, and max_clients is %" PRId64 ", which needs %lld open files",
                         most, d->cfg->max_clients, need);
        } else {
            doctor_finds(d, FINDING_GOOD, "open files", NULL, "enough for max_clients = %s", most);
        }
    } else if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        doctor_finds(d, FINDING_NOTE, "open files", NULL, "the limit can't be read: %s", strerror(errno));
    } else if (limit.rlim_max < (rlim_t)need) {
        doctor_finds(d, FINDING_WARNING, "open files",
                     "raise ulimit -n; the packaged service has LimitNOFILE= of its own",
                     "this shell may open %llu, and max_clients = %" PRId64 " needs %lld",
                     (unsigned long long)limit.rlim_max, d->cfg->max_clients, need);
    } else {
        doctor_finds(d, FINDING_GOOD, "open files", NULL, "max_clients = %" PRId64 " needs %lld of the %llu allowed",
                     d->cfg->max_clients, need, (unsigned long long)limit.rlim_max);
    }
}
