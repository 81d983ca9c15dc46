#include "store/store.h"

int store_lacks(const struct store *s, const char *what, struct err *err)
{
    return err_set(err, ERR_ABSENT, "the store \"%s\" keeps no %s", s->engine, what);
}
