#include "kafka/version.h"

#include <stddef.h>

#include "base/module.h"
#include "kafka/client.h"

const char *kafka_library_version(const char *folder)
{
    const void *functions = NULL;
    struct err err;
    if (module_open(folder != NULL ? folder : "", "kafka", "unseen-kafka", &functions, &err) < 0) {
        return err.code == ERR_ABSENT ? "not installed" : "not usable";
    }
    return ((const struct client_ops *)functions)->version();
}
