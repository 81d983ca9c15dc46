#include "dedup/tier.h"

size_t tier_unite(uint8_t *a, const uint8_t *tier, size_t n)
{
    size_t unseen = 0, bytes = (n + 7) / 8;
    for (size_t i = 0; i < bytes; i++) {
        a[i] &= tier[i];
    }
    if (n % 8 != 0) {
        a[bytes - 1] &= (uint8_t)(0xff << (8 - n % 8));
    }
    for (size_t i = 0; i < bytes; i++) {
        unseen += (size_t)__builtin_popcount(a[i]);
    }
    return unseen;
}
