#include "http/version.h"

#include <jansson.h>
#include <microhttpd.h>

const char *http_library_version(void)
{
    return MHD_get_version();
}

const char *http_json_version(void)
{
    return jansson_version_str();
}
