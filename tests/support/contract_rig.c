/* contract_rig.c - see contract_rig.h. */
#include "support/contract_rig.h"

#include "session/manifest_json.h"
#include "support/scripted.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 8 };

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* ---- a contract over a worker ---- */

/* Memory of the pool, which is asked for on the worker's thread alone while a job runs. */
static void *pool_realloc(void *user, void *old, size_t new_bytes)
{
    struct contract_rig *r = user;
    if (new_bytes > 0 && atomic_exchange(&r->armed, false)) {
        while (atomic_load(&r->job) == NULL)
            sched_yield();
        md_job_cancel(atomic_load(&r->job));
    }
    if (new_bytes > 0)
        return realloc(old, new_bytes);
    free(old);
    return NULL;
}

static struct md_event wait_whole(struct contract_rig *r, const struct md_job_request *q)
{
    struct md_job *job;
    struct md_event e;
    atomic_store(&r->job, NULL);
    atomic_store(&r->armed, r->cancels_inside);
    r->cancels_inside = false;
    ck_assert_int_eq(md_worker_submit(r->worker, q, &job, NULL), MD_OK);
    atomic_store(&r->job, job);
    if (r->cancels)
        md_job_cancel(job);
    r->cancels = false;
    do {
        md_job_wait(job, 20000, &e);
        ck_assert_int_ne(e.kind, MD_EVENT_NONE);
        if (e.kind == MD_EVENT_TEXT)
            md_buf_done(&e.text);
    } while (e.kind != MD_EVENT_DONE);
    md_job_release(job);
    md_buf_done(&e.notes);
    return e;
}

struct md_event contract_rig_wait(struct contract_rig *r, const struct md_job_request *q)
{
    struct md_event e = wait_whole(r, q);
    md_result_done(&e.result);
    e.result.tokens = (struct md_tokens){ 0 };
    return e;
}

void contract_rig_open(struct contract_rig *r, int32_t window, md_scripted_render_fn *render, int delay_ms)
{
    static const struct md_bytes pieces[] = { { "ab", 2 }, { "cd", 2 }, { "ef", 2 } };
    const struct md_script script = { .pieces = pieces,
                                      .count = 3,
                                      .render = render,
                                      .batch_tokens = 16,
                                      .prefill_delay_ms = delay_ms,
                                      .decode_delay_ms = 20 * delay_ms };
    memset(r, 0, sizeof *r);
    r->alloc = (struct md_alloc){ pool_realloc, r };
    const struct md_pool_config config = { .window_tokens = window,
                                           .alloc = &r->alloc,
                                           .hot_tokens = window,
                                           .residency = window >= 128, /* which a cold store needs */
                                           .block_tokens = 16,
                                           .sink_tokens = -1,
                                           .recent_tokens = -1,
                                           .cold_bytes = 1 << 24 };
    ck_assert_int_eq(md_scripted_open(&script, &r->engine, &r->text, &r->err), MD_OK);
    ck_assert_msg(md_pool_open(&config, r->engine, r->text, &r->pool, &r->err) == MD_OK, "%s", r->err.text);
    ck_assert_int_eq(md_worker_open(r->pool, 4, &r->worker, NULL), MD_OK);
    contract_rig_another(r);
}

void contract_rig_another(struct contract_rig *r)
{
    const int32_t window = md_pool_status(r->pool).window_tokens;
    r->session = contract_rig_wait(r, &(struct md_job_request){ .kind = MD_JOB_OPEN }).session;
    ck_assert_int_eq(md_contract_open(r->text, window, r->session, NULL, &r->c, NULL), MD_OK);
}

void contract_rig_close(struct contract_rig *r)
{
    md_contract_close(r->c);
    md_worker_close(r->worker);
    md_pool_close(r->pool);
    md_engine_close(r->engine);
    md_text_close(r->text);
}

/* The context is this text; between jobs the worker touches nothing. */
void contract_rig_context(struct contract_rig *r, const char *want)
{
    char have[1000];
    int32_t count;
    const md_token *ids = md_session_context(md_pool_find(r->pool, r->session), &count);
    for (int32_t i = 0; i < count; i++)
        have[i] = ids[i] < 256 ? (char)ids[i] : '*'; /* a sampled piece */
    have[count] = '\0';
    ck_assert_str_eq(have, want);
}

/* ---- manifests ---- */

const struct md_manifest_id contract_llama = { .backend = { "llamacpp", 8 },
                                               .prompt_template_digest = { "t1", 2 },
                                               .add_bos = true };
const struct md_manifest_id contract_other_template = { .backend = { "llamacpp", 8 },
                                                        .prompt_template_digest = { "t2", 2 },
                                                        .add_bos = true };

static struct md_bytes or_none(const char *s)
{
    return s != NULL ? text(s) : (struct md_bytes){ NULL, 0 };
}

/* The manifest of these parts (up to one without a kind), and their two texts. */
struct md_manifest contract_rig_manifest(const struct md_manifest_id *id, const struct contract_part *parts,
                                         struct contract_texts *ret)
{
    struct md_manifest_segment g[SEGMENTS] = { 0 };
    struct md_manifest m;
    struct md_err err;
    size_t n = 0;
    int64_t at = 0;
    *ret = (struct contract_texts){ "", "" };
    for (; n < SEGMENTS && parts[n].kind != NULL; n++) {
        const int64_t end = at + (int64_t)strlen(parts[n].text);
        strcat(parts[n].stable ? ret->stable : ret->rest, parts[n].text);
        g[n] =
            (struct md_manifest_segment){ .label = { .name = text(parts[n].kind), .stable = parts[n].stable },
                                          .byte_start = at,
                                          .byte_end = end,
                                          .tool_calls_json = or_none(parts[n].tool_calls),
                                          .tool_call_id = or_none(parts[n].tool_call_id) };
        at = end;
    }
    ck_assert_msg(md_manifest_build(id, text(ret->stable), text(ret->rest), g, n, NULL, &m, &err) == MD_OK,
                  "%s", err.text);
    return m;
}

enum md_status contract_ensure_with(struct contract_rig *r, const char *stable, struct md_manifest *m,
                                    const char *tools)
{
    const struct md_contract_prefix in = { .text = text(stable), .manifest = m, .tools = or_none(tools) };
    struct md_contract_call *call = NULL;
    enum md_status s = md_contract_prepare_prefix(r->c, &in, &call, &r->over, &r->err);
    if (s == MD_OK) {
        const struct md_event end = contract_rig_wait(r, md_contract_call_job(call));
        s = md_contract_finish_prefix(r->c, call, &end, &r->prefix, &r->over, &r->err);
    }
    md_contract_call_close(call);
    md_manifest_done(m);
    return s;
}

enum md_status contract_suffix_with(struct contract_rig *r, const char *rest, struct md_manifest *m)
{
    const struct md_contract_suffix in = { .text = text(rest), .manifest = m };
    struct md_contract_call *call = NULL;
    enum md_status s = md_contract_prepare_suffix(r->c, &in, &call, &r->over, &r->err);
    if (s == MD_OK) {
        const struct md_event end = contract_rig_wait(r, md_contract_call_job(call));
        s = md_contract_finish_suffix(r->c, call, &end, &r->suffix, &r->over, &r->err);
    }
    md_contract_call_close(call);
    md_manifest_done(m);
    return s;
}

enum md_status contract_ensure(struct contract_rig *r, const struct md_manifest_id *id,
                               const struct contract_part *parts)
{
    struct contract_texts t;
    struct md_manifest m = contract_rig_manifest(id, parts, &t);
    return contract_ensure_with(r, t.stable, &m, NULL);
}

enum md_status contract_suffix(struct contract_rig *r, const struct md_manifest_id *id,
                               const struct contract_part *parts)
{
    struct contract_texts t;
    struct md_manifest m = contract_rig_manifest(id, parts, &t);
    return contract_suffix_with(r, t.rest, &m);
}

/* Without a manifest. */
enum md_status contract_ensure_raw(struct contract_rig *r, const char *stable)
{
    struct md_manifest none = { 0 };
    return contract_ensure_with(r, stable, &none, NULL);
}

enum md_status contract_suffix_raw(struct contract_rig *r, const char *rest)
{
    struct md_manifest none = { 0 };
    return contract_suffix_with(r, rest, &none);
}

enum md_status contract_decode(struct contract_rig *r, const struct md_contract_decode *in)
{
    struct md_contract_call *call = NULL;
    enum md_status s = md_contract_prepare_decode(r->c, in, &call, &r->over, &r->err);
    if (s == MD_OK) {
        const struct md_event end = contract_rig_wait(r, md_contract_call_job(call));
        s = md_contract_finish_decode(r->c, call, &end, &r->over, &r->err);
    }
    md_contract_call_close(call);
    return s;
}

static void copy_text(char to[1000], struct md_bytes from)
{
    ck_assert_uint_lt(from.len, 1000);
    if (from.len > 0)
        memcpy(to, from.data, from.len);
    to[from.len] = '\0';
}

enum md_status contract_snapshot(struct contract_rig *r, const struct md_sections_place *place,
                                 struct contract_snapshot *ret)
{
    struct md_contract_call *call = NULL;
    struct md_contract_snapshot got = { 0 };
    enum md_status s = md_contract_prepare_snapshot(r->c, place, &call, &r->err);
    if (s == MD_OK) {
        struct md_event end = wait_whole(r, md_contract_call_job(call));
        s = md_contract_finish_snapshot(r->c, call, &end, &got, &r->err);
        md_result_done(&end.result);
    }
    md_contract_call_close(call);
    if (s != MD_OK)
        return s;
    *ret = (struct contract_snapshot){
        .resident = got.resident, .prefix = got.prefix, .window = got.window, .token_count = got.tokens.count
    };
    ck_assert_uint_le(got.tokens.count, 1000);
    if (got.tokens.count > 0)
        memcpy(ret->tokens, got.tokens.ids, got.tokens.count * sizeof *ret->tokens);
    copy_text(ret->text, got.text);
    copy_text(ret->tools, got.tools);
    if (got.manifest != NULL) {
        struct md_buf json;
        md_buf_init(&json, NULL, sizeof ret->manifest - 1);
        ck_assert_int_eq(md_manifest_write(got.manifest, &json, NULL), MD_OK);
        memcpy(ret->manifest, json.data, json.len);
        md_buf_done(&json);
    }
    md_contract_snapshot_done(&got);
    return MD_OK;
}

enum md_status contract_restore(struct contract_rig *r, const struct md_sections_place *place,
                                const struct contract_snapshot *from)
{
    struct md_contract_call *call = NULL;
    struct md_manifest m = { 0 };
    struct md_snapshot did;
    if (from->manifest[0] != '\0')
        ck_assert_int_eq(md_manifest_read(text(from->manifest), NULL, &m, &r->err), MD_OK);
    const struct md_contract_restore in = { .place = *place,
                                            .resident = from->resident,
                                            .prefix = from->prefix,
                                            .window = from->window,
                                            .tokens = from->tokens,
                                            .token_count = from->token_count,
                                            .text = text(from->text),
                                            .tools = text(from->tools),
                                            .manifest = &m,
                                            .tokens_only = from->tokens_only };
    enum md_status s = md_contract_prepare_restore(r->c, &in, &call, &r->over, &r->err);
    if (s == MD_OK) {
        ck_assert(md_manifest_is_zero(&m)); /* taken over */
        const struct md_event end = contract_rig_wait(r, md_contract_call_job(call));
        s = md_contract_finish_restore(r->c, call, &end, &did, &r->over, &r->err);
    }
    md_contract_call_close(call);
    md_manifest_done(&m);
    return s;
}

void contract_check_prefix(const struct contract_rig *r, int32_t reused, int32_t prefilled, int32_t dropped,
                           int32_t prefix)
{
    const struct md_contract_prefix_status *p = &r->prefix;
    ck_assert_msg(p->reused == reused && p->prefilled == prefilled && p->dropped == dropped &&
                      p->prefix == prefix && p->resident == prefix,
                  "reused %d, prefilled %d, dropped %d, prefix %d, resident %d", p->reused, p->prefilled,
                  p->dropped, p->prefix, p->resident);
}

void contract_check_suffix(const struct contract_rig *r, int32_t added, int32_t prefix, int32_t resident)
{
    const struct md_contract_suffix_status *p = &r->suffix;
    ck_assert_msg(p->suffix == added && p->prefix == prefix && p->resident == resident,
                  "suffix %d, prefix %d, resident %d", p->suffix, p->prefix, p->resident);
}

void contract_check_over(const struct contract_rig *r, const char *stage, int32_t resident,
                         int32_t additional, int32_t window)
{
    ck_assert_str_eq(r->over.stage, stage);
    ck_assert_msg(r->over.resident == resident && r->over.additional == additional &&
                      r->over.window == window,
                  "%d/%d/%d", r->over.resident, r->over.additional, r->over.window);
}
