#include "net/version.h"

#include <uv.h>

const char *net_library_version(void)
{
    return uv_version_string();
}
