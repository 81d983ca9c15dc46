#ifndef UNSEEN_CLI_IMPORT_LETTERS_H
#define UNSEEN_CLI_IMPORT_LETTERS_H

#include "cli/import/import_impl.h"
#include "cli/lib/options.h"

/* Those in the files that are named, or all of the data folder. The target is open. */
int import_all_letters(struct import *im, const struct cli_options *options, struct err *err);

#endif
