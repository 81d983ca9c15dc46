/* The line formats of `unseen import`: bytes in, events out. import_rules.h says what else their fields may be.
 *
 *   TSV     1383782400000<tab>u42<tab>video:7
 *   CSV     1383782400000,u42,"video:7"          (RFC 4180: "" is a quote, a quoted field may hold newlines)
 *   NDJSON  {"unix_ms":1383782400000,"user":"u42","item":"video:7"}
 *
 * The owner asks for room, puts bytes there, says how many, and takes events until IMPORT_MORE:
 *
 *   char *room = import_reader_room(&r, &size);
 *   import_reader_filled(&r, read(fd, room, size));      (0 bytes: the input has ended)
 *   while ((answer = import_reader_next(&r, &event)) != IMPORT_MORE) ...
 *
 * The events don't depend on how the bytes were cut into pieces. After a bad line the reader goes on with the next one.
 * Nothing is copied: an event's ids point into the reader until the next import_reader_room(). Owned by one thread.
 */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_READER_H
#define UNSEEN_CLI_IMPORT_IMPORT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "cli/import/import_rules.h"

enum {
    IMPORT_LINE_MAX = 64 * 1024, /* bytes of a line, or of a record of several lines */
};

enum import_answer {
    IMPORT_MORE,  /* all bytes are used: give more; after the end of the input: that was all */
    IMPORT_EVENT, /* *event is set */
    IMPORT_BAD,   /* malformed: `line` and `err` say where and why */
};

struct import_event {
    int64_t at_ms;
    struct slice user; /* 1..255 bytes */
    struct slice item;
};

struct import_reader {
    struct import_rules rules;
    enum import_format format; /* IMPORT_AUTO until a first line has told */
    uint64_t line;             /* where the event or the malformed record begins; from 1 */
    struct err err;            /* ERR_INVALID: why it's malformed ... */
    bool untold;               /* ... because nothing says what its escapes mean */
    struct slice raw;          /* the record as it came, without its newline, if rules.keep; empty: it was too long */

    char *kept; /* where raw is */
    char *bytes;
    size_t begin, end;  /* not used yet */
    size_t scanned;     /* bytes from begin on that hold no newline */
    uint64_t next_line; /* number of the line at begin */
    bool started;       /* a byte order mark can't come any more */
    bool skipping;      /* inside a line that was too long */
    bool past_first;    /* a header can't come any more */
    bool ended;         /* no more bytes will come */
};

/* IMPORT_AUTO takes the format from the first line that isn't empty. Returns 0 or ERR_NOMEM. */
int import_reader_init(struct import_reader *r, const struct import_rules *rules);
void import_reader_free(struct import_reader *r);

/* For the next input; keeps the memory. */
void import_reader_restart(struct import_reader *r);

/* Where the next bytes go, and how many fit: at least 128 KiB. Only after IMPORT_MORE or at the start. */
char *import_reader_room(struct import_reader *r, size_t *size);
void import_reader_filled(struct import_reader *r, size_t n);

enum import_answer import_reader_next(struct import_reader *r, struct import_event *event);

#endif
