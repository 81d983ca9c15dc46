#include "replica/pages.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/task.h"
#include "replica/adopt.h"
#include "replica/replica.h"

struct pages {
    struct store *store;
    struct store_reader *reader;
    struct task task;
    pthread_mutex_t mutex; /* guards: */
    struct page *first, **last;
};

static int list_tombstones(struct pages *p, struct page *page)
{
    page->tombstones = arena_alloc(&page->arena, (size_t)page->max * sizeof *page->tombstones);
    if (page->tombstones == NULL) {
        return err_set(&page->err, ERR_NOMEM, "out of memory for a page");
    }
    return p->store->copy->tombstones(p->reader, page->first ? NULL : &page->behind, page->tombstones, page->max,
                                      &page->err);
}

static int list_positions(struct pages *p, struct page *page)
{
    page->positions = arena_alloc(&page->arena, (size_t)page->max * sizeof *page->positions);
    if (page->positions == NULL) {
        return err_set(&page->err, ERR_NOMEM, "out of memory for a page");
    }
    return p->store->copy->positions(p->reader, page->first ? NULL : &page->name, page->positions, page->max,
                                     &page->arena, &page->err);
}

static void work(struct pages *p, struct page *page)
{
    int n = 0;
    switch (page->kind) {
    case PAGE_USERS:
        n = p->store->copy->users(p->reader, &page->users, &page->bytes, page->bytes_max, &page->err);
        break;
    case PAGE_USER:
        n = p->store->copy->user(p->reader, page->name, &page->bytes, &page->err);
        break;
    case PAGE_TOMBSTONES:
        n = list_tombstones(p, page);
        break;
    case PAGE_POSITIONS:
        n = list_positions(p, page);
        break;
    case PAGE_ADOPT:
        n = adopt_find(p->store, p->reader, page->replica, &page->cursor, &page->from, &page->err);
        break;
    }
    page->n = n < 0 ? 0 : n;
    page->done(page);
}

static void pages_main(void *arg)
{
    struct pages *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (!task_stops(&p->task)) {
        struct page *page = p->first;
        if (page == NULL) {
            task_wait(&p->task, INT64_MAX);
        } else {
            p->first = page->next;
            p->last = p->first == NULL ? &p->first : p->last;
            pthread_mutex_unlock(&p->mutex);
            work(p, page);
            pthread_mutex_lock(&p->mutex);
        }
        heartbeat_now(&p->task.heartbeat);
    }
    pthread_mutex_unlock(&p->mutex);
}

int pages_start(struct replica *r, struct pages **pages, struct err *err)
{
    *pages = NULL;
    struct pages *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    p->store = r->store;
    p->last = &p->first;
    pthread_mutex_init(&p->mutex, NULL);
    task_init(&p->task, &p->mutex);
    int rc = p->store->ops->reader_open(p->store, &p->reader, err);
    if (rc == 0 && (rc = task_start(&p->task, "pages", TASK_BEATS, pages_main, p, err)) < 0) {
        p->store->ops->reader_close(p->reader);
    }
    if (rc < 0) {
        p->reader = NULL;
        pages_free(p);
        return rc;
    }
    *pages = p;
    return 0;
}

static void refuse(struct page *list)
{
    for (struct page *next; list != NULL; list = next) {
        next = list->next;
        err_set(&list->err, ERR_CLOSED, "the server is shutting down");
        list->done(list);
    }
}

void pages_stop(struct pages *p)
{
    if (p == NULL || p->reader == NULL) {
        return;
    }
    task_stop(&p->task);
    refuse(p->first);
    p->store->ops->reader_close(p->reader);
    p->reader = NULL;
}

void pages_free(struct pages *p)
{
    if (p != NULL) {
        task_destroy(&p->task);
        pthread_mutex_destroy(&p->mutex);
        free(p);
    }
}

void pages_put(struct pages *p, struct page *page)
{
    page->next = NULL;
    pthread_mutex_lock(&p->mutex);
    bool stopped = task_stops(&p->task);
    if (!stopped) {
        *p->last = page;
        p->last = &page->next;
        task_wake(&p->task);
    }
    pthread_mutex_unlock(&p->mutex);
    if (stopped) {
        refuse(page);
    }
}

void page_end(struct page *page)
{
    buf_free(&page->bytes);
    buf_free(&page->users.ends);
    arena_free(&page->arena);
}
