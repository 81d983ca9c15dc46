/* Options that change while the server runs. Every change makes a new whole configuration and publishes it by one
 * atomic pointer, so that a reader needs no lock and never sees half of a change. The old ones are kept until the end,
 * since readers are not counted: some KiB each, and only for a SIGHUP that changed something. */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

static size_t field_size(const struct config_option *option)
{
    switch (option->type) {
    case CONFIG_ADDRESS:
        return CONFIG_LIST;
    case CONFIG_STRING:
    case CONFIG_ZONE:
    case CONFIG_HOSTS:
    case CONFIG_SECRET:
        return option->max >= CONFIG_TEXT ? CONFIG_LIST : CONFIG_TEXT;
    case CONFIG_PROPERTIES:
        return CONFIG_PROPERTIES_TEXT;
    case CONFIG_DAYTIME_RANGE:
    case CONFIG_MEMORY:
        return 2 * sizeof(int64_t);
    case CONFIG_RATE:
        return sizeof(double);
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
    case CONFIG_ENUM:
    case CONFIG_SEED:
    case CONFIG_DAYTIME:
        break;
    }
    return sizeof(int64_t);
}

static bool is_text(const struct config_option *option)
{
    return field_size(option) >= CONFIG_TEXT;
}

static bool is_same(const struct config *a, const struct config *b, const struct config_option *option)
{
    const char *x = (const char *)a + option->offset, *y = (const char *)b + option->offset;
    if (option->type == CONFIG_SEED && a->hash_seed_given != b->hash_seed_given) {
        return false;
    }
    /* What stands behind the end of a text is whatever a longer one left there. */
    return is_text(option) ? strcmp(x, y) == 0 : memcmp(x, y, field_size(option)) == 0;
}

static void tell(const struct config *from, const struct config *to, const struct config_option *option,
                 config_change_fn *each, void *arg)
{
    char before[CONFIG_VALUE_TEXT], after[CONFIG_VALUE_TEXT];
    config_text(from, option, before, sizeof before);
    config_text(to, option, after, sizeof after);
    each(arg, option, before, after);
}

int config_change(struct config *started, const struct config *configured, const struct config *read,
                  config_change_fn *each, void *arg, struct err *err)
{
    struct config *older = atomic_load(&started->changed); /* only this thread sets it */
    const struct config *now = older != NULL ? older : started;
    struct config *next = malloc(sizeof *next);
    if (next == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *next = *now;
    int n = 0;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        if (option->change == CHANGE_LIVE && !is_same(now, read, option)) {
            memcpy((char *)next + option->offset, (const char *)read + option->offset, field_size(option));
            n++;
        }
    }
    if (!policies_same(&now->policies, &read->policies)) {
        next->policies = read->policies;
        n++;
    }
    /* `read` is valid as a whole, but this holds old values of what needs a restart. */
    int result = config_validate(next, err);
    if (result < 0) {
        free(next);
        return result;
    }
    if (n > 0) {
        atomic_init(&next->changed, NULL);
        next->older = older;
        atomic_store_explicit(&started->changed, next, memory_order_release);
    } else {
        free(next);
    }
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        const struct config *from = option->change == CHANGE_LIVE ? now : configured;
        if (!is_same(from, read, option)) {
            tell(from, read, option, each, arg);
        }
    }
    return n;
}

void config_forget_changes(struct config *started)
{
    struct config *next = atomic_exchange(&started->changed, NULL);
    while (next != NULL) {
        struct config *older = next->older;
        free(next);
        next = older;
    }
}
