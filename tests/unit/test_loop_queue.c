/* The queue: nothing is lost, nothing is doubled, and each sender's messages arrive in its order, however many
 * threads send; what comes after the loop has ended is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "net/loop_queue.h"

enum { SENDERS = 4, EACH = 5000 };

struct letter {
    struct loop_message message;
    int sender;
    int number;
};

struct post {
    struct loop_queue box;
    uv_loop_t loop;
    struct letter letters[SENDERS][EACH];
    int next[SENDERS]; /* expected */
    int arrived;
    int disordered;
};

static void on_letter(struct loop_message *message, void *owner)
{
    struct letter *letter = (struct letter *)message;
    struct post *post = owner;
    post->disordered += letter->number != post->next[letter->sender];
    post->next[letter->sender] = letter->number + 1;
    if (++post->arrived == SENDERS * EACH) {
        loop_queue_close(&post->box);
    }
}

struct sender {
    struct post *post;
    int index;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < EACH; i++) {
        struct letter *letter = &s->post->letters[s->index][i];
        *letter = (struct letter){{NULL, on_letter}, s->index, i};
        loop_queue_post(&s->post->box, &letter->message);
    }
    return NULL;
}

static struct post *new_post(void)
{
    struct post *post = calloc(1, sizeof *post);
    assert_non_null(post);
    assert_int_equal(uv_loop_init(&post->loop), 0);
    assert_int_equal(loop_queue_open(&post->box, &post->loop, post, NULL), 0);
    return post;
}

static void free_post(struct post *post)
{
    loop_queue_free(&post->box);
    assert_int_equal(uv_loop_close(&post->loop), 0);
    free(post);
}

static void many_senders(void **state)
{
    (void)state;
    struct post *post = new_post();
    pthread_t threads[SENDERS];
    struct sender senders[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){post, i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    uv_run(&post->loop, UV_RUN_DEFAULT);
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(post->arrived, SENDERS * EACH);
    assert_int_equal(post->disordered, 0);
    free_post(post);
}

/* Whoever delivers may post again: it arrives in a later round, and the loop is woken for it. */
static void on_echo(struct loop_message *message, void *owner)
{
    struct letter *letter = (struct letter *)message;
    struct post *post = owner;
    post->arrived++;
    if (--letter->number > 0) {
        loop_queue_post(&post->box, message);
    } else {
        loop_queue_close(&post->box);
    }
}

static void post_while_delivering(void **state)
{
    (void)state;
    struct post *post = new_post();
    struct letter letter = {{NULL, on_echo}, 0, 10};
    loop_queue_post(&post->box, &letter.message);
    uv_run(&post->loop, UV_RUN_DEFAULT);
    assert_int_equal(post->arrived, 10);
    free_post(post);
}

static void mail_after_the_end(void **state)
{
    (void)state;
    struct post *post = new_post();
    loop_queue_close(&post->box);
    uv_run(&post->loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 3; i++) {
        post->letters[0][i] = (struct letter){{NULL, on_letter}, 0, i};
        loop_queue_post(&post->box, &post->letters[0][i].message);
    }
    assert_int_equal(post->arrived, 0);
    loop_queue_drain(&post->box);
    assert_int_equal(post->arrived, 3);
    assert_int_equal(post->disordered, 0);
    free_post(post);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_senders),
        cmocka_unit_test(post_while_delivering),
        cmocka_unit_test(mail_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
