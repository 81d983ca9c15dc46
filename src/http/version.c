#include "http/version.h"

#include <jansson.h>
#include <stdbool.h>

#include "http/parser_library.h"

const char *http_library_name(void)
{
    return LIBRARY_NAME;
}

const char *http_library_version(void)
{
    static char text[32];
    library_version(text, sizeof text);
    return text;
}

const char *http_json_version(void)
{
    return jansson_version_str();
}
