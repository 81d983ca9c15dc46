#include "config/policy.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config/config.h"

#define SECOND_MS INT64_C(1000)
#define WITHIN_MOST (INT64_C(3660) * 24 * 3600 * SECOND_MS)

const struct policy policy_plain = {.plays = POLICY_PLAYS_WINDOW, .n_caps = 1, .caps = {{.times = 1}}};

const struct policy *policy_find(const struct policies *all, struct slice name)
{
    for (size_t i = 0; i < all->n; i++) {
        if (slice_eq(slice_str(all->list[i].name), name)) {
            return &all->list[i];
        }
    }
    return NULL;
}

static bool same_caps(const struct policy_cap *a, int64_t n, const struct policy_cap *b, int64_t n_b)
{
    return n == n_b && memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool is_same(const struct policy *a, const struct policy *b)
{
    return strcmp(a->name, b->name) == 0 && a->plays == b->plays && same_caps(a->caps, a->n_caps, b->caps, b->n_caps) &&
           same_caps(a->group_caps, a->n_group_caps, b->group_caps, b->n_group_caps) && strcmp(a->also, b->also) == 0;
}

bool policies_same(const struct policies *a, const struct policies *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (!is_same(&a->list[i], &b->list[i])) {
            return false;
        }
    }
    return a->n == b->n;
}

int policy_add(struct policies *all, struct slice name, struct policy **out, struct err *err)
{
    bool good = name.len > 0 && name.len < POLICY_NAME;
    for (size_t i = 0; i < name.len && good; i++) {
        good = isalnum((unsigned char)name.data[i]) || strchr("-_.", name.data[i]) != NULL;
    }
    if (!good) {
        return err_set(err, ERR_INVALID,
                       "a policy's name is %s, expected 1 to %d letters, digits, '-', '_' and '.', as in [policy feed]",
                       log_quote(name), POLICY_NAME - 1);
    }
    if (policy_find(all, name) != NULL) {
        return err_set(err, ERR_INVALID, "[policy %.*s] is given twice", (int)name.len, name.data);
    }
    if (all->n == POLICIES_MAX) {
        return err_set(err, ERR_RANGE, "[policy %.*s] is one too many, expected at most %d policies", (int)name.len,
                       name.data, POLICIES_MAX);
    }
    struct policy *p = &all->list[all->n++];
    *p = policy_plain;
    memcpy(p->name, name.data, name.len);
    *out = p;
    return 0;
}

static bool is_word(struct slice text, const char *word)
{
    return slice_eq(text, slice_str(word));
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && isspace((unsigned char)s.data[0])) {
        s = slice_of(s.data + 1, s.len - 1);
    }
    while (s.len > 0 && isspace((unsigned char)s.data[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* A whole number of at most three digits. */
static bool read_number(struct slice text, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!isdigit((unsigned char)text.data[i])) {
            return false;
        }
        *out = *out * 10 + text.data[i] - '0';
    }
    return text.len > 0 && text.len <= 3;
}

static int set_plays(struct policy *p, struct slice value, struct err *err)
{
    int64_t months = POLICY_PLAYS_OFF;
    if (is_word(value, "window")) {
        months = POLICY_PLAYS_WINDOW;
    } else if (!is_word(value, "off") && !read_number(value, &months)) {
        return err_set(err, ERR_INVALID, "plays is %s, expected a number of full months, window or off",
                       log_quote(value));
    }
    p->plays = months;
    return 0;
}

static const char cap_expected[] = "1, off, or caps such as 1 in 10min, 3 in 7d";

/* "3 in 7d", or "3". */
static int read_cap(const char *option, struct slice text, struct policy_cap *cap, struct err *err)
{
    const struct slice whole = text = trim(text);
    size_t digits = 0;
    while (digits < text.len && isdigit((unsigned char)text.data[digits])) {
        digits++;
    }
    const struct slice rest = trim(slice_of(text.data + digits, text.len - digits));
    *cap = (struct policy_cap){0};
    bool good = read_number(slice_of(text.data, digits), &cap->times);
    if (good && rest.len > 0) {
        char time[CONFIG_TEXT];
        good = rest.len > 2 && memcmp(rest.data, "in", 2) == 0 && isspace((unsigned char)rest.data[2]) &&
               rest.len < sizeof time;
        if (good) {
            const struct slice span = trim(slice_of(rest.data + 2, rest.len - 2));
            snprintf(time, sizeof time, "%.*s", (int)span.len, span.data);
            good = config_read_duration(time, &cap->within_ms);
        }
        if (good && (cap->within_ms < SECOND_MS || cap->within_ms > WITHIN_MOST)) {
            return err_set(err, ERR_RANGE, "%s has the cap %s, expected a time of 1s to 3660d", option,
                           log_quote(whole));
        }
    }
    if (!good) {
        return err_set(err, ERR_INVALID, "%s has the cap %s, expected %s", option, log_quote(whole), cap_expected);
    }
    if (cap->times < 1 || cap->times > POLICY_TIMES) {
        return err_set(err, ERR_RANGE, "%s has the cap %s, expected 1 to %d times", option, log_quote(whole),
                       POLICY_TIMES);
    }
    return 0;
}

static int set_caps(const char *option, struct slice value, struct policy_cap *out, int64_t *n_out, struct err *err)
{
    struct policy_cap caps[POLICY_CAPS];
    int64_t n = 0;
    size_t at = 0;
    while (!is_word(value, "off") && at <= value.len) {
        const char *comma = memchr(value.data + at, ',', value.len - at);
        size_t len = comma != NULL ? (size_t)(comma - value.data) - at : value.len - at;
        if (n == POLICY_CAPS) {
            return err_set(err, ERR_RANGE, "%s is %s, expected at most %d caps", option, log_quote(value), POLICY_CAPS);
        }
        if (read_cap(option, slice_of(value.data + at, len), &caps[n], err) < 0) {
            return err->code;
        }
        n++;
        at += len + 1;
    }
    *n_out = n;
    memcpy(out, caps, (size_t)n * sizeof *caps);
    return 0;
}

/* Questions that name no policy say no groups. */
static int set_group(struct policy *p, struct slice value, struct err *err)
{
    return strcmp(p->name, POLICY_DEFAULT) != 0
               ? set_caps("group", value, p->group_caps, &p->n_group_caps, err)
               : err_set(err, ERR_INVALID,
                         "[policy " POLICY_DEFAULT "] has no group, since questions that name no policy need not say "
                         "groups: expected it in a policy that they name");
}

/* --- also --- */

static const char user_word[] = "{user}";

static bool is_user_word(struct slice text)
{
    const size_t n = sizeof user_word - 1;
    return text.len >= n && memcmp(text.data, user_word, n) == 0;
}

static struct slice next_word(struct slice *text)
{
    *text = trim(*text);
    size_t n = 0;
    while (n < text->len && !isspace((unsigned char)text->data[n])) {
        n++;
    }
    const struct slice word = slice_of(text->data, n);
    *text = slice_of(text->data + n, text->len - n);
    return word;
}

static bool is_pattern(struct slice word)
{
    for (size_t i = 0; i < word.len; i++) {
        if (is_user_word(slice_of(word.data + i, word.len - i))) {
            i += sizeof user_word - 2;
        } else if (strchr("{}\"\\", word.data[i]) != NULL || iscntrl((unsigned char)word.data[i])) {
            return false;
        }
    }
    return slice_is_utf8(word);
}

static int add_also(struct policy *p, struct slice word, struct err *err)
{
    const size_t len = strlen(p->also);
    if (!is_pattern(word)) {
        return err_set(err, ERR_INVALID, "also has %s, expected UTF-8 without quotes, \\, and braces but in %s",
                       log_quote(word), user_word);
    }
    if (is_word(word, user_word)) {
        return err_set(err, ERR_INVALID, "also has %s, which is the user, expected other users, as in push:%s",
                       log_quote(word), user_word);
    }
    for (size_t i = 0; i < p->n_also; i++) {
        if (slice_eq(policy_also(p, i), word)) {
            return err_set(err, ERR_INVALID, "also has %s twice", log_quote(word));
        }
    }
    if (p->n_also == POLICY_ALSO) {
        return err_set(err, ERR_RANGE, "also names more users, expected at most %d", POLICY_ALSO);
    }
    if (len + 1 + word.len >= POLICY_ALSO_TEXT) {
        return err_set(err, ERR_RANGE, "also has more than %d bytes", POLICY_ALSO_TEXT - 2);
    }
    snprintf(p->also + len, POLICY_ALSO_TEXT - len, "%s%.*s", len > 0 ? " " : "", (int)word.len, word.data);
    p->n_also++;
    return 0;
}

static int set_also(struct policy *p, struct slice value, struct err *err)
{
    struct policy read = {.n_also = 0};
    int rc = value.len > 0 ? 0 : err_set(err, ERR_INVALID, "also is empty, expected users, as in push:%s", user_word);
    while (rc == 0 && value.len > 0) {
        rc = add_also(&read, next_word(&value), err);
    }
    if (rc == 0) {
        p->n_also = read.n_also;
        memcpy(p->also, read.also, sizeof p->also);
    }
    return rc;
}

struct slice policy_also(const struct policy *p, size_t i)
{
    struct slice rest = slice_str(p->also), word = {0};
    for (size_t k = 0; k <= i; k++) {
        word = next_word(&rest);
    }
    return word;
}

size_t policy_also_user(const struct policy *p, size_t i, struct slice user, char out[HASH_ID_MAX])
{
    const struct slice name = policy_also(p, i);
    size_t len = 0;
    for (size_t at = 0; at < name.len;) {
        const bool own = is_user_word(slice_of(name.data + at, name.len - at));
        const struct slice piece = own ? user : slice_of(name.data + at, 1);
        if (len + piece.len <= HASH_ID_MAX) {
            memcpy(out + len, piece.data, piece.len);
        }
        len += piece.len;
        at += own ? sizeof user_word - 1 : 1;
    }
    return len;
}

int policy_set(struct policy *p, const char *option, const char *value, struct err *err)
{
    const struct slice text = trim(slice_str(value));
    if (strcmp(option, "plays") == 0) {
        return set_plays(p, text, err);
    }
    if (strcmp(option, "item") == 0) {
        return set_caps(option, text, p->caps, &p->n_caps, err);
    }
    if (strcmp(option, "group") == 0) {
        return set_group(p, text, err);
    }
    if (strcmp(option, "also") == 0) {
        return set_also(p, text, err);
    }
    return err_set(err, ERR_NOTFOUND, "there is no option %s in [policy %s], only plays, item, group and also",
                   log_quote_str(option), p->name);
}

void policy_plays_text(const struct policy *p, char out[POLICY_TEXT])
{
    if (p->plays >= 0) {
        snprintf(out, POLICY_TEXT, "%" PRId64, p->plays);
    } else {
        snprintf(out, POLICY_TEXT, "%s", p->plays == POLICY_PLAYS_OFF ? "off" : "window");
    }
}

static void caps_text(const struct policy_cap *caps, int64_t n, char out[POLICY_TEXT])
{
    size_t len = (size_t)snprintf(out, POLICY_TEXT, "%s", n == 0 ? "off" : "");
    for (int64_t i = 0; i < n && len < POLICY_TEXT; i++) {
        char within[32] = "";
        if (caps[i].within_ms > 0) {
            config_print_duration(caps[i].within_ms, within, sizeof within);
        }
        len += (size_t)snprintf(out + len, POLICY_TEXT - len, "%s%" PRId64 "%s%s", i > 0 ? ", " : "", caps[i].times,
                                within[0] != '\0' ? " in " : "", within);
    }
}

void policy_item_text(const struct policy *p, char out[POLICY_TEXT])
{
    caps_text(p->caps, p->n_caps, out);
}

void policy_group_text(const struct policy *p, char out[POLICY_TEXT])
{
    caps_text(p->group_caps, p->n_group_caps, out);
}

int policies_validate(const struct policies *all, int64_t window, struct err *err)
{
    for (size_t i = 0; i < all->n; i++) {
        if (all->list[i].plays > window) {
            return err_set(err, ERR_RANGE, "plays is %" PRId64 " in [policy %s], expected at most window, %" PRId64,
                           all->list[i].plays, all->list[i].name, window);
        }
    }
    return 0;
}
