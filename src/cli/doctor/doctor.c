#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/output.h"
#include "cli/serve/serve_config.h"
#include "service/account_file.h"

static const char help[] =
    "Looks at the machine, the configuration, the data folder and the server, and says what is wrong and what to "
    "do.\n\n"
    "Usage: unseen doctor [--bundle FILE] [--json] [OPTION ...]\n\n"
    "Run it as the user that runs the service, or as root, before the first start and when something is odd. It "
    "changes\n"
    "nothing: it listens on the ports for a moment if no server has the folder, and measures the disk with a file\n"
    "that has no name.\n\n"
    "Options:\n"
    "      --bundle FILE      write a report into a new file, to send with a question: what was found, "
    "versions,\n"
    "                         the configuration without secrets, and INFO of the server. It names addresses and "
    "paths,\n"
    "                         and no user or item\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 nothing is wrong, although there may be warnings; 1 something is wrong; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen doctor\n"
    "  unseen doctor -c /etc/unseen/unseen.conf --bundle report.json\n";

static const char *const state_names[] = {"good", "note", "warning", "wrong"};

void doctor_finds(struct doctor *d, enum finding_state state, const char *about, const char *advice, const char *format,
                  ...)
{
    if (d->n == FINDINGS_MAX) {
        return;
    }
    struct finding *f = &d->found[d->n++];
    *f = (struct finding){.state = state, .about = about};
    if (d->n == FINDINGS_MAX) {
        *f = (struct finding){.state = FINDING_WARNING, .about = "doctor", .text = "there is more than is shown"};
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    snprintf(f->advice, sizeof f->advice, "%s", advice != NULL ? advice : "");
}

static void problem_found(void *arg, const char *problem)
{
    doctor_finds(arg, FINDING_WRONG, "configuration", NULL, "%s", problem);
}

/* All that is wrong with it, of which one problem is enough for nothing else to be looked at: it would not be what
 * serve runs with. */
static bool read_configuration(struct doctor *d, const struct cli_options *options, struct config *cfg)
{
    struct account_set *accounts;
    struct err err;
    int rc = serve_config_read(options, NULL, problem_found, d, cfg, &accounts, &err);
    account_set_free(accounts);
    rc = rc < 0 ? rc : cli_options_zone(cfg, &err);
    if (rc < 0 && d->n == 0) {
        problem_found(d, err.text);
    }
    if (rc == 0) {
        doctor_finds(d, FINDING_GOOD, "configuration", NULL, "%s",
                     d->config_path != NULL ? d->config_path : "no file, the defaults");
    }
    d->cfg = cfg;
    return rc == 0;
}

static int count(const struct doctor *d, enum finding_state state)
{
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        n += d->found[i].state == state;
    }
    return n;
}

static void print_people(const struct doctor *d)
{
    for (int i = 0; i < d->n; i++) {
        const struct finding *f = &d->found[i];
        printf("%-8s %-13s %s\n", state_names[f->state], f->about, f->text);
        if (f->advice[0] != '\0') {
            printf("%22s -> %s\n", "", f->advice);
        }
    }
    int wrong = count(d, FINDING_WRONG), warnings = count(d, FINDING_WARNING);
    printf("\n%d wrong, %d warning%s\n", wrong, warnings, plural((uint64_t)warnings));
}

void doctor_json(const struct doctor *d, struct json *j)
{
    json_open(j, "findings", '[');
    for (int i = 0; i < d->n; i++) {
        const struct finding *f = &d->found[i];
        json_open(j, NULL, '{');
        json_text(j, "state", state_names[f->state]);
        json_text(j, "about", f->about);
        json_text(j, "text", f->text);
        if (f->advice[0] != '\0') {
            json_text(j, "advice", f->advice);
        }
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void print_json(const struct doctor *d)
{
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_number(&j, "wrong", count(d, FINDING_WRONG));
    json_number(&j, "warnings", count(d, FINDING_WARNING));
    doctor_json(d, &j);
    json_close(&j, '}');
}

int cli_doctor(int argc, char **argv)
{
    const char *bundle = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"bundle", NULL, &bundle}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"doctor", help, "no argument", 0, 0, flags, false};
    static void (*const checks[])(struct doctor *) = {doctor_server, doctor_clock,   doctor_memory,  doctor_files,
                                                      doctor_folder, doctor_secrets, doctor_modules, doctor_ports};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct config cfg;
    static struct doctor d;
    struct err err;
    d.config_path = options.config_path;
    if (read_configuration(&d, &options, &cfg)) {
        for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
            checks[i](&d);
        }
    }
    json ? print_json(&d) : print_people(&d);
    int rc = bundle != NULL ? doctor_bundle(&d, bundle, &err) : 0;
    client_close(d.client);
    buf_free(&d.info);
    if (rc < 0) {
        return cli_fail(&err);
    }
    return count(&d, FINDING_WRONG) > 0 ? EXIT_FAILED : EXIT_GOOD;
}
