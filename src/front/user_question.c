#include "front/user_question.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"

/* The score is a number below 2^53; each value comes with its length, and two ends of a line. */
enum { SCORE_TEXT = 16, AROUND = 16, VALUES = 2 * FRONT_EVENTS_READ };
_Static_assert(FRONT_USER_MAX + FRONT_EVENTS_READ * (FRONT_EVENT_MAX + SCORE_TEXT) < FRONT_VALUES_MAX &&
                   FRONT_VALUES_MAX + VALUES * AROUND < FRONT_REPLY_MAX &&
                   (VALUES + 1000) * sizeof(struct reply) < FRONT_REPLY_MAX,
               "the largest user that may stand there is read");

void front_question_free(struct front_question *q)
{
    arena_free(&q->arena);
    delivered_codec_free(&q->codec);
}

/* What this Redis has dropped since all was brought in: a user who isn't there may be one of them. */
static int check_evicted(const struct front_meta *m, const struct reply *evicted, struct err *err)
{
    int64_t keys;
    if (!reply_integer(evicted, &keys)) {
        return err_set(err, ERR_CORRUPT, "the front doesn't say how many keys were evicted");
    }
    return (uint64_t)keys <= m->evicted
               ? 0
               : err_set(err, ERR_ABSENT, "the front's Redis has evicted keys: all users are to be brought in again");
}

static int check_meta(const struct front_meta *m, uint64_t seed, struct err *err)
{
    if (!m->present) {
        return err_set(err, ERR_ABSENT, "nothing stands in the front: its writer has not begun");
    }
    if (seed != 0 && m->seed != seed) {
        return err_set(err, ERR_ABSENT,
                       "what stands in the front has another seed: %08" PRIx32 " instead of %08" PRIx32,
                       hash_seed_fingerprint(m->seed), hash_seed_fingerprint(seed));
    }
    return m->full ? 0 : err_set(err, ERR_ABSENT, "not all users are in the front yet");
}

int front_question_read(struct front_link *link, const char *prefix, const struct slice *user, uint64_t seed,
                        struct front_question *q, struct err *err)
{
    char meta[FRONT_KEY_MAX], state[FRONT_KEY_MAX], events[FRONT_KEY_MAX], most[16], bytes[16];
    const struct slice no_user = slice_str("");
    const struct slice *who = user != NULL ? user : &no_user; /* an id that no user has */
    snprintf(most, sizeof most, "%d", FRONT_EVENTS_READ);
    snprintf(bytes, sizeof bytes, "%d", FRONT_VALUES_MAX);
    const struct slice words[] = {slice_str("3"),
                                  front_key_meta(prefix, meta),
                                  front_key_state(prefix, *who, state),
                                  front_key_events(prefix, *who, events),
                                  slice_str(most),
                                  slice_str(bytes)};
    const struct reply *reply;
    arena_reset(&q->arena);
    q->meta = (struct front_meta){.present = false};
    q->user = (struct front_user){.known = false};
    int rc = front_link_run(link, FRONT_READ, words, sizeof words / sizeof *words, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n != 4) {
        return err_set(err, ERR_CORRUPT, "the front answers something else");
    }
    rc = front_meta_read(&reply->items[0], &q->meta, err);
    if (rc == 0) {
        rc = check_meta(&q->meta, seed, err);
    }
    if (rc == 0) {
        rc = check_evicted(&q->meta, &reply->items[3], err);
    }
    return rc == 0 && user != NULL ? front_user_read(&reply->items[1], &reply->items[2], &q->arena, &q->user, err) : rc;
}

int front_question_view(struct front_question *q, uint64_t seed, int first_month, size_t delivered_max,
                        struct store_view *view, struct err *err)
{
    switch (q->user.verdict) {
    case FRONT_STALE:
        return err_set(err, ERR_STALE, "the front does not have this user's newest state yet");
    case FRONT_GIANT:
        return err_set(err, ERR_LARGE, "the front holds no users of more than %d KiB", FRONT_USER_MAX / 1024);
    case FRONT_DAMAGED:
        return err_set(err, ERR_CORRUPT, "the front lacks parts of this user, which its writer could not read");
    case FRONT_WHOLE:
        break;
    }
    return front_user_view(&q->user, seed, first_month, delivered_max, &q->codec, &q->arena, view, err);
}
