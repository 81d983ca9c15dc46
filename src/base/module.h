/* Modules: parts of the program that need a library which a small install should not have. Each is a shared object of a
 * package of its own, unseen_NAME.so in the folder of the option `modules`, and is loaded when it is asked for. It uses
 * no symbol of the program, and exports one: MODULE_SYMBOL.
 */
#ifndef UNSEEN_BASE_MODULE_H
#define UNSEEN_BASE_MODULE_H

#include "base/err.h"

#define MODULE_SYMBOL "unseen_module"

struct module {
    const char *version;   /* UNSEEN_VERSION of its build: program and module are of one build, or it isn't loaded */
    const void *functions; /* the module's table; both sides include the header that says what it is */
};

/* Loads unseen_NAME.so, which stays. folder "": where the program's own libraries were installed. ERR_ABSENT: it is not
 * there, and package has it; ERR_VERSION: it belongs to another version; ERR_SYSTEM: the loader's words, such as a
 * library that is missing. Once at a time. */
int module_open(const char *folder, const char *name, const char *package, const void **functions, struct err *err);

#endif
