/* Passwords from files, so that they appear neither in `ps` nor in a configuration that many may read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/config.h"
#include "config/kafka.h"

/* The file's bytes, of which there are at most `max`. */
static int read_bytes(const char *name, const char *path, char *out, size_t max, size_t *len, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: can't read %s: %s", name, path,
                       strerror(errno));
    }
    *len = 0;
    ssize_t n = 1;
    while (*len < max && n != 0) {
        n = read(fd, out + *len, max - *len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            int code = err_set(err, ERR_IO, "%s: can't read %s: %s", name, path, strerror(errno));
            close(fd);
            return code;
        }
        *len += (size_t)n;
    }
    close(fd);
    return 0;
}

/* `name` is the option that the file stands for; its own is name_file. */
static int read_password(struct config *cfg, const char *file_option, const char *path, const char *name, bool given,
                         struct err *err)
{
    char line[CONFIG_TEXT_MAX + 3]; /* a password, its newline, and one byte that shows that there is more */
    size_t len = 0;
    if (path[0] == '\0') {
        return 0;
    }
    if (given) {
        return err_set(err, ERR_INVALID, "%s and %s are both given, expected one", name, file_option);
    }
    int code = read_bytes(file_option, path, line, sizeof line - 1, &len, err);
    if (code < 0) {
        return code;
    }
    bool whole = len < sizeof line - 1;
    len -= len > 0 && line[len - 1] == '\n';
    len -= len > 0 && line[len - 1] == '\r';
    const char *what = NULL;
    if (len == 0) {
        what = "is empty, expected a password";
    } else if (memchr(line, '\0', len) != NULL) {
        what = "holds a control character, expected one line of text";
    } else if (memchr(line, '\n', len) != NULL) {
        what = "holds more than one line, expected one line";
    } else if (!whole) {
        what = "is too long, expected at most 255 bytes";
    }
    if (what == NULL) {
        line[len] = '\0';
        code = config_set(cfg, name, line, err);
        if (code < 0) {
            err_prefix(err, "%s: %s", file_option, path);
        } else {
            const struct config_option *row = config_find(name);
            row = row != NULL ? row : config_find(CONFIG_PROPERTIES_OPTION);
            cfg->origin[row - config_options] = cfg->origin[config_find(file_option) - config_options];
        }
    } else {
        code = err_set(err, ERR_INVALID, "%s: %s %s", file_option, path, what);
    }
    explicit_bzero(line, sizeof line);
    return code;
}

int config_read_requirepass(struct config *cfg, struct err *err)
{
    return read_password(cfg, "requirepass_file", cfg->requirepass_file, "requirepass", cfg->requirepass[0] != '\0',
                         err);
}

int config_read_legacy_password(struct config *cfg, struct err *err)
{
    return read_password(cfg, "legacy_password_file", cfg->legacy_password_file, "legacy_password",
                         cfg->legacy_password[0] != '\0', err);
}

static int read_kafka_password(struct config *cfg, struct err *err)
{
    static const char name[] = CONFIG_KAFKA_PREFIX "sasl.password";
    bool given = config_has_property(cfg, name + strlen(CONFIG_KAFKA_PREFIX));
    return read_password(cfg, "kafka_password_file", cfg->kafka_password_file, name, given, err);
}

int config_read_passwords(struct config *cfg, struct err *err)
{
    int code = config_read_requirepass(cfg, err);
    code = code < 0 ? code : config_read_legacy_password(cfg, err);
    code = code < 0 ? code : read_kafka_password(cfg, err);
    code = code < 0 ? code
                    : read_password(cfg, "replica_password_file", cfg->replica_password_file, "replica_password",
                                    cfg->replica_password[0] != '\0', err);
    code = code < 0 ? code
                    : read_password(cfg, "front_password_file", cfg->front_password_file, "front_password",
                                    cfg->front_password[0] != '\0', err);
    code = code < 0 ? code
                    : read_password(cfg, "lock_password_file", cfg->lock_password_file, "lock_password",
                                    cfg->lock_password[0] != '\0', err);
    return code < 0 ? code
                    : read_password(cfg, "registry_token_file", cfg->registry_token_file, "registry_token",
                                    cfg->registry_token[0] != '\0', err);
}
