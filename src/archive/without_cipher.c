/* Replaces cipher.c in a build without OpenSSL: no key is ever made. */
#include "archive/cipher.h"

static int missing(struct err *err)
{
    return err_set(err, ERR_INVALID, "this unseen was built without OpenSSL and can't encrypt an archive");
}

int cipher_key_make(const uint8_t bytes[CIPHER_KEY_BYTES], struct cipher_key *key, struct err *err)
{
    (void)bytes, (void)key;
    return missing(err);
}

int cipher_salt(uint8_t salt[CIPHER_SALT_BYTES], struct err *err)
{
    (void)salt;
    return missing(err);
}

int cipher_seal(const struct cipher_object *o, uint8_t *bytes, size_t len, struct err *err)
{
    (void)o, (void)bytes, (void)len;
    return missing(err);
}

int cipher_open(const struct cipher_object *o, struct slice sealed, uint8_t *out, struct err *err)
{
    (void)o, (void)sealed, (void)out;
    return missing(err);
}
