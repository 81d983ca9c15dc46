/* From JSON to a request of the service (service/request.h), and from its outcome to an answer. */
#ifndef UNSEEN_HTTP_SUBMIT_H
#define UNSEEN_HTTP_SUBMIT_H

#include "http/json.h"
#include "service/meter.h"
#include "service/request.h"

/* Writes what came of a request, the second, into the answer of the first; before it is durable, for what is recorded:
 * an error then takes its place. */
typedef void http_tell(struct http_request *rq, const struct request *asked);

/* Submits a copy of the request, with the bytes that it points to, and answers when its outcome is there: now, or
 * later. op: what it is measured as. */
enum http_outcome http_submit(struct http_request *rq, const struct request *asked, enum op op, http_tell *tell);

/* api_ask.c: whether there are candidates: items or pools, of one or many users. False: it is told what is wrong. */
bool question_has_candidates(struct http_request *rq, const struct request *asked);

/* The same: how many bytes a list of so many candidates may take in an answer of that form, with the ids' own bytes;
 * and whether such an answer can ever be made. False: it is refused. */
size_t question_answer_max(enum question_form form, size_t n, size_t id_bytes);
bool question_may_answer(struct http_request *rq, size_t most, const char *what, const char *instead);

/* The same: appends the answer, "items":[...]. */
void question_add_answer(struct buf *out, const struct request *asked);

/* conn.c: the connection was kicked while a request is with the service; a record of it was answered; it ends. */
bool http_submit_go_on(struct http_request *rq); /* false: not yet */
void http_submit_recorded(struct http_request *rq, const struct err *err);
void http_submit_end(struct http_request *rq);

#endif
