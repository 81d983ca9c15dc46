#include <string.h>

#include "config/config.h"

enum { WIDTH = 100, TEXT_MAX = 512, RANGE_TEXT = 96 };

/* As a comment, broken between words. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column == 0 || column + 1 + word > WIDTH) {
            fputs(column == 0 ? "#" : "\n#", out);
            column = 1;
        }
        fputc(' ', out);
        fwrite(text, 1, word, out);
        column += 1 + word;
        text += word + strspn(text + word, " ");
    }
    fputc('\n', out);
}

int config_write_sample(FILE *out)
{
    fputs(
        "# The configuration of Unseen. Every option stands here with its default; take the # away to change one.\n"
        "# Sizes are written as 64KiB, 256MiB, 1GiB or in bytes, times as 500ms, 30s, 10min, 1h, 1d. Lines that begin\n"
        "# with # or ; are comments. `unseen check-config -c FILE` says what is wrong with a file.\n"
        "# A variable of the environment such as UNSEEN_SLOTS counts more than this file, and the command line more\n"
        "# than both.\n"
        "# SIGHUP (systemctl reload unseen) puts changes in force while the service runs, but for options that say\n"
        "# that they need a restart.\n"
        "\n"
        "[unseen]\n",
        out);
    const char *in = "";
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        char range[RANGE_TEXT], text[TEXT_MAX];
        const char *section = config_section(option->name);
        if (strcmp(section, in) != 0) {
            fprintf(out, "\n[%s]\n", section);
            in = section;
        }
        fputc('\n', out);
        print_wrapped(out, option->help);
        config_range_text(option, range, sizeof range);
        if (range[0] != '\0') {
            snprintf(text, sizeof text, "Range: %s.", range);
            print_wrapped(out, text);
        }
        if (option->change == CHANGE_RESTART) {
            print_wrapped(out, "A change needs a restart.");
        }
        if (option->on_change != NULL) {
            snprintf(text, sizeof text, "When changed: %s", option->on_change);
            print_wrapped(out, text);
        }
        fprintf(out, "#%s =%s%s\n", option->name + (section[0] != '\0' ? strlen(section) + 1 : 0),
                option->default_text[0] != '\0' ? " " : "", option->default_text);
    }
    fputs("\n"
          "# A section [policy NAME] says what hides a candidate from the questions that name it, [policy default]\n"
          "# from those that name none. docs/policies.md tells more. SIGHUP replaces all of them.\n"
          "#     [policy feed]\n"
          "#     plays = 3                    full months of plays that hide; window (the default); off\n"
          "#     item = 1 in 10min, 3 in 7d   hidden while it was sent so often within so long; 1 (the default); off\n"
          "#     group = 2 in 1h              hidden while so many items of its group were; off (the default)\n"
          "#     also = push:{user}           hidden, too, if the policy hides it from one of these users\n",
          out);
    return fflush(out) != 0 || ferror(out) ? ERR_IO : 0;
}
