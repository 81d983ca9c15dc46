#include "config/archive.h"

#include <string.h>

#include "base/log.h"

int config_validate_archive(const struct config *cfg, struct err *err)
{
    const char *url = cfg->archive_url;
    if (url[0] == '\0') {
        return 0;
    }
    if (strncmp(url, "file:///", 8) != 0 || url[8] == '\0') {
        return err_set(err, ERR_INVALID, "archive_url is %s, expected file:///path of a folder", log_quote_str(url));
    }
    if (cfg->store != STORE_ENGINE_SQLITE) {
        return err_set(err, ERR_INVALID,
                       "archive_url goes with store = sqlite: another store keeps no data folder here");
    }
    return 0;
}
