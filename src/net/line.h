/* Connections that wait, in order. Joining, leaving from anywhere and serving the first cost the same however many
 * there are.
 */
#ifndef UNSEEN_NET_LINE_H
#define UNSEEN_NET_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct conn;

struct line {
    struct conn *first, *last;
};

/* A connection stands in one line at most (conn.line). wants: bytes that it waits for. first: before all others. */
void line_join(struct line *line, struct conn *c, size_t wants, bool first);
void line_leave(struct conn *c); /* none: nothing happens */

#endif
