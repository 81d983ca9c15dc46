/* Texts of the log and of errors without ids, for who may not know which users there are. */
#ifndef UNSEEN_BASE_HIDE_H
#define UNSEEN_BASE_HIDE_H

#include <stddef.h>

/* Puts "-" in place of ids: of the value of a field user, item, key, object or session (user=u42), and of what stands
 * in quotes behind such a word, or behind "is" (user "u42", time is "u42"), also within other quotes, with their
 * escapes. Texts quote ids by log_quote(). One whose end was cut off is hidden to the end of the text. */
void hide_ids(char *text);

/* A copy of an error's text, cut to size, for what is kept to be shown to all who watch the server. */
void hide_ids_copy(char *out, size_t size, const char *text);

#endif
