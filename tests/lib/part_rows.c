#include "tests/lib/part_rows.h"

#include <stdlib.h>

_Atomic uint64_t part_rows;

uint64_t __real_parts_rows(int64_t staging_memory);
uint64_t __wrap_parts_rows(int64_t staging_memory);

uint64_t __wrap_parts_rows(int64_t staging_memory)
{
    uint64_t rows = atomic_load(&part_rows);
    if (rows == 0) {
        const char *text = getenv("UNSEEN_TEST_PART_ROWS");
        rows = text != NULL ? strtoull(text, NULL, 10) : 0;
    }
    return rows > 0 ? rows : __real_parts_rows(staging_memory);
}
