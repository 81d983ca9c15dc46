/* COMMAND: the table, for programs. Clients read arity, flags and the key's place from it; redis-cli its hints. */

#include "base/glob.h"
#include "resp/args.h"
#include "resp/command.h"

struct flag_name {
    unsigned flag;
    const char *name;
};

/* As Redis calls them; the rest of our flags mean nothing to a client. */
static const struct flag_name flag_names[] = {
    {CMD_WRITE, "write"}, {CMD_READONLY, "readonly"}, {CMD_ADMIN, "admin"},
    {CMD_FAST, "fast"},   {CMD_LOADING, "loading"},
};

enum { N_FLAGS = sizeof flag_names / sizeof *flag_names, NAMES_MAX = 16 };

static size_t count_rows(const struct command *rows)
{
    size_t n = 0;
    while (rows != NULL && rows[n].name != NULL) {
        n++;
    }
    return n;
}

static void write_info(struct writer *w, const struct command *parent, const struct command *cmd)
{
    char name[COMMAND_NAME];
    bool no_auth = (cmd->role & ROLE_ANYBODY) != 0;
    size_t flags = no_auth;
    for (size_t i = 0; i < N_FLAGS; i++) {
        flags += (cmd->flags & flag_names[i].flag) != 0;
    }
    write_array(w, 10);
    write_str(w, command_full_name(parent, cmd, name));
    write_int(w, cmd->arity);
    write_set(w, flags);
    for (size_t i = 0; i < N_FLAGS; i++) {
        if ((cmd->flags & flag_names[i].flag) != 0) {
            write_simple(w, flag_names[i].name);
        }
    }
    if (no_auth) {
        write_simple(w, "no_auth");
    }
    write_int(w, cmd->key); /* first, */
    write_int(w, cmd->key); /* last, */
    write_int(w, cmd->key); /* step: 1 where there is a key */
    write_set(w, 0);        /* ACL categories */
    write_set(w, 0);        /* tips */
    write_set(w, 0);        /* key specifications */
    size_t subs = count_rows(cmd->subs);
    write_array(w, subs);
    for (size_t i = 0; i < subs; i++) {
        write_info(w, cmd, &cmd->subs[i]);
    }
}

/* One argument whose name is the whole syntax: redis-cli shows just that as its hint. */
static void write_syntax(struct writer *w, const char *syntax)
{
    write_str(w, "arguments");
    write_array(w, 1);
    write_map(w, 2);
    write_pair_str(w, "name", syntax);
    write_pair_str(w, "type", "string");
}

static void write_docs(struct writer *w, const struct command *parent, const struct command *cmd)
{
    char name[COMMAND_NAME];
    size_t subs = count_rows(cmd->subs);
    write_str(w, command_full_name(parent, cmd, name));
    char behind[FIELDS_SYNTAX];
    const char *syntax = command_syntax(cmd, behind);
    bool args = syntax[0] != '\0';
    write_map(w, 3 + (size_t)args + (subs > 0));
    write_pair_str(w, "summary", cmd->summary);
    write_pair_str(w, "since", "0.1.0");
    write_pair_str(w, "group", cmd->group);
    if (args) {
        write_syntax(w, syntax);
    }
    if (subs > 0) {
        write_str(w, "subcommands");
        write_map(w, subs);
        for (size_t i = 0; i < subs; i++) {
            write_docs(w, cmd, &cmd->subs[i]);
        }
    }
}

/* "ping" or "config|get". */
static const struct command *find(struct slice name, const struct command **parent)
{
    *parent = NULL;
    const char *bar = memchr(name.data, '|', name.len);
    if (bar == NULL) {
        return command_find(name);
    }
    *parent = command_find(slice_of(name.data, (size_t)(bar - name.data)));
    struct slice sub = slice_of(bar + 1, (size_t)(name.data + name.len - bar - 1));
    return *parent != NULL ? command_find_sub(*parent, sub) : NULL;
}

enum outcome cmd_command(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    size_t rows = count_rows(command_table);
    write_array(&s->writer, rows);
    for (size_t i = 0; i < rows; i++) {
        write_info(&s->writer, NULL, &command_table[i]);
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_command_count(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_int(&s->writer, (int64_t)count_rows(command_table));
    return OUTCOME_ANSWERED;
}

/* A name is answered by far more than its own length. */
static bool too_many_names(struct resp_client *s, size_t n, enum outcome *refused)
{
    if (n - 2 > NAMES_MAX) {
        *refused =
            resp_client_refuse(s, "ERR %zu names are too many: at most %d are answered at a time", n - 2, NAMES_MAX);
        return true;
    }
    return false;
}

enum outcome cmd_command_info(struct resp_client *s, const struct slice *args, size_t n)
{
    if (n == 2) {
        return cmd_command(s, args, 1);
    }
    enum outcome refused;
    if (too_many_names(s, n, &refused)) {
        return refused;
    }
    write_array(&s->writer, n - 2);
    for (size_t i = 2; i < n; i++) {
        const struct command *parent, *cmd = find(args[i], &parent);
        if (cmd == NULL) {
            write_null(&s->writer);
        } else {
            write_info(&s->writer, parent, cmd);
        }
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_command_docs(struct resp_client *s, const struct slice *args, size_t n)
{
    const struct command *parent;
    size_t rows = count_rows(command_table);
    if (n == 2) {
        write_map(&s->writer, rows);
        for (size_t i = 0; i < rows; i++) {
            write_docs(&s->writer, NULL, &command_table[i]);
        }
        return OUTCOME_ANSWERED;
    }
    enum outcome refused;
    if (too_many_names(s, n, &refused)) {
        return refused;
    }
    size_t found = 0;
    for (size_t i = 2; i < n; i++) {
        found += find(args[i], &parent) != NULL;
    }
    write_map(&s->writer, found);
    for (size_t i = 2; i < n; i++) {
        const struct command *cmd = find(args[i], &parent);
        if (cmd != NULL) {
            write_docs(&s->writer, parent, cmd);
        }
    }
    return OUTCOME_ANSWERED;
}

/* What COMMAND LIST is asked for: all, or those whose names match. */
struct list_filter {
    bool none; /* of a module or a category: there are none */
    bool matches;
    struct slice pattern;
};

static size_t list_rows(struct writer *w, const struct list_filter *filter, const struct command *parent,
                        const struct command *rows)
{
    size_t n = 0;
    char name[COMMAND_NAME];
    for (const struct command *cmd = rows; cmd != NULL && cmd->name != NULL; cmd++) {
        command_full_name(parent, cmd, name);
        if (!filter->matches || glob_fits(filter->pattern, slice_str(name))) {
            n++;
            if (w != NULL) {
                write_str(w, name);
            }
        }
        n += parent == NULL ? list_rows(w, filter, cmd, cmd->subs) : 0;
    }
    return n;
}

/* COMMAND LIST [FILTERBY MODULE module|ACLCAT category|PATTERN pattern] */
enum outcome cmd_command_list(struct resp_client *s, const struct slice *args, size_t n)
{
    struct list_filter filter = {0};
    if (n == 5 && arg_is(args[2], "FILTERBY") && arg_is(args[3], "PATTERN") && args[4].len <= COMMAND_NAME) {
        filter.matches = true;
        filter.pattern = args[4];
    } else if (n == 5 && arg_is(args[2], "FILTERBY") &&
               (arg_is(args[3], "MODULE") || arg_is(args[3], "ACLCAT") || arg_is(args[3], "PATTERN"))) {
        filter.none = true;
    } else if (n > 2) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    write_array(&s->writer, filter.none ? 0 : list_rows(NULL, &filter, NULL, command_table));
    if (!filter.none) {
        list_rows(&s->writer, &filter, NULL, command_table);
    }
    return OUTCOME_ANSWERED;
}

/* COMMAND GETKEYS command [argument ...] */
enum outcome cmd_command_getkeys(struct resp_client *s, const struct slice *args, size_t n)
{
    const struct command *cmd = command_find(args[2]);
    args += 2;
    n -= 2;
    if (cmd != NULL && cmd->subs != NULL && n > 1) {
        cmd = command_find_sub(cmd, args[1]);
    }
    if (cmd == NULL) {
        return resp_client_refuse(s, "ERR Invalid command specified");
    }
    if (cmd->key == 0) {
        return resp_client_refuse(s, "ERR The command has no key arguments");
    }
    if (!command_count_fits(cmd, n)) {
        return resp_client_refuse(s, "ERR Invalid number of arguments specified for command");
    }
    write_array(&s->writer, 1);
    write_bulk(&s->writer, args[cmd->key]);
    return OUTCOME_ANSWERED;
}
