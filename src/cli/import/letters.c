/* `unseen import --dead-letters`: the files of letters, one after the other, into the target. */
#include "cli/import/letters.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "cli/import/import_letters.h"
#include "kafka/dead_letters.h"
#include "store/bulk.h"

static int take_delivery(struct import *im, const struct message_event *event, const char *file, uint64_t line,
                         bool *stays, struct err *err)
{
    if (im->store != NULL) {
        *stays = true;
        import_tally_malformed(&im->tally, file, line, "a delivery: it needs a running server, see --to",
                               slice_of("", 0));
        return 0;
    }
    for (size_t i = 0; i < event->n; i++) {
        uint64_t user = hash_id(im->seed, event->user), item = hash_id(im->seed, event->items[i]);
        int rc = import_tally_event(&im->tally, event->at_ms, user, item, err);
        if (rc < 0) {
            return rc;
        }
    }
    return im->remote == NULL
               ? 0
               : import_remote_deliver(im->remote, event->user, event->items, event->n, file, line, &im->tally, err);
}

/* What a letter says. *stays: not all of it could be taken. */
static int take_letter(struct import *im, const struct message_event *event, const char *file, uint64_t line,
                       bool *stays, struct err *err)
{
    uint64_t ahead = im->tally.ahead;
    int rc = 0;
    if (event->kind == STORE_DELIVERY && event->n > 0 &&
        import_tally_time(&im->tally, event->at_ms) == IMPORT_TIME_GOOD) {
        rc = take_delivery(im, event, file, line, stays, err);
    }
    for (size_t i = 0; rc == 0 && event->kind == STORE_PLAY && i < event->n; i++) {
        const struct import_event play = {event->at_ms, event->user, event->items[i]};
        rc = import_take_event(im, &play, file, line, err);
    }
    *stays |= im->tally.ahead > ahead; /* its time may be good later, or mended */
    return rc == 0 && im->remote != NULL ? import_remote_flush(im->remote, &im->tally, err) : rc;
}

/* The file goes only when all of it is durable; where the server refused some, it stays as it was. */
static int read_letters(struct import *im, struct message_rules *rules, const char *path, struct err *err)
{
    struct import_letters *letters;
    struct message_event event;
    struct import_tally *t = &im->tally;
    uint64_t refused = t->refused, *taken = &t->letters_taken, *kept = &t->letters_kept;
    char *file = arena_copy(&im->names, path, strlen(path) + 1);
    if (file == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = import_letters_open(file, !im->dry_run, rules, &letters, err);
    if (rc < 0) {
        return rc;
    }
    while ((rc = import_letters_next(letters, &event, err)) == 1 || rc == ERR_INVALID) {
        bool stays = false;
        uint64_t line = import_letters_line(letters);
        if (rc == ERR_INVALID) {
            import_tally_malformed(t, file, line, err->text, slice_of("", 0));
            continue;
        }
        rc = take_letter(im, &event, file, line, &stays, err);
        rc = rc == 0 && stays ? import_letters_keep(letters, err) : rc;
        if (rc < 0) {
            break;
        }
    }
    rc = rc < 0 ? rc : import_make_durable(im, err);
    if (rc == 0 && t->refused > refused) {
        *kept += import_letters_line(letters);
    } else if (rc == 0) {
        rc = import_letters_end(letters, taken, kept, err);
    }
    import_letters_close(letters);
    return rc;
}

int import_all_letters(struct import *im, const struct cli_options *options, struct err *err)
{
    struct message_rules *rules;
    char path[PATH_MAX];
    uint64_t number = 0;
    int more = 0, rc = message_rules_new(&im->cfg, &rules, err);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; rc == 0 && i < options->n_words; i++) {
        rc = read_letters(im, rules, options->words[i], err);
    }
    bool folder = options->n_words == 0;
    if (rc == 0 && folder && !im->dry_run) {
        rc = dead_letters_seal(config_dead_letters(&im->cfg), err);
    }
    while (rc == 0 && folder &&
           (more = dead_letters_next(config_dead_letters(&im->cfg), number, &number, path, err)) > 0) {
        rc = read_letters(im, rules, path, err);
    }
    if (rc == 0 && more == 0 && folder && im->dry_run) {
        snprintf(path, sizeof path, "%s/" DEAD_LETTERS_FILE, config_dead_letters(&im->cfg));
        rc = access(path, F_OK) == 0 ? read_letters(im, rules, path, err) : 0;
    }
    message_rules_free(rules);
    return rc < 0 ? rc : more;
}
