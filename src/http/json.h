/* JSON of requests and answers. A body is scanned where it stands, and its strings are decoded in place, so reading one
 * takes no memory beside it. What an answer tells of a request is written as text, too. What the server tells of
 * itself, whose size no client chooses, is a tree of jansson's. */
#ifndef UNSEEN_HTTP_JSON_H
#define UNSEEN_HTTP_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "http/http.h"
#include "service/fields.h"

/* Appends the value as text, and lets go of it. NULL (out of memory) makes the buffer a failed one. */
void json_write(struct buf *out, json_t *value);

/* Appends a string, which is UTF-8, in its quotes. */
void json_add_text(struct buf *out, struct slice text);

/* Appends to an array. When memory is out, that and the list become NULL, and so does what is made of it. */
void json_append(json_t **list, json_t *value);

/* The same of an item's id, which may be any bytes: those that no string says are {"base64": ...}. */
void json_add_id(struct buf *out, struct slice id);

/* Appends the member, with its colon; an id that isn't UTF-8, which JSON can't say, is base64 under name_base64. */
void json_add_named_id(struct buf *out, const char *name, struct slice id);

/* Bytes in base64, in quotes. */
void json_add_base64(struct buf *out, struct slice bytes);

/* A string, or NULL when the bytes aren't UTF-8. */
json_t *json_from_id(struct slice id);

/* Sets the member to the id, as json_add_named_id(). */
void json_set_id(json_t *object, const char *name, struct slice id);

struct timeline_point;
json_t *timeline_point_json(const struct timeline_point *p); /* api_timeline.c */

/* Reads the body, once: an object of the operation's fields (service/fields.h) and no others. Lists stand in rq->items,
 * which has room for FIELDS_SLICES. False: the problem is in the answer. */
bool json_read(struct http_request *rq, unsigned of, struct asked *asked);

/* The same of the arguments of the query. */
bool json_read_query(struct http_request *rq, unsigned of, struct asked *asked);

#endif
