/* status.c - what can be seen of the pool and of one conversation: see pool.h and session.h. */
#include "session/session_internal.h"

#include <string.h>

/* ---- looking at it ---- */

const char *md_reuse_name(enum md_reuse reuse)
{
    static const char *const names[] = {
        [MD_REUSE_PLACE] = "place", [MD_REUSE_FULL] = "full", [MD_REUSE_APPROXIMATE] = "approximate"
    };
    return names[reuse];
}

const char *md_evict_name(enum md_evict evict)
{
    static const char *const names[] = { [MD_EVICT_RECENCY] = "recency", [MD_EVICT_ATTENTION] = "attention" };
    return names[evict];
}

const struct md_pool_config *md_pool_config(const struct md_pool *p)
{
    return &p->config;
}

struct md_pool_status md_pool_status(const struct md_pool *p)
{
    const struct md_engine_info *info = md_engine_info(p->engine);
    struct md_pool_status st = {
        .window_tokens = p->config.window_tokens,
        .hot_limit_tokens = p->hot.limit_tokens,
        .block_tokens = p->config.block_tokens,
        .sink_tokens = p->hot.stream.sink_tokens,
        .recent_tokens = p->hot.stream.recent_tokens,
        .trained_tokens = info->trained_tokens,
        .residency = p->config.residency,
        .past_window = p->config.past_window,
        .write_through = p->hot.write_through,
        .reuse = p->config.reuse,
        .sessions = p->count,
        .session_limit = p->config.session_limit,
        .hot_cells = md_engine_cells_used(p->engine),
        .kv_bytes_per_token = info->kv_bytes_per_token,
        .hot_bytes = md_engine_kv_bytes(p->engine, md_engine_cells_used(p->engine)),
        .caps = md_engine_caps(p->engine),
        .cold = md_cold_stats(p->cold),
        .disk = md_cold_disk_stats(p->cold),
        .requests = p->closed_requests,
        .prefilled_tokens = p->closed_prefilled_tokens,
        .prefill_ns = p->closed_prefill_ns,
        .break_even_tokens =
            md_restore_break_even_tokens(&p->hot.speeds, MD_TIER_HOST, info->kv_bytes_per_token),
    };
    const struct md_mirror_stats mirror = md_attend_mirror(p->attend);
    st.evict = p->config.evict;
    st.not_by_attention = p->not_by_attention;
    st.no_retrieval = p->no_retrieval;
    st.heads = md_heads_status(p->heads);
    st.mirror_budget_bytes = mirror.budget_bytes;
    st.mirror_bytes = mirror.used_bytes;
    if (p->config.residency && !md_residency_gate_is_open(p->hot.gate))
        st.diagnostic = "the engine can neither remove nor recompute a middle range: everything stays hot";
    for (const struct md_session *s = p->first; s != NULL; s = s->next) {
        st.requests += s->requests;
        st.prefilled_tokens += s->prefilled_tokens;
        st.prefill_ns += s->prefill_ns;
    }
    return st;
}

void md_pool_notice_lost(struct md_pool *p)
{
    md_move_notice_all_lost(&p->hot);
}

bool md_pool_check(const struct md_pool *p)
{
    return md_drive_check_all(&p->hot);
}

/* ---- one of them ---- */

int64_t md_session_id(const struct md_session *s)
{
    return s->id;
}

const md_token *md_session_context(const struct md_session *s, int32_t *ret_count)
{
    *ret_count = (int32_t)s->context.count;
    return s->context.ids;
}

const struct md_segment *md_session_segments(const struct md_session *s, size_t *ret_count)
{
    *ret_count = s->segment_count;
    return s->segments;
}

uint64_t md_session_changes(const struct md_session *s)
{
    return s->drive.changes;
}

struct md_session_status md_session_status(const struct md_session *s)
{
    const struct md_drive *d = &s->drive;
    struct md_session_status st = {
        .id = s->id,
        .parent = s->parent,
        .last_turn_ns = s->last_turn_ns,
        .prefix_tokens = s->prefix_count,
        .context_tokens = (int32_t)s->context.count,
        .tape_tokens = s->tape.count,
        .hot_tokens = md_tape_tokens_in(&s->tape, MD_STATE_HOT),
        .cold_tokens = md_tape_tokens_in(&s->tape, MD_STATE_COLD),
        .lost_tokens = md_tape_tokens_in(&s->tape, MD_STATE_LOST),
        .pinned_cold_tokens = d->pinned_cold,
        .protected_tokens = d->protected_tokens,
        .requests = s->requests,
        .prefill_calls = s->prefill_calls,
        .prefilled_tokens = s->prefilled_tokens,
        .prefill_ns = s->prefill_ns,
        .decode_calls = s->decode_calls,
        .decoded_tokens = s->decoded_tokens,
        .evicted_blocks = d->evicted_blocks,
        .restored_blocks = d->restored_blocks,
        .shared_blocks = d->shared_blocks,
        .recomputed_blocks = d->recomputed_blocks,
        .dropped_blocks = d->dropped_blocks,
        .moved_tokens = d->moved_tokens,
        .rebased_tokens = md_tape_moved_tokens(&s->tape),
        .rebased_blocks = d->rebased_blocks,
        .scorings = s->tape.scorings,
        .tokens_only = s->bare,
        .fatal = s->drive.fatal.status != MD_OK,
        .changes = d->changes,
        .durable_tokens = s->durable_tokens,
    };
    st.hot_bytes = md_engine_kv_bytes(s->pool->engine, st.hot_tokens);
    for (size_t i = 0; i < md_tape_block_count(&s->tape); i++) {
        const struct md_tape_block *b = &s->tape.blocks[i];
        int32_t tokens = md_range_len(md_tape_range(&s->tape, i));
        st.tokens_in_class[b->cls] += tokens;
        st.held_out_tokens += b->held_out ? tokens : 0;
        st.tokens_of[b->provenance.kind] += b->state == MD_STATE_LOST ? 0 : tokens;
    }
    if (st.fatal)
        memcpy(st.fatal_text, s->drive.fatal.text, sizeof st.fatal_text - 1);
    return st;
}

size_t md_session_map(const struct md_session *s, struct md_block_view *out, size_t cap)
{
    size_t count = md_tape_block_count(&s->tape);
    for (size_t i = 0; i < count && i < cap; i++) {
        const struct md_tape_block *b = &s->tape.blocks[i];
        out[i] = (struct md_block_view){ .state = (uint8_t)b->state,
                                         .cls = (uint8_t)b->cls,
                                         .provenance = (uint8_t)b->provenance.kind,
                                         .why = b->why > 0 ? b->why - 1 : MD_SELECT_WHY_COUNT,
                                         .retrieved = b->retrieved,
                                         .held_out = b->held_out,
                                         .rebased = b->moved_by > 0 };
    }
    return count;
}
