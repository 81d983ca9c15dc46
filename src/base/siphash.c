#include "base/siphash.h"

#include <endian.h>
#include <string.h>

enum { WORD = 8, ROUNDS = 2, LAST_ROUNDS = 4 };

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, ROUNDS);
    v[0] ^= word;
}

struct siphash siphash(const struct siphash *key, const void *bytes, size_t len)
{
    uint64_t v[4] = {key->a ^ UINT64_C(0x736f6d6570736575), key->b ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                     key->a ^ UINT64_C(0x6c7967656e657261), key->b ^ UINT64_C(0x7465646279746573)};
    const unsigned char *at = bytes;
    uint64_t word;
    size_t left = len;
    for (; left >= WORD; left -= WORD, at += WORD) {
        memcpy(&word, at, WORD);
        take(v, le64toh(word));
    }
    word = 0;
    if (left > 0) {
        memcpy(&word, at, left);
    }
    take(v, le64toh(word) | (uint64_t)len << 56);
    struct siphash out;
    v[2] ^= 0xee;
    mix(v, LAST_ROUNDS);
    out.a = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    mix(v, LAST_ROUNDS);
    out.b = v[0] ^ v[1] ^ v[2] ^ v[3];
    return out;
}
