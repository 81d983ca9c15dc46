/* How a connection ends. CONN_OPEN -> CONN_FINISHING: nothing more is taken in, what is in out is sent, then our half
 * is shut, and what the peer still sends is thrown away for a moment, since closing with unread bytes would make its
 * kernel throw away our last words. -> CONN_CLOSING: libuv closes the handle and calls back; the memory goes when
 * nothing holds the connection any more. */
#include "net/conn.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/address.h"
#include "net/conn_impl.h"
#include "net/worker.h"

enum { KEEPALIVE_S = 300, BATCH = 16 * 1024, UNSENT_LOW = CONN_READ, REPLY_MIDDLING = CONN_READ / 2 * 3 };
enum { JAMMED_PART = 2, IDLE_PART = 8 }; /* of what is shared: so much gives way in a second */

static size_t conn_holds(const struct conn *c)
{
    return c->in.cap + c->out.cap + c->sending.cap + c->extra + c->tls_held + c->tls_in.cap;
}

static void join_strange(struct conn *c)
{
    struct worker *w = c->worker;
    c->strange_ms = clock_mono_ms();
    c->next_strange = NULL;
    c->prev_strange = w->strange_last;
    *(c->prev_strange != NULL ? &c->prev_strange->next_strange : &w->strange_first) = c;
    w->strange_last = c;
}

static void leave_strange(struct conn *c)
{
    struct worker *w = c->worker;
    *(c->prev_strange != NULL ? &c->prev_strange->next_strange : &w->strange_first) = c->next_strange;
    *(c->next_strange != NULL ? &c->next_strange->prev_strange : &w->strange_last) = c->prev_strange;
}

/* It holds so many bytes. */
static void set_held(struct conn *c, size_t held)
{
    struct budget_share *memory = &c->worker->memory;
    if (c->overdraft) {
        budget_set_over(memory->all, held);
    } else if (c->strange) {
        budget_set_stranger(memory->all, c->held, held);
        if (c->held == 0 && held > 0) {
            join_strange(c);
        } else if (c->held > 0 && held == 0) {
            leave_strange(c);
        }
    } else if (held > c->held) {
        budget_take(memory, held - c->held);
    } else if (held < c->held) {
        budget_give(memory, c->held - held);
    }
    c->held = held;
}

/* It has logged in, or out: what it holds counts elsewhere from now on, or as soon as there is room for it. */
static void change_sides(struct conn *c, size_t held)
{
    const struct budget_share *memory = &c->worker->memory;
    bool stranger = conn_is_stranger(c);
    bool fits = stranger ? budget_allows_stranger(memory->all, held) : budget_allows(memory, BUDGET_REPLY, held);
    if (c->strange != stranger && c->state != CONN_CLOSING && !c->overdraft && (held == 0 || fits)) {
        set_held(c, 0);
        c->strange = stranger;
    }
}

void conn_account(struct conn *c)
{
    size_t held = conn_holds(c);
    struct budget_share *memory = &c->worker->memory;
    change_sides(c, held);
    set_held(c, held);
    size_t least = conn_is_shaking(c) ? 0 : c->tls_held;
    if (c->overdraft && (held == 0 || (held <= least + CONN_KEEP_OUT && budget_allows(memory, BUDGET_REPLY, held)))) {
        c->overdraft = false;
        budget_repay(memory, held);
    }
}

void conn_charge(struct conn *c, size_t extra)
{
    if (extra > c->extra) {
        c->granted = 0; /* what was allowed is held elsewhere than in out */
    }
    c->extra = extra;
    conn_account(c);
}

void conn_hold(struct conn *c)
{
    c->refs++;
}

void conn_release(struct conn *c)
{
    if (--c->refs > 0) {
        return;
    }
    struct worker *w = c->worker;
    c->ops->close(c);
    c->extra = 0;
    conn_free_input(c);
    buf_free(&c->out);
    buf_free(&c->sending);
    conn_account(c);
    w->n_alive--;
    free(c);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct worker *w = c->worker;
    for (struct conn_cursor *cursor = w->cursors; cursor != NULL; cursor = cursor->next) {
        cursor->at = cursor->at == c ? c->next : cursor->at;
    }
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        w->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    worker_leave_line(c);
    conn_free_input(c);
    conn_tls_free(c);
    buf_free(&c->out);
    conn_account(c);
    room_rise(c);
    if (c->ops->gone != NULL && c->refs > 1) {
        c->ops->gone(c);
    }
    conn_release(c);
}

void conn_abort(struct conn *c)
{
    if (c->state == CONN_CLOSING) {
        return;
    }
    conn_log(c, LOG_LEVEL_DEBUG, "client disconnected", NULL);
    c->state = CONN_CLOSING;
    uv_close(&c->uv.handle, on_closed);
}

void conn_dismiss(struct conn *c, struct slice last_word)
{
    uv_buf_t bytes = uv_buf_init((char *)last_word.data, (unsigned)last_word.len);
    bool may_say = c->state == CONN_OPEN && conn_unsent(c) == 0;
    if (may_say && c->secure) {
        conn_tls_dismiss(c, last_word);
    } else if (may_say && last_word.len > 0) {
        uv_try_write(&c->uv.stream, &bytes, 1);
    }
    conn_abort(c);
}

static struct slice last_word(struct conn *c, enum conn_end why)
{
    return c->ops->last_word != NULL ? c->ops->last_word(c, why) : (struct slice){NULL, 0};
}

void conn_end(struct conn *c, enum conn_end why)
{
    conn_dismiss(c, last_word(c, why));
}

void conn_finish(struct conn *c)
{
    if (c->state == CONN_OPEN) {
        c->state = CONN_FINISHING;
        conn_touch(c);
    }
}

void conn_touch(struct conn *c)
{
    if (!c->dirty && c->state != CONN_CLOSING) {
        c->dirty = true;
        c->next_dirty = c->worker->dirty;
        c->worker->dirty = c;
    }
}

bool conn_has_room(const struct conn *c, enum budget_use use, size_t more)
{
    struct budget_share *memory = &c->worker->memory;
    if (c->overdraft) {
        return budget_overdraft_allows(memory->all, more);
    }
    if (conn_is_stranger(c)) {
        return budget_allows_stranger(memory->all, more);
    }
    return budget_allows(memory, use, c->strange ? c->held + more : more);
}

bool conn_is_lent(const struct conn *c, size_t holds, size_t more)
{
    return !conn_is_stranger(c) && holds + more <= CONN_READ && budget_lends(&c->worker->pool->budget, more, false);
}

void conn_starve(struct conn *c, enum budget_use use, size_t more)
{
    if (c->state == CONN_OPEN && c->line == NULL) {
        worker_count(c->worker, COUNT_STARVED, 1);
        worker_wait(c, use, more);
    }
}

bool conn_may_run(struct conn *c)
{
    if (!conn_may_go_on(c)) {
        return false;
    }
    if (c->quota == 0) {
        worker_wait_turn(c);
        return false;
    }
    c->quota--;
    return true;
}

/* What the kernel will take at once, because the peer has read what was sent before. */
static size_t kernel_room(const struct conn *c)
{
    int fd = conn_fd(c), queued = 0, buffer = 0;
    socklen_t size = sizeof buffer;
    if (ioctl(fd, SIOCOUTQ, &queued) < 0 || getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, &size) < 0) {
        return 0;
    }
    size_t most = (size_t)buffer / (queued == 0 ? 1 : 4);
    most = most < UNSENT_LOW ? most : UNSENT_LOW;
    return most > (size_t)queued ? most - (size_t)queued : 0;
}

/* A reply that frees its request's memory may take what no request may. A request that holds nothing came whole, in
 * CONN_READ bytes at most: a reply that is large beside that is as good as a large request. */
static enum budget_use reply_use(const struct conn *c, size_t bytes)
{
    return c->in.cap > 0 ? BUDGET_REPLY : bytes > REPLY_MIDDLING ? BUDGET_LARGE : BUDGET_REQUEST;
}

/* How much of a batch may be made although there is no room, since the kernel seems to take it at once; or the most of
 * it, where it is the reply to a middling request: what it may leave gets no more than half of what is lent. 0: none.
 */
static size_t may_borrow(const struct conn *c, size_t most, size_t batch)
{
    const struct budget *b = &c->worker->pool->budget;
    size_t room = kernel_room(c);
    if (most <= room) {
        size_t lent = batch < room ? batch : room;
        return budget_lends(b, lent, c->is_unix) ? lent : 0;
    }
    return room > 0 && most <= REPLY_MIDDLING && budget_lends(b, most + budget_lent_max(b) / 2, false) ? most : 0;
}

/* There is no room, or others wait for some. What was said before goes first; a small reply then needs none when it
 * leaves at once. Short replies are not asked for one by one. */
static bool make_way(struct conn *c, size_t most)
{
    bool again = c->granted > 0 && c->out.len > 0;
    if (!conn_send(c)) {
        c->choked = true;
        return false;
    }
    if (again) {
        worker_wait_turn(c); /* others have theirs first */
        return false;
    }
    size_t batch = most > BATCH ? most : BATCH;
    enum budget_use use = reply_use(c, most);
    if (!conn_has_room(c, use, batch)) {
        size_t lent = may_borrow(c, most, batch);
        if (lent == 0) {
            conn_starve(c, use, batch);
            return false;
        }
        batch = lent;
    }
    c->granted = batch;
    return true;
}

int conn_check_reply(const struct conn *c, size_t most, const char *what, const char *instead, struct err *err)
{
    size_t limit = budget_reply_max(&c->worker->pool->budget);
    return most <= limit ? 0
                         : err_set(err, ERR_RANGE, "%s may take %zu bytes, and request_memory allows for %zu: %s", what,
                                   most, limit, instead);
}

bool conn_get_grant(struct conn *c, size_t most)
{
    struct budget_share *memory = &c->worker->memory;
    if (!conn_is_stranger(c) && budget_load(&memory->all->waiting) == 0 &&
        budget_allows(memory, BUDGET_LARGE, most + CONN_READ)) {
        c->granted = c->out.len + most + BATCH; /* there is plenty: those that follow are not asked for one by one */
        return true;
    }
    size_t holds = conn_holds(c), room = c->out.cap - c->out.len;
    size_t more = (holds > c->held ? holds - c->held : 0) + (most > room ? most - room : 0);
    bool alone = conn_unsent(c) == 0 || budget_load(&memory->all->waiting) == 0;
    return ((c->overdraft || alone) && conn_has_room(c, reply_use(c, most), more)) || make_way(c, most);
}

/* The peer has sent all it wants to. What it asked for is still answered. */
void conn_end_if_done(struct conn *c)
{
    if (c->eof && c->state == CONN_OPEN && c->refs == 1 && !c->paused && c->line == NULL && !c->choked) {
        conn_finish(c);
    }
}

static void give_up(struct conn *c, const char *cause)
{
    worker_count(c->worker, COUNT_TIMEOUTS, 1);
    conn_log(c, LOG_LEVEL_INFO, "connection timed out", cause);
    conn_end(c, CONN_END_LATE);
}

/* Whether so many bytes have taken too long, although others wait for the memory that this one holds. */
static bool is_in_the_way(const struct conn *c, int64_t since, size_t moved, int64_t now)
{
    return c->held > 0 && !c->strange && budget_load(&c->worker->pool->budget.waiting) > 0 &&
           now - since >= CONN_PATIENCE_SHORT_MS + (int64_t)(moved / (CONN_RATE_LEAST * 1024)) * 1000;
}

/* Of many that are in the way a part goes each second, since what they free may be enough for the others. */
static bool must_go(const struct conn *c, size_t part)
{
    struct worker *w = c->worker;
    bool must = w->given_way == 0 || w->given_way < budget_load(&w->memory.all->shared) / part;
    w->given_way += must ? c->held : 0;
    return must;
}

/* Half requests may hold all that there is, each waiting for more. Then some must go; and so must the holder of
 * the overdraft, if it has many requests at once, once they leave no room for one another. */
static bool is_jammed(struct conn *c, int64_t now)
{
    const struct worker *w = c->worker;
    bool wants_more = c->line == &w->lines[BUDGET_REQUEST] || c->line == &w->lines[BUDGET_LARGE];
    bool is_full = c->overdraft && c->line != NULL && budget_overdraft_is_full(&w->pool->budget, c->wants);
    if (c->overdraft ? !is_full : !wants_more) {
        return false;
    }
    return c->in.len + c->extra > 0 && now - c->active_ms >= CONN_PATIENCE_LINE_MS &&
           (c->overdraft || must_go(c, JAMMED_PART));
}

bool conn_is_stranger(const struct conn *c)
{
    return conn_is_shaking(c) ||
           (!c->trusted && (c->ops->answers_anybody || config_wants_login(config_now(c->worker->pool->cfg))));
}

/* What it was asked is under way, or it waits for its turn: it is we who take the time. */
static bool is_kept_waiting(const struct conn *c)
{
    return c->refs > 1 || c->line == &c->worker->handshakes || c->line == &c->worker->next_turn;
}

bool conn_make_way_for_strangers(struct conn *c, int64_t now)
{
    bool goes = c->state != CONN_CLOSING && conn_is_stranger(c) && !is_kept_waiting(c) &&
                now - c->strange_ms >= CONN_PATIENCE_STRANGE_MS;
    if (goes) {
        give_up(c, "not logged in, and others wait for its memory");
    }
    return goes;
}

/* One that never says who it is; but for an edge whose silent connections end by a time of its own. */
static bool may_not_stay(const struct conn *c)
{
    return c->ops->idle_ms == 0 && conn_is_stranger(c) && config_wants_login(config_now(c->worker->pool->cfg));
}

/* What it was allowed in a turn of the loop it holds by now. */
static void look_at_overdraft(struct conn *c)
{
    if (c->overdraft) {
        conn_account(c);
    }
    if (c->overdraft) {
        budget_look_at_overdraft(&c->worker->pool->budget, c->line != NULL ? c->wants : 0);
    }
}

/* While the worker stops: nothing is under way for it, and its peer reads nothing of what it was told. */
static bool is_deaf(struct conn *c)
{
    size_t left = c->sending.len > 0 ? uv_stream_get_write_queue_size(&c->uv.stream) : 0;
    if (!c->worker->stopping || c->refs > 1 || left != c->deaf_left || c->active_ms != c->deaf_ms) {
        c->deaf_left = left;
        c->deaf_ms = c->active_ms;
        c->deaf_ticks = 0;
        return false;
    }
    return ++c->deaf_ticks > CONN_LINGER_TICKS;
}

void conn_tick(struct conn *c, int64_t now)
{
    if (c->state != CONN_CLOSING && is_deaf(c)) {
        conn_end(c, CONN_END_STOPPING);
        return;
    }
    if (c->state == CONN_FINISHING && c->shut && --c->linger <= 0) {
        conn_abort(c);
    }
    if (c->state == CONN_OPEN && c->ops->tick != NULL) {
        c->ops->tick(c, now);
    }
    look_at_overdraft(c);
    if (c->state == CONN_OPEN && conn_is_shaking(c) && now - c->opened_ms >= CONN_PATIENCE_SHAKE_MS) {
        give_up(c, "no TLS handshake");
    }
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (c->sending.len > 0) {
        size_t left = uv_stream_get_write_queue_size(&c->uv.stream);
        if (left != c->stuck_bytes) {
            c->stuck_bytes = left;
            c->stuck_ms = now;
        } else if (now - c->stuck_ms >= CONN_PATIENCE_MS) {
            give_up(c, "replies are not read");
            return;
        }
        if (is_in_the_way(c, c->unread_ms, c->unread - left, now)) {
            give_up(c, "replies are not read, and others wait for their memory");
        }
        return;
    }
    if (c->state == CONN_OPEN && (c->refs > 1 || c->line != NULL) && conn_has_ended(c, false)) {
        conn_abort(c); /* nothing is read of one that waits, so its end is looked for */
    }
    if (c->state != CONN_OPEN || c->refs > 1) {
        return;
    }
    int64_t idle_timeout = c->ops->idle_ms;
    idle_timeout = idle_timeout > 0 ? idle_timeout : config_now(c->worker->pool->cfg)->idle_timeout_ms;
    if (is_jammed(c, now)) {
        give_up(c, "half a request, and no memory for the rest");
    } else if ((c->line != NULL && c->line != &c->worker->halves) || c->paused) {
        c->partial_ms = c->midway || c->input.len + c->in_kernel > 0 ? now : 0;
    } else if (c->partial_ms != 0 && now - c->partial_ms >= CONN_PATIENCE_MS) {
        give_up(c, "half a request");
    } else if (c->partial_ms != 0 && is_in_the_way(c, c->partial_ms, c->input.len, now)) {
        give_up(c, "half a request, and others wait for its memory");
    } else if (may_not_stay(c) && !c->owed && now - c->opened_ms >= CONN_PATIENCE_MS) {
        give_up(c, "no login");
    } else if (idle_timeout > 0 && !c->owed && now - c->active_ms >= idle_timeout) {
        give_up(c, "idle");
    } else if (c->out.len == 0 && c->out.cap > 0 && now - c->active_ms >= WORKER_TICK_MS) {
        buf_free(&c->out); /* an idle connection holds nothing */
        conn_account(c);
    } else if (is_in_the_way(c, c->active_ms, 0, now) && (!c->secure || must_go(c, IDLE_PART))) {
        give_up(c, c->secure ? "idle over TLS, and others wait for its memory"
                             : "idle with half of what it asks, and others wait for its memory");
    } else {
        conn_account(c); /* while there is room, it gives the overdraft back */
    }
}

void conn_drain(struct conn *c)
{
    if (c->state == CONN_OPEN && c->ops->drain != NULL) {
        c->ops->drain(c);
    }
    if (c->refs == 1 && !c->owed && c->state == CONN_OPEN) {
        struct slice word = last_word(c, CONN_END_STOPPING);
        buf_add(&c->out, word.data, word.len);
        conn_finish(c);
    }
}

static int take_socket(struct conn *c, int fd)
{
    if (c->is_unix) {
        return uv_pipe_open(&c->uv.pipe, fd);
    }
    int code = uv_tcp_open(&c->uv.tcp, fd);
    if (code == 0) {
        uv_tcp_nodelay(&c->uv.tcp, 1);
        uv_tcp_keepalive(&c->uv.tcp, 1, KEEPALIVE_S);
        /* Beyond what is on its way, or thousands that don't read fill the kernel's memory instead of ours. */
        int unsent = UNSENT_LOW;
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    }
    return code;
}

void conn_open(struct worker *w, const struct listener *from, int fd, uint64_t peer, const struct sockaddr_in6 *address,
               uint64_t id)
{
    const struct conn_ops *ops = from->ops;
    struct conn *c = calloc(1, ops->size);
    bool is_unix = peer == PEER_UNIX;
    if (c == NULL) {
        close(fd);
        room_leave(w->room, peer, true);
        return;
    }
    c->worker = w;
    c->from = from;
    c->secure = from->tls;
    c->ops = ops;
    c->refs = 1;
    c->peer = peer;
    c->peer_address = *address;
    c->is_unix = is_unix;
    c->low_water = 1;
    c->id = id;
    c->opened_ms = c->active_ms = clock_mono_ms();
    if (is_unix) {
        uv_pipe_init(&w->loop, &c->uv.pipe, 0);
    } else {
        uv_tcp_init(&w->loop, &c->uv.tcp);
    }
    c->uv.handle.data = c;
    c->next = w->conns;
    if (w->conns != NULL) {
        w->conns->prev = c;
    }
    w->conns = c;
    w->n_alive++;
    room_sit(c);
    worker_count(w, COUNT_CONNECTIONS, 1);
    ops->open(c);
    if (take_socket(c, fd) < 0) {
        close(fd);
        conn_abort(c);
        return;
    }
    conn_log(c, LOG_LEVEL_DEBUG, "client connected", NULL);
    conn_read_on(c);
}

int conn_fd(const struct conn *c)
{
    uv_os_fd_t fd = -1;
    return uv_fileno(&c->uv.handle, &fd) == 0 ? fd : -1;
}

void conn_address(const struct conn *c, bool local, char out[CONN_ADDRESS])
{
    struct sockaddr_storage a;
    int len = sizeof a;
    out[0] = '\0';
    if (c->is_unix) {
        /* The peer's end has no name, so both are called after ours, as Redis does. */
        char path[CONN_ADDRESS - 3];
        size_t size = sizeof path;
        if (uv_pipe_getsockname(&c->uv.pipe, path, &size) == 0) {
            snprintf(out, CONN_ADDRESS, "%.*s:0", (int)size, path);
        }
        return;
    }
    if (!local) {
        address_text((const struct sockaddr *)&c->peer_address, out);
    } else if (uv_tcp_getsockname(&c->uv.tcp, (struct sockaddr *)&a, &len) == 0) {
        address_text((struct sockaddr *)&a, out);
    }
}

bool conn_is_local(const struct conn *c)
{
    return c->is_unix || peer_is_local((const struct sockaddr *)&c->peer_address);
}

void conn_log(const struct conn *c, enum log_level level, const char *message, const char *cause)
{
    if (log_wants(level)) {
        char address[CONN_ADDRESS];
        conn_address(c, false, address);
        log_write(level, message, "id=%llu address=%s%s%s edge=%s", (unsigned long long)c->id, log_quote_str(address),
                  cause != NULL ? " cause=" : "", cause != NULL ? log_quote_str(cause) : "", c->ops->edge);
    }
}
