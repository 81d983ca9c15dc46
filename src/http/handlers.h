/* The handlers that the table of routes names. */
#ifndef UNSEEN_HTTP_HANDLERS_H
#define UNSEEN_HTTP_HANDLERS_H

#include "http/http.h"

/* health.c */
enum http_outcome get_healthz(struct http_request *rq);
enum http_outcome get_readyz(struct http_request *rq);

/* metrics_gather.c */
enum http_outcome get_metrics(struct http_request *rq);

#endif
