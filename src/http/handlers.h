/* The handlers that the table of routes names. */
#ifndef UNSEEN_HTTP_HANDLERS_H
#define UNSEEN_HTTP_HANDLERS_H

#include "http/http.h"

/* health.c */
enum http_outcome get_healthz(struct http_request *rq);
enum http_outcome get_readyz(struct http_request *rq);

/* page.c */
enum http_outcome get_page(struct http_request *rq);

/* status.c */
enum http_outcome get_status(struct http_request *rq);

/* metrics_gather.c */
enum http_outcome get_metrics(struct http_request *rq);

/* api_write.c */
enum http_outcome post_played(struct http_request *rq);
enum http_outcome post_delivered(struct http_request *rq);
enum http_outcome post_block(struct http_request *rq);
enum http_outcome post_unblock(struct http_request *rq);
enum http_outcome delete_user(struct http_request *rq);
enum http_outcome post_merge(struct http_request *rq);

/* api_ask.c */
enum http_outcome post_unseen(struct http_request *rq);
enum http_outcome post_hashes(struct http_request *rq);
enum http_outcome get_seed(struct http_request *rq);
enum http_outcome post_why(struct http_request *rq);
enum http_outcome post_exposure(struct http_request *rq);
enum http_outcome get_user(struct http_request *rq);

/* api_batch.c */
enum http_outcome post_unseen_batch(struct http_request *rq);

/* api_pools.c */
enum http_outcome get_pools(struct http_request *rq);
enum http_outcome get_pool(struct http_request *rq);
enum http_outcome put_pool(struct http_request *rq);
enum http_outcome post_pool(struct http_request *rq);
enum http_outcome delete_pool(struct http_request *rq);

/* api_store.c */
enum http_outcome get_ring(struct http_request *rq);
enum http_outcome get_months(struct http_request *rq);
enum http_outcome get_policies(struct http_request *rq);

/* api_timeline.c */
enum http_outcome get_timeline(struct http_request *rq);

/* openapi.c */
enum http_outcome options_all(struct http_request *rq);
enum http_outcome get_openapi(struct http_request *rq);

#endif
