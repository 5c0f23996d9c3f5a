/* worker.c - the thread that owns the conversations, its queue, and the jobs that readers hold.
 *
 * One mutex guards queue, jobs and the published status; it is never held while the engine works or while
 * a notify runs.  A job lives until both worker and reader have let go, the worker until its last job has. */
#include "session/worker.h"

#include "session/worker_run.h"
#include "session/worker_view.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PUBLISH_EVERY_TOKENS = 16,
    QUIET_MS = 2000, /* without a job before the pool's idle work goes on: one turn follows another by less */
};

struct md_job {
    struct md_worker *worker;
    struct md_job *next; /* in the queue */
    struct md_job_request request;
    md_token *prompt; /* own copies of what the request borrows */
    struct md_segment *segments;
    struct md_logit_bias *bias;
    struct md_bytes *stops;
    char *stop_bytes, *folder, *name;
    void *notes, *expect;
    struct md_chat_form *form;
    uint64_t tag; /* start tag: the queue is in ascending order of it */

    atomic_bool cancel;
    pthread_cond_t changed; /* for a waiting reader and for a worker that waits for space */
    int refs;               /* worker and reader */
    bool queued, started, progressed, done, done_taken, released, notifying;
    struct md_progress progress;
    struct md_buf text;
    struct md_event end; /* the last event, as it will be given */
    int since_publish;   /* worker thread only */
};

struct md_worker {
    struct md_pool *pool;
    pthread_t thread;
    bool thread_started, closing;
    bool idling;        /* the pool's idle work runs */
    int noting;         /* how many wait to read notes: no idle step begins */
    atomic_bool wanted; /* and shall end: there is a job, or no more time */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle; /* there is work; the job that ran, or the idle step, is over */
    struct md_job *head;
    int queued, queue_limit, refs;
    uint64_t virtual_time; /* tag of the job that was started last */
    struct md_job *running;
    int64_t running_session;
    struct md_pool_status status; /* published copies */
    struct md_views views;
};

/* ---- life of jobs and worker ---- */

static void worker_free(struct md_worker *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->idle);
    md_views_done(&w->views);
    free(w);
}

static void job_free(struct md_job *j)
{
    free(j->prompt);
    free(j->segments);
    free(j->bias);
    free(j->stops);
    free(j->stop_bytes);
    free(j->folder);
    free(j->name);
    free(j->notes);
    free(j->expect);
    md_chat_form_unref(j->form);
    if (j->worker != NULL && j->request.keeper.close != NULL)
        j->request.keeper.close(j->request.keeper.user);
    md_buf_done(&j->text);
    if (j->done && !j->done_taken) {
        md_result_done(&j->end.result);
        md_buf_done(&j->end.notes);
    }
    pthread_cond_destroy(&j->changed);
    free(j);
}

/* Drop one reference of the job; frees job and worker when they were the last.  Takes the lock held and
 * returns with it released. */
static void job_unref_unlock(struct md_job *j)
{
    struct md_worker *w = j->worker;
    bool free_job = --j->refs == 0;
    bool free_worker = free_job && --w->refs == 0;
    pthread_mutex_unlock(&w->lock);
    if (free_job)
        job_free(j);
    if (free_worker)
        worker_free(w);
}

/* Tell the reader.  Called with the lock held; releases it while notify runs. */
static void job_notify_locked(struct md_job *j)
{
    pthread_cond_broadcast(&j->changed);
    if (j->released || j->request.notify == NULL)
        return;
    j->notifying = true;
    pthread_mutex_unlock(&j->worker->lock);
    j->request.notify(j->request.notify_user);
    pthread_mutex_lock(&j->worker->lock);
    j->notifying = false;
    pthread_cond_broadcast(&j->changed);
}

static void job_finish_locked(struct md_job *j, enum md_status status, const struct md_err *err)
{
    j->end.kind = MD_EVENT_DONE;
    j->end.status = status;
    if (err != NULL)
        j->end.err = *err;
    j->done = true;
    job_notify_locked(j);
}

/* ---- the session's sink ---- */

static void publish_locked(struct md_worker *w)
{
    md_pool_notice_lost(w->pool);
    w->status = md_pool_status(w->pool);
    md_views_update(&w->views, w->pool);
}

static void on_progress(void *user, const struct md_progress *p)
{
    struct md_job *j = user;
    struct md_worker *w = j->worker;
    pthread_mutex_lock(&w->lock);
    publish_locked(w);
    if (j->request.want_progress) {
        j->progress = *p;
        j->progressed = true;
        job_notify_locked(j);
    }
    pthread_mutex_unlock(&w->lock);
}

static bool on_cancelled(void *user)
{
    struct md_job *j = user;
    return atomic_load_explicit(&j->cancel, memory_order_relaxed);
}

/* CLOCK_MONOTONIC, so that a step of the wall clock neither shortens nor lengthens a wait. */
static struct timespec deadline(int64_t timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

static bool is_past(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static void cond_init_monotonic(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

/* Wait until the reader has taken enough; false: it does not read, or is gone. */
static bool wait_for_space_locked(struct md_job *j, size_t more)
{
    struct timespec until = deadline(MD_JOB_STALL_MS);
    while (j->text.len + more > MD_JOB_BYTES_MAX && !on_cancelled(j))
        if (pthread_cond_timedwait(&j->changed, &j->worker->lock, &until) == ETIMEDOUT)
            return false;
    return !on_cancelled(j);
}

static bool on_text(void *user, struct md_bytes text)
{
    struct md_job *j = user;
    struct md_worker *w = j->worker;
    if (j->request.keeper.text != NULL)
        j->request.keeper.text(j->request.keeper.user, text);
    pthread_mutex_lock(&w->lock);
    bool ok = text.len <= MD_JOB_BYTES_MAX && wait_for_space_locked(j, text.len) &&
              md_buf_append(&j->text, text.data, text.len, NULL) == MD_OK;
    if (++j->since_publish >= PUBLISH_EVERY_TOKENS) {
        j->since_publish = 0;
        publish_locked(w);
    }
    if (ok)
        job_notify_locked(j);
    pthread_mutex_unlock(&w->lock);
    return ok;
}

static void on_ended(void *user, const struct md_tokens *answer, struct md_buf *notes)
{
    const struct md_keeper *keeper = &((const struct md_job *)user)->request.keeper;
    if (keeper->ended != NULL)
        keeper->ended(keeper->user, answer, notes);
}

/* ---- the thread ---- */

static bool is_wanted(void *user)
{
    struct md_worker *w = user;
    return atomic_load_explicit(&w->wanted, memory_order_relaxed);
}

static void idle_step_locked(struct md_worker *w)
{
    w->idling = true;
    atomic_store(&w->wanted, false); /* whoever wants it holds the lock to say so */
    pthread_mutex_unlock(&w->lock);
    md_pool_idle(w->pool, is_wanted, w);
    pthread_mutex_lock(&w->lock);
    w->idling = false;
    publish_locked(w); /* blocks of conversations may have gone cold for it */
    pthread_cond_broadcast(&w->idle);
}

/* Nothing is asked for: wait, and when it has been quiet for a while do what can be done meanwhile, step by step. */
static void wait_for_job_locked(struct md_worker *w)
{
    const struct timespec quiet = deadline(QUIET_MS);
    while (w->head == NULL && !w->closing) {
        if (!md_pool_wants_idle(w->pool) || w->noting > 0)
            pthread_cond_wait(&w->wake, &w->lock);
        else if (is_past(&quiet))
            idle_step_locked(w);
        else
            pthread_cond_timedwait(&w->wake, &w->lock, &quiet);
    }
}

static struct md_job *take_job_locked(struct md_worker *w)
{
    wait_for_job_locked(w);
    struct md_job *j = w->head;
    if (j == NULL)
        return NULL;
    w->head = j->next;
    w->queued--;
    w->virtual_time = j->tag;
    j->next = NULL;
    j->queued = false;
    return j;
}

static void run_job_locked(struct md_worker *w, struct md_job *j)
{
    struct md_err err = { 0 };
    const struct md_sink sink = {
        .user = j, .progress = on_progress, .text = on_text, .cancelled = on_cancelled, .ended = on_ended
    };
    struct md_session *session = NULL;
    w->running = j;
    j->started = true;
    job_notify_locked(j);
    pthread_mutex_unlock(&w->lock);
    enum md_status s = on_cancelled(j) ? md_fail(&err, MD_CANCELLED, "cancelled by the client")
                                       : md_worker_find(w->pool, &j->request, &session, &err);
    if (s == MD_OK) {
        j->end.session = md_session_id(session);
        pthread_mutex_lock(&w->lock);
        /* nobody is told the id of one that may yet be taken back */
        const bool is_new = j->request.kind == MD_JOB_RESTORE && j->request.session == 0;
        w->running_session = is_new ? 0 : j->end.session;
        pthread_mutex_unlock(&w->lock);
        s = md_worker_run(&j->request, session, &sink, &j->end, &err);
    }
    pthread_mutex_lock(&w->lock);
    publish_locked(w);
    w->running = NULL;
    w->running_session = 0;
    pthread_cond_broadcast(&w->idle);
    job_finish_locked(j, s, &err);
}

static void *worker_main(void *user)
{
    struct md_worker *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct md_job *j = take_job_locked(w);
        if (j == NULL)
            break;
        if (w->closing) {
            struct md_err err;
            md_fail(&err, MD_CANCELLED, "the daemon is stopping");
            job_finish_locked(j, MD_CANCELLED, &err);
        } else {
            run_job_locked(w, j);
        }
        job_unref_unlock(j);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum md_status md_worker_open(struct md_pool *pool, int queue_limit, struct md_worker **ret_worker,
                              struct md_err *err)
{
    struct md_worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return md_fail(err, MD_NO_MEMORY, "worker");
    w->pool = pool;
    w->queue_limit = queue_limit;
    w->refs = 1;
    pthread_mutex_init(&w->lock, NULL);
    cond_init_monotonic(&w->wake);
    pthread_cond_init(&w->idle, NULL);
    publish_locked(w); /* nobody else knows it yet */
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    if (rc != 0) {
        worker_free(w);
        return md_fail(err, MD_IO, "start the worker thread: %s", strerror(rc));
    }
    *ret_worker = w;
    return MD_OK;
}

void md_worker_close(struct md_worker *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    atomic_store(&w->wanted, true);
    if (w->running != NULL) {
        atomic_store(&w->running->cancel, true);
        pthread_cond_broadcast(&w->running->changed);
    }
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_lock(&w->lock);
    bool last = --w->refs == 0;
    pthread_mutex_unlock(&w->lock);
    if (last)
        worker_free(w);
}

/* ---- jobs ---- */

static void *copy_bytes(const void *from, size_t count, size_t size, bool *ok)
{
    if (count == 0)
        return NULL;
    void *to = calloc(count, size);
    if (to == NULL)
        *ok = false;
    else
        memcpy(to, from, count * size);
    return to;
}

static bool copy_stops(struct md_job *j, struct md_decode *d)
{
    bool ok = true;
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < d->stop_count; i++)
        bytes += d->stops[i].len;
    j->stops = copy_bytes(d->stops, d->stop_count, sizeof *j->stops, &ok);
    j->stop_bytes = bytes > 0 ? malloc(bytes) : NULL;
    if (!ok || (bytes > 0 && j->stop_bytes == NULL))
        return false;
    for (size_t i = 0; i < d->stop_count; at += d->stops[i].len, i++) {
        if (d->stops[i].len > 0)
            memcpy(j->stop_bytes + at, d->stops[i].data, d->stops[i].len);
        j->stops[i] = (struct md_bytes){ j->stop_bytes + at, d->stops[i].len };
    }
    d->stops = j->stops;
    return true;
}

static bool job_copy_request(struct md_job *j, const struct md_job_request *request)
{
    struct md_context *p = &j->request.request.prompt;
    struct md_decode *d = &j->request.request.decode;
    struct md_sections_place *place = &j->request.place;
    struct md_bytes *notes = &j->request.request.notes;
    bool ok = true;
    j->request = *request;
    j->prompt = copy_bytes(p->tokens, p->count > 0 ? (size_t)p->count : 0, sizeof *p->tokens, &ok);
    j->segments = copy_bytes(p->segments, p->segment_count, sizeof *p->segments, &ok);
    j->bias = copy_bytes(d->sample.bias, d->sample.bias_count, sizeof *j->bias, &ok);
    if (place->name != NULL) {
        j->folder = copy_bytes(place->folder, strlen(place->folder) + 1, 1, &ok);
        j->name = copy_bytes(place->name, strlen(place->name) + 1, 1, &ok);
        *place = (struct md_sections_place){ j->folder, j->name };
    }
    j->notes = copy_bytes(notes->data, notes->len, 1, &ok);
    notes->data = j->notes;
    j->expect = copy_bytes(request->expect, request->expect != NULL, sizeof *request->expect, &ok);
    j->request.expect = j->expect;
    j->form = md_chat_form_ref(d->sample.form);
    ok = ok && copy_stops(j, d);
    p->tokens = j->prompt;
    p->segments = j->segments;
    d->sample.bias = j->bias;
    return ok;
}

/* The place of a job: behind what its client has waiting, and behind what is being served. */
static void enqueue_locked(struct md_worker *w, struct md_job *j)
{
    uint64_t after = w->virtual_time;
    for (const struct md_job *o = w->head; o != NULL; o = o->next)
        if (o->request.client == j->request.client && o->tag > after)
            after = o->tag;
    j->tag = after + 1;
    struct md_job **at = &w->head;
    while (*at != NULL && (*at)->tag <= j->tag)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
    j->queued = true;
    w->queued++;
}

enum md_status md_worker_submit(struct md_worker *w, const struct md_job_request *request,
                                struct md_job **ret_job, struct md_err *err)
{
    struct md_job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return md_fail(err, MD_NO_MEMORY, "request");
    cond_init_monotonic(&j->changed);
    md_buf_init(&j->text, NULL, MD_JOB_BYTES_MAX);
    if (!job_copy_request(j, request)) {
        job_free(j);
        return md_fail(err, MD_NO_MEMORY, "request of %d tokens", request->request.prompt.count);
    }
    pthread_mutex_lock(&w->lock);
    enum md_status s = MD_OK;
    if (w->closing)
        s = md_fail(err, MD_CLOSED, "the daemon is stopping");
    else if (w->queued >= w->queue_limit)
        s = md_fail(err, MD_BUSY, "%d requests are waiting already: try again later", w->queued);
    if (s == MD_OK) {
        j->worker = w;
        j->refs = 2;
        w->refs++;
        enqueue_locked(w, j);
        atomic_store(&w->wanted, true);
        pthread_cond_signal(&w->wake);
        *ret_job = j;
    }
    pthread_mutex_unlock(&w->lock);
    if (s != MD_OK)
        job_free(j);
    return s;
}

static void next_locked(struct md_job *j, struct md_event *e)
{
    *e = (struct md_event){ .kind = MD_EVENT_NONE };
    if (j->started) {
        j->started = false;
        e->kind = MD_EVENT_STARTED;
    } else if (j->progressed) {
        j->progressed = false;
        e->kind = MD_EVENT_PROGRESS;
        e->progress = j->progress;
    } else if (j->text.len > 0) {
        e->kind = MD_EVENT_TEXT;
        e->text = j->text;
        md_buf_init(&j->text, NULL, MD_JOB_BYTES_MAX);
        pthread_cond_broadcast(&j->changed); /* there is space again */
    } else if (j->done && !j->done_taken) {
        j->done_taken = true;
        *e = j->end;
    }
}

void md_job_next(struct md_job *j, struct md_event *ret_event)
{
    pthread_mutex_lock(&j->worker->lock);
    next_locked(j, ret_event);
    pthread_mutex_unlock(&j->worker->lock);
}

void md_job_wait(struct md_job *j, int timeout_ms, struct md_event *ret_event)
{
    struct timespec until = deadline(timeout_ms < 0 ? 0 : timeout_ms);
    pthread_mutex_lock(&j->worker->lock);
    for (;;) {
        next_locked(j, ret_event);
        if (ret_event->kind != MD_EVENT_NONE || (j->done && j->done_taken))
            break;
        int rc = timeout_ms < 0 ? pthread_cond_wait(&j->changed, &j->worker->lock)
                                : pthread_cond_timedwait(&j->changed, &j->worker->lock, &until);
        if (rc == ETIMEDOUT)
            break;
    }
    pthread_mutex_unlock(&j->worker->lock);
}

/* Take a waiting job out of the queue; true when it was there. */
static bool unqueue_locked(struct md_worker *w, struct md_job *j)
{
    if (!j->queued)
        return false;
    struct md_job **at = &w->head;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    j->next = NULL;
    j->queued = false;
    w->queued--;
    return true;
}

void md_job_cancel(struct md_job *j)
{
    struct md_worker *w = j->worker;
    struct md_err err;
    pthread_mutex_lock(&w->lock);
    atomic_store(&j->cancel, true);
    pthread_cond_broadcast(&j->changed);
    if (!unqueue_locked(w, j)) {
        pthread_mutex_unlock(&w->lock);
        return;
    }
    md_fail(&err, MD_CANCELLED, "cancelled while waiting");
    job_finish_locked(j, MD_CANCELLED, &err);
    job_unref_unlock(j); /* the queue's reference: the worker never sees it */
}

void md_job_release(struct md_job *j)
{
    if (j == NULL)
        return;
    struct md_worker *w = j->worker;
    pthread_mutex_lock(&w->lock);
    j->released = true;
    atomic_store(&j->cancel, true);
    pthread_cond_broadcast(&j->changed);
    while (j->notifying)
        pthread_cond_wait(&j->changed, &w->lock);
    if (unqueue_locked(w, j)) {
        j->done = true;
        assert(j->refs == 2);
        j->refs--;
    }
    job_unref_unlock(j);
}

/* ---- looking at it ---- */

struct md_worker_status md_worker_status(struct md_worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct md_worker_status s = {
        .pool = w->status, .queued = w->queued, .running = w->running_session, .busy = w->running != NULL
    };
    pthread_mutex_unlock(&w->lock);
    return s;
}

size_t md_worker_sessions(struct md_worker *w, struct md_session_status *out, size_t cap)
{
    pthread_mutex_lock(&w->lock);
    size_t count = w->views.count;
    for (size_t i = 0; i < count && i < cap; i++)
        out[i] = w->views.items[i].status;
    pthread_mutex_unlock(&w->lock);
    return count;
}

bool md_worker_has_session(struct md_worker *w, int64_t session)
{
    pthread_mutex_lock(&w->lock);
    bool has = md_views_find(&w->views, session) != NULL;
    pthread_mutex_unlock(&w->lock);
    return has;
}

void md_worker_notes(struct md_worker *w, void (*take)(void *user, int64_t session, struct md_bytes notes),
                     void *user)
{
    pthread_mutex_lock(&w->lock);
    w->noting++;
    atomic_store(&w->wanted,
                 true); /* an idle step ends soon, and the worker gives the lock up before the next */
    while (w->running != NULL || w->idling)
        pthread_cond_wait(&w->idle, &w->lock);
    /* between jobs the worker touches none of them, and it begins none without the lock */
    for (struct md_session *s = md_pool_next(w->pool, NULL); s != NULL; s = md_pool_next(w->pool, s))
        if (md_session_notes(s).len > 0)
            take(user, md_session_id(s), md_session_notes(s));
    if (--w->noting == 0)
        pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

enum md_status md_worker_explain(struct md_worker *w, int64_t session, struct md_explain *ret_explain,
                                 struct md_err *err)
{
    pthread_mutex_lock(&w->lock);
    enum md_status s = md_views_copy(&w->views, session, ret_explain, err);
    pthread_mutex_unlock(&w->lock);
    return s;
}
