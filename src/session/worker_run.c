/* worker_run.c - see worker_run.h. */
#include "session/worker_run.h"

#include "session/store.h"

#include <assert.h>

static bool opens(const struct md_job_request *q)
{
    return q->kind == MD_JOB_OPEN || (q->kind == MD_JOB_RESTORE && q->session == 0);
}

enum md_status md_worker_find(struct md_pool *pool, const struct md_job_request *q,
                              struct md_session **ret_session, struct md_err *err)
{
    if (opens(q))
        return q->kind == MD_JOB_OPEN ? md_pool_new(pool, ret_session, err)
                                      : md_pool_new_beside(pool, ret_session, err);
    if (q->kind == MD_JOB_RUN && q->session == 0)
        return md_pool_find_by_prompt(pool, &q->request, ret_session, err);
    *ret_session = md_pool_find(pool, q->session);
    return *ret_session != NULL
               ? MD_OK
               : md_fail(err, MD_NOT_FOUND, "there is no session %lld", (long long)q->session);
}

static enum md_status branch_off(struct md_session *s, int32_t count, struct md_event *end,
                                 struct md_err *err)
{
    struct md_session *branch;
    enum md_status st = md_session_branch(s, count, &branch, err);
    if (st != MD_OK)
        return st;
    md_pool_keep(s);
    md_pool_keep(branch);
    md_store_commit(s);
    md_store_commit(branch);
    end->session = md_session_id(branch);
    return MD_OK;
}

static enum md_status snapshot(const struct md_job_request *q, struct md_session *s,
                               const struct md_sink *sink, struct md_event *end, struct md_err *err)
{
    int32_t count;
    const md_token *context = md_session_context(s, &count);
    enum md_status st = md_tokens_append(&end->result.tokens, context, (size_t)count, err);
    if (st == MD_OK)
        st = md_session_snapshot(s, &q->place, sink, &end->snapshot, err);
    if (st != MD_OK) {
        md_result_done(&end->result);
        end->result = (struct md_result){ 0 };
    }
    return st;
}

static enum md_status restore(const struct md_job_request *q, struct md_session *s,
                              const struct md_sink *sink, struct md_event *end, struct md_err *err)
{
    struct md_snapshot_expected expect;
    if (q->expect != NULL) {
        expect = *q->expect;
        expect.tokens = q->request.prompt.tokens;
        expect.token_count = q->request.prompt.count;
    }
    md_buf_init(&end->notes, NULL, MD_NOTES_BYTES_MAX);
    if (opens(q))
        md_pool_keep(s); /* before it is written */
    enum md_status (*call)(struct md_session *, const struct md_sections_place *,
                           const struct md_snapshot_expected *, const struct md_sink *, struct md_snapshot *,
                           struct md_err *) = q->tokens_only ? md_session_restore_tokens : md_session_restore;
    enum md_status st = call(s, &q->place, q->expect != NULL ? &expect : NULL, sink, &end->snapshot, err);
    if (st != MD_OK)
        return st;
    const struct md_bytes notes = md_session_notes(s);
    (void)!md_buf_append(&end->notes, notes.data, notes.len,
                         NULL); /* without memory its front does without */
    if (opens(q))
        md_pool_make_way(s); /* only now: a restore that fails costs nobody his conversation */
    return st;
}

static enum md_status run(const struct md_job_request *q, struct md_session *s, const struct md_sink *sink,
                          struct md_event *end, struct md_err *err)
{
    switch (q->kind) {
    case MD_JOB_RUN:
        if (q->session != 0)
            md_pool_bind(s);
        return md_session_run(s, &q->request, sink, &end->result, err);
    case MD_JOB_OPEN:
        md_pool_keep(s);
        md_pool_bind(s);
        md_store_commit(s);
        return MD_OK;
    case MD_JOB_ENSURE:
        return md_session_ensure_prefix(s, &q->request.prompt, q->fresh, sink, &end->prefill, err);
    case MD_JOB_SUFFIX:
        return md_session_prefill_suffix(s, &q->request.prompt, q->keep, sink, &end->prefill, err);
    case MD_JOB_DECODE: return md_session_decode(s, &q->request.decode, sink, &end->result, err);
    case MD_JOB_BRANCH: return branch_off(s, q->range.end, end, err);
    case MD_JOB_EVICT: return md_session_evict_range(s, q->range, &end->tokens, err);
    case MD_JOB_ADMIT: return md_session_admit_range(s, q->range, &end->tokens, err);
    case MD_JOB_ADMIT_AT_TAIL: return md_session_admit_at_tail(s, q->range, sink, &end->tokens, err);
    case MD_JOB_CLOSE: md_session_close(s); return MD_OK;
    case MD_JOB_SNAPSHOT: return snapshot(q, s, sink, end, err);
    case MD_JOB_RESTORE: return restore(q, s, sink, end, err);
    }
    assert(!"a kind of job");
    return MD_INTERNAL;
}

enum md_status md_worker_run(const struct md_job_request *q, struct md_session *s, const struct md_sink *sink,
                             struct md_event *end, struct md_err *err)
{
    enum md_status st = run(q, s, sink, end, err);
    if (q->kind == MD_JOB_CLOSE)
        return st; /* which it has outlived */
    (void)md_session_context(s, &end->context);
    if (st != MD_OK && q->kind == MD_JOB_RESTORE && opens(q)) {
        md_pool_take_back(s);
        end->session = 0;
    }
    return st;
}
