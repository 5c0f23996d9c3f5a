/* turn.c - one call on its way: reuse, restore, prefill through the hot set; the answer is turn_decode.c's.  What moves KV is
 * drive.c; what decides is policy/. */
#include "session/session_internal.h"

#include "base/clock.h"
#include "policy/checkpoint.h"
#include "policy/prefix.h"
#include "policy/segment.h"
#include "session/reuse.h"
#include "session/state.h"
#include "session/store.h"

#include <assert.h>
#include <string.h>

/* ---- sink ---- */

static bool cancelled(void *user)
{
    const struct md_sink *sink = user;
    return sink != NULL && sink->cancelled != NULL && sink->cancelled(sink->user);
}

enum md_status md_turn_check_cancel(const struct md_sink *sink, struct md_err *err)
{
    return cancelled((void *)sink) ? md_fail(err, MD_CANCELLED, "cancelled by the client") : MD_OK;
}

void md_turn_report_progress(const struct md_turn *t)
{
    if (t->sink == NULL || t->sink->progress == NULL)
        return;
    struct md_session *s = t->s;
    int32_t computed = s->drive.request.computed_tokens;
    int32_t reached = s->tape.count < t->prompt_count ? s->tape.count : t->prompt_count;
    md_move_notice_lost(&s->drive); /* whoever looks now shall see what is */
    struct md_progress p = { .total = t->prompt_count,
                             .cached = reached > computed ? reached - computed : 0,
                             .processed = computed,
                             .elapsed_ns = md_clock_mono_ns() - t->start_ns };
    t->sink->progress(t->sink->user, &p);
}

/* ---- begin and end ---- */

/* The class of each block of the context, the ones on the tape included. */
static enum md_status set_classes(struct md_turn *t, struct md_err *err)
{
    struct md_session *s = t->s;
    const int32_t block = s->tape.block_tokens;
    size_t count = ((size_t)s->context.count + (size_t)block - 1) / (size_t)block, first = 0;
    struct md_segment_span *spans = md_calloc(s->pool->config.alloc, s->segment_count + 1, sizeof *spans);
    t->classes = md_calloc(s->pool->config.alloc, count + 1, sizeof *t->classes);
    t->segment_ends = md_calloc(s->pool->config.alloc, s->segment_count + 1, sizeof *t->segment_ends);
    if (t->classes == NULL || t->segment_ends == NULL || spans == NULL) {
        md_free(s->pool->config.alloc, spans);
        return md_fail(err, MD_NO_MEMORY, "classes of %zu blocks", count);
    }
    for (size_t i = 0; i < s->segment_count; i++)
        spans[i] = (struct md_segment_span){ s->segments[i].range, s->segments[i].cls };
    for (size_t i = 0; i < count; i++) {
        struct md_range r = { (int32_t)i * block, (int32_t)(i + 1) * block };
        while (first < s->segment_count && spans[first].range.end <= r.start)
            first++;
        t->classes[i] = md_segment_block_class(r, spans + first, s->segment_count - first);
        if (i < md_tape_block_count(&s->tape))
            s->tape.blocks[i].cls = t->classes[i];
    }
    for (size_t i = 0; i < s->segment_count; i++)
        t->segment_ends[i] = s->segments[i].range.end;
    md_free(s->pool->config.alloc, spans);
    s->drive.classes = t->classes;
    s->drive.class_count = count;
    return MD_OK;
}

void md_turn_forget_retrieved(struct md_session *s)
{
    for (size_t i = 0; s->answered && i < md_tape_block_count(&s->tape); i++) {
        struct md_tape_block *b = &s->tape.blocks[i];
        if (s->chose) {
            b->incumbent = b->retrieved && b->why > 0;
            b->beaten = b->next_beaten;
        }
        b->retrieved = false;
    }
    s->answered = s->chose = false;
}

enum md_status md_turn_begin(struct md_turn *t, struct md_session *s, const struct md_sink *sink,
                             int32_t prompt_count, struct md_err *err)
{
    const struct md_alloc *alloc = s->pool->config.alloc;
    *t = (struct md_turn){
        .s = s, .sink = sink, .prompt_count = prompt_count, .start_ns = md_clock_mono_ns()
    };
    t->result.breaker = -1;
    t->ask_from = t->look_from = -1;
    t->result.tokens.alloc = alloc;
    s->last_turn_ns = t->start_ns;
    t->dropped_before = s->pool->hot.dropped_tokens;
    s->requests++;
    s->drive.changes++;
    s->drive.request = (struct md_drive_request){ .marks = md_calloc(alloc, (size_t)prompt_count + 1, 1),
                                                  .mark_count = prompt_count };
    md_engine_set_interrupt(s->pool->engine, cancelled, (void *)sink);
    md_turn_forget_retrieved(s);
    if (s->drive.request.marks == NULL) {
        s->drive.request.mark_count = 0;
        return md_fail(err, MD_NO_MEMORY, "request of %d tokens", prompt_count);
    }
    enum md_status st = set_classes(t, err);
    return st == MD_OK ? md_drive_begin(&s->drive, err) : st;
}

/* What became of the prompt. */
static void count_prompt(struct md_turn *t)
{
    struct md_session *s = t->s;
    struct md_result *out = &t->result;
    const struct md_drive_request *d = &s->drive.request;
    md_move_notice_lost(&s->drive);
    out->prompt = t->prompt_count;
    int32_t reached = s->tape.count < out->prompt ? s->tape.count : out->prompt;
    for (int32_t i = 0; i < d->mark_count && i < reached; i++) {
        bool computed = d->marks[i] & MD_MARK_COMPUTED;
        out->prefilled += computed;
        out->recomputed += computed && i < t->kept;
        out->restored += !computed && (d->marks[i] & MD_MARK_RESTORED);
        out->moved += !computed && (d->marks[i] & MD_MARK_MOVED);
        out->lost += !computed && s->tape.blocks[i / s->tape.block_tokens].state == MD_STATE_LOST;
    }
    out->cached = reached - out->prefilled;
}

static void fill_result(struct md_turn *t)
{
    struct md_session *s = t->s;
    struct md_result *out = &t->result;
    const struct md_drive_request *d = &s->drive.request;
    out->dropped = (int32_t)(s->pool->hot.dropped_tokens - t->dropped_before);
    out->hot = md_tape_tokens_in(&s->tape, MD_STATE_HOT);
    out->hot_limit = s->pool->hot.limit_tokens;
    out->tape = s->tape.count;
    for (int k = 0; k < MD_PROVENANCE_COUNT; k++)
        out->tokens_of[k] = md_tape_kind_tokens(&s->tape, (enum md_provenance_kind)k);
    out->durable = s->durable_tokens;
    out->prefill_ns = d->compute_ns;
    out->restore_ns = d->restore_ns;
    s->drive.changes++;
    s->prefill_calls += out->prefilled > 0;
    s->prefilled_tokens += out->prefilled;
    s->prefill_ns += out->prefill_ns;
}

/* A segment that says "on_turn" is over: its KV goes, and that of all behind it.  Where that fails the answer stands all
 * the same, and the next call begins with it. */
static void end_of_turn(struct md_session *s)
{
    struct md_err err;
    for (size_t i = 0; i < s->segment_count; i++) {
        const int32_t start = s->segments[i].range.start;
        if (s->segments[i].invalidation != MD_INVALIDATION_ON_TURN || start >= s->tape.count)
            continue;
        enum md_status st = md_drive_cut(&s->drive, start, false, &err);
        if (st == MD_SESSION_FATAL)
            md_move_give_up(&s->drive, &err);
        else if (st != MD_OK && (s->edited_from < 0 || start < s->edited_from))
            s->edited_from = start;
        return;
    }
}

enum md_status md_turn_end(struct md_turn *t, enum md_status status, struct md_err *err)
{
    struct md_session *s = t->s;
    const struct md_alloc *alloc = s->pool->config.alloc;
    md_engine_set_interrupt(s->pool->engine, NULL, NULL);
    if (status == MD_CANCELLED)
        t->result.finish = MD_FINISH_CANCELLED;
    count_prompt(t); /* before a part of it goes */
    if (status == MD_OK && t->decoded)
        end_of_turn(s);
    if (status == MD_SESSION_FATAL)
        md_move_give_up(&s->drive, err);
    md_store_commit(s);
    md_move_notice_all_lost(&s->pool->hot);
    fill_result(t);
    md_observe_report(t);
    s->last_turn_ns = md_clock_mono_ns();
    md_free(alloc, s->drive.request.marks);
    s->drive.request = (struct md_drive_request){ 0 };
    s->drive.classes = NULL;
    s->drive.class_count = 0;
    s->drive.held_out = NULL;
    s->drive.held_out_count = 0;
    md_free(alloc, t->classes);
    md_free(alloc, t->held_out);
    md_free(alloc, t->segment_ends);
    t->classes = NULL;
    t->held_out = NULL;
    t->segment_ends = NULL;
    return status;
}

/* ---- prefill ---- */

/* How many tokens to prefill next: not more than the engine takes, nor so many that the whole middle of the hot
 * set would have to leave for them at once. */
static int32_t chunk_tokens(const struct md_session *s, int32_t todo)
{
    int32_t room = md_drive_free_tokens(&s->drive);
    int32_t n = md_engine_info(s->pool->engine)->batch_tokens;
    if (md_residency_gate_is_open(s->pool->hot.gate) && room / 2 > s->tape.block_tokens)
        room /= 2;
    if (n > room)
        n = room;
    return n < todo ? n : todo;
}

/* Where the next checkpoint is due on the way to `target`; target, when none is before it. */
static int32_t next_checkpoint(const struct md_turn *t, int32_t target)
{
    const struct md_session *s = t->s;
    if (!md_state_is_kept(&s->pool->hot) || s->tape.count >= target)
        return target;
    return md_checkpoint_next(t->checkpoint, s->tape.count, target, s->pool->config.checkpoint_tokens,
                              t->segment_ends, s->segment_count);
}

/* Save the one that was due at `due`, when the tape has reached it. */
static enum md_status save_checkpoint(struct md_turn *t, int32_t due, struct md_err *err)
{
    struct md_session *s = t->s;
    if (!md_state_is_kept(&s->pool->hot) || s->tape.count != due || t->checkpoint >= due)
        return MD_OK;
    t->checkpoint = due;
    return md_state_save(&s->drive, err);
}

/* The end of the last turn is one as well, when none is just before it. */
static enum md_status first_checkpoint(struct md_turn *t, struct md_err *err)
{
    struct md_session *s = t->s;
    const int32_t at = s->tape.count, least = md_checkpoint_least(s->pool->config.checkpoint_tokens);
    if (!md_state_is_kept(&s->pool->hot))
        return MD_OK;
    t->checkpoint = md_state_saved_before(&s->drive, at);
    if (at - t->checkpoint < least)
        return MD_OK;
    enum md_status st = md_state_save(&s->drive, err);
    t->checkpoint = md_state_saved_before(&s->drive, at);
    return st;
}

enum md_status md_turn_prefill_chunk(struct md_turn *t, int32_t count, struct md_err *err)
{
    struct md_session *s = t->s;
    int32_t start = s->tape.count;
    const md_token *tokens = s->context.ids + start;
    enum md_status st = md_tape_reserve(&s->tape, start + count, err);
    if (st != MD_OK)
        return st;
    assert(md_drive_reaches(&s->drive, count));
    int64_t t0 = md_clock_mono_ns();
    st = md_engine_prefill(s->pool->engine, s->drive.seq, start, tokens, count, err);
    int64_t ns = md_clock_mono_ns() - t0;
    s->drive.request.compute_ns += ns;
    if (st != MD_OK)
        return st;
    md_restore_note_prefill(&s->pool->hot.speeds, count, ns);
    return md_drive_append_computed(&s->drive, tokens, count, err);
}

/* A chunk of what is to be done, after which blocks may have to leave. */
static enum md_status observed_chunk(struct md_turn *t, int32_t count, int32_t todo, struct md_err *err)
{
    md_observe_before(t, count, todo);
    enum md_status st = md_turn_prefill_chunk(t, count, err);
    if (st == MD_OK)
        return md_observe_after(t, err);
    md_observe_drop(t);
    return st;
}

int32_t md_turn_decode_room(const struct md_session *s)
{
    int32_t room = md_drive_free_tokens(&s->drive);
    if (room > s->tape.block_tokens)
        room = s->tape.block_tokens;
    if (room > s->pool->config.window_tokens - s->tape.count)
        room = s->pool->config.window_tokens - s->tape.count; /* never more than can still come */
    return room < 1 ? 1 : room;
}

/* Is what is left, with the token behind `target`, one chunk that can be evaluated with the logits of its last token?
 * Not where the hot set is planned once more before the answer, nor where there is to be a checkpoint at `target`. */
static bool leaves_to_decode(const struct md_turn *t, int32_t todo)
{
    const struct md_session *s = t->s;
    return t->decodes && todo > 0 && !md_state_is_kept(&s->pool->hot) &&
           s->tape.count + todo + md_turn_decode_room(s) <= s->pool->hot.limit_tokens &&
           chunk_tokens(s, todo + 1) == todo + 1;
}

/* Where in the new context the known ends, and with what: for reports.  A new conversation leaves the one that it is
 * most like. */
static void note_breaker(struct md_turn *t, int32_t common)
{
    struct md_session *s = t->s;
    const int32_t nearest = s->nearest_common;
    s->nearest_common = 0;
    if (s->tape.count == 0 && nearest > 0)
        common = nearest;
    else if (common >= s->tape.count)
        return; /* one goes on with the other */
    if (common >= t->prompt_count)
        return;
    for (size_t i = 0; i < s->segment_count; i++) {
        const struct md_segment *g = &s->segments[i];
        if (common >= g->range.end)
            continue;
        t->result.breaker = (int32_t)i;
        memcpy(t->result.breaker_name, g->name, sizeof g->name);
        return;
    }
}

/* Nothing of the tape was computed here: it begins anew, and what is held out by hand and stays is so again when it has been
 * computed. */
static enum md_status begin_again(struct md_turn *t, int32_t common, bool keep, struct md_err *err)
{
    struct md_session *s = t->s;
    const size_t whole = (size_t)(common / s->tape.block_tokens);
    t->held_out = md_calloc(s->pool->config.alloc, whole + 1, sizeof *t->held_out);
    if (t->held_out == NULL)
        return md_fail(err, MD_NO_MEMORY, "marks of %zu blocks", whole);
    for (size_t i = 0; i < whole; i++)
        t->held_out[i] = s->tape.blocks[i].held_out;
    enum md_status st = md_drive_cut(&s->drive, 0, keep, err);
    if (st != MD_OK)
        return st;
    s->bare = false;
    s->drive.held_out = t->held_out;
    s->drive.held_out_count = whole;
    return MD_OK;
}

/* What an edit leaves: by default the common prefix, and what falls off may come back; a segment that says
 * "on_edit" is dropped from its start, with all behind it. */
static enum md_status cut_to_common(struct md_turn *t, int32_t target, struct md_err *err)
{
    struct md_session *s = t->s;
    int32_t common = (int32_t)md_prefix_common(s->tape.tokens, (size_t)s->tape.count, s->context.ids,
                                               (size_t)t->prompt_count);
    note_breaker(t, common);
    bool keep = s->edited_from < 0 || s->edited_from >= s->tape.count;
    if (!keep && s->edited_from < common)
        common = s->edited_from;
    s->edited_from = -1;
    for (size_t i = 0; i < s->segment_count && common < s->tape.count && common < t->prompt_count; i++) {
        const struct md_segment *g = &s->segments[i];
        if (g->range.start <= common && common < g->range.end && g->invalidation == MD_INVALIDATION_ON_EDIT) {
            common = g->range.start;
            keep = false;
        }
    }
    if (s->bare)
        return begin_again(t, common, keep, err);
    t->kept = common < target ? common : target;
    md_drive_touch(&s->drive, t->kept);
    return md_drive_cut(&s->drive, t->kept, keep, err);
}

/* Text of the context behind the tape that is known from elsewhere.  Without approximate reuse the old blocks are
 * offered to the planner; with it the matches are taken, one after the other. */
static enum md_status find_elsewhere(struct md_turn *t, int32_t target, struct md_reuse_matches *m,
                                     struct md_err *err)
{
    struct md_session *s = t->s;
    bool moves = s->pool->config.reuse == MD_REUSE_APPROXIMATE;
    enum md_status st = md_reuse_find(&s->drive, s->context.ids, s->tape.count, target, !moves, m, err);
    if (st == MD_OK && !moves) {
        md_reuse_offer(&s->drive, m);
        md_reuse_matches_done(m);
    }
    return st;
}

/* How many of the matches from `first` on follow one another, as far as they make a chunk; at least that one. */
static size_t matches_in_chunk(const struct md_turn *t, int32_t target, const struct md_reuse_matches *m,
                               size_t first)
{
    const int32_t block = t->s->tape.block_tokens;
    const int32_t chunk = chunk_tokens(t->s, target - t->s->tape.count);
    size_t n = 1;
    while (first + n < m->count && (int32_t)(n + 1) * block <= chunk &&
           m->items[first + n].start == m->items[first].start + (int32_t)n * block)
        n++;
    return n;
}

/* Blocks whose text stands at the end of the tape, re-based from elsewhere; *next_match goes on to what follows. */
static enum md_status take_moved(struct md_turn *t, int32_t target, const struct md_reuse_matches *m,
                                 size_t *next_match, int32_t *ret_lost_from, struct md_err *err)
{
    struct md_session *s = t->s;
    const size_t first = *next_match, n = matches_in_chunk(t, target, m, first);
    size_t done = 0;
    enum md_status st = md_drive_make_room(&s->drive, (int32_t)n * s->tape.block_tokens, ret_lost_from, err);
    if (st == MD_OK && *ret_lost_from < 0)
        st = md_reuse_append_moved(&s->drive, s->context.ids, &m->items[first], n, &done, err);
    *next_match = first + (done > 0 ? done : 1); /* the next one is not there any more: it is computed */
    return st;
}

/* One step towards `target`: what is known, else a chunk.  *ret_more false: it is reached, and the hot set is what
 * the next evaluation attends. */
static enum md_status prefill_step(struct md_turn *t, int32_t target, struct md_reuse_matches *m,
                                   size_t *next_match, bool *ret_more, struct md_err *err)
{
    struct md_session *s = t->s;
    struct md_drive *d = &s->drive;
    int32_t lost_from = -1;
    *ret_more = true;
    enum md_status st = md_turn_check_cancel(t->sink, err);
    if (st == MD_OK)
        st = md_reuse_extend(d, s->context.ids, target, err);
    if (t->checkpoint > s->tape.count)
        t->checkpoint = md_state_saved_before(d, s->tape.count);
    if (st != MD_OK)
        return st;
    /* a hot set of hardly more than sinks and recent window may have no room for a whole block at once */
    const int32_t from = s->tape.count + (md_drive_free_tokens(d) < s->tape.block_tokens);
    while (*next_match < m->count && m->items[*next_match].start < from)
        ++*next_match;
    const struct md_reuse_found *found = *next_match < m->count ? &m->items[*next_match] : NULL;
    int32_t todo = target - s->tape.count, count = todo > 0 ? chunk_tokens(s, todo) : 0;
    bool last = todo <= 0;
    if (found != NULL && found->start == s->tape.count) {
        st = take_moved(t, target, m, next_match, &lost_from, err);
    } else {
        if (found != NULL && found->start < s->tape.count + count)
            count = found->start - s->tape.count;
        else
            last = last || leaves_to_decode(t, todo);
        const int32_t due = next_checkpoint(t, target);
        if (count > due - s->tape.count)
            count = due - s->tape.count;
        st = md_drive_make_room(d, last ? todo + md_turn_decode_room(s) : count, &lost_from, err);
        if (st == MD_OK && lost_from < 0)
            st = md_state_arm(d, &lost_from, err);
        if (st == MD_OK && lost_from < 0 && !last)
            st = observed_chunk(t, count, todo, err);
        if (st == MD_OK && lost_from < 0)
            st = save_checkpoint(t, due, err);
        *ret_more = !last;
    }
    if (st == MD_OK && lost_from >= 0) { /* its KV is gone for good: compute it again */
        *next_match = 0;
        *ret_more = true;
        return md_drive_cut(d, lost_from, true, err);
    }
    md_turn_report_progress(t);
    return st;
}

enum md_status md_turn_prefill(struct md_turn *t, int32_t target, struct md_err *err)
{
    struct md_reuse_matches m = { 0 };
    size_t next_match = 0;
    bool more = true;
    enum md_status st = cut_to_common(t, target, err);
    if (st == MD_OK)
        st = md_reuse_extend(&t->s->drive, t->s->context.ids, target, err);
    if (st == MD_OK)
        st = find_elsewhere(t, target, &m, err);
    if (st == MD_OK)
        md_turn_report_progress(t);
    if (st == MD_OK)
        st = first_checkpoint(t, err);
    while (st == MD_OK && more)
        st = prefill_step(t, target, &m, &next_match, &more, err);
    md_reuse_matches_done(&m);
    return st;
}
