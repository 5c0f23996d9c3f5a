/* contract_snapshot.c - Snapshot and Restore of a contract: see contract.h. */
#include "session/contract_internal.h"

#include <string.h>

/* ---- Snapshot ---- */

static enum md_status check_place(const struct md_sections_place *place, struct md_err *err)
{
    return md_sections_check_name(place->name, strlen(place->name), err);
}

enum md_status md_contract_prepare_snapshot(struct md_contract *c, const struct md_sections_place *place,
                                            struct md_contract_call **ret_call, struct md_err *err)
{
    struct md_contract_call *call = NULL;
    struct md_contract_overflow none;
    enum md_status s = md_contract_new_call(c, MD_JOB_SNAPSHOT, "snapshot", &call, &none, err);
    if (s == MD_OK)
        s = check_place(place, err);
    if (s != MD_OK) {
        md_contract_call_close(call);
        return s;
    }
    call->job.place = *place;
    *ret_call = call;
    return MD_OK;
}

enum md_status md_contract_finish_snapshot(struct md_contract *c, struct md_contract_call *call,
                                           struct md_event *end, struct md_contract_snapshot *ret,
                                           struct md_err *err)
{
    const struct md_contract_text *t = c->prefix;
    struct md_contract_overflow none;
    enum md_status s = md_contract_settle(c, call, end, 0, &none, err);
    if (s != MD_OK)
        return s;
    *ret = (struct md_contract_snapshot){ .resident = (int32_t)end->result.tokens.count,
                                          .prefix = t != NULL ? (int32_t)t->tokens.count : 0,
                                          .window = c->window,
                                          .tokens = end->result.tokens,
                                          .text = t != NULL ? t->text : (struct md_bytes){ "", 0 },
                                          .tools = t != NULL ? t->tools : (struct md_bytes){ "", 0 },
                                          .manifest = md_contract_manifest(c) };
    end->result.tokens = (struct md_tokens){ 0 };
    return MD_OK;
}

void md_contract_snapshot_done(struct md_contract_snapshot *s)
{
    md_tokens_done(&s->tokens);
    *s = (struct md_contract_snapshot){ 0 };
}

/* ---- Restore ---- */

static enum md_status check_numbers(const struct md_contract *c, const struct md_contract_restore *in,
                                    struct md_contract_overflow *over, struct md_err *err)
{
    if (in->resident < 0 || in->prefix < 0 || in->window < 0 || in->prefix > in->resident)
        return md_fail(err, MD_INVALID,
                       "a snapshot of %d tokens with a prefix of %d, in a window of %d, cannot be",
                       in->resident, in->prefix, in->window);
    if (in->token_count > 0 && in->token_count != (size_t)in->resident)
        return md_fail(err, MD_INVALID, "a snapshot of %d tokens names %zu of them", in->resident,
                       in->token_count);
    if (in->window > 0 && in->window != c->window)
        return md_fail(err, MD_MANIFEST_MISMATCH, "the snapshot has a window of %d tokens, the session %d",
                       in->window, c->window);
    if (in->resident > c->window)
        return md_contract_too_large(&(struct md_contract_overflow){ "restore", in->resident, 0, c->window },
                                     over, err);
    if (in->place.name[0] == '\0')
        return in->resident == 0
                   ? MD_OK
                   : md_fail(err, MD_INVALID, "a snapshot of %d tokens without a state", in->resident);
    return check_place(&in->place, err);
}

static enum md_status check_manifest(const struct md_contract *c, const struct md_contract_restore *in,
                                     struct md_err *err)
{
    const struct md_manifest *now = md_contract_manifest(c);
    const char *why = now != NULL ? md_manifest_incompatible(now, in->manifest) : NULL;
    if (why != NULL)
        return md_fail(err, MD_MANIFEST_MISMATCH, "%s", why);
    return md_contract_check_text(in->manifest, &in->text, NULL, err);
}

/* The text gives the prefix again; where a suffix had cut it, its beginning. */
static enum md_status make_prefix(const struct md_contract *c, const struct md_contract_restore *in,
                                  struct md_contract_call *call, struct md_contract_overflow *over,
                                  struct md_err *err)
{
    const struct md_contract_prefix prefix = { .text = in->text,
                                               .manifest = in->manifest,
                                               .tools = in->tools };
    enum md_status s = md_contract_make_prefix(c, &prefix, call, over, err);
    if (s != MD_OK)
        return s;
    struct md_tokens *have = &call->prefix->tokens;
    const size_t count = (size_t)in->prefix;
    if (have->count < count)
        return md_fail(err, MD_MANIFEST_MISMATCH, "the text has %zu tokens, the prefix of the snapshot %zu",
                       have->count, count);
    if (in->token_count > 0 && count > 0 && memcmp(have->ids, in->tokens, count * sizeof *in->tokens) != 0)
        return md_fail(err, MD_MANIFEST_MISMATCH, "the text does not make the tokens of the snapshot");
    if (have->count > count)
        call->prefix->range_count = 0;
    have->count = count;
    return MD_OK;
}

/* What the job looks for in the file: the tokens that came with it, else those of the prefix. */
static enum md_status fill_job(const struct md_contract_restore *in, struct md_contract_call *call,
                               struct md_err *err)
{
    const struct md_tokens *prefix = &call->prefix->tokens;
    struct md_job_request *job = &call->job;
    call->tokens.count = 0;
    enum md_status s = in->token_count > 0 ? md_tokens_append(&call->tokens, in->tokens, in->token_count, err)
                                           : md_tokens_append(&call->tokens, prefix->ids, prefix->count, err);
    job->request.prompt =
        (struct md_context){ .tokens = call->tokens.ids, .count = (int32_t)call->tokens.count };
    if (in->place.name[0] == '\0') { /* nothing at all: as an empty prefix makes it */
        job->kind = MD_JOB_ENSURE;
        return s;
    }
    call->expected =
        (struct md_snapshot_expected){ .context_tokens = in->resident, .prefix_tokens = in->prefix };
    job->expect = &call->expected;
    job->place = in->place;
    job->tokens_only = in->tokens_only;
    return s;
}

enum md_status md_contract_prepare_restore(struct md_contract *c, const struct md_contract_restore *in,
                                           struct md_contract_call **ret_call,
                                           struct md_contract_overflow *ret_over, struct md_err *err)
{
    struct md_contract_call *call = NULL;
    enum md_status s = md_contract_new_call(c, MD_JOB_RESTORE, "restore", &call, ret_over, err);
    if (s == MD_OK)
        s = check_numbers(c, in, ret_over, err);
    if (s == MD_OK)
        s = check_manifest(c, in, err);
    if (s == MD_OK)
        s = make_prefix(c, in, call, ret_over, err);
    if (s == MD_OK)
        s = fill_job(in, call, err);
    if (s != MD_OK) {
        md_contract_call_close(call);
        return s;
    }
    call->prefix->manifest = *in->manifest;
    *in->manifest = (struct md_manifest){ 0 };
    *ret_call = call;
    return MD_OK;
}

enum md_status md_contract_finish_restore(struct md_contract *c, struct md_contract_call *call,
                                          const struct md_event *end, struct md_snapshot *ret,
                                          struct md_contract_overflow *ret_over, struct md_err *err)
{
    enum md_status s = md_contract_settle(c, call, end, 0, ret_over, err);
    if (s == MD_INVALID) /* its name and its numbers were good */
        return md_fail(err, MD_MANIFEST_MISMATCH, "%s", end->err.text);
    if (s != MD_OK) {
        c->lost = c->lost || (call->job.kind == MD_JOB_ENSURE && end->session != 0 && s != MD_SESSION_FATAL);
        return s;
    }
    *ret = end->snapshot;
    md_contract_take_prefix(c, call);
    return MD_OK;
}
