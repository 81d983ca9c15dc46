#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/lib/options.h"

static void overview(const struct cli_command *commands, FILE *out)
{
    fputs("Unseen answers which of these candidates a user has not seen yet.\n\n"
          "Usage: unseen SUBCOMMAND [OPTION ...]\n\n"
          "Subcommands:\n",
          out);
    for (const struct cli_command *c = commands; c->name != NULL; c++) {
        fprintf(out, "  %-13s %s\n", c->name, c->summary);
    }
    fprintf(out, "  %-13s %s\n", "help", "explain a subcommand");
    fputs("\nExamples:\n"
          "  unseen serve --data /var/lib/unseen     run the service on 127.0.0.1:7979\n"
          "  unseen import plays.tsv.gz              load a history\n"
          "  unseen help user                        explain one subcommand\n",
          out);
}

int cli_no_command(const struct cli_command *commands)
{
    overview(commands, stderr);
    return EXIT_USAGE;
}

int cli_unknown_command(const struct cli_command *commands, const char *name)
{
    const char *best = cli_nearer(name, "help", NULL);
    for (const struct cli_command *c = commands; c->name != NULL; c++) {
        best = cli_nearer(name, c->name, best);
    }
    if (best != NULL) {
        fprintf(stderr, "unseen: unknown subcommand '%s': did you mean '%s'?\n", name, best);
    } else {
        fprintf(stderr, "unseen: unknown subcommand '%s': 'unseen help' lists them\n", name);
    }
    return EXIT_USAGE;
}

int cli_help(const struct cli_command *commands, int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        overview(commands, stdout);
        return EXIT_GOOD;
    }
    if (argc > 2) {
        fprintf(stderr, "unseen help: one subcommand at a time, not '%s' too\n", argv[2]);
        return EXIT_USAGE;
    }
    for (const struct cli_command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, argv[1]) == 0) {
            char option[] = "--help";
            char *args[] = {argv[1], option, NULL};
            return c->run(2, args);
        }
    }
    return cli_unknown_command(commands, argv[1]);
}

int cli_fail(const struct err *err)
{
    fflush(stdout);
    char text[2 * sizeof err->text];
    fprintf(stderr, "unseen: %s\n", slice_show(slice_str(err->text), text, sizeof text));
    return EXIT_FAILED;
}
