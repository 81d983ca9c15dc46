/* One NDJSON line: a flat object of which three keys matter. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_JSON_H
#define UNSEEN_CLI_IMPORT_IMPORT_JSON_H

#include <stddef.h>

#include "base/err.h"
#include "base/slice.h"

/* Strict JSON (RFC 8259), except that bytes above 0x7f are not checked: ids are opaque. The keys come in any order,
 * each once; other keys are ignored. A value is a string, or a number, whose text is taken as it is. Escapes are
 * decoded in place, so the line can't be parsed twice. time: the key of the time. fields: time,
 * user, item. Returns 0, or ERR_INVALID saying
 * what was expected at which byte. */
int import_json_parse(char *line, size_t len, const char *time, struct slice fields[3], struct err *err);

#endif
