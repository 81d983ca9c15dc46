#include "config/archive.h"

#include <string.h>

#include "base/log.h"

int config_validate_archive(const struct config *cfg, struct err *err)
{
    const char *url = cfg->archive_url;
    if (url[0] == '\0') {
        return 0;
    }
    bool file = strncmp(url, "file:///", 8) == 0 && url[8] != '\0';
    bool bucket = strncmp(url, "s3://", 5) == 0 && url[5] != '\0' && url[5] != '/';
    if (!file && !bucket) {
        return err_set(err, ERR_INVALID, "archive_url is %s, expected file:///path of a folder, or s3://bucket/prefix",
                       log_quote_str(url));
    }
    if (bucket && strchr(url, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID, "archive_url has keys in it, which go into archive_keys_file");
    }
    const char *endpoint = cfg->archive_endpoint;
    if (strstr(endpoint, "://") != NULL && strncmp(endpoint, "https://", 8) != 0 &&
        strncmp(endpoint, "http://", 7) != 0) {
        return err_set(err, ERR_INVALID, "archive_endpoint is %s, expected https://host or http://host:port",
                       log_quote_str(endpoint));
    }
#ifndef WITH_CURL
    if (bucket) {
        return err_set(err, ERR_INVALID, "archive_url is %s, but this unseen was built without libcurl",
                       log_quote_str(url));
    }
#endif
#ifndef WITH_OPENSSL
    if (cfg->archive_key_file[0] != '\0') {
        return err_set(err, ERR_INVALID, "archive_key_file is %s, but this unseen was built without OpenSSL",
                       log_quote_str(cfg->archive_key_file));
    }
#endif
    if (cfg->store != STORE_ENGINE_SQLITE) {
        return err_set(err, ERR_INVALID,
                       "archive_url goes with store = sqlite: another store keeps no data folder here");
    }
    return 0;
}
