#include "base/sha256.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 };

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct state {
    uint32_t h[8];
    uint64_t len;
    uint8_t block[BLOCK];
    size_t n; /* bytes of it */
};

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void mix(struct state *s, const uint8_t *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        memcpy(&w[i], block + 4 * i, 4);
        w[i] = be32toh(w[i]);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
        uint32_t one = v[7] + a + ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + w[i];
        uint32_t b = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
        uint32_t two = b + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        s->h[i] += v[i];
    }
}

static void begin(struct state *s)
{
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (struct state){.len = 0};
    memcpy(s->h, h, sizeof h);
}

static void add(struct state *s, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    s->len += len;
    while (len > 0) {
        if (s->n == 0 && len >= BLOCK) {
            mix(s, at);
            at += BLOCK;
            len -= BLOCK;
            continue;
        }
        size_t step = BLOCK - s->n < len ? BLOCK - s->n : len;
        memcpy(s->block + s->n, at, step);
        s->n += step;
        at += step;
        len -= step;
        if (s->n == BLOCK) {
            mix(s, s->block);
            s->n = 0;
        }
    }
}

static void end(struct state *s, uint8_t out[SHA256_BYTES])
{
    uint64_t bits = htobe64(s->len * 8);
    static const uint8_t zeros[BLOCK];
    add(s, "\x80", 1);
    add(s, zeros, (s->n <= 56 ? 56 : 56 + BLOCK) - s->n);
    add(s, &bits, sizeof bits);
    for (int i = 0; i < 8; i++) {
        uint32_t h = htobe32(s->h[i]);
        memcpy(out + 4 * i, &h, 4);
    }
}

void sha256(struct slice bytes, uint8_t out[SHA256_BYTES])
{
    struct state s;
    begin(&s);
    add(&s, bytes.data, bytes.len);
    end(&s, out);
}

void hmac_sha256(struct slice key, struct slice bytes, uint8_t out[SHA256_BYTES])
{
    struct state s;
    uint8_t pad[BLOCK] = {0}, inner[SHA256_BYTES];
    if (key.len > BLOCK) {
        sha256(key, pad);
    } else {
        memcpy(pad, key.data, key.len);
    }
    for (int i = 0; i < BLOCK; i++) {
        pad[i] ^= 0x36;
    }
    begin(&s);
    add(&s, pad, sizeof pad);
    add(&s, bytes.data, bytes.len);
    end(&s, inner);
    for (int i = 0; i < BLOCK; i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    begin(&s);
    add(&s, pad, sizeof pad);
    add(&s, inner, sizeof inner);
    end(&s, out);
}

const char *sha256_text(const uint8_t digest[SHA256_BYTES], char out[SHA256_TEXT])
{
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
    return out;
}
