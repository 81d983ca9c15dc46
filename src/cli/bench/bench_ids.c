#include "cli/bench/bench_ids.h"

#include <string.h>

#include "cli/lib/random.h"

static char *write_digits(char *out, int digits, uint64_t n)
{
    for (int i = digits - 1; i >= 0; i--) {
        out[i] = (char)('0' + n % 10);
        n /= 10;
    }
    return out + digits;
}

uint64_t bench_item_id(uint64_t n)
{
    return random_mix(n + 1);
}

void bench_write_item(char out[BENCH_ITEM_LEN], uint64_t id)
{
    memcpy(out, "item:", 5);
    write_digits(out + 5, BENCH_ITEM_LEN - 5, id);
}

void bench_add_item(struct buf *out, uint64_t id)
{
    char text[5 + BENCH_ITEM_LEN + 2] = "$25\r\n";
    bench_write_item(text + 5, id);
    memcpy(text + 5 + BENCH_ITEM_LEN, "\r\n", 2);
    buf_add(out, text, sizeof text);
}

/* The length has two digits: for a request it must be in its shortest form. */
_Static_assert(BENCH_PREFIX_MAX + 1 + BENCH_USER_DIGITS <= 99, "a longer prefix needs a third digit");

void bench_add_user(struct buf *out, const char *prefix, uint64_t user)
{
    char head[6] = "$00\r\n", digits[1 + BENCH_USER_DIGITS + 2] = ":";
    size_t len = strlen(prefix), all = len + 1 + BENCH_USER_DIGITS;
    write_digits(head + 1, 2, all);
    memcpy(write_digits(digits + 1, BENCH_USER_DIGITS, user), "\r\n", 2);
    buf_add(out, head, 5);
    buf_add(out, prefix, len);
    buf_add(out, digits, sizeof digits);
}
