/* What the key and the entries hold, as JSON: the same for all kinds of lock. Pure. */
#ifndef UNSEEN_REGISTRY_LOCK_JSON_H
#define UNSEEN_REGISTRY_LOCK_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "registry/lease_state.h"

/* NULL: out of memory. The caller frees texts, and gives up references. */
char *lock_text(json_t *value); /* takes the reference; NULL gives NULL */
json_t *lock_hex(uint64_t id);
json_t *lock_value(const struct lease_value *v);
json_t *lock_entry(const struct lease_state *s, const struct lease_self *self);

/* False: it is none. `content` may be NULL. */
bool lock_take_value(const json_t *content, struct lease_value *out);
/* One that can't be read is all 0, and counts as one that has not been published for this vacancy. */
void lock_take_entry(const json_t *content, struct lease_rival *out);
/* A session: it becomes part of paths. */
bool lock_take_id(const char *id, char out[LEASE_SESSION]);
/* JSON in base64, as a server keeps it. NULL: something else. */
json_t *lock_content(const char *coded);
/* All of a list, each of whose rows has its content at that name. False: too many. */
bool lock_take_rivals(const json_t *rows, const char *name, struct lease_answer *out);
/* A whole number from 0, also as a string of digits, as etcd and Kubernetes write it. */
bool lock_take_number(const json_t *value, uint64_t *out);

#endif
