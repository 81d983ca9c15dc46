/* What blocks: locks, the monitors, lists of objects. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "store/rados/module/librados_impl.h"

#define LOCK_NAME "unseen"

int librados_failed(struct err *err, int code, const char *what)
{
    return err_set(err, code == -ETIMEDOUT ? ERR_LATE : ERR_IO, "RADOS: can't %s: %s", what, strerror(-code));
}

/* --- locks --- */

int librados_lock(struct cluster *c, const char *object, const char *cookie, int seconds, struct err *err)
{
    struct timeval duration = {.tv_sec = seconds};
    int code = rados_lock_exclusive(c->io, object, LOCK_NAME, cookie, "unseen", &duration, LIBRADOS_LOCK_FLAG_RENEW);
    return code == 0 ? 1 : code == -EBUSY ? 0 : librados_failed(err, code, "take a lock");
}

int librados_unlock(struct cluster *c, const char *object, const char *cookie, struct err *err)
{
    int code = rados_unlock(c->io, object, LOCK_NAME, cookie);
    return code == 0 || code == -ENOENT ? 0 : librados_failed(err, code, "release a lock");
}

/* --- the monitors --- */

int librados_command(struct cluster *c, const char *json, char **text, size_t *len, struct err *err)
{
    char *answer = NULL, *status = NULL;
    size_t answer_len = 0, status_len = 0;
    int code = rados_mon_command(c->rados, &json, 1, "", 0, &answer, &answer_len, &status, &status_len), result = 0;
    if (code == -EPERM || code == -EACCES) {
        result = err_set(err, ERR_NOPERM, "RADOS: the monitors don't let this user ask that");
    } else if (code < 0 && status_len > 0) {
        result = err_set(err, ERR_IO, "RADOS: %.*s", (int)(status_len < 200 ? status_len : 200), status);
    } else if (code < 0) {
        result = librados_failed(err, code, "ask the monitors");
    } else if (answer_len > CLUSTER_ANSWER) {
        result = err_set(err, ERR_LARGE, "RADOS: the monitors' answer has %zu bytes: %d are taken at most", answer_len,
                         CLUSTER_ANSWER);
    } else if ((*text = malloc(answer_len + 1)) == NULL) {
        result = err_set(err, ERR_NOMEM, "out of memory");
    } else {
        if (answer_len > 0) {
            memcpy(*text, answer, answer_len);
        }
        (*text)[answer_len] = '\0';
        *len = answer_len;
    }
    rados_buffer_free(answer);
    rados_buffer_free(status);
    return result;
}

/* --- the list --- */

struct cluster_listing {
    struct cluster *cluster;
    rados_object_list_cursor at, end;
};

int librados_list(struct cluster *c, size_t i, size_t n, struct cluster_listing **listing, struct err *err)
{
    struct cluster_listing *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    rados_object_list_cursor begin = rados_object_list_begin(c->io), end = rados_object_list_end(c->io);
    l->cluster = c;
    l->at = rados_object_list_begin(c->io);
    l->end = rados_object_list_begin(c->io);
    rados_object_list_slice(c->io, begin, end, i, n, &l->at, &l->end);
    rados_object_list_cursor_free(c->io, begin);
    rados_object_list_cursor_free(c->io, end);
    *listing = l;
    return 0;
}

int librados_list_next(struct cluster_listing *l, size_t max, void (*name)(void *arg, const char *object), void *arg,
                       struct err *err)
{
    rados_ioctx_t io = l->cluster->io;
    if (rados_object_list_is_end(io, l->at) || rados_object_list_cursor_cmp(io, l->at, l->end) >= 0) {
        return 0;
    }
    rados_object_list_item *items = calloc(max, sizeof *items);
    rados_object_list_cursor next = rados_object_list_begin(io);
    if (items == NULL) {
        rados_object_list_cursor_free(io, next);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int n = rados_object_list(io, l->at, l->end, max, "", 0, items, &next);
    if (n < 0) {
        free(items);
        rados_object_list_cursor_free(io, next);
        return librados_failed(err, n, "list objects");
    }
    int result = 0;
    for (int i = 0; i < n && result == 0; i++) {
        char *object = strndup(items[i].oid, items[i].oid_length); /* librados gives names without an end */
        if (object != NULL) {
            name(arg, object);
        } else {
            result = err_set(err, ERR_NOMEM, "out of memory while listing objects");
        }
        free(object);
    }
    rados_object_list_free((size_t)n, items);
    free(items);
    rados_object_list_cursor_free(io, l->at);
    l->at = next;
    if (result < 0) {
        return result;
    }
    return !rados_object_list_is_end(io, l->at) && rados_object_list_cursor_cmp(io, l->at, l->end) < 0;
}

void librados_list_end(struct cluster_listing *l)
{
    rados_object_list_cursor_free(l->cluster->io, l->at);
    rados_object_list_cursor_free(l->cluster->io, l->end);
    free(l);
}
