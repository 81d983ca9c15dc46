#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int module_open(const char *folder, const char *name, const char *package, const void **functions, struct err *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/unseen_%s.so", folder[0] != '\0' ? folder : UNSEEN_PKGLIBDIR, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return err_set(err, ERR_INVALID, "modules: the path of the folder is too long");
    }
    if (access(path, F_OK) < 0) {
        return err_set(err, ERR_ABSENT, "%s is not there: install the package %s, or set the option modules", path,
                       package);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return err_set(err, ERR_SYSTEM, "can't load a module: %s", dlerror());
    }
    const struct module *module = dlsym(library, MODULE_SYMBOL);
    int rc = 0;
    if (module == NULL) {
        rc = err_set(err, ERR_VERSION, "%s is no module of unseen", path);
    } else if (strcmp(module->version, UNSEEN_VERSION) != 0) {
        rc = err_set(err, ERR_VERSION, "%s is of version %s, and this is %s: install the package %s of this version",
                     path, module->version, UNSEEN_VERSION, package);
    }
    if (rc < 0) {
        dlclose(library);
        return rc;
    }
    *functions = module->functions;
    return 0;
}
