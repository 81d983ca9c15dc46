#ifndef UNSEEN_HTTP_VERSION_H
#define UNSEEN_HTTP_VERSION_H

const char *http_library_name(void);    /* "http_parser" */
const char *http_library_version(void); /* of what parses heads, */
const char *http_json_version(void);    /* of jansson */

#endif
