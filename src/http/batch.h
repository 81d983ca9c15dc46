/* A question about many users that is with the service: as http/submit.h, which asks these two. */
#ifndef UNSEEN_HTTP_BATCH_H
#define UNSEEN_HTTP_BATCH_H

#include <stdbool.h>

#include "http/http.h"

bool http_batch_go_on(struct http_request *rq); /* false: not yet */
void http_batch_end(struct http_request *rq);   /* also where there is none */

#endif
