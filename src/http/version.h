#ifndef UNSEEN_HTTP_VERSION_H
#define UNSEEN_HTTP_VERSION_H

const char *http_library_version(void); /* of libmicrohttpd */
const char *http_json_version(void);    /* of jansson */

#endif
