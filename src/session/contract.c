/* contract.c - the halves of the calls: gates, state, what a job's end means.  See contract.h; text becomes tokens in
 * contract_text.c. */
#include "session/contract.h"

#include "session/contract_internal.h"

#include <string.h>

enum md_status md_contract_open(const struct md_text *text, int32_t window_tokens, int64_t session,
                                const struct md_alloc *alloc, struct md_contract **ret_contract,
                                struct md_err *err)
{
    struct md_contract *c = md_calloc(alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "contract");
    *c = (struct md_contract){ .alloc = alloc, .text = text, .session = session, .window = window_tokens };
    *ret_contract = c;
    return MD_OK;
}

void md_contract_close(struct md_contract *c)
{
    if (c == NULL)
        return;
    md_contract_text_close(c->prefix);
    md_chat_form_unref(c->form);
    md_free(c->alloc, c);
}

const struct md_manifest *md_contract_manifest(const struct md_contract *c)
{
    return c->prefix != NULL && !md_manifest_is_zero(&c->prefix->manifest) ? &c->prefix->manifest : NULL;
}

/* ---- calls ---- */

enum md_status md_contract_new_call(const struct md_contract *c, enum md_job_kind kind, const char *stage,
                                    struct md_contract_call **ret_call, struct md_contract_overflow *ret_over,
                                    struct md_err *err)
{
    *ret_over = (struct md_contract_overflow){ 0 };
    if (c->closed)
        return md_fail(err, MD_CLOSED, "session %lld is closed", (long long)c->session);
    if (c->fatal.status != MD_OK)
        return md_fail(err, MD_SESSION_FATAL, "%s", c->fatal.text);
    if (c->lost && kind != MD_JOB_ENSURE && kind != MD_JOB_RESTORE)
        return md_fail(err, MD_INVALID, "the last EnsurePrefix failed on its way: call it again first");
    struct md_contract_call *call = md_calloc(c->alloc, 1, sizeof *call);
    if (call == NULL)
        return md_fail(err, MD_NO_MEMORY, "call");
    call->alloc = c->alloc;
    call->stage = stage;
    call->job = (struct md_job_request){
        .kind = kind, .session = c->session, .keep = -1, .client = (uint64_t)c->session
    };
    *ret_call = call;
    return MD_OK;
}

struct md_job_request *md_contract_call_job(struct md_contract_call *call)
{
    return &call->job;
}

struct md_chat_form *md_contract_call_form(const struct md_contract_call *call)
{
    return call->parses ? call->form : NULL;
}

void md_contract_call_close(struct md_contract_call *call)
{
    if (call == NULL)
        return;
    md_contract_text_close(call->prefix);
    md_manifest_done(&call->manifest);
    md_tokens_done(&call->tokens);
    md_free(call->alloc, call->segments);
    md_chat_form_unref(call->form);
    md_free(call->alloc, call);
}

enum md_status md_contract_settle(struct md_contract *c, const struct md_contract_call *call,
                                  const struct md_event *end, int32_t additional,
                                  struct md_contract_overflow *ret_over, struct md_err *err)
{
    const struct md_contract_overflow over = { call->stage, c->resident, additional, c->window };
    *ret_over = (struct md_contract_overflow){ 0 };
    if (end->session != 0)
        c->resident = end->context;
    if (end->status == MD_OK)
        return MD_OK;
    if (end->status == MD_NOT_FOUND && end->session == 0) {
        c->closed = true;
        return md_fail(err, MD_CLOSED, "session %lld is closed", (long long)c->session);
    }
    if (end->status == MD_TOO_LARGE)
        *ret_over = over;
    if (end->status == MD_SESSION_FATAL && c->fatal.status == MD_OK)
        c->fatal = end->err;
    return md_fail(err, end->status, "%s", end->err.text);
}

static enum md_status refuse_images(size_t count, struct md_err *err)
{
    return count == 0 ? MD_OK : md_fail(err, MD_UNSUPPORTED, "%zu images: only text is supported", count);
}

/* A manifest that says nothing at all describes every text. */
enum md_status md_contract_check_text(const struct md_manifest *m, const struct md_bytes *stable,
                                      const struct md_bytes *suffix, struct md_err *err)
{
    if (md_manifest_is_zero(m) && m->segment_count == 0)
        return MD_OK;
    return md_manifest_check_text(m, stable, suffix, err);
}

void md_contract_take_prefix(struct md_contract *c, struct md_contract_call *call)
{
    md_contract_text_close(c->prefix);
    md_chat_form_unref(c->form);
    c->prefix = MD_TAKE(call->prefix);
    c->form = NULL;
    c->lost = c->stale = false;
}

/* ---- EnsurePrefix ---- */

enum md_status md_contract_prepare_prefix(struct md_contract *c, const struct md_contract_prefix *in,
                                          struct md_contract_call **ret_call,
                                          struct md_contract_overflow *ret_over, struct md_err *err)
{
    struct md_contract_call *call = NULL;
    const struct md_manifest *now = md_contract_manifest(c);
    enum md_status s = md_contract_new_call(c, MD_JOB_ENSURE, "prefix", &call, ret_over, err);
    if (s == MD_OK)
        s = refuse_images(in->image_count, err);
    if (s == MD_OK)
        s = md_contract_check_text(in->manifest, &in->text, NULL, err);
    if (s == MD_OK)
        s = md_contract_make_prefix(c, in, call, ret_over, err);
    if (s != MD_OK) {
        md_contract_call_close(call);
        return s;
    }
    call->job.fresh = c->stale || (now != NULL && md_manifest_incompatible(now, in->manifest) != NULL);
    call->prefix->manifest = *in->manifest;
    *in->manifest = (struct md_manifest){ 0 };
    *ret_call = call;
    return MD_OK;
}

static void put_hex(char to[MD_SHA256_HEX + 1], struct md_bytes hex)
{
    const size_t len =
        hex.len <= MD_SHA256_HEX ? hex.len : 0; /* checked against the text: it is one, or none */
    if (len > 0)
        memcpy(to, hex.data, len);
    to[len] = '\0';
}

enum md_status md_contract_finish_prefix(struct md_contract *c, struct md_contract_call *call,
                                         const struct md_event *end,
                                         struct md_contract_prefix_status *ret_status,
                                         struct md_contract_overflow *ret_over, struct md_err *err)
{
    const struct md_prefill_status *did = &end->prefill;
    enum md_status s = md_contract_settle(c, call, end, (int32_t)call->tokens.count, ret_over, err);
    if (s != MD_OK) {
        /* one that is given up says so itself, with its first cause, to whatever is called */
        const bool began = end->session != 0 && s != MD_INVALID && s != MD_TOO_LARGE && s != MD_SESSION_FATAL;
        c->lost = c->lost || began;
        c->stale = c->stale || (began && call->job.fresh);
        return s;
    }
    *ret_status = (struct md_contract_prefix_status){ .reused = did->reused,
                                                      .prefilled = did->prefilled,
                                                      .dropped = did->dropped,
                                                      .prefix = did->prefix,
                                                      .resident = did->resident,
                                                      .available = did->available };
    md_contract_take_prefix(c, call);
    put_hex(ret_status->stable_byte_hash, c->prefix->manifest.stable_byte_hash);
    memcpy(ret_status->manifest_digest, call->digest, sizeof call->digest);
    memcpy(ret_status->stable_token_hash, call->token_hash, sizeof call->token_hash);
    return MD_OK;
}

/* ---- PrefillSuffix ---- */

static enum md_status check_against_prefix(const struct md_contract *c, const struct md_manifest *m,
                                           struct md_err *err)
{
    const struct md_manifest *now = md_contract_manifest(c);
    const char *why = now != NULL ? md_manifest_incompatible(now, m) : NULL;
    if (why != NULL)
        return md_fail(err, MD_MANIFEST_MISMATCH, "%s", why);
    if (now != NULL && !md_manifest_is_zero(m) && !md_bytes_equal(now->stable_byte_hash, m->stable_byte_hash))
        return md_fail(err, MD_MANIFEST_MISMATCH,
                       "stable prefix changed between EnsurePrefix and PrefillSuffix");
    return MD_OK;
}

enum md_status md_contract_prepare_suffix(struct md_contract *c, const struct md_contract_suffix *in,
                                          struct md_contract_call **ret_call,
                                          struct md_contract_overflow *ret_over, struct md_err *err)
{
    struct md_contract_call *call = NULL;
    const struct md_bytes stable = c->prefix != NULL ? c->prefix->text : (struct md_bytes){ "", 0 };
    enum md_status s = md_contract_new_call(c, MD_JOB_SUFFIX, "suffix", &call, ret_over, err);
    if (s == MD_OK)
        s = refuse_images(in->image_count, err);
    if (s == MD_OK)
        s = check_against_prefix(c, in->manifest, err);
    if (s == MD_OK)
        s = md_contract_check_text(in->manifest, &stable, &in->text, err);
    if (s == MD_OK)
        s = md_contract_make_suffix(c, in, call, ret_over, err);
    if (s != MD_OK) {
        md_contract_call_close(call);
        return s;
    }
    call->manifest = *in->manifest;
    *in->manifest = (struct md_manifest){ 0 };
    *ret_call = call;
    return MD_OK;
}

/* The prefix is what of it stays; its manifest is the one with all the tokens. */
static void take_suffix(struct md_contract *c, struct md_contract_call *call)
{
    struct md_contract_text *t = c->prefix;
    if (t != NULL && call->job.keep >= 0) {
        t->tokens.count = (size_t)call->job.keep;
        t->range_count = 0;
    }
    if (t != NULL && !md_manifest_is_zero(&call->manifest)) {
        md_manifest_done(&t->manifest);
        t->manifest = call->manifest;
        call->manifest = (struct md_manifest){ 0 };
    }
    md_chat_form_unref(c->form);
    c->form = MD_TAKE(call->form);
}

enum md_status md_contract_finish_suffix(struct md_contract *c, struct md_contract_call *call,
                                         const struct md_event *end,
                                         struct md_contract_suffix_status *ret_status,
                                         struct md_contract_overflow *ret_over, struct md_err *err)
{
    const struct md_prefill_status *did = &end->prefill;
    enum md_status s = md_contract_settle(c, call, end, call->job.request.prompt.count, ret_over, err);
    if (s != MD_OK)
        return s;
    take_suffix(c, call);
    *ret_status = (struct md_contract_suffix_status){
        .suffix = did->suffix, .prefix = did->prefix, .resident = did->resident, .available = did->available
    };
    memcpy(ret_status->manifest_digest, call->digest, sizeof call->digest);
    return MD_OK;
}

/* ---- Decode ---- */

static enum md_status read_protocols(const struct md_contract_decode *in, struct md_err *err)
{
    for (size_t i = 0; i < in->parser_protocol_count; i++) {
        const struct md_bytes name = in->parser_protocols[i];
        const bool thoughts = md_bytes_are(name, "llama:common_chat_reasoning_parser");
        if (thoughts && in->reasoning_format.len == 0)
            return md_fail(err, MD_UNSUPPORTED, "a reasoning parser without a reasoning format");
        if (!thoughts && !md_bytes_are(name, "llama:common_chat_tool_parser"))
            return md_fail(err, MD_UNSUPPORTED, "parser protocol '%.*s' is not known",
                           (int)(name.len < 100 ? name.len : 100), (const char *)name.data);
    }
    return MD_OK;
}

/* What the answer is bound to and how it is read: a schema, else the form of the suffix where a parser is asked for. */
static enum md_status choose_form(const struct md_contract *c, const struct md_contract_decode *in,
                                  struct md_contract_call *call, struct md_err *err)
{
    const struct md_bytes protocol = in->structured_protocol, none = { NULL, 0 };
    enum md_status s = read_protocols(in, err);
    if (s != MD_OK)
        return s;
    if (protocol.len == 0 && in->structured_payload.len > 0)
        return md_fail(err, MD_INVALID, "structured output without a protocol");
    if (md_bytes_are(protocol, "json_schema") || md_bytes_are(protocol, "llama:json_schema"))
        return md_text_constrain(c->text, in->structured_payload, none, &call->form, err);
    if (protocol.len > 0)
        return md_fail(err, MD_UNSUPPORTED, "structured output protocol '%.*s' is not known",
                       (int)(protocol.len < 100 ? protocol.len : 100), (const char *)protocol.data);
    if (in->parser_protocol_count > 0) {
        call->form = md_chat_form_ref(c->form);
        call->parses = true;
    }
    return MD_OK;
}

/* Source of the numbers: the session protocol. */
static enum md_status fill_decode(const struct md_contract_decode *in, struct md_contract_call *call,
                                  int32_t vocab_count, struct md_err *err)
{
    struct md_decode *d = &call->job.request.decode;
    if (in->max_tokens < 0)
        return md_fail(err, MD_INVALID, "max_tokens must be at least 0, got %d", in->max_tokens);
    d->max_tokens = in->max_tokens > 0 ? in->max_tokens : MD_CONTRACT_MAX_TOKENS;
    d->sample = md_sample_defaults();
    d->sample.top_p = in->has_top_p ? in->top_p : 0.9f;
    d->sample.top_k = in->top_k != 0 ? in->top_k : 40;
    if (in->has_temperature)
        d->sample.temperature = in->temperature > 0 ? in->temperature : 0;
    if (in->has_seed && in->seed >= 0)
        d->sample.seed = in->seed;
    d->sample.form = call->form;
    if (call->form != NULL) {
        d->stops = call->form->stops;
        d->stop_count = call->form->stop_count;
    }
    return md_sample_check(&d->sample, vocab_count, err);
}

enum md_status md_contract_prepare_decode(struct md_contract *c, const struct md_contract_decode *in,
                                          struct md_contract_call **ret_call,
                                          struct md_contract_overflow *ret_over, struct md_err *err)
{
    struct md_contract_call *call = NULL;
    enum md_status s = md_contract_new_call(c, MD_JOB_DECODE, "decode", &call, ret_over, err);
    if (s == MD_OK && c->resident >= c->window)
        s = md_contract_too_large(&(struct md_contract_overflow){ call->stage, c->resident, 1, c->window },
                                  ret_over, err);
    if (s == MD_OK)
        s = choose_form(c, in, call, err);
    if (s == MD_OK)
        s = fill_decode(in, call, c->text->info.vocab_count, err);
    if (s != MD_OK) {
        md_contract_call_close(call);
        return s;
    }
    *ret_call = call;
    return MD_OK;
}

enum md_status md_contract_finish_decode(struct md_contract *c, struct md_contract_call *call,
                                         const struct md_event *end, struct md_contract_overflow *ret_over,
                                         struct md_err *err)
{
    return md_contract_settle(c, call, end, 1, ret_over, err);
}
