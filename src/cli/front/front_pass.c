/* `unseen front --reconcile` and `--rebuild`: the server answers at once, so the end is looked for in FRONT STATUS. */
#include "cli/front/front_pass.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/plural.h"
#include "cli/lib/progress.h"
#include "cli/lib/server.h"

enum {
    LOOK_MS = 200,
    BEGIN_LOOKS = 75, /* so often nothing may be seen of a rebuild: 15 s */
};

struct pass {
    struct client *client;
    struct progress progress;
    const struct reply *map;                  /* the last status */
    uint64_t compared, differences, rebuilds; /* as they were before */
    int idle_looks;
};

int front_ask(struct client *client, const struct reply **map, struct err *err)
{
    const struct slice words[] = {slice_str("FRONT"), slice_str("STATUS")};
    return server_ask_map(client, words, 2, "state", map, err);
}

void front_print(const char *before, struct slice text)
{
    struct buf line = {0};
    escape_id(&line, text);
    printf("%s%.*s\n", before, (int)line.len, line.data);
    buf_free(&line);
}

void front_print_named(const struct reply *map)
{
    const struct reply *list = reply_field(map, "named");
    for (size_t i = 0; list != NULL && i < list->n; i++) {
        front_print("  ", list->items[i].text);
    }
}

static bool state_is(const struct reply *map, const char *state)
{
    char text[FRONT_TEXT_MAX];
    reply_copy(map, "state", text, sizeof text);
    return strcmp(text, state) == 0;
}

/* ERR_INVALID, with what the server says of its front. */
static int broken(const struct reply *map, const char *what, struct err *err)
{
    char state[FRONT_TEXT_MAX], cause[FRONT_TEXT_MAX];
    reply_copy(map, "state", state, sizeof state);
    reply_copy(map, "cause", cause, sizeof cause);
    return err_set(err, ERR_INVALID, "%s: the front is %s%s%s", what, state, cause[0] != '\0' ? ": " : "", cause);
}

/* Remembers how things stand, and has the server begin. */
static int begin(struct pass *p, const char *command, struct err *err)
{
    const struct slice words[] = {slice_str("FRONT"), slice_str(command)};
    const struct reply *reply;
    int rc = front_ask(p->client, &p->map, err);
    if (rc < 0) {
        return rc;
    }
    p->compared = reply_count(p->map, "compared");
    p->differences = reply_count(p->map, "differences");
    p->rebuilds = reply_count(p->map, "rebuilds");
    return client_call(p->client, words, 2, &reply, err);
}

static int look(struct pass *p, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000 * 1000};
    nanosleep(&pause, NULL);
    return front_ask(p->client, &p->map, err);
}

/* 1: it has ended, 0: not yet. The server says that users are compared from its OK on. */
static int compare_state(struct pass *p, struct err *err)
{
    if (reply_count(p->map, "comparing") != 0) {
        return 0;
    }
    return reply_count(p->map, "full") != 0 ? 1 : broken(p->map, "the comparison was broken off", err);
}

/* The same. A server that waits for its Redis, or is fenced, looks for what it was asked only from time to time. */
static int fill_state(struct pass *p, struct err *err)
{
    bool fenced = state_is(p->map, "fenced"), full = reply_count(p->map, "full") != 0;
    if (reply_count(p->map, "rebuilds") != p->rebuilds) {
        return fenced ? broken(p->map, "the users were not brought in", err) : full;
    }
    bool idle = fenced || (full && !state_is(p->map, "filling"));
    return idle && ++p->idle_looks > BEGIN_LOOKS ? broken(p->map, "nothing has begun", err) : 0;
}

static int follow(struct pass *p, const char *label, int (*state)(struct pass *p, struct err *err), struct err *err)
{
    int rc = 0;
    progress_begin(&p->progress, label, false);
    while (rc == 0 && (rc = look(p, err)) == 0 && (rc = state(p, err)) == 0) {
        char cause[FRONT_TEXT_MAX], a[OUTPUT_TEXT];
        uint64_t users =
            state == compare_state ? reply_count(p->map, "compared") - p->compared : reply_count(p->map, "filled");
        reply_copy(p->map, "cause", cause, sizeof cause);
        progress_show(&p->progress, users, 0, "%s user%s%s%s", count_text(users, a), plural(users),
                      cause[0] != '\0' ? "; " : "", cause);
    }
    progress_end(&p->progress);
    return rc < 0 ? rc : 0;
}

int front_reconcile_all(struct client *client, bool wait, struct err *err)
{
    struct pass p = {.client = client};
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT];
    int rc = begin(&p, "RECONCILE", err);
    if (rc == 0 && !wait) {
        printf("all users are compared now: unseen front --status tells how far that is\n");
    }
    if (rc < 0 || !wait || (rc = follow(&p, "compare", compare_state, err)) < 0) {
        return rc;
    }
    uint64_t users = reply_count(p.map, "compared") - p.compared;
    uint64_t differ = reply_count(p.map, "differences") - p.differences;
    printf("%s user%s compared, ", count_text(users, a), plural(users));
    if (differ == 0) {
        printf("none differs\n");
        return 0;
    }
    printf("%s differed and %s sent again:\n", count_text(differ, b), differ == 1 ? "was" : "were");
    front_print_named(p.map);
    return 1;
}

int front_rebuild_all(struct client *client, bool wait, struct err *err)
{
    struct pass p = {.client = client};
    char a[OUTPUT_TEXT];
    int rc = begin(&p, "REBUILD", err);
    if (rc == 0 && !wait) {
        printf("all users are brought in again now: unseen front --status tells how far that is\n");
    }
    if (rc < 0 || !wait || (rc = follow(&p, "fill", fill_state, err)) < 0) {
        return rc;
    }
    uint64_t users = reply_count(p.map, "filled");
    printf("%s user%s brought in, the front is full\n", count_text(users, a), plural(users));
    return 0;
}
