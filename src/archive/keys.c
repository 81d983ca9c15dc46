/* The files of keys, and which of the keys an object is read with. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/cipher.h"

static int read_file(const char *option, const char *path, uint8_t bytes[CIPHER_KEY_BYTES + 1], size_t *len,
                     struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_set(err, ERR_SYSTEM, "can't read %s %s: %s", option, path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        err_set(err, ERR_INVALID, "%s %s is no file", option, path);
    } else if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
        err_set(err, ERR_INVALID, "%s %s may be read or written by others (mode %03o): chmod 600, or 640, it", option,
                path, (unsigned)st.st_mode & 0777);
    } else {
        *err = (struct err){0};
        for (ssize_t n = 1; n != 0 && *len <= CIPHER_KEY_BYTES;) {
            n = read(fd, bytes + *len, CIPHER_KEY_BYTES + 1 - *len);
            if (n < 0 && errno != EINTR) {
                err_set(err, ERR_SYSTEM, "can't read %s %s: %s", option, path, strerror(errno));
                break;
            }
            *len += n > 0 ? (size_t)n : 0;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return err->code;
}

static int read_key(const char *option, const char *path, struct cipher_key *key, struct err *err)
{
    uint8_t bytes[CIPHER_KEY_BYTES + 1];
    size_t len = 0;
    int rc = read_file(option, path, bytes, &len, err);
    if (rc == 0 && len != CIPHER_KEY_BYTES) {
        rc = err_set(err, ERR_INVALID,
                     "%s %s has %s%zu bytes, expected %d random ones, as \"head -c 32 /dev/urandom\" makes them",
                     option, path, len > CIPHER_KEY_BYTES ? "at least " : "", len, CIPHER_KEY_BYTES);
    }
    rc = rc < 0 ? rc : cipher_key_make(bytes, key, err);
    explicit_bzero(bytes, sizeof bytes);
    return rc;
}

int cipher_keys_read(const struct config *cfg, struct cipher_keys *keys, struct err *err)
{
    const char *now = cfg->archive_key_file, *old = cfg->archive_old_key_file;
    *keys = (struct cipher_keys){.old_is_plain = strcmp(old, "none") == 0};
    int rc = now[0] != '\0' ? read_key("archive_key_file", now, &keys->now, err) : 0;
    if (rc == 0 && old[0] != '\0' && !keys->old_is_plain) {
        rc = read_key("archive_old_key_file", old, &keys->old, err);
    }
    if (rc < 0) {
        cipher_keys_forget(keys);
    }
    return rc;
}

void cipher_keys_forget(struct cipher_keys *keys)
{
    explicit_bzero(keys, sizeof *keys);
}

int cipher_find(const struct cipher_keys *keys, const char *name, uint32_t id, const struct cipher_key **key,
                struct err *err)
{
    static const struct cipher_keys none;
    keys = keys != NULL ? keys : &none;
    bool encrypts = keys->now.id != CIPHER_PLAIN;
    *key = id == CIPHER_PLAIN ? NULL : id == keys->now.id ? &keys->now : &keys->old;
    if (id == CIPHER_PLAIN) {
        return !encrypts || keys->old_is_plain
                   ? 0
                   : err_set(err, ERR_KEY,
                             "%s is not encrypted: archive_old_key_file = none lets what was written before there was "
                             "a key be read",
                             name);
    }
    if (id == keys->now.id || id == keys->old.id) {
        return 0;
    }
    return encrypts ? err_set(err, ERR_KEY,
                              "%s is encrypted with another key than that of archive_key_file; archive_old_key_file "
                              "may name the one before it",
                              name)
                    : err_set(err, ERR_KEY, "%s is encrypted: name the file of its key in archive_key_file", name);
}
