/* How much memory the process may use. */
#ifndef UNSEEN_BASE_MEMORY_LIMIT_H
#define UNSEEN_BASE_MEMORY_LIMIT_H

#include <stdint.h>

/* The smallest of what the machine has, and of the limits of the process's cgroups (version 1 or 2) and of those above
 * them, as far as they are to be seen from here: in bytes; 0: nothing tells. *from: "machine" or "cgroup". root: "", or
 * a folder that stands for "/". */
int64_t process_memory_limit(const char *root, const char **from);

#endif
