/* test_pool_worker.c - several clients on several conversations of one worker, with real threads and a store that is
 * slow to write (run under the thread sanitizer by `make check`). */
#include "engine/fake.h"
#include "engine/wrap.h"
#include "session/worker.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "support/session_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 49, ANSWER = 2, BLOCK = 16, ROUNDS = 1000, READERS = 2 }; /* BLOCK: of rig_config */

struct stage {
    struct md_engine *engine;
    struct md_text *text;
    struct md_pool *pool;
    struct md_worker *worker;
    atomic_int exports;
    atomic_bool stop;
};

/* What goes out takes its time. */
static void after_call(void *user, const struct md_engine_call *call, enum md_status status,
                       int64_t elapsed_ns)
{
    struct stage *s = user;
    (void)status, (void)elapsed_ns;
    if (call->op != MD_OP_EXPORT)
        return;
    atomic_fetch_add(&s->exports, 1);
    nanosleep(&(struct timespec){ .tv_nsec = 200 * 1000 }, NULL);
}

static void stage_open(struct stage *s)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options options = { .cell_count = 256 };
    const struct md_engine_hooks hooks = { .after = after_call, .user = s };
    const struct md_pool_config c = rig_config(256, 256, 16 << 20);
    struct md_err err = { 0 };
    ck_assert_int_eq(md_scripted_open(&script, NULL, &s->text, &err), MD_OK);
    ck_assert_int_eq(md_fake_open(NULL, &options, &s->engine, &err), MD_OK);
    ck_assert_int_eq(md_engine_wrap(s->engine, &hooks, &s->engine, &err), MD_OK);
    ck_assert_msg(md_pool_open(&c, s->engine, s->text, &s->pool, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_worker_open(s->pool, 16, &s->worker, &err), MD_OK);
}

static void stage_close(struct stage *s)
{
    md_worker_close(s->worker);
    ck_assert(md_pool_check(s->pool));
    md_pool_close(s->pool);
    md_engine_close(s->engine);
    md_text_close(s->text);
}

/* Run a job to its last event.  On any thread: it asserts nothing. */
static bool run(struct stage *s, const struct md_job_request *q, struct md_event *ret_event)
{
    struct md_job *job;
    struct md_err err = { 0 };
    if (md_worker_submit(s->worker, q, &job, &err) != MD_OK)
        return false;
    do {
        md_job_wait(job, 20000, ret_event);
        if (ret_event->kind == MD_EVENT_TEXT)
            md_buf_done(&ret_event->text);
    } while (ret_event->kind != MD_EVENT_DONE && ret_event->kind != MD_EVENT_NONE);
    md_job_release(job);
    return ret_event->kind == MD_EVENT_DONE && ret_event->status == MD_OK;
}

struct client {
    struct stage *s;
    int64_t session;
    uint64_t number;
    md_token prompt[PROMPT], want[ANSWER];
    int asked, restored, computed; /* asked: and all went well */
    bool failed;
};

/* Open a conversation, ask, compare, and let it go: the next time all of it comes from another one, or from the
 * store, or is computed. */
static bool ask_once(struct client *c)
{
    static const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9f };
    struct md_job_request q = { .kind = MD_JOB_OPEN, .client = c->number };
    struct md_event e;
    if (!run(c->s, &q, &e))
        return false;
    q.kind = MD_JOB_RUN;
    q.session = e.session;
    q.request.prompt = (struct md_context){ .tokens = c->prompt, .count = PROMPT };
    q.request.decode = (struct md_decode){ .max_tokens = ANSWER, .sample = md_sample_defaults() };
    q.request.decode.sample.temperature = 0;
    q.request.decode.sample.bias = &no_end;
    q.request.decode.sample.bias_count = 1;
    if (!run(c->s, &q, &e))
        return false;
    c->session = q.session;
    bool good = e.result.tokens.count == ANSWER &&
                memcmp(e.result.tokens.ids, c->want, sizeof c->want) == 0 &&
                e.result.cached + e.result.prefilled == PROMPT;
    c->asked++;
    c->restored += e.result.restored >= 48; /* with the block that is evicted and admitted */
    c->computed += e.result.prefilled > 1;
    md_result_done(&e.result);
    return good;
}

static void *reader(void *user)
{
    struct client *c = user;
    while (!atomic_load(&c->s->stop) && !c->failed) {
        struct md_event e;
        const bool good = ask_once(c);
        struct md_job_request q = { .kind = MD_JOB_CLOSE, .session = c->session, .client = c->number };
        c->failed = !good || !run(c->s, &q, &e);
    }
    return NULL;
}

/* One that looks while blocks go and come: at the conversation whose block it is, and at the counts of the store. */
struct watcher {
    struct stage *s;
    int64_t session;
    int looks, in_and_out[2]; /* how often the block was seen hot, and cold */
    char wrong[128];          /* empty: nothing */
};

/* A view is of one moment: what the map says of each block adds up to what the counters say. */
static void look(struct watcher *w)
{
    struct md_explain e;
    if (md_worker_explain(w->s->worker, w->session, &e, NULL) != MD_OK) {
        snprintf(w->wrong, sizeof w->wrong, "the conversation is not there");
        return;
    }
    int32_t of[MD_STATE_LOST + 1] = { 0 }, held_out = 0;
    for (size_t i = 0; i < e.block_count; i++) {
        const int32_t start = (int32_t)i * BLOCK, left = e.status.tape_tokens - start;
        of[e.blocks[i].state] += left < BLOCK ? left : BLOCK;
        held_out += e.blocks[i].held_out ? BLOCK : 0;
    }
    const bool is_cold = e.block_count > 1 && e.blocks[1].state == MD_STATE_COLD;
    if (of[MD_STATE_HOT] != e.status.hot_tokens || of[MD_STATE_COLD] != e.status.cold_tokens ||
        of[MD_STATE_LOST] != 0 || held_out != e.status.held_out_tokens || is_cold != (held_out > 0) ||
        e.status.tape_tokens != PROMPT + ANSWER - 1)
        snprintf(w->wrong, sizeof w->wrong,
                 "%d hot, %d cold, %d held out of %d; the map has %d, %d, %d, lost %d", e.status.hot_tokens,
                 e.status.cold_tokens, e.status.held_out_tokens, e.status.tape_tokens, of[MD_STATE_HOT],
                 of[MD_STATE_COLD], held_out, of[MD_STATE_LOST]);
    w->in_and_out[is_cold]++;
    w->looks++;
    md_explain_done(&e);
    const struct md_coldstore_stats cold = md_worker_status(w->s->worker).pool.cold;
    if ((cold.used_bytes > 0) != (cold.entry_count > 0) || cold.used_bytes > cold.budget_bytes)
        snprintf(w->wrong, sizeof w->wrong, "%zu bytes in %d blocks", cold.used_bytes, (int)cold.entry_count);
}

static void *watch(void *user)
{
    struct watcher *w = user;
    while (!atomic_load(&w->s->stop) && w->wrong[0] == '\0') {
        look(w);
        nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 }, NULL);
    }
    return NULL;
}

static void client_open(struct client *c, struct stage *s, uint64_t number)
{
    *c = (struct client){ .s = s, .number = number };
    rig_tokens(c->prompt, PROMPT, 1);
    rig_fresh_answer(c->prompt, PROMPT, ANSWER, c->want);
}

START_TEST(b067_a_block_is_asked_for_while_it_is_evicted)
{
    static struct stage s;
    static struct client writer, readers[READERS];
    pthread_t threads[READERS], watching;
    struct md_event e;
    stage_open(&s);
    client_open(&writer, &s, 1);
    ck_assert(ask_once(&writer));
    struct watcher watcher = { .s = &s, .session = writer.session };
    ck_assert_int_eq(pthread_create(&watching, NULL, watch, &watcher), 0);
    for (int i = 0; i < READERS; i++) {
        client_open(&readers[i], &s, 2 + (uint64_t)i);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &readers[i]), 0);
    }
    struct md_job_request q = { .session = writer.session, .range = { 16, 32 }, .client = 1 };
    for (int round = 0; round < ROUNDS; round++) {
        q.kind = MD_JOB_EVICT;
        ck_assert(run(&s, &q, &e));
        ck_assert_int_eq(e.tokens, 16);
        q.kind = MD_JOB_ADMIT;
        ck_assert(run(&s, &q, &e));
        ck_assert_int_eq(e.tokens, 16);
    }
    atomic_store(&s.stop, true);
    ck_assert_int_eq(pthread_join(watching, NULL), 0);
    ck_assert_msg(watcher.wrong[0] == '\0', "look %d: %s", watcher.looks, watcher.wrong);
    printf("# %d looks: %d times hot, %d times cold\n", watcher.looks, watcher.in_and_out[0],
           watcher.in_and_out[1]);
    ck_assert_int_ge(watcher.looks, ROUNDS);
    ck_assert_int_gt(watcher.in_and_out[0], ROUNDS / 10);
    ck_assert_int_gt(watcher.in_and_out[1], ROUNDS / 10);
    int restored = 0;
    for (int i = 0; i < READERS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_msg(!readers[i].failed, "reader %d, request %d", i, readers[i].asked);
        printf("# reader %d: %d asked, %d restored, %d computed a part\n", i, readers[i].asked,
               readers[i].restored, readers[i].computed);
        ck_assert_int_ge(readers[i].asked, ROUNDS / 10); /* they did meet */
        ck_assert_int_eq(readers[i].computed,
                         0); /* the one thread of the worker: what is asked for is whole, or waited for */
        restored += readers[i].restored;
    }
    printf("# %d exports\n", atomic_load(&s.exports));
    ck_assert_int_gt(restored, 0);
    ck_assert_int_ge(atomic_load(&s.exports), ROUNDS / 10);
    stage_close(&s);
}
END_TEST

/* One that was found by its text makes way for others, as long as nobody asked for it by its id with success. */
START_TEST(a_branch_that_cannot_be_keeps_nothing_open)
{
    static struct stage s;
    struct md_event e;
    struct md_explain found;
    md_token prompt[PROMPT];
    stage_open(&s);
    struct md_job_request q = { .kind = MD_JOB_RUN };
    q.request.prompt = (struct md_context){ .tokens = prompt, .count = PROMPT };
    q.request.decode = (struct md_decode){ .max_tokens = 0, .sample = md_sample_defaults() };
    for (uint32_t i = 0; i <= MD_SESSIONS_DEFAULT; i++) {
        rig_tokens(prompt, PROMPT, 1 + i);
        ck_assert_msg(run(&s, &q, &e), "%s", e.err.text);
        md_result_done(&e.result);
        if (i > 0)
            continue;
        const struct md_job_request branch = { .kind = MD_JOB_BRANCH,
                                               .session = e.session,
                                               .range = { 0, PROMPT + 1 } };
        ck_assert(!run(&s, &branch, &e));
        ck_assert_int_eq(e.status, MD_INVALID);
        ck_assert_int_eq(e.session, 1);
    }
    ck_assert_int_eq(md_worker_explain(s.worker, 1, &found, NULL), MD_NOT_FOUND);
    stage_close(&s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool worker");
    TCase *c = tcase_create("threads");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, b067_a_block_is_asked_for_while_it_is_evicted);
    tcase_add_test(c, a_branch_that_cannot_be_keeps_nothing_open);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
