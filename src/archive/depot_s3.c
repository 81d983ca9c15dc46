/* A depot in a bucket of S3, or of a server that speaks as S3 does, by libcurl.
 *
 * A request has time limits and is signed for itself. It is tried once: who asks tries again, with the same bytes, so
 * that one which is answered late, or twice, changes nothing. Redirects are not followed. */
#include "archive/depot.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/sigv4.h"
#include "base/clock.h"

enum { CONNECT_S = 10, SLOW_S = 30, LIMIT_S = 300, KEYS_TEXT = 4096, HEADERS = 8, XML_MAX = 16 * 1024 * 1024 };

struct s3_depot {
    struct depot depot;
    CURL *easy;
    char scheme[8], host[CONFIG_TEXT], bucket[CONFIG_TEXT];
    char folder[CONFIG_TEXT]; /* the prefix, with a slash behind it; "": none */
    char region[CONFIG_TEXT];
    char key[256], secret[256], token[2048];
    bool in_path; /* the bucket */
    bool (*stops)(void *arg);
    void *arg;
    char error[CURL_ERROR_SIZE];
};

static struct s3_depot *s3_depot(struct depot *d)
{
    return (struct s3_depot *)d;
}

/* curl checks the type of each option's value with a macro that shadows. */
#pragma GCC diagnostic ignored "-Wshadow"

/* --- a request --- */

struct request {
    const char *method;
    const char *name;  /* of an object, below the prefix; NULL: the bucket itself */
    const char *query; /* encoded */
    struct slice body;
    size_t most; /* of the reply; 0: all */
    struct buf *reply;
    struct buf failure; /* the body of an answer that is none of success */
    long status;
    CURL *easy;
};

static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct request *r = arg;
    size_t len = size * n;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    struct buf *to = r->status < 300 && r->reply != NULL ? r->reply : &r->failure;
    bool fits = to == r->reply || to->len + len <= 65536;
    return fits && buf_add(to, bytes, len) == 0 ? len : 0;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct s3_depot *s = arg;
    (void)a, (void)b, (void)c, (void)d;
    return s->stops != NULL && s->stops(s->arg);
}

/* The text between two tags. */
static bool between(struct slice xml, const char *tag, char *out, size_t size)
{
    char open[64];
    int n = snprintf(open, sizeof open, "<%s>", tag);
    const char *at = memmem(xml.data, xml.len, open, (size_t)n);
    at = at != NULL ? at + n : NULL;
    const char *end = at != NULL ? memchr(at, '<', xml.len - (size_t)(at - xml.data)) : NULL;
    out[0] = '\0';
    if (end == NULL || (size_t)(end - at) >= size) {
        return false;
    }
    memcpy(out, at, (size_t)(end - at));
    out[end - at] = '\0';
    return true;
}

static int refused(const struct s3_depot *s, const struct request *r, struct err *err)
{
    char code[64], message[128];
    between(buf_slice(&r->failure), "Code", code, sizeof code);
    between(buf_slice(&r->failure), "Message", message, sizeof message);
    if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        return err_set(err, ERR_SYSTEM, "the bucket %s refuses this machine's clock: one of both is wrong", s->bucket);
    }
    if (r->status == 404 && strcmp(code, "NoSuchBucket") != 0) {
        return err_set(err, ERR_NOTFOUND, "%s is not in the bucket %s", r->name != NULL ? r->name : "it", s->bucket);
    }
    bool full = r->status == 507 || strstr(code, "Quota") != NULL || strstr(code, "StorageFull") != NULL;
    return err_set(err, full ? ERR_FULL : ERR_SYSTEM, "the bucket %s at %s answers %ld %s: %s", s->bucket, s->host,
                   r->status, code, message);
}

struct headers {
    struct curl_slist *list;
    bool failed;
};

static void add_header(struct headers *h, const char *name, const char *value)
{
    struct buf line = {0};
    buf_addf(&line, "%s: %s", name, value);
    buf_add(&line, "", 1);
    struct curl_slist *list = line.failed ? NULL : curl_slist_append(h->list, line.data);
    h->failed = h->failed || list == NULL;
    h->list = list != NULL ? list : h->list;
    buf_free(&line);
}

static void set_method(CURL *easy, const struct request *r)
{
    if (strcmp(r->method, "PUT") == 0) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body.data);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.len);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->method);
}

static int perform(struct s3_depot *s, struct request *r, const char *url, struct headers *h, struct err *err)
{
    curl_easy_reset(s->easy);
    r->easy = s->easy;
    s->error[0] = '\0';
    set_method(s->easy, r);
    curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(s->easy, CURLOPT_URL, url);
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, h->list);
    curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(s->easy, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(s->easy, CURLOPT_LOW_SPEED_TIME, (long)SLOW_S);
    curl_easy_setopt(s->easy, CURLOPT_TIMEOUT, (long)LIMIT_S);
    curl_easy_setopt(s->easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->error);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(s->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(s->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(s->easy, CURLOPT_XFERINFODATA, s);
    CURLcode code = curl_easy_perform(s->easy);
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &r->status);
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, NULL);
    if (code != CURLE_OK) {
        return err_set(err, ERR_SYSTEM, "%s: %s", s->host, s->error[0] != '\0' ? s->error : curl_easy_strerror(code));
    }
    return r->status >= 200 && r->status < 300 ? 0 : refused(s, r, err);
}

static void add_path(const struct s3_depot *s, const char *name, struct buf *out)
{
    buf_add(out, "/", 1);
    if (s->in_path) {
        sigv4_encode(slice_str(s->bucket), false, out);
    }
    if (name != NULL) {
        buf_add(out, "/", s->in_path);
        sigv4_encode(slice_str(s->folder), true, out);
        sigv4_encode(slice_str(name), true, out);
    }
    buf_add(out, "", 1);
}

static int call(struct s3_depot *s, struct request *r, struct err *err)
{
    char host[2 * CONFIG_TEXT + 2], date[SIGV4_DATE_TEXT], payload[SHA256_TEXT], range[64];
    uint8_t digest[SHA256_BYTES];
    struct buf path = {0}, url = {0}, signature = {0};
    struct headers h = {0};
    const int64_t now_ms = clock_wall_ms();
    snprintf(host, sizeof host, "%s%s%s", s->in_path ? "" : s->bucket, s->in_path ? "" : ".", s->host);
    snprintf(range, sizeof range, "bytes=0-%zu", r->most > 0 ? r->most - 1 : 0);
    add_path(s, r->name, &path);
    buf_addf(&url, "%s://%s%s%s%s", s->scheme, host, path.failed ? "" : path.data, r->query[0] != '\0' ? "?" : "",
             r->query);
    buf_add(&url, "", 1);
    sha256(r->body, digest);
    const struct sigv4 sign = {r->method,
                               host,
                               path.failed ? "" : path.data,
                               r->query,
                               r->most > 0 ? range : NULL,
                               s->token,
                               sha256_text(digest, payload),
                               s->region,
                               s->key,
                               s->secret,
                               now_ms};
    int rc = path.failed || url.failed || sigv4_sign(&sign, &signature) < 0 || buf_add(&signature, "", 1) < 0
                 ? err_set(err, ERR_NOMEM, "out of memory for a request")
                 : 0;
    if (rc == 0) {
        add_header(&h, "Authorization", signature.data);
        add_header(&h, "X-Amz-Content-Sha256", payload);
        add_header(&h, "X-Amz-Date", sigv4_date(now_ms, date));
        add_header(&h, "Content-Type", "application/octet-stream");
        add_header(&h, "Expect", "");
        if (s->token[0] != '\0') {
            add_header(&h, "X-Amz-Security-Token", s->token);
        }
        if (r->most > 0) {
            add_header(&h, "Range", range);
        }
        rc = h.failed ? err_set(err, ERR_NOMEM, "out of memory for a request") : perform(s, r, url.data, &h, err);
    }
    curl_slist_free_all(h.list);
    buf_free(&path);
    buf_free(&url);
    buf_free(&signature);
    buf_free(&r->failure);
    return rc;
}

/* --- the depot --- */

static int s3_put(struct depot *d, const char *name, struct slice bytes, struct err *err)
{
    struct request r = {.method = "PUT", .name = name, .query = "", .body = bytes};
    return call(s3_depot(d), &r, err);
}

static int s3_get(struct depot *d, const char *name, size_t most, struct buf *out, struct err *err)
{
    size_t before = out->len;
    struct request r = {.method = "GET", .name = name, .query = "", .most = most, .reply = out};
    int rc = call(s3_depot(d), &r, err);
    if (rc == 0 && most > 0 && out->len - before > most) {
        out->len = before + most; /* it sends all of it, whatever was asked for */
    }
    return rc;
}

static int s3_remove(struct depot *d, const char *name, struct err *err)
{
    struct request r = {.method = "DELETE", .name = name, .query = ""};
    int rc = call(s3_depot(d), &r, err);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

/* Names of ours need no unescaping; others are passed over. */
static int list_page(const struct s3_depot *s, struct slice xml, depot_each *each, void *arg, struct err *err)
{
    static const char begin[] = "<Contents>", end[] = "</Contents>";
    size_t folder = strlen(s->folder);
    int rc = 0;
    for (const char *at = xml.data; rc == 0 && at != NULL;) {
        char key[CONFIG_TEXT + DEPOT_NAME_MAX], size[32];
        at = memmem(at, xml.len - (size_t)(at - xml.data), begin, sizeof begin - 1);
        const char *to = at != NULL ? memmem(at, xml.len - (size_t)(at - xml.data), end, sizeof end - 1) : NULL;
        if (to == NULL) {
            break;
        }
        struct slice one = slice_of(at, (size_t)(to - at));
        if (between(one, "Key", key, sizeof key) && between(one, "Size", size, sizeof size) &&
            strncmp(key, s->folder, folder) == 0 && strlen(key + folder) < DEPOT_NAME_MAX) {
            rc = each(arg, key + folder, strtoull(size, NULL, 10), err);
        }
        at = to;
    }
    return rc;
}

static int add_query(const struct s3_depot *s, const char *folder, const char *token, struct buf *out)
{
    if (token[0] != '\0') {
        buf_addf(out, "continuation-token=");
        sigv4_encode(slice_str(token), false, out);
        buf_addf(out, "&");
    }
    buf_addf(out, "list-type=2&prefix=");
    sigv4_encode(slice_str(s->folder), false, out);
    sigv4_encode(slice_str(folder), false, out);
    return buf_add(out, "", 1);
}

static int s3_list(struct depot *d, const char *folder, depot_each *each, void *arg, struct err *err)
{
    struct s3_depot *s = s3_depot(d);
    struct buf query = {0}, xml = {0};
    char token[2048] = "", more[8] = "true";
    int rc = 0;
    while (rc == 0 && strcmp(more, "true") == 0) {
        buf_clear(&query);
        buf_clear(&xml);
        if (add_query(s, folder, token, &query) < 0) {
            rc = err_set(err, ERR_NOMEM, "out of memory for a request");
            break;
        }
        struct request r = {.method = "GET", .query = query.data, .reply = &xml};
        rc = call(s, &r, err);
        rc = rc < 0 ? rc : list_page(s, buf_slice(&xml), each, arg, err);
        if (rc == 0 &&
            (!between(buf_slice(&xml), "IsTruncated", more, sizeof more) ||
             (strcmp(more, "true") == 0 && !between(buf_slice(&xml), "NextContinuationToken", token, sizeof token)))) {
            rc = err_set(err, ERR_SYSTEM, "%s answers no list of a bucket", s->host);
        }
    }
    buf_free(&query);
    buf_free(&xml);
    return rc == ERR_NOTFOUND ? err_set(err, ERR_SYSTEM, "%s knows no bucket %s", s->host, s->bucket) : rc;
}

static void s3_tidy(struct depot *d, const char *folder)
{
    (void)d, (void)folder; /* what was cut off is no object */
}

static int s3_versions(struct depot *d, struct err *err)
{
    char status[32];
    struct buf xml = {0};
    struct request r = {.method = "GET", .query = "versioning=", .reply = &xml};
    int rc = call(s3_depot(d), &r, err);
    if (rc == 0 && between(buf_slice(&xml), "Status", status, sizeof status)) {
        rc = strcmp(status, "Enabled") == 0     ? DEPOT_VERSIONS_KEPT
             : strcmp(status, "Suspended") == 0 ? DEPOT_VERSIONS_SUSPENDED
                                                : DEPOT_VERSIONS_NONE;
    }
    buf_free(&xml);
    return rc;
}

static void s3_close(struct depot *d)
{
    struct s3_depot *s = s3_depot(d);
    curl_easy_cleanup(s->easy);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

static const struct depot_ops s3_ops = {s3_put, s3_get, s3_list, s3_remove, s3_tidy, s3_versions, s3_close};

/* --- where it is, and who asks --- */

static void take_word(const char *line, const char *word, char *out, size_t size)
{
    size_t n = strlen(word);
    if (strncmp(line, word, n) == 0) {
        line += n + strspn(line + n, " \t=");
        snprintf(out, size, "%.*s", (int)strcspn(line, " \t\r\n"), line);
    }
}

/* As the programs of AWS have them: lines such as "aws_access_key_id = AKIA...". */
static int read_keys_file(struct s3_depot *s, const char *path, struct err *err)
{
    char line[KEYS_TEXT];
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return err_set(err, ERR_SYSTEM, "can't read archive_keys_file %s", path);
    }
    while (fgets(line, sizeof line, f) != NULL) {
        take_word(line, "aws_access_key_id", s->key, sizeof s->key);
        take_word(line, "aws_secret_access_key", s->secret, sizeof s->secret);
        take_word(line, "aws_session_token", s->token, sizeof s->token);
    }
    fclose(f);
    explicit_bzero(line, sizeof line);
    return 0;
}

static int read_keys(struct s3_depot *s, const char *path, struct err *err)
{
    if (path[0] != '\0') {
        int rc = read_keys_file(s, path, err);
        if (rc < 0) {
            return rc;
        }
    } else {
        const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
        const char *token = getenv("AWS_SESSION_TOKEN");
        snprintf(s->key, sizeof s->key, "%s", key != NULL ? key : "");
        snprintf(s->secret, sizeof s->secret, "%s", secret != NULL ? secret : "");
        snprintf(s->token, sizeof s->token, "%s", token != NULL ? token : "");
    }
    return s->key[0] != '\0' && s->secret[0] != '\0'
               ? 0
               : err_set(err, ERR_INVALID,
                         "no keys for the bucket %s: name archive_keys_file, with the lines aws_access_key_id and "
                         "aws_secret_access_key, or set $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY",
                         s->bucket);
}

static int read_place(struct s3_depot *s, const char *url, const struct config *cfg, struct err *err)
{
    const char *slash = strchr(url, '/'), *endpoint = cfg->archive_endpoint;
    size_t n = slash != NULL ? (size_t)(slash - url) : strlen(url);
    size_t prefix = slash != NULL ? strlen(slash + 1) : 0;
    if (n == 0 || n >= sizeof s->bucket || prefix + 2 > sizeof s->folder) {
        return err_set(err, ERR_INVALID, "s3://%s names no bucket, expected s3://bucket/prefix", url);
    }
    memcpy(s->bucket, url, n);
    snprintf(s->folder, sizeof s->folder, "%s", slash != NULL ? slash + 1 : "");
    if (prefix > 0 && s->folder[prefix - 1] != '/') {
        strcat(s->folder, "/");
    }
    snprintf(s->region, sizeof s->region, "%s", cfg->archive_region);
    s->in_path = cfg->archive_path_style != 0;
    snprintf(s->scheme, sizeof s->scheme, "%s", strncmp(endpoint, "http://", 7) == 0 ? "http" : "https");
    const char *host = strstr(endpoint, "://") != NULL ? strstr(endpoint, "://") + 3 : endpoint;
    if (endpoint[0] == '\0') {
        return snprintf(s->host, sizeof s->host, "s3.%s.amazonaws.com", s->region) < (int)sizeof s->host
                   ? 0
                   : err_set(err, ERR_INVALID, "archive_region is too long");
    }
    snprintf(s->host, sizeof s->host, "%.*s", (int)strcspn(host, "/"), host);
    return 0;
}

int depot_s3_open(const struct depot_order *order, struct depot **d, struct err *err)
{
    struct s3_depot *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->depot.ops = &s3_ops;
    s->stops = order->stops;
    s->arg = order->arg;
    int rc = read_place(s, order->url + strlen(DEPOT_S3), order->cfg, err);
    rc = rc < 0 ? rc : read_keys(s, order->cfg->archive_keys_file, err);
    if (rc == 0 && (s->easy = curl_easy_init()) == NULL) {
        rc = err_set(err, ERR_NOMEM, "libcurl can't be begun");
    }
    if (rc < 0) {
        free(s);
        return rc;
    }
    *d = &s->depot;
    return 0;
}
