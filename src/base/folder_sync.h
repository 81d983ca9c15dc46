/* Names that outlive a power cut: a file's fsync makes its bytes durable, that of its folder makes its name. */
#ifndef UNSEEN_BASE_FOLDER_SYNC_H
#define UNSEEN_BASE_FOLDER_SYNC_H

#include "base/err.h"

/* Makes the names in a folder durable. */
int folder_sync(const char *folder, struct err *err);

/* Makes the name of a file or folder durable: it stands in the folder above. */
int folder_sync_name(const char *path, struct err *err);

#endif
