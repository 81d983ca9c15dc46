#include "cli/lib/options.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"
#include "cli/cli.h"

enum { NAME_MAX_LEN = 64 };

/* Copies of what was given as a value and is overwritten there, so that `ps` does not show it for as long as we run. */
enum { SECRETS_MAX = 8 };
static char secrets[SECRETS_MAX][CONFIG_PROPERTIES_TEXT];
static size_t n_secrets;

static const char common_help[] =
    "  -c, --config FILE      read this configuration (default: " CLI_CONFIG_PATH ", if there is one)\n"
    "      --data DIR         the data folder\n"
    "      --password-file FILE\n"
    "                         the same as --requirepass-file: the server's password is its one line\n"
    "      --test-clock MS    for tests: the clock stands at this unix time\n"
    "      --NAME VALUE       any option of the configuration, such as --retention 12;\n"
    "                         in the environment it is UNSEEN_RETENTION=12\n";

int cli_misuse(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "unseen %s: ", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_USAGE;
}

/* Levenshtein's distance, in one row. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1];
    size_t nb = strlen(b);
    if (nb > NAME_MAX_LEN || strlen(a) > NAME_MAX_LEN) {
        return NAME_MAX_LEN;
    }
    for (size_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[nb];
}

const char *cli_nearer(const char *word, const char *candidate, const char *best)
{
    size_t d = distance(word, candidate);
    if (d > 1 + strlen(candidate) / 4) {
        return best;
    }
    return best == NULL || d < distance(word, best) ? candidate : best;
}

/* The name of a configuration option as an argument: request_memory is --request-memory. */
static const char *dashed(const char *name, char out[NAME_MAX_LEN + 1])
{
    size_t i = 0;
    for (; name[i] != '\0' && i < NAME_MAX_LEN; i++) {
        out[i] = name[i] == '_' ? '-' : name[i];
    }
    out[i] = '\0';
    return out;
}

static const struct cli_flag *find_flag(const struct cli_flag *flags, const char *name)
{
    for (const struct cli_flag *f = flags; f != NULL && f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

static const struct config_option *find_config(const char *name)
{
    char text[NAME_MAX_LEN + 1];
    for (size_t i = 0; i < config_options_count; i++) {
        if (strcmp(dashed(config_options[i].name, text), name) == 0) {
            return &config_options[i];
        }
    }
    return NULL;
}

static const char *hide(char *value)
{
    if (n_secrets == SECRETS_MAX) {
        return value;
    }
    char *copy = secrets[n_secrets++];
    snprintf(copy, CONFIG_PROPERTIES_TEXT, "%s", value);
    memset(value, '*', strlen(value));
    return copy;
}

/* The options of the configuration that have one more word before it, "--replica-ack" for "ack"; how many. */
static int by_last_word(const char *name, char *out, size_t size)
{
    char text[NAME_MAX_LEN + 1];
    int n = 0;
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < config_options_count && len < size; i++) {
        const char *rest = strchr(dashed(config_options[i].name, text), '-');
        if (rest != NULL && strcmp(rest + 1, name) == 0) {
            len += (size_t)snprintf(out + len, size - len, "%s--%s", n++ > 0 ? " or " : "", text);
        }
    }
    return n;
}

static int unknown_option(const struct cli_syntax *syntax, const char *given, const char *name)
{
    char texts[2][NAME_MAX_LEN + 1] = {"", ""}; /* the best so far, and the one looked at */
    char longer[4 * NAME_MAX_LEN];
    const char *best = cli_nearer(name, "help", NULL);
    for (const struct cli_flag *f = syntax->flags; f != NULL && f->name != NULL; f++) {
        best = cli_nearer(name, f->name, best);
    }
    if (!syntax->plain) {
        best = cli_nearer(name, "config", best);
        best = cli_nearer(name, "test-clock", best);
        for (size_t i = 0; i < config_options_count; i++) {
            char *text = best == texts[0] ? texts[1] : texts[0];
            best = cli_nearer(name, dashed(config_options[i].name, text), best);
        }
    }
    if (!syntax->plain && by_last_word(name, longer, sizeof longer) > 0) {
        return cli_misuse(syntax->command, "unknown option '%s': did you mean %s?", given, longer);
    }
    if (best != NULL) {
        return cli_misuse(syntax->command, "unknown option '%s': did you mean --%s?", given, best);
    }
    return cli_misuse(syntax->command, "unknown option '%s': see unseen help %s", given, syntax->command);
}

static int start_test_clock(const char *command, const char *value)
{
    uint64_t ms;
    if (!count_read(value, INT64_MAX, &ms)) {
        return cli_misuse(command, "--test-clock '%s': expected unix milliseconds", value);
    }
    clock_test_start((int64_t)ms);
    return 0;
}

/* The options that all have stand at the end of the list of options. */
static void print_help(const struct cli_syntax *syntax)
{
    const char *list = strstr(syntax->help, "\nOptions:\n");
    const char *end = list != NULL ? strstr(list + 1, "\n\n") : NULL;
    int before = (int)(end != NULL ? (size_t)(end + 1 - syntax->help) : strlen(syntax->help));
    printf("%.*s%s      --help             print this\n%s", before, syntax->help, syntax->plain ? "" : common_help,
           end != NULL ? end + 1 : "");
}

/* Takes the option at argv[*i], and its value behind it if it has one. Returns 0 or an exit code. */
static int take_option(const struct cli_syntax *syntax, int argc, char **argv, int *i, struct cli_options *out)
{
    const char *given = argv[*i];
    char name[NAME_MAX_LEN + 1];
    const char *value = NULL;
    if (strcmp(given, "-c") == 0) {
        strcpy(name, "config");
    } else {
        size_t len = strcspn(given, "=");
        value = given[len] == '=' ? given + len + 1 : NULL;
        if (given[1] != '-' || len - 2 > NAME_MAX_LEN) {
            return cli_misuse(syntax->command, "unknown option '%s': see unseen help %s", given, syntax->command);
        }
        memcpy(name, given + 2, len - 2);
        name[len - 2] = '\0';
    }

    const struct cli_flag *flag = find_flag(syntax->flags, name);
    if (find_flag(syntax->flags, name) == NULL && strcmp(name, "password-file") == 0) {
        strcpy(name, "requirepass-file");
    }
    const struct config_option *option = syntax->plain ? NULL : find_config(name);
    bool config = !syntax->plain && strcmp(name, "config") == 0;
    bool test_clock = !syntax->plain && strcmp(name, "test-clock") == 0;
    if (flag != NULL && flag->flag != NULL) {
        if (value != NULL) {
            return cli_misuse(syntax->command, "--%s takes no value", name);
        }
        *flag->flag = true;
        return 0;
    }
    if (flag == NULL && option == NULL && !config && !test_clock) {
        return unknown_option(syntax, given, name);
    }
    if (value == NULL) {
        if (*i + 1 >= argc) {
            return cli_misuse(syntax->command, "%s needs a value", given);
        }
        value = argv[++*i];
    }
    if (flag != NULL) {
        *flag->value = value;
    } else if (config) {
        out->config_path = value;
    } else if (test_clock) {
        return start_test_clock(syntax->command, value);
    } else {
        /* Tried on a scratch configuration at once, because a wrong value here is a mistake of usage. */
        struct config scratch;
        struct err err;
        config_defaults(&scratch);
        if (config_set(&scratch, option->name, value, &err) < 0) {
            return cli_misuse(syntax->command, "%s", err.text);
        }
        if (out->n_overrides == CLI_OVERRIDES_MAX) {
            return cli_misuse(syntax->command, "more than %d options", CLI_OVERRIDES_MAX);
        }
        if (option->type == CONFIG_SECRET || option->type == CONFIG_SEED || option->type == CONFIG_PROPERTIES) {
            value = hide((char *)value);
        }
        out->overrides[out->n_overrides++] = (struct cli_override){option->name, value};
    }
    return 0;
}

bool cli_options_read(const struct cli_syntax *syntax, int argc, char **argv, struct cli_options *out, int *exit_code)
{
    *out = (struct cli_options){.words = argv + 1};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(syntax);
            *exit_code = EXIT_GOOD;
            return false;
        }
    }
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (only_words || argv[i][0] != '-' || argv[i][1] == '\0') {
            out->words[out->n_words++] = argv[i]; /* never ahead of i */
        } else {
            *exit_code = take_option(syntax, argc, argv, &i, out);
            if (*exit_code != 0) {
                return false;
            }
        }
    }
    if (out->n_words < syntax->min_words || (syntax->max_words >= 0 && out->n_words > syntax->max_words)) {
        if (syntax->max_words == 0) {
            *exit_code = cli_misuse(syntax->command, "takes no argument such as '%s'", out->words[0]);
        } else {
            *exit_code = cli_misuse(syntax->command, "expected %s, got %d argument%s: see unseen help %s",
                                    syntax->words, out->n_words, plural((uint64_t)out->n_words), syntax->command);
        }
        return false;
    }
    if (out->config_path == NULL && !syntax->plain && access(CLI_CONFIG_PATH, F_OK) == 0) {
        out->config_path = CLI_CONFIG_PATH;
    }
    return true;
}

int cli_options_build(const struct cli_options *options, struct config *cfg, config_problem_fn *each, void *arg,
                      struct err *err)
{
    config_defaults(cfg);
    int file = options->config_path != NULL ? config_load(cfg, options->config_path, each, arg, err) : 0;
    struct err of_environment = {0};
    int environment = config_environment(cfg, each, arg, &of_environment);
    if (file < 0 || environment < 0) {
        return file < 0 ? file : err_set(err, environment, "%s", of_environment.text);
    }
    for (int i = 0; i < options->n_overrides; i++) {
        const struct cli_override *given = &options->overrides[i];
        int rc = config_set(cfg, given->name, given->value, err);
        if (rc < 0) {
            return rc; /* take_option() tried it */
        }
        cfg->origin[config_find(given->name) - config_options] = ORIGIN_COMMAND_LINE;
    }
    return 0;
}

int cli_options_zone(const struct config *cfg, struct err *err)
{
    return calendar_set_zone(cfg->timezone) == 0
               ? 0
               : err_set(err, ERR_NOTFOUND, "timezone '%s' is unknown: expected a name such as Europe/Berlin",
                         cfg->timezone);
}

int cli_options_config(const struct cli_options *options, struct config *cfg, struct err *err)
{
    int rc = cli_options_build(options, cfg, NULL, NULL, err);
    if (rc == 0) {
        rc = config_validate(cfg, err);
    }
    return rc < 0 ? rc : cli_options_zone(cfg, err);
}

int cli_options_has_folder(const struct config *cfg, struct err *err)
{
    switch (cfg->store) {
    case STORE_ENGINE_SQLITE:
        return 0;
    case STORE_ENGINE_RADOS:
        return err_set(err, ERR_INVALID,
                       "store = rados has no data folder, and this works on one: the users are in a pool, which keeps "
                       "replicas and is served by any node (docs/rados.md)");
    default:
        return err_set(err, ERR_INVALID,
                       "store = memory has no data folder: only the server that has it can be asked, by its address");
    }
}

int cli_whole_path(const char *path, char out[PATH_MAX], struct err *err)
{
    char here[PATH_MAX] = "";
    if (slice_has_control(slice_str(path))) {
        return err_set(err, ERR_INVALID, "the path %s holds a control character", log_quote_str(path));
    }
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) {
        return err_set(err, ERR_SYSTEM, "can't tell which folder this is: %s", strerror(errno));
    }
    if (snprintf(out, PATH_MAX, "%s%s%s", here, here[0] != '\0' ? "/" : "", path) >= PATH_MAX) {
        return err_set(err, ERR_INVALID, "the path is too long");
    }
    return 0;
}
