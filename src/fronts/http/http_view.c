/* http_view.c - see http_view.h. */
#include "fronts/http/http_view.h"

#include "base/clock.h"
#include "fronts/http/http_json.h"

#include <string.h>

/* ---- a writer that sets its own commas; after a failure it writes no more ---- */

struct writer {
    struct md_buf *out;
    struct md_err *err;
    enum md_status status;
};

static void put(struct writer *w, const char *text)
{
    if (w->status == MD_OK)
        w->status = md_buf_append(w->out, text, strlen(text), w->err);
}

/* A comma, unless this is the first in its object or list. */
static void separate(struct writer *w)
{
    const uint8_t last = w->out->len > 0 ? w->out->data[w->out->len - 1] : '{';
    if (last != '{' && last != '[')
        put(w, ",");
}

/* Names are words of ours: nothing in them to escape. */
static void name(struct writer *w, const char *key)
{
    separate(w);
    put(w, "\"");
    put(w, key);
    put(w, "\":");
}

static void put_string(struct writer *w, const char *text, size_t len)
{
    if (w->status == MD_OK)
        w->status = md_json_put_string(w->out, (struct md_bytes){ text, len }, w->err);
}

static void integer(struct writer *w, const char *key, int64_t value)
{
    name(w, key);
    if (w->status == MD_OK)
        w->status = md_buf_printf(w->out, w->err, "%lld", (long long)value);
}

static void seconds(struct writer *w, const char *key, int64_t ns)
{
    name(w, key);
    if (w->status == MD_OK)
        w->status = md_buf_printf(w->out, w->err, "%.3f", (double)ns / 1e9);
}

static void boolean(struct writer *w, const char *key, bool value)
{
    name(w, key);
    put(w, value ? "true" : "false");
}

static void id_or_null(struct writer *w, const char *key, int64_t id)
{
    if (id != 0) {
        integer(w, key, id);
        return;
    }
    name(w, key);
    put(w, "null");
}

static void text_or_null(struct writer *w, const char *key, const char *text)
{
    name(w, key);
    if (text == NULL || text[0] == '\0')
        put(w, "null");
    else
        put_string(w, text, strlen(text));
}

static void begin(struct writer *w, const char *key)
{
    name(w, key);
    put(w, "{");
}

static void end(struct writer *w)
{
    put(w, "}");
}

/* ---- the whole ---- */

static void put_caps(struct writer *w, unsigned caps)
{
    char words[256], *save = NULL;
    md_engine_caps_text(caps, words, sizeof words);
    name(w, "capabilities");
    put(w, "[");
    for (char *word = strtok_r(words, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        separate(w);
        put_string(w, word, strlen(word));
    }
    put(w, "]");
}

static void put_store(struct writer *w, const char *name, const struct md_coldstore_stats *c)
{
    begin(w, name);
    integer(w, "used_bytes", (int64_t)(c->used_bytes + c->reserved_bytes)); /* records, which are no blocks */
    integer(w, "budget_bytes", (int64_t)c->budget_bytes);
    integer(w, "peak_bytes", (int64_t)c->peak_bytes);
    integer(w, "blocks", c->entry_count);
    integer(w, "tokens", c->token_count);
    integer(w, "refused", c->refused);
    integer(w, "dropped", c->dropped);
    integer(w, "hits", c->hits);
    integer(w, "misses", c->misses);
    integer(w, "collisions", c->collisions);
    end(w);
}

static void put_heads(struct writer *w, const struct md_heads_status *h)
{
    begin(w, "heads");
    text_or_null(w, "source", h->count > 0 ? md_calibrate_source_name(h->source) : NULL);
    text_or_null(w, "from", h->count > 0 ? md_heads_origin_name(h->origin) : NULL);
    integer(w, "count", h->count);
    text_or_null(w, "calibration", md_heads_state_name(h->state));
    integer(w, "percent", h->percent);
    text_or_null(w, "reason", h->why[0] != '\0' ? h->why : NULL);
    end(w);
}

enum md_status md_view_status(struct md_buf *out, const struct md_http_service *service, int64_t uptime_ns,
                              struct md_err *err)
{
    struct writer writer = { out, err, MD_OK }, *w = &writer;
    const struct md_worker_status s = md_worker_status(service->worker);
    const struct md_pool_status *t = &s.pool;
    put(w, "{");
    text_or_null(w, "model", service->model);
    text_or_null(w, "engine", service->engine);
    text_or_null(w, "engine_version", service->engine_version);
    text_or_null(w, "device", service->device);
    text_or_null(w, "engine_choice", service->engine_choice);
    text_or_null(w, "type_k", service->type_k);
    text_or_null(w, "type_v", service->type_v);
    put_caps(w, t->caps);
    text_or_null(w, "state", s.busy ? "busy" : "idle");
    id_or_null(w, "running", s.running);
    integer(w, "queued", s.queued);
    integer(w, "requests", t->requests);
    integer(w, "uptime_seconds", uptime_ns / 1000000000);
    integer(w, "window_tokens", t->window_tokens);
    integer(w, "sliding_window_attention_tokens", service->attention_window_tokens);
    text_or_null(w, "xattention", service->xattention);
    text_or_null(w, "rope", service->rope);
    integer(w, "trained_tokens", t->trained_tokens);
    boolean(w, "past_window", t->past_window);
    integer(w, "block_tokens", t->block_tokens);
    integer(w, "sink_tokens", t->sink_tokens);
    integer(w, "recent_tokens", t->recent_tokens);
    boolean(w, "residency", t->residency);
    text_or_null(w, "reuse", md_reuse_name(t->reuse));
    text_or_null(w, "cold_policy", t->write_through ? "write-through" : "write-back");
    integer(w, "sessions", t->sessions);
    integer(w, "session_limit", t->session_limit);
    integer(w, "kv_bytes_per_token", t->kv_bytes_per_token);
    integer(w, "break_even_tokens", t->break_even_tokens);
    text_or_null(w, "diagnostic", t->diagnostic);
    begin(w, "eviction");
    text_or_null(w, "asked", md_evict_name(t->evict));
    text_or_null(w, "used", md_evict_name(t->not_by_attention == NULL ? t->evict : MD_EVICT_RECENCY));
    text_or_null(w, "reason", t->not_by_attention);
    end(w);
    begin(w, "retrieval");
    boolean(w, "on", t->no_retrieval == NULL);
    text_or_null(w, "reason", t->no_retrieval);
    put_heads(w, &t->heads);
    integer(w, "keys_bytes", (int64_t)t->mirror_bytes);
    integer(w, "keys_budget_bytes", (int64_t)t->mirror_budget_bytes);
    end(w);
    begin(w, "hot");
    integer(w, "tokens", t->hot_cells);
    integer(w, "limit_tokens", t->hot_limit_tokens);
    integer(w, "bytes", t->hot_bytes);
    end(w);
    put_store(w, "cold", &t->cold);
    if (t->disk.budget_bytes > 0)
        put_store(w, "disk", &t->disk);
    else
        text_or_null(w, "disk", NULL);
    end(w);
    return w->status;
}

/* ---- conversations ---- */

static const char *const provenance_names[MD_PROVENANCE_COUNT] = { "full", "bounded", "approximate" };

/* The members of a conversation, without its braces. */
static void put_session(struct writer *w, const struct md_session_status *t, bool running,
                        int64_t kv_bytes_per_token)
{
    const int64_t idle_ns = running ? 0 : md_clock_mono_ns() - t->last_turn_ns;
    integer(w, "id", t->id);
    id_or_null(w, "parent", t->parent);
    boolean(w, "running", running);
    text_or_null(w, "fatal", t->fatal ? t->fatal_text : NULL);
    boolean(w, "tokens_only", t->tokens_only);
    seconds(w, "idle_seconds", idle_ns > 0 ? idle_ns : 0);
    integer(w, "context_tokens", t->context_tokens);
    integer(w, "prefix_tokens", t->prefix_tokens);
    integer(w, "tape_tokens", t->tape_tokens);
    integer(w, "hot_tokens", t->hot_tokens);
    integer(w, "cold_tokens", t->cold_tokens);
    integer(w, "lost_tokens", t->lost_tokens);
    integer(w, "protected_tokens", t->protected_tokens);
    integer(w, "pinned_cold_tokens", t->pinned_cold_tokens);
    integer(w, "held_out_tokens", t->held_out_tokens);
    integer(w, "rebased_tokens", t->rebased_tokens);
    integer(w, "durable_tokens", t->durable_tokens);
    begin(w, "class_tokens");
    for (int i = 0; i < MD_CLASS_COUNT; i++)
        integer(w, md_cache_class_name((enum md_cache_class)i), t->tokens_in_class[i]);
    end(w);
    begin(w, "provenance_tokens");
    for (int i = 0; i < MD_PROVENANCE_COUNT; i++)
        integer(w, provenance_names[i], t->tokens_of[i]);
    end(w);
    integer(w, "hot_bytes", t->hot_bytes);
    integer(w, "cold_bytes", t->cold_tokens * kv_bytes_per_token);
    integer(w, "requests", t->requests);
    integer(w, "prefilled_tokens", t->prefilled_tokens);
    integer(w, "decoded_tokens", t->decoded_tokens);
    seconds(w, "prefill_seconds", t->prefill_ns);
    integer(w, "evicted_blocks", t->evicted_blocks);
    integer(w, "restored_blocks", t->restored_blocks);
    integer(w, "shared_blocks", t->shared_blocks);
    integer(w, "recomputed_blocks", t->recomputed_blocks);
    integer(w, "dropped_blocks", t->dropped_blocks);
    integer(w, "moved_tokens", t->moved_tokens);
    integer(w, "rebased_blocks", t->rebased_blocks);
    integer(w, "scorings", t->scorings);
}

enum md_status md_view_sessions(struct md_buf *out, const struct md_http_service *service, struct md_err *err)
{
    struct writer writer = { out, err, MD_OK }, *w = &writer;
    const struct md_worker_status now = md_worker_status(service->worker);
    /* one opened in between is on the next list */
    const size_t cap = md_worker_sessions(service->worker, NULL, 0);
    struct md_session_status *all = md_calloc(NULL, cap + 1, sizeof *all);
    if (all == NULL)
        return md_fail(err, MD_NO_MEMORY, "list of %zu sessions", cap);
    size_t count = md_worker_sessions(service->worker, all, cap);
    count = count < cap ? count : cap;
    put(w, "{\"sessions\":[");
    for (size_t i = 0; i < count; i++) {
        separate(w);
        put(w, "{");
        put_session(w, &all[i], all[i].id == now.running, now.pool.kv_bytes_per_token);
        end(w);
    }
    put(w, "]}");
    md_free(NULL, all);
    return w->status;
}

/* ---- one in full ---- */

static void put_segments(struct writer *w, const struct md_explain *e)
{
    name(w, "segments");
    put(w, "[");
    for (size_t i = 0; i < e->segment_count; i++) {
        const struct md_segment *s = &e->segments[i];
        separate(w);
        put(w, "{");
        name(w, "kind");
        put_string(w, s->name, strnlen(s->name, sizeof s->name));
        text_or_null(w, "class", md_cache_class_name(s->cls));
        boolean(w, "stable", s->stable);
        text_or_null(w, "invalidation", md_invalidation_name(s->invalidation));
        integer(w, "token_start", s->range.start);
        integer(w, "token_end", s->range.end);
        end(w);
    }
    put(w, "]");
}

/* One letter a block. */
static void put_letters(struct writer *w, const char *key, const struct md_explain *e,
                        char (*letter)(const struct md_block_view *b))
{
    name(w, key);
    put(w, "\"");
    if (w->status == MD_OK)
        w->status = md_buf_reserve(w->out, e->block_count + 1, w->err);
    for (size_t i = 0; i < e->block_count && w->status == MD_OK; i++)
        w->out->data[w->out->len++] = (uint8_t)letter(&e->blocks[i]);
    put(w, "\"");
}

static char state_letter(const struct md_block_view *b)
{
    return "#.x"[b->state];
}

static char class_letter(const struct md_block_view *b)
{
    return "trv"[b->cls];
}

static char provenance_letter(const struct md_block_view *b)
{
    return "fba"[b->provenance];
}

static int64_t count_blocks(const struct md_explain *e, enum md_block_state state)
{
    int64_t count = 0;
    for (size_t i = 0; i < e->block_count; i++)
        count += e->blocks[i].state == state;
    return count;
}

/* Source of the names: the session protocol's ContextReport and ResidencyReport. */
static void put_residency(struct writer *w, const struct md_explain *e, const struct md_pool_status *pool,
                          int32_t attention_window_tokens)
{
    const struct md_session_status *t = &e->status;
    integer(w, "physical_prefill_calls", t->prefill_calls);
    integer(w, "physical_prefill_tokens", t->prefilled_tokens);
    integer(w, "decode_calls", t->decode_calls);
    begin(w, "residency");
    integer(w, "budget_tokens", pool->hot_limit_tokens);
    integer(w, "total_tokens", t->tape_tokens);
    integer(w, "hot_tokens", t->hot_tokens);
    integer(w, "cold_tokens", t->cold_tokens);
    integer(w, "protected_tokens", t->protected_tokens);
    integer(w, "hot_blocks", count_blocks(e, MD_STATE_HOT));
    integer(w, "cold_blocks", count_blocks(e, MD_STATE_COLD));
    /* what had to be hot did not all fit */
    boolean(w, "over_budget", t->pinned_cold_tokens > 0 || t->protected_tokens > pool->hot_limit_tokens);
    begin(w, "capabilities");
    boolean(w, "remove_tail", (pool->caps & MD_CAP_REMOVE_TAIL) != 0);
    boolean(w, "remove_middle", (pool->caps & MD_CAP_REMOVE_MIDDLE) != 0);
    boolean(w, "position_shift", (pool->caps & MD_CAP_POSITION_SHIFT) != 0);
    boolean(w, "sparse_attention", (pool->caps & MD_CAP_SPARSE_ATTENTION) != 0);
    integer(w, "sliding_window_attention_tokens", attention_window_tokens);
    boolean(w, "cold_store", (pool->caps & MD_CAP_COLD_STORE) != 0);
    boolean(w, "recompute_range", (pool->caps & MD_CAP_RECOMPUTE_RANGE) != 0);
    end(w);
    text_or_null(w, "diagnostics", pool->diagnostic);
    text_or_null(w, "error", t->fatal ? t->fatal_text : NULL);
    end(w);
}

enum md_status md_view_explain(struct md_buf *out, const struct md_http_service *service, int64_t session,
                               struct md_err *err)
{
    struct writer writer = { out, err, MD_OK }, *w = &writer;
    struct md_explain e;
    enum md_status s = md_worker_explain(service->worker, session, &e, err);
    if (s != MD_OK)
        return s;
    const struct md_worker_status now = md_worker_status(service->worker);
    put(w, "{");
    put_session(w, &e.status, session == now.running, now.pool.kv_bytes_per_token);
    put_segments(w, &e);
    begin(w, "map");
    integer(w, "block_tokens", now.pool.block_tokens);
    integer(w, "blocks", (int64_t)e.block_count);
    put_letters(w, "state", &e, state_letter);
    put_letters(w, "class", &e, class_letter);
    put_letters(w, "provenance", &e, provenance_letter);
    end(w);
    put_residency(w, &e, &now.pool, service->attention_window_tokens);
    end(w);
    md_explain_done(&e);
    return w->status;
}
