/* One handle of libcurl, which keeps its connection, on a multi handle: that waits in bounded steps, and can be woken
 * from another thread. */
#include "registry/agent.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"

enum { REPLY_MAX = 1024 * 1024, HEAD_MAX = 64 * 1024, SECRET_MAX = 16 * 1024 };
enum { CONNECT_MS = 2000, STEP_MS = HEARTBEAT_EVERY_MS / 2, URL_TEXT = 3 * CONFIG_TEXT + 512 };

struct agent {
    struct agent_tls tls;
    struct heartbeat *heartbeat;
    CURLM *multi;
    CURL *easy;
    _Atomic bool interrupted;
    const char *url;      /* the caller's, as is */
    struct buf *reply;    /* this */
    size_t head;          /* bytes of it that have come, trailers and what comes before it too */
    const char *too_long; /* what is; NULL: nothing */
    char error[CURL_ERROR_SIZE];
};

const char *agent_library_version(void)
{
    return curl_version_info(CURLVERSION_NOW)->version;
}

/* curl checks the type of each option's value with a macro that shadows. */
#pragma GCC diagnostic ignored "-Wshadow"

static size_t on_head(char *bytes, size_t size, size_t n, void *arg)
{
    (void)bytes;
    struct agent *a = arg;
    a->head += size * n;
    a->too_long = a->head > HEAD_MAX ? "a head of more than 64 KiB" : NULL;
    return a->too_long == NULL ? size * n : 0;
}

/* As they come: what is packed, nothing unpacks. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct agent *a = arg;
    const size_t len = size * n;
    a->too_long = a->reply->len + len > REPLY_MAX ? "a reply of more than 1 MiB" : NULL;
    return a->too_long == NULL && buf_add(a->reply, bytes, len) == 0 ? len : 0;
}

/* No redirect is followed, and only HTTP/1 spoken, of which no more than head and reply is kept. */
static bool set_options(struct agent *a)
{
    const struct agent_tls *tls = &a->tls;
    bool good = curl_easy_setopt(a->easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK && /* a name server is not waited for */
                curl_easy_setopt(a->easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_HEADERFUNCTION, on_head) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_HEADERDATA, a) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_WRITEDATA, a) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_USERAGENT, "unseen/" UNSEEN_VERSION) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_ERRORBUFFER, a->error) == CURLE_OK;
    if (good && tls->ca[0] != '\0') {
        good = curl_easy_setopt(a->easy, CURLOPT_CAINFO, tls->ca) == CURLE_OK;
    }
    if (good && tls->cert[0] != '\0') {
        good = curl_easy_setopt(a->easy, CURLOPT_SSLCERT, tls->cert) == CURLE_OK &&
               curl_easy_setopt(a->easy, CURLOPT_SSLKEY, tls->key) == CURLE_OK;
    }
    return good;
}

int agent_new(const struct agent_tls *tls, struct heartbeat *heartbeat, struct agent **agent, struct err *err)
{
    struct agent *a = calloc(1, sizeof *a);
    *agent = NULL;
    if (a != NULL) {
        a->tls = *tls;
        a->heartbeat = heartbeat;
        a->multi = curl_multi_init();
        a->easy = curl_easy_init();
    }
    if (a == NULL || a->multi == NULL || a->easy == NULL || !set_options(a)) {
        agent_free(a);
        return err_set(err, ERR_NOMEM, "out of memory for the registry");
    }
    *agent = a;
    return 0;
}

void agent_free(struct agent *a)
{
    if (a != NULL) {
        curl_easy_cleanup(a->easy);
        curl_multi_cleanup(a->multi);
        free(a);
    }
}

void agent_interrupt(struct agent *a)
{
    atomic_store(&a->interrupted, true);
    curl_multi_wakeup(a->multi);
}

bool agent_interrupted(const struct agent *a)
{
    return atomic_load(&a->interrupted);
}

void agent_resume(struct agent *a)
{
    atomic_store(&a->interrupted, false);
}

/* One step of waiting, for whatever comes first. */
static void wait_step(struct agent *a, int64_t until_us)
{
    int64_t left = (until_us - clock_real_us() + 999) / 1000;
    curl_multi_poll(a->multi, NULL, 0, (int)(left < 0 ? 0 : left < STEP_MS ? left : STEP_MS), NULL);
    heartbeat_now(a->heartbeat);
}

void agent_rest(struct agent *a, int64_t ms)
{
    int64_t until_us = clock_real_us() + ms * 1000;
    while (!atomic_load(&a->interrupted) && clock_real_us() < until_us) {
        wait_step(a, until_us);
    }
}

/* Until the answer is whole. */
static int perform(struct agent *a, int64_t ms, struct err *err)
{
    int64_t until_us = clock_real_us() + ms * 1000;
    int running = 1;
    while (curl_multi_perform(a->multi, &running) == CURLM_OK && running > 0) {
        if (atomic_load(&a->interrupted)) {
            return err_set(err, ERR_CLOSED, "interrupted");
        }
        if (clock_real_us() >= until_us) {
            return err_set(err, ERR_SYSTEM, "%s: no answer in %d ms", a->url, (int)ms);
        }
        wait_step(a, until_us);
    }
    if (a->too_long != NULL) {
        return err_set(err, ERR_SYSTEM, "%s: %s, where none is so long", a->url, a->too_long);
    }
    int left;
    const CURLMsg *done = curl_multi_info_read(a->multi, &left);
    if (done == NULL || done->msg != CURLMSG_DONE || done->data.result != CURLE_OK) {
        /* What libcurl says of a line of 100 KB, too. */
        const bool memory = done != NULL && done->data.result == CURLE_OUT_OF_MEMORY;
        const char *why = memory                ? "out of memory, or its head has a line longer than libcurl takes"
                          : a->error[0] != '\0' ? a->error
                          : done != NULL        ? curl_easy_strerror(done->data.result)
                                                : "it failed";
        return err_set(err, ERR_SYSTEM, "%s: %s", a->url, why);
    }
    return 0;
}

static struct curl_slist *headers_of(const struct agent_request *r)
{
    char type[128];
    snprintf(type, sizeof type, "Content-Type: %s", r->type);
    struct curl_slist *list = curl_slist_append(NULL, type);
    if (list != NULL && r->secret[0] != '\0') {
        char header[SECRET_MAX + 64];
        snprintf(header, sizeof header, "%s%s", r->header, r->secret);
        struct curl_slist *longer = curl_slist_append(list, header);
        explicit_bzero(header, sizeof header);
        if (longer == NULL) {
            curl_slist_free_all(list);
        }
        list = longer;
    }
    return list;
}

int agent_call(struct agent *a, const struct agent_request *r, long *status, struct buf *reply, struct err *err)
{
    char url[URL_TEXT];
    if (atomic_load(&a->interrupted)) {
        return err_set(err, ERR_CLOSED, "interrupted");
    }
    snprintf(url, sizeof url, "%s%s", r->url, r->path);
    buf_clear(reply);
    *status = 0;
    a->error[0] = '\0';
    a->url = r->url;
    a->reply = reply;
    a->head = 0;
    a->too_long = NULL;
    struct curl_slist *headers = headers_of(r);
    const char *text = r->body != NULL ? r->body : "";
    bool is_get = strcmp(r->method, "GET") == 0;
    bool good = headers != NULL && curl_easy_setopt(a->easy, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
                (is_get ? curl_easy_setopt(a->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK
                        : curl_easy_setopt(a->easy, CURLOPT_COPYPOSTFIELDS, text) == CURLE_OK) &&
                curl_easy_setopt(a->easy, CURLOPT_CUSTOMREQUEST, is_get ? NULL : r->method) == CURLE_OK &&
                curl_multi_add_handle(a->multi, a->easy) == CURLM_OK;
    int rc = good ? perform(a, r->ms, err) : err_set(err, ERR_NOMEM, "out of memory for a request to %s", r->url);
    if (rc == 0) {
        curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, status);
    }
    if (good) {
        curl_multi_remove_handle(a->multi, a->easy);
    }
    curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return rc;
}
