#include "archive/sigv4.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const char *sigv4_date(int64_t at_ms, char out[SIGV4_DATE_TEXT])
{
    time_t s = (time_t)(at_ms / 1000);
    struct tm t;
    gmtime_r(&s, &t);
    strftime(out, SIGV4_DATE_TEXT, "%Y%m%dT%H%M%SZ", &t);
    return out;
}

int sigv4_encode(struct slice text, bool slashes, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~' || (slashes && c == '/');
        if ((plain ? buf_add(out, &c, 1) : buf_addf(out, "%%%02X", (unsigned char)c)) < 0) {
            return ERR_NOMEM;
        }
    }
    return 0;
}

static void add_headers(const struct sigv4 *r, const char *date, struct buf *out)
{
    buf_addf(out, "host:%s\n", r->host);
    if (r->range != NULL) {
        buf_addf(out, "range:%s\n", r->range);
    }
    buf_addf(out, "x-amz-content-sha256:%s\nx-amz-date:%s\n", r->payload, date);
    if (r->token[0] != '\0') {
        buf_addf(out, "x-amz-security-token:%s\n", r->token);
    }
}

static void derive(const struct sigv4 *r, const char *day, uint8_t key[SHA256_BYTES])
{
    char first[512];
    int n = snprintf(first, sizeof first, "AWS4%s", r->secret);
    hmac_sha256(slice_of(first, (size_t)n < sizeof first ? (size_t)n : sizeof first - 1), slice_str(day), key);
    const char *const next[] = {r->region, "s3", "aws4_request"};
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        uint8_t out[SHA256_BYTES];
        hmac_sha256(slice_of((const char *)key, SHA256_BYTES), slice_str(next[i]), out);
        memcpy(key, out, sizeof out);
    }
}

int sigv4_sign(const struct sigv4 *r, struct buf *out)
{
    char date[SIGV4_DATE_TEXT], day[9], signed_headers[128], hash[SHA256_TEXT];
    uint8_t digest[SHA256_BYTES], key[SHA256_BYTES];
    struct buf request = {0}, text = {0};
    snprintf(day, sizeof day, "%.8s", sigv4_date(r->at_ms, date));
    snprintf(signed_headers, sizeof signed_headers, "host;%sx-amz-content-sha256;x-amz-date%s",
             r->range != NULL ? "range;" : "", r->token[0] != '\0' ? ";x-amz-security-token" : "");
    buf_addf(&request, "%s\n%s\n%s\n", r->method, r->path, r->query);
    add_headers(r, date, &request);
    buf_addf(&request, "\n%s\n%s", signed_headers, r->payload);
    sha256(buf_slice(&request), digest);
    buf_addf(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day, r->region, sha256_text(digest, hash));
    derive(r, day, key);
    hmac_sha256(slice_of((const char *)key, sizeof key), buf_slice(&text), digest);
    buf_addf(out, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request,SignedHeaders=%s,Signature=%s", r->key, day,
             r->region, signed_headers, sha256_text(digest, hash));
    bool failed = request.failed || text.failed || out->failed;
    buf_free(&request);
    buf_free(&text);
    return failed ? ERR_NOMEM : 0;
}
