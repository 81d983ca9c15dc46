#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"

int rados_setup(void **state)
{
    static struct cluster_of_nodes c;
    struct err err = {0};
    c.first = store_fixture_new("rados");
    c.pool = memory_pool_new("rados");
    snprintf(c.first->cfg.rados_pool, sizeof c.first->cfg.rados_pool, "rados");
    c.first->cfg.delivered_max = 5;
    if (rados_store_init(&c.first->cfg, &memory_pool_ops, &err) != 1) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < NODES; i++) {
        c.nodes[i] = *c.first;
        open_node(&c.nodes[i]);
    }
    *state = &c;
    return 0;
}

int rados_teardown(void **state)
{
    struct cluster_of_nodes *c = *state;
    memory_pool_hold(c->pool, 0);
    memory_pool_fault(c->pool, NULL);
    for (int i = 0; i < NODES; i++) {
        if (c->nodes[i].store != NULL) {
            close_node(&c->nodes[i]);
        }
    }
    memory_pool_free(c->pool);
    store_fixture_free(c->first);
    return 0;
}

void fault(struct cluster_of_nodes *c, unsigned kinds, const char *object, enum cluster_result result)
{
    memory_pool_fault(c->pool,
                      &(struct memory_pool_fault){.kinds = kinds, .object = object, .nth = 1, .result = result});
}

int record_code(struct store_fixture *f, const char *user, const char *item, char *text, size_t size)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, STORE_PLAY, START, user, item);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    snprintf(text, size, "%s", batch.err.text);
    return batch.err.code;
}

static const char mark[] = "a test begins";

void log_from_here(void)
{
    log_set_level(LOG_LEVEL_WARN);
    log_error(mark, "");
}

bool logged(const char *words)
{
    struct log_recent lines[LOG_RECENT];
    int n = log_recent(lines, LOG_RECENT);
    bool found = false;
    for (int i = 0; i < n && !found && strcmp(lines[i].text, mark) != 0; i++) {
        found = strstr(lines[i].text, words) != NULL;
    }
    return found;
}
