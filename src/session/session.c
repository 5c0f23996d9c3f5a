/* session.c - the calls of the contract over one conversation: see session.h.  What a call does on the way is
 * turn.c. */
#include "session/session.h"

#include "base/clock.h"
#include "policy/prefix.h"
#include "session/reuse.h"
#include "session/session_internal.h"
#include "session/store.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *md_finish_name(enum md_finish f)
{
    static const char *const names[] = { "stop", "length", "cancelled" };
    assert((unsigned)f < sizeof names / sizeof names[0]);
    return names[f];
}

void md_result_done(struct md_result *r)
{
    md_tokens_done(&r->tokens);
}

/* ---- checks ---- */

enum md_status md_session_check_alive(const struct md_session *s, struct md_err *err)
{
    return s->drive.fatal.status == MD_OK
               ? MD_OK
               : md_fail(err, MD_SESSION_FATAL, "the session is closed after: %.400s", s->drive.fatal.text);
}

static enum md_status check_prompt(const struct md_pool *pool, const struct md_context *p, struct md_err *err)
{
    const int32_t vocab = md_engine_info(pool->engine)->vocab_count;
    for (int32_t i = 0; i < p->count; i++)
        if (p->tokens[i] < 0 || p->tokens[i] >= vocab)
            return md_fail(err, MD_INVALID, "token %d of the prompt is %d: the vocabulary has %d", i,
                           p->tokens[i], vocab);
    int32_t end = 0;
    if (p->segment_count > MD_SEGMENTS_MAX)
        return md_fail(err, MD_INVALID, "%zu segments: at most %d are allowed", p->segment_count,
                       MD_SEGMENTS_MAX);
    for (size_t i = 0; i < p->segment_count; i++) {
        struct md_range r = p->segments[i].range;
        if (r.start < end || r.end < r.start || r.end > p->count)
            return md_fail(err, MD_INVALID,
                           "segment %zu has the tokens [%d, %d): they begin before %d or end "
                           "behind %d",
                           i, r.start, r.end, end, p->count);
        end = r.end;
    }
    return MD_OK;
}

static enum md_status check_decode(const struct md_pool *pool, const struct md_decode *q, struct md_err *err)
{
    if (q->max_tokens < -1)
        return md_fail(err, MD_INVALID, "max_tokens must be at least 0, or -1 for no limit, got %d",
                       q->max_tokens);
    return md_sample_check(&q->sample, md_engine_info(pool->engine)->vocab_count, err);
}

enum md_status md_session_check_request(const struct md_pool *pool, const struct md_request *q,
                                        struct md_err *err)
{
    enum md_status st = MD_OK;
    if (q->prompt.count < 1)
        st = md_fail(err, MD_INVALID, "the prompt is empty: send at least one token");
    if (st == MD_OK && q->prompt.count >= pool->config.window_tokens)
        st = md_fail(err, MD_TOO_LARGE,
                     "the prompt has %d tokens, the context window is %d with room for an answer",
                     q->prompt.count, pool->config.window_tokens);
    if (st == MD_OK)
        st = check_prompt(pool, &q->prompt, err);
    return st == MD_OK ? check_decode(pool, &q->decode, err) : st;
}

/* ---- the context ---- */

enum md_status md_session_reserve(struct md_session *s, int32_t count, size_t segment_count,
                                  struct md_err *err)
{
    const struct md_alloc *alloc = s->pool->config.alloc;
    void *ids = s->context.ids, *segments = s->segments;
    bool ok = md_grow(alloc, &ids, &s->context.cap, (size_t)count, sizeof *s->context.ids);
    s->context.ids = ids;
    ok = ok && md_grow(alloc, &segments, &s->segment_cap, segment_count, sizeof *s->segments);
    s->segments = segments;
    return ok ? MD_OK : md_fail(err, MD_NO_MEMORY, "context of %d tokens", count);
}

/* Put p behind the first `at` tokens and the first `segments_at` segments, in reserved room. */
static void put_context(struct md_session *s, int32_t at, size_t segments_at, const struct md_context *p)
{
    if (p->count > 0)
        memmove(s->context.ids + at, p->tokens, (size_t)p->count * sizeof *p->tokens);
    s->context.count = (size_t)(at + p->count);
    for (size_t i = 0; i < p->segment_count; i++) {
        struct md_segment g = p->segments[i];
        g.range.start += at;
        g.range.end += at;
        s->segments[segments_at + i] = g;
    }
    s->segment_count = segments_at + p->segment_count;
}

/* The context is to agree with what it was in its first `common` tokens: the first segment that reaches further is
 * edited, or is not there any more. */
static void note_edit(struct md_session *s, int32_t common)
{
    for (size_t i = 0; i < s->segment_count; i++) {
        const struct md_segment *g = &s->segments[i];
        if (g->range.end <= common)
            continue;
        const int32_t from = g->range.start < common ? g->range.start : common;
        if (g->invalidation == MD_INVALIDATION_ON_EDIT && (s->edited_from < 0 || from < s->edited_from))
            s->edited_from = from;
        return;
    }
}

void md_session_put_context(struct md_session *s, const struct md_context *p)
{
    note_edit(s, (int32_t)md_prefix_common(s->context.ids, s->context.count, p->tokens, (size_t)p->count));
    put_context(s, 0, 0, p);
}

/* Forget what lies behind `count` tokens. */
static void cut_context(struct md_session *s, int32_t count)
{
    s->context.count = (size_t)count;
    while (s->segment_count > 0 && s->segments[s->segment_count - 1].range.start >= count)
        s->segment_count--;
    if (s->segment_count > 0 && s->segments[s->segment_count - 1].range.end > count)
        s->segments[s->segment_count - 1].range.end = count;
    if (s->prefix_count > count)
        s->prefix_count = count;
}

static int32_t available(const struct md_session *s)
{
    return s->pool->config.window_tokens - (int32_t)s->context.count;
}

/* ---- the contract ---- */

static void fill_prefill_status(const struct md_session *s, struct md_prefill_status *st)
{
    st->prefix = s->prefix_count;
    st->resident = (int32_t)s->context.count;
    st->available = available(s);
}

static enum md_status check_prefix(const struct md_session *s, const struct md_context *prefix,
                                   struct md_err *err)
{
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && prefix->count > s->pool->config.window_tokens)
        st = md_fail(err, MD_TOO_LARGE, "the prefix has %d tokens, the context window is %d", prefix->count,
                     s->pool->config.window_tokens);
    return st == MD_OK ? check_prompt(s->pool, prefix, err) : st;
}

enum md_status md_session_ensure_prefix(struct md_session *s, const struct md_context *prefix, bool fresh,
                                        const struct md_sink *sink, struct md_prefill_status *ret_status,
                                        struct md_err *err)
{
    struct md_err local;
    struct md_turn t;
    err = err != NULL ? err : &local;
    enum md_status st = check_prefix(s, prefix, err);
    if (st == MD_OK)
        st = md_session_reserve(s, prefix->count, prefix->segment_count, err);
    if (st != MD_OK)
        return st;
    struct md_prefill_status status = { 0 };
    const int32_t old = (int32_t)s->context.count;
    if (!fresh)
        status.reused = (int32_t)md_prefix_common(s->context.ids, s->context.count, prefix->tokens,
                                                  (size_t)prefix->count);
    status.dropped = old - status.reused;
    status.prefilled = prefix->count - status.reused;
    md_session_put_context(s, prefix);
    s->prefix_count = prefix->count;
    st = md_turn_begin(&t, s, sink, prefix->count, err);
    if (st == MD_OK && fresh)
        st = md_drive_cut(&s->drive, 0, false, err);
    /* all of it computed already, and more: what follows stays until the next call shows whether it is wanted */
    bool known = !s->bare && s->tape.count >= prefix->count &&
                 md_prefix_common(s->tape.tokens, (size_t)s->tape.count, prefix->tokens,
                                  (size_t)prefix->count) == (size_t)prefix->count;
    t.kept = known ? prefix->count : 0;
    if (st == MD_OK && !known)
        st = md_turn_prefill(&t, prefix->count - 1, err);
    st = md_turn_end(&t, st, err);
    if (st != MD_OK) {
        /* it may have failed before the tape was cut to what both have */
        cut_context(s, (int32_t)md_prefix_common(s->tape.tokens, (size_t)s->tape.count, s->context.ids,
                                                 s->context.count));
        md_store_commit(s); /* the disk has the context that was to be */
        return st;
    }
    status.work = t.result;
    fill_prefill_status(s, &status);
    *ret_status = status;
    return MD_OK;
}

/* What a suffix that cuts the prefix takes away, so that a failure can put it back. */
struct cut_off {
    md_token *tokens; /* those behind `at` */
    struct md_segment *segments;
    size_t segment_count;
    int32_t at, count, prefix_count;
};

static void cut_off_done(struct md_session *s, struct cut_off *c)
{
    md_free(s->pool->config.alloc, c->tokens);
    md_free(s->pool->config.alloc, c->segments);
}

static enum md_status cut_off(struct md_session *s, int32_t at, struct cut_off *c, struct md_err *err)
{
    const struct md_alloc *alloc = s->pool->config.alloc;
    const size_t more = s->context.count - (size_t)at;
    *c = (struct cut_off){ .tokens = md_calloc(alloc, more + 1, sizeof *c->tokens),
                           .segments = md_calloc(alloc, s->segment_count + 1, sizeof *c->segments),
                           .segment_count = s->segment_count,
                           .at = at,
                           .count = (int32_t)s->context.count,
                           .prefix_count = s->prefix_count };
    if (c->tokens == NULL || c->segments == NULL) {
        cut_off_done(s, c);
        return md_fail(err, MD_NO_MEMORY, "context of %d tokens", c->count);
    }
    if (more > 0)
        memcpy(c->tokens, s->context.ids + at, more * sizeof *c->tokens);
    if (s->segment_count > 0)
        memcpy(c->segments, s->segments, s->segment_count * sizeof *c->segments);
    note_edit(s, at);
    cut_context(s, at);
    return MD_OK;
}

static void put_back(struct md_session *s, const struct cut_off *c)
{
    const struct md_context all = { .segments = c->segments, .segment_count = c->segment_count };
    put_context(s, 0, 0, &all);
    if (c->count > c->at)
        memcpy(s->context.ids + c->at, c->tokens, (size_t)(c->count - c->at) * sizeof *c->tokens);
    s->context.count = (size_t)c->count;
    s->prefix_count = c->prefix_count;
}

static enum md_status check_suffix(const struct md_session *s, const struct md_context *suffix, int32_t keep,
                                   struct md_err *err)
{
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && (keep < -1 || keep > s->prefix_count))
        st =
            md_fail(err, MD_INVALID, "the prefix has %d tokens: %d of it cannot stay", s->prefix_count, keep);
    const int32_t at = keep >= 0 && keep < s->prefix_count ? keep : (int32_t)s->context.count;
    if (st == MD_OK && suffix->count > s->pool->config.window_tokens - at)
        st = md_fail(err, MD_TOO_LARGE, "the suffix has %d tokens behind %d, the context window is %d",
                     suffix->count, at, s->pool->config.window_tokens);
    return st == MD_OK ? check_prompt(s->pool, suffix, err) : st;
}

/* Append it, and bring the tape to it; the context keeps it only when all went well. */
static enum md_status append_suffix(struct md_session *s, const struct md_context *suffix,
                                    const struct md_sink *sink, struct md_result *ret_work,
                                    struct md_err *err)
{
    struct md_turn t;
    const int32_t at = (int32_t)s->context.count;
    put_context(s, at, s->segment_count, suffix);
    enum md_status st = md_turn_begin(&t, s, sink, at + suffix->count, err);
    if (st == MD_OK)
        st = md_turn_prefill(&t, at + suffix->count - 1, err);
    st = md_turn_end(&t, st, err);
    if (st != MD_OK)
        cut_context(s, at);
    *ret_work = t.result;
    return st;
}

enum md_status md_session_prefill_suffix(struct md_session *s, const struct md_context *suffix, int32_t keep,
                                         const struct md_sink *sink, struct md_prefill_status *ret_status,
                                         struct md_err *err)
{
    struct md_err local;
    struct cut_off off = { 0 };
    err = err != NULL ? err : &local;
    const bool cuts = keep >= 0 && keep < s->prefix_count;
    enum md_status st = check_suffix(s, suffix, keep, err);
    if (st == MD_OK)
        st = md_session_reserve(s, (int32_t)s->context.count + suffix->count,
                                s->segment_count + suffix->segment_count, err);
    if (st == MD_OK && cuts)
        st = cut_off(s, keep, &off, err);
    if (st != MD_OK)
        return st;
    struct md_prefill_status status = { .suffix = suffix->count, .prefilled = suffix->count };
    if (suffix->count > 0)
        st = append_suffix(s, suffix, sink, &status.work, err);
    if (st != MD_OK && cuts)
        put_back(s, &off);
    if (cuts)
        cut_off_done(s, &off);
    if (st != MD_OK) {
        md_store_commit(s); /* as it was before; the disk has what was to be */
        return st;
    }
    fill_prefill_status(s, &status);
    *ret_status = status;
    return MD_OK;
}

/* What Decode and Run have in common: the context is what it shall be. */
static enum md_status answer(struct md_session *s, const struct md_decode *decode, const struct md_sink *sink,
                             struct md_result *ret_result, struct md_err *err)
{
    struct md_turn t;
    const int32_t count = (int32_t)s->context.count;
    enum md_status st = md_turn_begin(&t, s, sink, count, err);
    if (st == MD_OK)
        t.ask_from = md_retrieve_from(&t);
    if (st == MD_OK)
        t.look_from = md_observe_from(&t);
    t.decodes = t.ask_from < 0 && t.look_from < 0;
    if (st == MD_OK)
        st = md_turn_prefill(&t, t.decodes ? count - 1 : t.ask_from >= 0 ? t.ask_from : t.look_from, err);
    if (st == MD_OK && t.look_from >= 0)
        st = md_observe_question(&t, err);
    if (st == MD_OK)
        st = md_turn_decode(&t, decode, err);
    if (st == MD_OK && sink != NULL && sink->ended != NULL)
        sink->ended(sink->user, &t.result.tokens, &s->notes);
    st = md_turn_end(&t, st, err);
    s->answered = true;
    if (st == MD_OK || st == MD_CANCELLED)
        *ret_result = t.result;
    else
        md_result_done(&t.result);
    return st;
}

enum md_status md_session_decode(struct md_session *s, const struct md_decode *decode,
                                 const struct md_sink *sink, struct md_result *ret_result, struct md_err *err)
{
    struct md_err local;
    err = err != NULL ? err : &local;
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && s->context.count == 0)
        st = md_fail(err, MD_INVALID, "the context is empty: call EnsurePrefix or PrefillSuffix first");
    if (st == MD_OK && available(s) < 1)
        st = md_fail(err, MD_TOO_LARGE, "the context has %zu tokens and fills the context window of %d",
                     s->context.count, s->pool->config.window_tokens);
    if (st == MD_OK)
        st = check_decode(s->pool, decode, err);
    return st == MD_OK ? answer(s, decode, sink, ret_result, err) : st;
}

enum md_status md_session_run(struct md_session *s, const struct md_request *q, const struct md_sink *sink,
                              struct md_result *ret_result, struct md_err *err)
{
    struct md_err local;
    err = err != NULL ? err : &local;
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK)
        st = md_session_check_request(s->pool, q, err);
    if (st == MD_OK)
        st = md_session_reserve(s, q->prompt.count, q->prompt.segment_count, err);
    if (st == MD_OK)
        st = md_session_reserve_notes(s, q->notes.len, err);
    if (st != MD_OK)
        return st;
    md_session_put_context(s, &q->prompt);
    md_session_put_notes(s, q->notes);
    s->prefix_count = 0;
    for (size_t i = 0; i < s->segment_count && s->segments[i].stable; i++)
        s->prefix_count = s->segments[i].range.end;
    return answer(s, &q->decode, sink, ret_result, err);
}

/* A call that is no turn: it counts as the last one, which can be seen. */
static void note_use(struct md_session *s)
{
    s->last_turn_ns = md_clock_mono_ns();
    s->drive.changes++;
}

/* ---- branch ---- */

enum md_status md_session_branch(struct md_session *s, int32_t count, struct md_session **ret_branch,
                                 struct md_err *err)
{
    struct md_session *b;
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && (count < -1 || count > (int32_t)s->context.count))
        st = md_fail(err, MD_INVALID, "the conversation has %zu tokens: a branch cannot begin with %d",
                     s->context.count, count);
    const bool kept = s->kept;
    s->kept = true; /* it does not make way for its own branch */
    if (st == MD_OK)
        st = md_pool_new_beside(s->pool, &b, err);
    s->kept = kept;
    if (st != MD_OK)
        return st;
    count = count < 0 ? (int32_t)s->context.count : count;
    const struct md_context whole = { s->context.ids, (int32_t)s->context.count, s->segments,
                                      s->segment_count };
    st = md_session_reserve(b, whole.count, whole.segment_count, err);
    if (st == MD_OK)
        st = md_session_reserve_notes(b, s->notes.len, err);
    if (st != MD_OK) {
        md_pool_take_back(b);
        return st;
    }
    note_use(s);
    s->kept = true;
    md_pool_make_way(b);
    s->kept = kept;
    md_session_put_context(b, &whole);
    md_session_put_notes(b, md_session_notes(s));
    b->prefix_count = s->prefix_count;
    cut_context(b, count);
    b->parent = s->id;
    /* its whole blocks are known already; the next call finds the piece behind them */
    struct md_err ignored;
    (void)!md_reuse_extend(&b->drive, b->context.ids, count - count % b->tape.block_tokens, &ignored);
    *ret_branch = b;
    return MD_OK;
}

/* ---- by hand ---- */

static enum md_status check_range(struct md_session *s, struct md_range r, struct md_err *err)
{
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && (r.start < 0 || r.end <= r.start || r.end > s->tape.count))
        st = md_fail(err, MD_INVALID, "range [%d, %d) is not within the %d tokens on the tape", r.start,
                     r.end, s->tape.count);
    return st;
}

/* The whole blocks within r, the last one of the tape counting as whole: [*ret_first, *ret_end). */
static void blocks_within(const struct md_session *s, struct md_range r, size_t *ret_first, size_t *ret_end)
{
    const int32_t block = s->tape.block_tokens;
    *ret_first = (size_t)((r.start + block - 1) / block);
    *ret_end = r.end == s->tape.count ? md_tape_block_count(&s->tape) : (size_t)(r.end / block);
}

static int32_t block_len(const struct md_session *s, size_t i)
{
    return md_range_len(md_tape_range(&s->tape, i));
}

enum md_status md_session_evict_range(struct md_session *s, struct md_range r, int32_t *ret_tokens,
                                      struct md_err *err)
{
    struct md_err local;
    size_t i, end;
    int32_t tokens = 0;
    err = err != NULL ? err : &local;
    enum md_status st = check_range(s, r, err);
    if (st == MD_OK && !(md_engine_caps(s->pool->engine) & MD_CAP_REMOVE_MIDDLE))
        st = md_fail(err, MD_UNSUPPORTED, "this model's KV cannot be evicted in parts");
    if (st != MD_OK)
        return st;
    for (blocks_within(s, r, &i, &end); i < end && st == MD_OK; i++) {
        bool hot = s->tape.blocks[i].state == MD_STATE_HOT;
        if (hot)
            st = md_move_evict(&s->drive, i, err);
        if (st != MD_OK)
            break;
        s->tape.blocks[i].held_out = true;
        s->drive.changes++;
        tokens += hot ? block_len(s, i) : 0;
    }
    if (st == MD_SESSION_FATAL)
        md_move_give_up(&s->drive, err);
    md_store_commit(s);
    if (st == MD_OK)
        *ret_tokens = tokens;
    return st;
}

enum md_status md_session_admit_range(struct md_session *s, struct md_range r, int32_t *ret_tokens,
                                      struct md_err *err)
{
    struct md_err local;
    size_t i, end;
    int32_t tokens = 0, lost_from;
    err = err != NULL ? err : &local;
    enum md_status st = check_range(s, r, err);
    if (st == MD_OK)
        st = md_drive_begin(&s->drive, err);
    if (st != MD_OK)
        return st;
    md_turn_forget_retrieved(s);
    for (blocks_within(s, r, &i, &end); i < end; i++) {
        s->tape.blocks[i].held_out = false;
        s->tape.blocks[i].retrieved = true; /* asked for: the last of the unprotected to leave */
        s->drive.changes++;
    }
    s->drive.request.stays = true;
    st = md_drive_make_room(&s->drive, 0, &lost_from, err);
    s->drive.request.stays = false;
    for (blocks_within(s, r, &i, &end); i < end; i++)
        tokens += s->tape.blocks[i].state == MD_STATE_HOT ? block_len(s, i) : 0;
    if (st == MD_SESSION_FATAL)
        md_move_give_up(&s->drive, err);
    md_store_commit(s);
    if (st == MD_OK)
        *ret_tokens = tokens;
    return st;
}

/* `count` blocks from block i on, whose text the context has got at its end, join the tape, a group at a time. */
static enum md_status append_blocks(struct md_session *s, int32_t i, int32_t count, struct md_err *err)
{
    enum { GROUP = 64 };
    struct md_reuse_found found[GROUP];
    const int32_t block = s->tape.block_tokens;
    enum md_status st = MD_OK;
    while (count > 0 && st == MD_OK) {
        const int32_t room = md_drive_free_tokens(&s->drive) / 2 / block;
        int32_t n = room < 1 ? 1 : room < GROUP ? room : GROUP, lost_from = -1;
        size_t done = 0;
        n = n < count ? n : count;
        for (int32_t k = 0; k < n; k++)
            found[k] = (struct md_reuse_found){ s->tape.count + k * block, (i + k) * block };
        st = md_drive_make_room(&s->drive, n * block, &lost_from, err);
        if (st == MD_OK && lost_from < 0)
            st = md_reuse_append_moved(&s->drive, s->context.ids, found, (size_t)n, &done, err);
        if (st == MD_OK && done == 0)
            st = md_fail(err, MD_NOT_FOUND, "the KV of the block at %d is lost", found[0].known_start);
        i += (int32_t)done;
        count -= (int32_t)done;
    }
    return st;
}

enum md_status md_session_admit_at_tail(struct md_session *s, struct md_range r, const struct md_sink *sink,
                                        int32_t *ret_tokens, struct md_err *err)
{
    struct md_err local;
    struct md_turn t;
    err = err != NULL ? err : &local;
    enum md_status st = check_range(s, r, err);
    if (st == MD_OK && r.end > (int32_t)s->context.count) /* the tape may be longer, after EnsurePrefix */
        st = md_fail(err, MD_INVALID, "range [%d, %d) is not within the context of %zu tokens", r.start,
                     r.end, s->context.count);
    if (st != MD_OK)
        return st;
    const int32_t block = s->tape.block_tokens, first = (r.start + block - 1) / block, end = r.end / block;
    const int32_t more = end > first ? (end - first) * block : 0, old = (int32_t)s->context.count;
    if (!(md_engine_caps(s->pool->engine) & MD_CAP_POSITION_SHIFT))
        st = md_fail(err, MD_UNSUPPORTED, "KV type %s cannot be repositioned",
                     md_engine_info(s->pool->engine)->type_k);
    if (st == MD_OK && more > available(s))
        st = md_fail(err, MD_TOO_LARGE, "%d tokens behind %d do not fit the context window of %d", more, old,
                     s->pool->config.window_tokens);
    if (st == MD_OK)
        st = md_session_reserve(s, old + more, s->segment_count, err);
    if (st != MD_OK)
        return st;
    st = md_turn_begin(&t, s, sink, old, err);
    if (st == MD_OK)
        st = md_turn_prefill(&t, old, err);
    if (st == MD_OK && more > 0) {
        const struct md_context text = { .tokens = s->context.ids + first * block, .count = more };
        put_context(s, old, s->segment_count, &text);
        st = append_blocks(s, first, end - first, err);
        cut_context(s, s->tape.count);
    }
    st = md_turn_end(&t, st, err);
    if (st == MD_OK)
        *ret_tokens = more;
    return st;
}
