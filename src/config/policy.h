/* Policies: what hides a candidate, by name. Each is a section of the file, [policy NAME] (docs/policies.md):
 *
 *   [policy feed]
 *   plays = 3                      # full months of plays that hide, beside the current one; window (default); off
 *   item  = 1 in 10min, 3 in 7d    # hidden while it was sent so often within so long; 1 (default); off
 *   group = 2 in 1h                # hidden while so many items of its group were sent within so long; off (default)
 *   also  = push:{user}            # hidden, too, if the policy hides it from one of these users
 *
 * They are part of a struct config, so all of them change at once, and what was read stays as long as that.
 */
#ifndef UNSEEN_CONFIG_POLICY_H
#define UNSEEN_CONFIG_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"

enum {
    POLICIES_MAX = 32,
    POLICY_NAME = 64,  /* room */
    POLICY_CAPS = 4,   /* of a line */
    POLICY_TIMES = 15, /* of a cap, at most: as many as are remembered of an item */
    POLICY_ALSO = 8,   /* users beside the user */
    POLICY_ALSO_TEXT = 512
};
enum { POLICY_PLAYS_WINDOW = -1, POLICY_PLAYS_OFF = -2 };

/* Hidden while it was sent so often within so long; 0: as long as that is remembered. */
struct policy_cap {
    int64_t times, within_ms;
};

struct policy {
    char name[POLICY_NAME];
    int64_t plays;  /* full months, or one of the above */
    int64_t n_caps; /* of an item; 0: no delivery hides it */
    struct policy_cap caps[POLICY_CAPS];
    int64_t n_group_caps; /* of items of one group; 0: none. Then a question says of each item its group */
    struct policy_cap group_caps[POLICY_CAPS];
    size_t n_also;
    char also[POLICY_ALSO_TEXT]; /* names of users, one blank in between; {user} stands for the user's own */
};

struct policies {
    size_t n;
    struct policy list[POLICIES_MAX]; /* in the file's order */
};

/* Which one holds for questions that name none, if it is there; and today's rule, which does if it isn't: all plays in
 * the window, and what is remembered as sent. It has no name. */
#define POLICY_DEFAULT "default"
extern const struct policy policy_plain;
static inline bool policy_is_plain(const struct policy *p)
{
    return p == NULL || p->name[0] == '\0';
}

const struct policy *policy_find(const struct policies *all, struct slice name); /* NULL: there is none */
bool policies_same(const struct policies *a, const struct policies *b);

/* Adds one by the name of its section, with the defaults. ERR_INVALID: the name, or there are two; ERR_RANGE: too many.
 */
int policy_add(struct policies *all, struct slice name, struct policy **out, struct err *err);

/* A line of its section. ERR_NOTFOUND: there is no such option; ERR_INVALID, ERR_RANGE: the text says what was
 * expected.
 */
int policy_set(struct policy *p, const char *option, const char *value, struct err *err);

/* As they would be written: "3", "window" or "off"; "1 in 10min, 3 in 7d", "1" or "off". */
enum { POLICY_TEXT = 160 };
void policy_plays_text(const struct policy *p, char out[POLICY_TEXT]);
void policy_item_text(const struct policy *p, char out[POLICY_TEXT]);
void policy_group_text(const struct policy *p, char out[POLICY_TEXT]);

/* The name of the i-th user of `also`, as it is written; and of a user, the id that it means: the length is told also
 * where that is more than ID_MAX, of which then nothing is written. */
struct slice policy_also(const struct policy *p, size_t i);
size_t policy_also_user(const struct policy *p, size_t i, struct slice user, char out[HASH_ID_MAX]);

/* What concerns other options: no more months than the window has. */
int policies_validate(const struct policies *all, int64_t window, struct err *err);

#endif
