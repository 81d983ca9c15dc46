#include "store/sqlite/sqlite_store.h"

#include <sqlite3.h>

const char *sqlite_store_library_version(void)
{
    return sqlite3_libversion();
}
