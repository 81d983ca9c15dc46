/* A line of dead letters: any bytes give a letter or an error with a text. */
#include "base/arena.h"
#include "fuzz.h"
#include "kafka/dead_letters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct dead_letter letter;
    struct err err = {0};
    int code = dead_letter_read(slice_of((const char *)data, size), &arena, &letter, &err);
    CHECK(code == 0 || (code == ERR_INVALID && err.code == code && err.text[0] != '\0'));
    if (code == 0) {
        CHECK(letter.partition >= 0);
        CHECK(letter.value.data != NULL || letter.value.len == 0);
        CHECK(letter.value.len <= size && letter.key.len <= size);
    }
    arena_free(&arena);
    return 0;
}
