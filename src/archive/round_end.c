#include "archive/round_end.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int round_end_shard(struct buf *lines, const struct round_shard *s)
{
    return buf_addf(lines, "shard %" PRIu32 " %016" PRIx64 " %016" PRIx64 " %" PRIu64 " %016" PRIx64 "\n", s->shard,
                    s->from, s->to, s->bytes, s->checksum);
}

int round_end_write(const struct round_end *e, const struct buf *shard_lines, struct buf *text)
{
    buf_addf(text, "program %s\nseed %016" PRIx64 "\nterm %" PRIu64 "\n", e->program, e->seed, e->term);
    buf_addf(text, "window %" PRId64 "\nretention %" PRId64 "\n", e->window, e->retention);
    buf_addf(text, "delivered_max %" PRId64 "\nerror_rate %.17g\n", e->delivered_max, e->error_rate);
    buf_addf(text, "ended %" PRId64 "\n", e->ended_ms);
    if (e->from_node != 0) {
        buf_addf(text, "from %016" PRIx64 " %" PRIu64 "\n", e->from_node, e->from_seq);
    }
    buf_add(text, shard_lines->data, shard_lines->len);
    return text->failed || shard_lines->failed ? ERR_NOMEM : 0;
}

static bool read_line(const char *line, struct round_end *e)
{
    struct round_shard s;
    if (strncmp(line, "program ", 8) == 0) {
        return snprintf(e->program, sizeof e->program, "%s", line + 8) > 0;
    }
    if (strncmp(line, "shard ", 6) == 0) {
        return sscanf(line + 6, "%" SCNu32 " %" SCNx64 " %" SCNx64 " %" SCNu64 " %" SCNx64, &s.shard, &s.from, &s.to,
                      &s.bytes, &s.checksum) == 5 &&
               buf_add(&e->shards, &s, sizeof s) == 0;
    }
    if (strncmp(line, "from ", 5) == 0) {
        return sscanf(line + 5, "%" SCNx64 " %" SCNu64, &e->from_node, &e->from_seq) == 2;
    }
    if (strncmp(line, "seed ", 5) == 0) {
        return sscanf(line + 5, "%" SCNx64, &e->seed) == 1;
    }
    if (strncmp(line, "error_rate ", 11) == 0) {
        return sscanf(line + 11, "%lf", &e->error_rate) == 1;
    }
    const struct {
        const char *word;
        int64_t *value;
    } numbers[] = {{"window ", &e->window},
                   {"retention ", &e->retention},
                   {"delivered_max ", &e->delivered_max},
                   {"ended ", &e->ended_ms},
                   {"term ", (int64_t *)&e->term}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t n = strlen(numbers[i].word);
        if (strncmp(line, numbers[i].word, n) == 0) {
            return sscanf(line + n, "%" SCNd64, numbers[i].value) == 1;
        }
    }
    return true;
}

int round_end_read(const char *name, struct slice text, struct round_end *e, struct err *err)
{
    char line[256];
    bool good = true;
    for (size_t at = 0, end; good && at < text.len; at = end + 1) {
        const char *newline = memchr(text.data + at, '\n', text.len - at);
        good = newline != NULL && (size_t)(newline - (text.data + at)) < sizeof line;
        end = good ? (size_t)(newline - text.data) : text.len;
        if (good) {
            memcpy(line, text.data + at, end - at);
            line[end - at] = '\0';
            good = read_line(line, e);
        }
    }
    return good && e->term > 0 && e->ended_ms > 0 ? 0 : err_set(err, ERR_CORRUPT, "%s can't be read", name);
}

void round_end_free(struct round_end *e)
{
    buf_free(&e->shards);
}
