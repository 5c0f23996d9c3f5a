/* test_worker_thread.c - the worker's queue, events, cancelling and closing, with real threads (run under the
 * thread sanitizer by `make check`). */
#include "session/worker.h"
#include "support/run_suite.h"
#include "support/scripted.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct stage {
    struct md_engine *engine;
    struct md_text *text;
    struct md_pool *pool;
    struct md_worker *worker;
};

static void stage_open(struct stage *s, int decode_delay_ms, int queue_limit)
{
    static const struct md_bytes pieces[] = { { "ab", 2 }, { "cd", 2 }, { "\xc3\xa9", 2 } };
    struct md_script script = { .pieces = pieces, .count = 3, .decode_delay_ms = decode_delay_ms };
    struct md_pool_config c = { .window_tokens = 4000,
                                .hot_tokens = 512,
                                .residency = true,
                                .block_tokens = 64,
                                .sink_tokens = -1,
                                .recent_tokens = -1,
                                .cold_bytes = 1 << 24 };
    struct md_err err;
    ck_assert_int_eq(md_scripted_open(&script, &s->engine, &s->text, &err), MD_OK);
    ck_assert_msg(md_pool_open(&c, s->engine, s->text, &s->pool, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_worker_open(s->pool, queue_limit, &s->worker, &err), MD_OK);
}

static void stage_close(struct stage *s)
{
    md_worker_close(s->worker);
    md_pool_close(s->pool);
    md_engine_close(s->engine);
    md_text_close(s->text);
}

/* A prompt of count times `byte`; max_tokens -1 with the end banned runs to the window. */
static enum md_status submit_for(struct stage *s, uint64_t client, int count, md_token byte, int max_tokens,
                                 bool endless, struct md_job **ret_job)
{
    static const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9f };
    md_token prompt[2048];
    struct md_err err;
    for (int i = 0; i < count; i++)
        prompt[i] = byte;
    struct md_job_request q = { .client = client,
                                .request = { .prompt = { .tokens = prompt, .count = count },
                                             .decode = { .max_tokens = max_tokens,
                                                         .sample = md_sample_defaults() } } };
    q.request.decode.sample.temperature = 0;
    q.request.decode.sample.bias = &no_end;
    q.request.decode.sample.bias_count = endless ? 1 : 0;
    return md_worker_submit(s->worker, &q, ret_job, &err);
}

static enum md_status submit(struct stage *s, int count, md_token byte, int max_tokens, bool endless,
                             struct md_job **ret_job)
{
    return submit_for(s, 0, count, byte, max_tokens, endless, ret_job);
}

/* Read to the end; the text goes to out (NUL-terminated).  Returns the status of the job. */
static enum md_status read_all(struct md_job *job, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (;;) {
        struct md_event e;
        md_job_wait(job, 20000, &e);
        ck_assert_int_ne(e.kind, MD_EVENT_NONE);
        if (e.kind == MD_EVENT_TEXT) {
            size_t n = e.text.len < out_bytes - 1 - used ? e.text.len : out_bytes - 1 - used;
            memcpy(out + used, e.text.data, n);
            used += n;
            md_buf_done(&e.text);
        }
        out[used] = '\0';
        if (e.kind == MD_EVENT_DONE) {
            if (e.status == MD_OK || e.status == MD_CANCELLED)
                md_result_done(&e.result);
            md_job_next(job, &e); /* after the last one nothing more comes */
            ck_assert_int_eq(e.kind, MD_EVENT_NONE);
            md_job_wait(job, -1, &e);
            ck_assert_int_eq(e.kind, MD_EVENT_NONE);
            return e.kind == MD_EVENT_NONE ? MD_OK : MD_INTERNAL;
        }
    }
}

static enum md_status read_status(struct md_job *job)
{
    for (;;) {
        struct md_event e;
        md_job_wait(job, 20000, &e);
        ck_assert_int_ne(e.kind, MD_EVENT_NONE);
        md_buf_done(&e.text);
        if (e.kind == MD_EVENT_DONE) {
            md_result_done(&e.result);
            return e.status;
        }
    }
}

START_TEST(one_request_gives_its_events_in_order)
{
    struct stage s;
    struct md_job *job;
    char text[64];
    stage_open(&s, 0, 16);
    ck_assert_int_eq(submit(&s, 5, 'x', -1, false, &job), MD_OK);
    struct md_event e;
    md_job_wait(job, 5000, &e);
    ck_assert_int_eq(e.kind, MD_EVENT_STARTED);
    ck_assert_int_eq(read_all(job, text, sizeof text), MD_OK);
    ck_assert_str_eq(text, "abcd\xc3\xa9");
    md_job_release(job);
    struct md_session_status status;
    ck_assert_uint_eq(md_worker_sessions(s.worker, &status, 1), 1);
    ck_assert_int_eq(status.tape_tokens, 8);
    stage_close(&s);
}
END_TEST

START_TEST(queue_is_first_in_first_out_and_bounded)
{
    struct stage s;
    struct md_job *jobs[6], *extra;
    struct md_event e;
    stage_open(&s, 20, 4);
    ck_assert_int_eq(submit(&s, 5, 'a', -1, true, &jobs[0]), MD_OK);
    md_job_wait(jobs[0], 5000, &e); /* it runs: the queue is empty */
    ck_assert_int_eq(e.kind, MD_EVENT_STARTED);
    for (int i = 1; i <= 4; i++)
        ck_assert_int_eq(submit(&s, 5, 'b', 1, false, &jobs[i]), MD_OK);
    ck_assert_int_eq(submit(&s, 5, 'c', 1, false, &extra), MD_BUSY);
    ck_assert_int_eq(md_worker_status(s.worker).queued, 4);
    md_job_cancel(jobs[2]); /* one that waits makes room at once and never starts */
    ck_assert_int_eq(read_status(jobs[2]), MD_CANCELLED);
    ck_assert_int_eq(submit(&s, 5, 'd', 1, false, &jobs[5]), MD_OK);
    md_job_cancel(jobs[0]);
    ck_assert_int_eq(read_status(jobs[0]), MD_CANCELLED);
    ck_assert_int_eq(read_status(jobs[5]), MD_OK); /* the last one: all before it are done */
    for (int i = 1; i <= 4; i++) {
        md_job_next(jobs[i], &e);
        ck_assert_int_eq(e.kind, i == 2 ? MD_EVENT_NONE : MD_EVENT_STARTED);
    }
    for (int i = 0; i < 6; i++)
        md_job_release(jobs[i]);
    stage_close(&s);
}
END_TEST

/* Start-time fair queueing: client 1 has one running and four waiting when clients 2 and 3 come with one each.  Theirs
 * are the next two turns but one: 1's second, then 2's and 3's, then the rest of 1's. */
START_TEST(each_client_gets_its_turn)
{
    static const uint64_t clients[] = { 1, 1, 1, 1, 2, 3 };
    static const int order[] = { 0, 4, 5, 1, 2, 3 };
    enum { N = 6 };
    struct stage s;
    struct md_job *first, *jobs[N];
    struct md_event e;
    stage_open(&s, 20, N);
    ck_assert_int_eq(submit_for(&s, 1, 5, 'a', -1, true, &first), MD_OK);
    md_job_wait(first, 5000, &e);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(submit_for(&s, clients[i], 5, 'b', 2, true, &jobs[i]), MD_OK);
    md_job_cancel(first);
    ck_assert_int_eq(read_status(first), MD_CANCELLED);
    for (int k = 0; k < N; k++) {
        ck_assert_int_eq(read_status(jobs[order[k]]), MD_OK);
        for (int later = k + 2; later < N; later++) { /* the next one may have begun meanwhile */
            md_job_next(jobs[order[later]], &e);
            ck_assert_msg(e.kind == MD_EVENT_NONE, "job %d ran before its turn", order[later]);
        }
    }
    for (int i = 0; i < N; i++)
        md_job_release(jobs[i]);
    md_job_release(first);
    stage_close(&s);
}
END_TEST

START_TEST(sixteen_wait_and_one_more_is_refused)
{
    struct stage s;
    struct md_job *jobs[17], *extra;
    struct md_event e;
    stage_open(&s, 20, MD_QUEUE_LIMIT);
    ck_assert_int_eq(submit(&s, 5, 'a', -1, true, &jobs[0]), MD_OK);
    md_job_wait(jobs[0], 5000, &e); /* it has left the queue */
    for (int i = 1; i <= 16; i++)
        ck_assert_int_eq(submit(&s, 5, 'b', 1, false, &jobs[i]), MD_OK);
    ck_assert_int_eq(submit(&s, 5, 'c', 1, false, &extra), MD_BUSY);
    for (int i = 0; i <= 16; i++)
        md_job_release(jobs[i]);
    stage_close(&s);
}
END_TEST

START_TEST(b081_twenty_cancelled_waiters_cost_nothing)
{
    struct stage s;
    struct md_job *running, *waiting[20], *last;
    struct md_event e;
    stage_open(&s, 10, 20);
    ck_assert_int_eq(submit(&s, 5, 'a', -1, true, &running), MD_OK);
    do { /* it has said something: the session has it */
        md_job_wait(running, 5000, &e);
        md_buf_done(&e.text);
    } while (e.kind == MD_EVENT_STARTED);
    ck_assert_int_eq(e.kind, MD_EVENT_TEXT);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(submit(&s, 500, (md_token)('b' + i), 400, true, &waiting[i]), MD_OK);
    for (int i = 0; i < 20; i++)
        md_job_release(waiting[i]); /* the client closed */
    ck_assert_int_eq(md_worker_status(s.worker).queued, 0);
    ck_assert_int_eq(submit(&s, 5, 'a', 1, false, &last), MD_OK);
    md_job_cancel(running);
    ck_assert_int_eq(read_status(running), MD_CANCELLED);
    ck_assert_int_eq(read_status(last), MD_OK);
    ck_assert_int_eq((int)md_worker_status(s.worker).pool.requests, 2); /* none of the 20 was computed */
    md_job_release(running);
    md_job_release(last);
    stage_close(&s);
}
END_TEST

START_TEST(a_bad_request_is_an_error_event_and_the_next_is_served)
{
    struct stage s;
    struct md_job *bad, *good;
    stage_open(&s, 0, 16);
    ck_assert_int_eq(submit(&s, 0, 'a', 1, false, &bad), MD_OK);
    ck_assert_int_eq(submit(&s, 5, 'a', 1, false, &good), MD_OK);
    ck_assert_int_eq(read_status(bad), MD_INVALID);
    ck_assert_int_eq(read_status(good), MD_OK);
    md_job_release(bad);
    md_job_release(good);
    stage_close(&s);
}
END_TEST

START_TEST(jobs_outlive_the_worker)
{
    struct stage s;
    struct md_job *running, *waiting;
    struct md_event e;
    stage_open(&s, 20, 16);
    ck_assert_int_eq(submit(&s, 5, 'a', -1, true, &running), MD_OK);
    ck_assert_int_eq(submit(&s, 5, 'b', -1, true, &waiting), MD_OK);
    md_job_wait(running, 5000, &e);
    struct md_worker *w = s.worker;
    md_worker_close(w);
    s.worker = NULL;
    ck_assert_int_eq(read_status(running), MD_CANCELLED);
    ck_assert_int_eq(read_status(waiting), MD_CANCELLED);
    md_job_release(running);
    md_job_release(waiting);
    stage_close(&s);
}
END_TEST

/* ---- many threads ---- */

static atomic_int notified;

static void on_notify(void *user)
{
    (void)user;
    atomic_fetch_add(&notified, 1);
}

struct client {
    pthread_t thread;
    struct stage *stage;
    int id, done, cancelled, busy;
};

static void *client_main(void *user)
{
    struct client *c = user;
    for (int i = 0; i < 40; i++) {
        md_token prompt[40];
        struct md_job *job;
        struct md_event e;
        for (int k = 0; k < 40; k++)
            prompt[k] = 'a' + (c->id * 7 + i + k) % 20;
        struct md_job_request q = { .request = { .prompt = { .tokens = prompt, .count = 40 },
                                                 .decode = { .max_tokens = 20,
                                                             .sample = md_sample_defaults() } },
                                    .want_progress = true,
                                    .notify = on_notify };
        if (md_worker_submit(c->stage->worker, &q, &job, NULL) != MD_OK) {
            c->busy++;
            continue;
        }
        if (i % 3 == 1)
            md_job_cancel(job);
        if (i % 7 == 3) { /* gone without a look */
            md_job_release(job);
            continue;
        }
        do {
            md_job_wait(job, -1, &e);
            md_buf_done(&e.text);
            struct md_worker_status st = md_worker_status(c->stage->worker);
            struct md_session_status sessions[64];
            struct md_explain explain;
            size_t n = md_worker_sessions(c->stage->worker, sessions, 64);
            if (n > 0 && md_worker_explain(c->stage->worker, sessions[n - 1].id, &explain, NULL) == MD_OK)
                md_explain_done(&explain);
            (void)st;
        } while (e.kind != MD_EVENT_DONE);
        c->done += e.status == MD_OK;
        c->cancelled += e.status == MD_CANCELLED;
        md_result_done(&e.result);
        md_job_release(job);
    }
    return NULL;
}

START_TEST(many_clients_submit_cancel_read_and_leave)
{
    struct stage s;
    struct client clients[6] = { 0 };
    stage_open(&s, 0, 4);
    for (int i = 0; i < 6; i++) {
        clients[i].stage = &s;
        clients[i].id = i;
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
    }
    int done = 0, cancelled = 0;
    for (int i = 0; i < 6; i++) {
        pthread_join(clients[i].thread, NULL);
        done += clients[i].done;
        cancelled += clients[i].cancelled;
    }
    ck_assert_int_gt(done, 20);
    ck_assert_int_gt(done + cancelled, 40);
    ck_assert_int_gt(atomic_load(&notified), done);
    stage_close(&s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("worker");
    TCase *c = tcase_create("worker");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, one_request_gives_its_events_in_order);
    tcase_add_test(c, queue_is_first_in_first_out_and_bounded);
    tcase_add_test(c, each_client_gets_its_turn);
    tcase_add_test(c, sixteen_wait_and_one_more_is_refused);
    tcase_add_test(c, b081_twenty_cancelled_waiters_cost_nothing);
    tcase_add_test(c, a_bad_request_is_an_error_event_and_the_next_is_served);
    tcase_add_test(c, jobs_outlive_the_worker);
    tcase_add_test(c, many_clients_submit_cancel_read_and_leave);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
