/* Counts how many different 64-bit hashes it was given: exactly, in a table of 11 to 22 bytes each. */
#ifndef UNSEEN_CLI_IMPORT_DISTINCT_H
#define UNSEEN_CLI_IMPORT_DISTINCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero is an empty one. */
struct distinct {
    uint64_t *slots; /* 0: free */
    size_t size;     /* a power of two */
    size_t used;
    bool zero; /* the hash 0 was given */
};

int distinct_add(struct distinct *d, uint64_t hash); /* 0 or ERR_NOMEM */
uint64_t distinct_count(const struct distinct *d);
void distinct_free(struct distinct *d);

#endif
