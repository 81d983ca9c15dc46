#include "grpc/status.h"

#include "base/err.h"

void status_message(const char *text, struct buf *out)
{
    for (; *text != '\0'; text++) {
        if (*text >= 0x20 && *text < 0x7f && *text != '%') {
            buf_add(out, text, 1);
        } else {
            buf_addf(out, "%%%02X", (unsigned)(unsigned char)*text);
        }
    }
}

int status_timeout(struct slice text, int64_t *us)
{
    static const struct {
        char unit;
        int64_t us;
    } units[] = {{'H', 3600000000}, {'M', 60000000}, {'S', 1000000}, {'m', 1000}, {'u', 1}, {'n', 0}};
    enum { DIGITS_MAX = 8 };
    const int64_t most = INT64_C(366) * 24 * 3600000000;
    int64_t number = 0;
    size_t digits = 0;
    while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9' && digits <= DIGITS_MAX) {
        number = 10 * number + text.data[digits++] - '0';
    }
    if (digits == 0 || digits > DIGITS_MAX || text.len != digits + 1) {
        return ERR_INVALID;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].unit == text.data[digits]) {
            *us = units[i].us == 0 ? (number + 999) / 1000 : number > most / units[i].us ? most : number * units[i].us;
            return 0;
        }
    }
    return ERR_INVALID;
}
