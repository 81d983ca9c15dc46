/* What objects of an archive are encrypted with: AES-256-GCM by OpenSSL. Each object has a random salt in its head; its
 * key is HKDF-SHA256(key, salt), and its nonce 0. Its name and head are authenticated with it, so that nothing that
 * lies under another name, or was changed, is read.
 *
 * A key has an id, which stands in the head of each object: so another key is told from a changed object. */
#ifndef UNSEEN_ARCHIVE_CIPHER_H
#define UNSEEN_ARCHIVE_CIPHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"

enum { CIPHER_KEY_BYTES = 32, CIPHER_SALT_BYTES = 32, CIPHER_TAG_BYTES = 16 };

enum { CIPHER_PLAIN = 0, CIPHER_AES_GCM = 1 }; /* the low byte of an id; the others are 24 bits of the key's HKDF */

struct cipher_key {
    uint8_t bytes[CIPHER_KEY_BYTES];
    uint32_t id; /* CIPHER_PLAIN: there is none */
};

/* now: of what is written. old: what was written before there was this key is read, too. Zeroed: no keys. */
struct cipher_keys {
    struct cipher_key now, old;
    bool old_is_plain; /* such objects are not encrypted */
};

/* Of archive_key_file and archive_old_key_file, each the name of a file, or "": none; "none" as old: see above.
 * ERR_INVALID: no file of 32 bytes which its owner and group alone can read; ERR_SYSTEM: it can't be read. */
int cipher_keys_read(const struct config *cfg, struct cipher_keys *keys, struct err *err);
int cipher_key_make(const uint8_t bytes[CIPHER_KEY_BYTES], struct cipher_key *key, struct err *err);
void cipher_keys_forget(struct cipher_keys *keys);

/* The key of an object that says that id; *key is NULL when it is not encrypted. ERR_KEY: it is not to be read with
 * these keys, and what to do. keys NULL: none. */
int cipher_find(const struct cipher_keys *keys, const char *name, uint32_t id, const struct cipher_key **key,
                struct err *err);

int cipher_salt(uint8_t salt[CIPHER_SALT_BYTES], struct err *err);

struct cipher_object {
    const struct cipher_key *key;
    const uint8_t *salt;
    struct slice name, head; /* both authenticated, one behind the other */
};

/* Encrypts in place; the tag is written behind. */
int cipher_seal(const struct cipher_object *o, uint8_t *bytes, size_t len, struct err *err);

/* Decrypts all but the tag at its end into out. ERR_CORRUPT: it is not what was sealed. */
int cipher_open(const struct cipher_object *o, struct slice sealed, uint8_t *out, struct err *err);

#endif
