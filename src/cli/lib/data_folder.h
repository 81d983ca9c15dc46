/* Whether a data folder is the one that is meant: a folder that holds nothing, or another history, may be a mistyped
 * path, or another disk. expect_data decides, here for every command that may begin a history.
 *
 * Its mark is a file outside of the data folder, which serve leaves: the path of the folder that was served last, and
 * in a second line what its history is known by, which marks of 0.1.0 don't have. */
#ifndef UNSEEN_CLI_LIB_DATA_FOLDER_H
#define UNSEEN_CLI_LIB_DATA_FOLDER_H

#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"
#include "store/store.h"

/* Before the store is opened, by the subcommand of that name. 0: the folder holds data, or may be begun: begin_new says
 * that --new was given. ERR_NOTFOUND: it holds none, and should. Nothing is created. */
int data_folder_check(const struct config *cfg, const char *command, bool begin_new, struct err *err);

/* Opens the folder for a subcommand that writes plays into it: the check, and a warning if a history is begun. */
int data_folder_open(const struct config *cfg, const char *command, bool begin_new, struct store **store,
                     struct err *err);

/* Once the store is open that is to be served: makes the mark, or has it name this folder and history. ERR_SEED: the
 * mark names another history, and begin_new is not given. A history stays what it is by its seed, or, where a folder
 * without plays adopts another seed, by when it was begun. */
int data_folder_mark(const struct config *cfg, bool begin_new, struct store *store, struct err *err);

#endif
