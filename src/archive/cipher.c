#include "archive/cipher.h"

#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <string.h>
#include <sys/random.h>

static const char id_of[] = "unseen archive key id";

static int failed(struct err *err, const char *what)
{
    return err_set(err, ERR_NOMEM, "OpenSSL can't %s", what);
}

/* HKDF-SHA256 (RFC 5869). */
static int derive(const uint8_t key[CIPHER_KEY_BYTES], struct slice salt, struct slice info, uint8_t *out, size_t len)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
                                 OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)key, CIPHER_KEY_BYTES),
                                 OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt.data, salt.len),
                                 OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)info.data, info.len),
                                 OSSL_PARAM_construct_end()};
    int good = ctx != NULL && EVP_KDF_derive(ctx, out, len, params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return good ? 0 : -1;
}

int cipher_key_make(const uint8_t bytes[CIPHER_KEY_BYTES], struct cipher_key *key, struct err *err)
{
    uint8_t id[3];
    memcpy(key->bytes, bytes, CIPHER_KEY_BYTES);
    if (derive(bytes, slice_of("", 0), slice_str(id_of), id, sizeof id) < 0) {
        return failed(err, "derive a key");
    }
    key->id = (uint32_t)CIPHER_AES_GCM | (uint32_t)id[0] << 8 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 24;
    return 0;
}

int cipher_salt(uint8_t salt[CIPHER_SALT_BYTES], struct err *err)
{
    return getrandom(salt, CIPHER_SALT_BYTES, 0) == CIPHER_SALT_BYTES
               ? 0
               : err_set(err, ERR_SYSTEM, "the kernel gives no random bytes");
}

/* NULL: it failed. */
static EVP_CIPHER_CTX *begin(const struct cipher_object *o, bool seals)
{
    static const uint8_t nonce[12];
    uint8_t key[CIPHER_KEY_BYTES];
    int len;
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    bool good = ctx != NULL &&
                derive(o->key->bytes, slice_of((const char *)o->salt, CIPHER_SALT_BYTES), slice_of("", 0), key,
                       sizeof key) == 0 &&
                EVP_CipherInit_ex2(ctx, EVP_aes_256_gcm(), key, nonce, seals, NULL) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &len, (const uint8_t *)o->name.data, (int)o->name.len) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &len, (const uint8_t *)o->head.data, (int)o->head.len) == 1;
    OPENSSL_cleanse(key, sizeof key);
    if (!good) {
        EVP_CIPHER_CTX_free(ctx);
        ctx = NULL;
    }
    return ctx;
}

int cipher_seal(const struct cipher_object *o, uint8_t *bytes, size_t len, struct err *err)
{
    int n = 0, end = 0;
    EVP_CIPHER_CTX *ctx = len <= INT_MAX ? begin(o, true) : NULL;
    bool good = ctx != NULL && EVP_EncryptUpdate(ctx, bytes, &n, bytes, (int)len) == 1 &&
                EVP_EncryptFinal_ex(ctx, bytes + n, &end) == 1 &&
                EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, CIPHER_TAG_BYTES, bytes + len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return good ? 0 : failed(err, "encrypt an object");
}

int cipher_open(const struct cipher_object *o, struct slice sealed, uint8_t *out, struct err *err)
{
    int n = 0, end = 0;
    size_t len = sealed.len - CIPHER_TAG_BYTES;
    if (sealed.len < CIPHER_TAG_BYTES || len > INT_MAX) {
        return err_set(err, ERR_CORRUPT, "%.*s is cut off", (int)o->name.len, o->name.data);
    }
    EVP_CIPHER_CTX *ctx = begin(o, false);
    bool good = ctx != NULL && EVP_DecryptUpdate(ctx, out, &n, (const uint8_t *)sealed.data, (int)len) == 1 &&
                EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, CIPHER_TAG_BYTES, (void *)(sealed.data + len)) == 1;
    if (!good) {
        EVP_CIPHER_CTX_free(ctx);
        return failed(err, "decrypt an object");
    }
    good = EVP_DecryptFinal_ex(ctx, out + n, &end) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return good ? 0
                : err_set(err, ERR_CORRUPT, "%.*s is not what was written under that name: it was changed, or renamed",
                          (int)o->name.len, o->name.data);
}
