#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/lib/config_json.h"
#include "cli/lib/output.h"
#include "cli/lib/versions.h"

static void write_machine(struct json *j)
{
    struct utsname u;
    json_number(j, "unix_ms", clock_wall_ms());
    if (uname(&u) == 0) {
        json_open(j, "machine", '{');
        json_text(j, "system", u.sysname);
        json_text(j, "kernel", u.release);
        json_text(j, "architecture", u.machine);
        json_number(j, "cores", sysconf(_SC_NPROCESSORS_ONLN));
        json_close(j, '}');
    }
}

/* A line each: an array of them can be read by people, and searched. */
static void write_info(struct json *j, const struct buf *info)
{
    json_open(j, "info", '[');
    for (const char *line = info->data; line != NULL && *line != '\0';) {
        char text[512];
        size_t n = strcspn(line, "\r\n");
        snprintf(text, sizeof text, "%.*s", (int)n, line);
        if (n > 0) {
            json_text(j, NULL, text);
        }
        line += n + strspn(line + n, "\r\n");
    }
    json_close(j, ']');
}

int doctor_bundle(const struct doctor *d, const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL) {
        int error = errno;
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        return err_set(err, ERR_SYSTEM, "can't make %s: %s%s", path, strerror(error),
                       error == EEXIST ? ", and it is not replaced: name a new file" : "");
    }
    struct json j = {.out = f};
    json_open(&j, NULL, '{');
    json_open(&j, "versions", '{');
    versions_json(&j);
    json_close(&j, '}');
    write_machine(&j);
    doctor_json(d, &j);
    config_json(&j, d->cfg);
    write_info(&j, &d->info);
    json_close(&j, '}');
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        int error = errno;
        unlink(path);
        return err_set(err, ERR_IO, "can't write %s: %s", path, strerror(error));
    }
    return 0;
}
