/* Messages that can't be read, kept in the data folder until they are mended and imported (`unseen import
 * --dead-letters`): one JSON object a line with topic, partition, offset, time, reason, and key and payload in base64.
 *
 *   dead-letters.jsonl            grows, up to 64 MiB
 *   dead-letters.7.1234.jsonl     the seventh that was full, or was sealed for an import; it has 1234 letters
 *
 * Nothing is deleted but what an import took; so there is a bound, beyond which no letter is taken. Service and import
 * may work at once: a process that writes to the growing file, or renames it, holds its lock (flock), and looks whether
 * it is still that file.
 */
#ifndef UNSEEN_KAFKA_DEAD_LETTERS_H
#define UNSEEN_KAFKA_DEAD_LETTERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

#define DEAD_LETTERS_FILE "dead-letters.jsonl"

struct dead_letters;

struct dead_letter {
    struct slice topic;
    int32_t partition;
    int64_t offset;
    int64_t at_ms; /* the message's time, unix; 0: it has none */
    struct slice reason;
    struct slice key, value; /* data NULL: it has none */
};

/* --- the service --- */

/* Below folder, which exists; files are made when there is something to keep. */
int dead_letters_open(const char *folder, struct dead_letters **letters, struct err *err);
void dead_letters_close(struct dead_letters *letters); /* NULL is fine; what was not synced may be lost */

/* Bytes that all files may have together; 0: any. One letter may always stand there. On the thread that adds. */
void dead_letters_bound(struct dead_letters *letters, uint64_t bytes);

/* Appends; durable after the next sync. ERR_BUSY: the bound is reached, and this letter is not taken; what was added
 * since the last sync stays. After any other error of either, nothing that was added since the last sync counts, and it
 * may be added again. ERR_FULL, ERR_READONLY, ERR_IO, ERR_NOMEM. One thread. */
int dead_letters_add(struct dead_letters *letters, const struct dead_letter *letter, struct err *err);
int dead_letters_sync(struct dead_letters *letters, struct err *err); /* at once when nothing was added */
void dead_letters_undo(struct dead_letters *letters); /* takes back what was added since the last sync */

/* What the folder holds: letters and bytes, over all files. Any thread; it asks for the folder's time, and lists the
 * folder only when that has changed. */
void dead_letters_look(struct dead_letters *letters, uint64_t *n, uint64_t *bytes);

/* --- the import --- */

/* Renames the growing file, so that it grows no more. Nothing to do: 0 as well. */
int dead_letters_seal(const char *folder, struct err *err);

/* The sealed file with the lowest number above `after` (0 at first): 1 and its number and path, or 0. */
int dead_letters_next(const char *folder, uint64_t after, uint64_t *number, char path[PATH_MAX], struct err *err);

/* Names a sealed file again by its letters, which are counted by that; any other file keeps its name. */
int dead_letters_recount(const char *path, uint64_t n, struct err *err);

/* A line as a letter: texts in the arena, or in the line. One that is mended by hand may have its payload as a string
 * "text", which counts instead of "value". ERR_INVALID says what is wrong with it; ERR_NOMEM. */
int dead_letter_read(struct slice line, struct arena *arena, struct dead_letter *out, struct err *err);

#endif
