/* The library that takes heads apart: llhttp, or its ancestor http_parser, whichever configure found. What they name in
 * another way has one name here. */
#ifndef UNSEEN_HTTP_PARSER_LIBRARY_H
#define UNSEEN_HTTP_PARSER_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef WITH_LLHTTP
#include <llhttp.h>
#define LIBRARY_NAME "llhttp"
typedef llhttp_t library_parser;
typedef llhttp_settings_t library_settings;

static inline void library_version(char *out, size_t size)
{
    snprintf(out, size, "%d.%d.%d", LLHTTP_VERSION_MAJOR, LLHTTP_VERSION_MINOR, LLHTTP_VERSION_PATCH);
}

/* Of a whole head. Sets where it stopped. Returns HPE_OK or what is wrong. */
static inline int library_execute(library_parser *p, void *data, const library_settings *settings, const char *text,
                                  size_t len, size_t *at)
{
    llhttp_init(p, HTTP_REQUEST, settings);
    p->data = data;
    llhttp_errno_t error = llhttp_execute(p, text, len);
    *at = error != HPE_OK ? (size_t)(llhttp_get_error_pos(p) - text) : len;
    return error == HPE_PAUSED_UPGRADE ? HPE_OK : (int)error;
}

static inline const char *library_error(const library_parser *p)
{
    const char *reason = llhttp_get_error_reason(p);
    return reason != NULL ? reason : "no HTTP";
}

static inline const char *library_method(const library_parser *p)
{
    return llhttp_method_name((llhttp_method_t)p->method);
}

static inline bool library_keeps_alive(const library_parser *p)
{
    return llhttp_should_keep_alive(p) != 0;
}
#else
#include <http_parser.h>
#define LIBRARY_NAME "http_parser"
typedef http_parser library_parser;
typedef http_parser_settings library_settings;

static inline void library_version(char *out, size_t size)
{
    unsigned long v = http_parser_version();
    snprintf(out, size, "%lu.%lu.%lu", v >> 16 & 255, v >> 8 & 255, v & 255);
}

/* Of a whole head. Sets where it stopped. Returns HPE_OK or what is wrong. */
static inline int library_execute(library_parser *p, void *data, const library_settings *settings, const char *text,
                                  size_t len, size_t *at)
{
    http_parser_init(p, HTTP_REQUEST);
    p->data = data;
    *at = http_parser_execute(p, settings, text, len);
    return (int)HTTP_PARSER_ERRNO(p);
}

static inline const char *library_error(const library_parser *p)
{
    return http_errno_description(HTTP_PARSER_ERRNO(p));
}

static inline const char *library_method(const library_parser *p)
{
    return http_method_str((enum http_method)p->method);
}

static inline bool library_keeps_alive(const library_parser *p)
{
    return http_should_keep_alive(p) != 0;
}
#endif

#endif
