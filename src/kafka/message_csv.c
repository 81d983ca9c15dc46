#include "base/csv.h"
#include "kafka/message_impl.h"

_Static_assert((int)CSV_FIELDS >= 64, "kafka_user may name a column up to 64");

int message_read_csv(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                     struct err *err)
{
    struct csv_record record;
    char *at = (char *)value.data;
    if (value.len > 0 && memchr(value.data, '"', value.len) != NULL) { /* quotes are undone in place */
        at = arena_copy(draft->arena, value.data, value.len);
        if (at == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
    }
    enum csv_answer answer = csv_scan(at, value.len, true, &record);
    if (answer != CSV_DONE) {
        return err_set(err, ERR_INVALID, "%s, expected a line of CSV",
                       answer == CSV_WRONG ? record.why : "a quote isn't closed");
    }
    if (record.len + 1 < value.len) {
        return err_set(err, ERR_INVALID, "it has more than one line, expected one line of CSV");
    }
    for (unsigned f = 0; f < MESSAGE_FIELDS; f++) {
        const struct message_path *path = &rules->paths[f];
        bool needed = f == MESSAGE_USER || f == MESSAGE_ITEM;
        if (path->n == 0 || (path->numbers[0] > record.n && !needed)) {
            continue;
        }
        if (path->numbers[0] > record.n) {
            return err_set(err, ERR_INVALID, "%s is column %u, and the line has %zu", message_names[f],
                           (unsigned)path->numbers[0], record.n);
        }
        struct slice text = csv_field(at, &record, path->numbers[0] - 1);
        if (f == MESSAGE_ITEM) {
            draft->has_items = true;
            int code = message_add_item(draft, text, err);
            if (code < 0) {
                return code;
            }
        } else if (text.len > 0 || needed) { /* an empty time or type is none */
            draft->texts[f] = text;
        }
    }
    return 0;
}
