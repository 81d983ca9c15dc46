#include "net/line.h"

#include "net/conn.h"

void line_join(struct line *line, struct conn *c, size_t wants, bool first)
{
    c->line = line;
    c->wants = wants;
    c->behind = first ? line->first : NULL;
    c->ahead = first ? NULL : line->last;
    *(c->ahead != NULL ? &c->ahead->behind : &line->first) = c;
    *(c->behind != NULL ? &c->behind->ahead : &line->last) = c;
}

void line_leave(struct conn *c)
{
    struct line *line = c->line;
    if (line == NULL) {
        return;
    }
    *(c->ahead != NULL ? &c->ahead->behind : &line->first) = c->behind;
    *(c->behind != NULL ? &c->behind->ahead : &line->last) = c->ahead;
    c->line = NULL;
    c->ahead = c->behind = NULL;
}
