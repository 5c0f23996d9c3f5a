/* pool.c - see pool.h. */
#include "session/pool.h"

#include "base/clock.h"
#include "base/log.h"
#include "policy/checkpoint.h"
#include "policy/identity.h"
#include "policy/prefix.h"
#include "policy/rebase.h"
#include "session/disk.h"
#include "session/retrieve.h"
#include "session/session_internal.h"
#include "session/store.h"

#include <assert.h>

/* ---- open and close ---- */

enum md_status md_pool_check_config(const struct md_pool_config *c, struct md_err *err)
{
    struct md_stream_policy ignored;
    if (c->window_tokens < 1)
        return md_fail(err, MD_INVALID, "--ctx-size must be at least 1, got %d", c->window_tokens);
    if (c->block_tokens < MD_BLOCK_TOKENS_MIN || c->block_tokens > MD_BLOCK_TOKENS_MAX)
        return md_fail(err, MD_INVALID, "--block-tokens must be between %d and %d, got %d",
                       MD_BLOCK_TOKENS_MIN, MD_BLOCK_TOKENS_MAX, c->block_tokens);
    if (c->checkpoint_tokens < 0)
        return md_fail(err, MD_INVALID, "--checkpoint-tokens must be at least 1, got %d",
                       c->checkpoint_tokens);
    if (c->session_limit < 0 || c->session_limit > MD_SESSIONS_MAX)
        return md_fail(err, MD_INVALID, "--sessions must be between 1 and %d, got %d", MD_SESSIONS_MAX,
                       c->session_limit);
    if (!c->residency)
        return MD_OK;
    if (c->hot_tokens < 1)
        return md_fail(err, MD_INVALID, "--hot must be at least 1, got %d", c->hot_tokens);
    if (c->window_tokens <= c->hot_tokens)
        return MD_OK; /* everything fits: there are no sinks and no recent window */
    return md_residency_derive(c->hot_tokens, 0, c->block_tokens, c->sink_tokens, c->recent_tokens, &ignored,
                               err);
}

/* What the engine brings for holes in the hot set: it removes from the middle; or it cuts the tail, and what is to
 * stay comes back from the cold store, or is computed again in its place. */
static struct md_residency_gate gate_of(const struct md_pool_config *c, unsigned caps)
{
    return (struct md_residency_gate){
        .remove_middle = c->residency && (caps & MD_CAP_REMOVE_MIDDLE),
        .recompute_range = c->residency && (caps & MD_CAP_RECOMPUTE_RANGE) && (caps & MD_CAP_REMOVE_TAIL),
        .cold_store = (c->cold_bytes > 0 || c->disk != NULL) && (caps & MD_CAP_COLD_STORE),
    };
}

/* The rules of going past the trained window: all that is hot but the end may have been moved. */
static enum md_status check_past_window(const struct md_pool_config *c, const struct md_engine *e,
                                        struct md_err *err)
{
    const unsigned need =
        MD_CAP_POSITION_SHIFT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE | MD_CAP_REMOVE_TAIL;
    const struct md_engine_info *info = md_engine_info(e);
    const unsigned caps = md_engine_caps(e);
    const size_t block = md_cold_block_bytes(md_engine_export_bytes(e, c->block_tokens), c->block_tokens);
    const struct md_rebase_facts facts = {
        .residency = c->residency,
        .trained_tokens = info->trained_tokens,
        .hot_tokens = c->hot_tokens,
        .tail_state = info->window_tokens > 0 || info->tail_only || (caps & MD_CAP_CHECKPOINT),
        .can_move = (caps & need) == need,
        .type_k = info->type_k,
        .cold_bytes = c->cold_bytes > INT64_MAX ? INT64_MAX : (int64_t)c->cold_bytes,
        .need_bytes = (int64_t)block * (c->hot_tokens / c->block_tokens),
        .disk = c->disk != NULL,
    };
    return md_rebase_check(&facts, err);
}

/* The rules that depend on what the engine has and can. */
static enum md_status check_engine(const struct md_pool_config *c, const struct md_engine *e,
                                   struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(e);
    const unsigned caps = md_engine_caps(e);
    enum md_status s = c->past_window ? check_past_window(c, e, err) : MD_OK;
    if (s != MD_OK)
        return s;
    if (!c->past_window && info->trained_tokens > 0 && c->window_tokens > info->trained_tokens)
        return md_fail(
            err, MD_INVALID,
            "--ctx-size %d is more than the %d tokens the model was trained for (--past-window goes "
            "on behind them)",
            c->window_tokens, info->trained_tokens);
    if (c->residency && c->hot_tokens > info->cell_count)
        return md_fail(err, MD_INVALID, "--hot %d is more than the engine's %d KV cells", c->hot_tokens,
                       info->cell_count);
    if (!c->residency && c->window_tokens > info->cell_count)
        return md_fail(err, MD_INVALID,
                       "--ctx-size %d needs as many KV cells when residency is off, the engine has %d",
                       c->window_tokens, info->cell_count);
    if (c->residency && c->window_tokens > c->hot_tokens && !md_residency_gate_is_open(gate_of(c, caps)))
        return md_fail(
            err, MD_UNSUPPORTED,
            "this model's KV cannot be evicted in parts: give --ctx-size and --hot the same value, "
            "at most what memory allows (they are %d and %d)",
            c->window_tokens, c->hot_tokens);
    if (c->reuse == MD_REUSE_APPROXIMATE && !(caps & MD_CAP_POSITION_SHIFT))
        return md_fail(
            err, MD_UNSUPPORTED,
            "--reuse approximate: KV type %s/%s of this model cannot be repositioned: use another --reuse, "
            "or f16 keys where they are others, and no YaRN",
            info->type_k, info->type_v);
    if (c->disk != NULL && !(caps & (MD_CAP_COLD_STORE | MD_CAP_CHECKPOINT)))
        return md_fail(err, MD_UNSUPPORTED, "--kv-dir: this model's KV cannot be exported");
    if (c->reuse == MD_REUSE_APPROXIMATE && !(c->residency && c->cold_bytes > 0))
        return md_fail(err, MD_UNSUPPORTED, "--reuse approximate needs a cold store: see --mem-cold");
    return MD_OK;
}

static enum md_status derive_stream(struct md_pool *p, struct md_err *err)
{
    const struct md_pool_config *c = &p->config;
    const struct md_engine_info *info = md_engine_info(p->engine);
    if (!md_residency_gate_is_open(p->hot.gate) || c->window_tokens <= p->hot.limit_tokens)
        return MD_OK;
    int32_t window = info->window_tokens > 0 ? info->window_tokens + info->ubatch_tokens : 0;
    return md_residency_derive(c->hot_tokens, window, c->block_tokens, c->sink_tokens, c->recent_tokens,
                               &p->hot.stream, err);
}

static void hot_init(struct md_pool *p)
{
    static const enum md_provenance_kind floors[] = { [MD_REUSE_PLACE] = MD_PROVENANCE_BOUNDED,
                                                      [MD_REUSE_FULL] = MD_PROVENANCE_FULL,
                                                      [MD_REUSE_APPROXIMATE] = MD_PROVENANCE_APPROXIMATE };
    const struct md_pool_config *c = &p->config;
    unsigned caps = md_engine_caps(p->engine);
    p->hot = (struct md_hot){
        .engine = p->engine,
        .alloc = c->alloc,
        .gate = gate_of(c, caps),
        .limit_tokens = c->residency ? c->hot_tokens : c->window_tokens,
        .past_window = c->past_window ? md_engine_info(p->engine)->trained_tokens : 0,
        .floor = floors[c->reuse],
        .write_through = c->write_through && c->residency && c->cold_bytes > 0,
    };
}

/* What asks attention, and why it does not where it was to. */
static enum md_status open_attention(struct md_pool *p, struct md_err *err)
{
    const struct md_pool_config *c = &p->config;
    const bool evicts = c->evict == MD_EVICT_ATTENTION, retrieves = c->retrieval != MD_RETRIEVAL_OFF;
    const struct md_retrieve_params params = c->retrieve != NULL ? *c->retrieve : md_retrieve_defaults();
    const char *why = NULL;
    enum md_status s = MD_OK;
    if (params.rows < 1 || params.rows > MD_RETRIEVE_ROWS)
        return md_fail(err, MD_INVALID, "a question has 1 to %d tokens, not %d", MD_RETRIEVE_ROWS,
                       params.rows);
    p->question_rows = params.rows;
    if (evicts || retrieves)
        s = md_attend_open(c, p->engine, &params.heads, &p->attend, &why, err);
    if (s == MD_OK && retrieves && p->attend != NULL)
        s = md_retriever_open(c, p->attend, &p->retriever, err);
    p->no_retrieval = retrieves ? why : "off";
    p->not_by_attention = evicts ? why : NULL;
    p->hot.by_attention = evicts && p->attend != NULL;
    if (s == MD_OK && p->not_by_attention != NULL)
        md_log(MD_LOG_WARN, "--evict attention: what leaves the hot set goes by recency: %s", why);
    return s;
}

enum md_status md_pool_open(const struct md_pool_config *config, struct md_engine *engine,
                            struct md_text *text, struct md_pool **ret_pool, struct md_err *err)
{
    enum md_status st = md_pool_check_config(config, err);
    if (st == MD_OK)
        st = check_engine(config, engine, err);
    if (st != MD_OK)
        return st;
    struct md_pool *p = md_calloc(config->alloc, 1, sizeof *p);
    if (p == NULL)
        return md_fail(err, MD_NO_MEMORY, "sessions");
    p->config = *config;
    if (p->config.checkpoint_tokens == 0)
        p->config.checkpoint_tokens = MD_CHECKPOINT_TOKENS;
    if (p->config.session_limit == 0)
        p->config.session_limit = MD_SESSIONS_DEFAULT;
    p->engine = engine;
    p->text = text;
    p->last = &p->first;
    hot_init(p);
    st = derive_stream(p, err);
    if (st == MD_OK)
        st = open_attention(p, err);
    if (st == MD_OK)
        st = md_cold_open(config->alloc,
                          config->residency ? config->cold_bytes - md_attend_mirror(p->attend).budget_bytes
                                            : 0,
                          &p->cold, err);
    if (st == MD_OK)
        md_cold_set_disk(p->cold, p->config.disk);
    p->hot.cold = p->cold;
    if (st == MD_OK)
        st = md_heads_open(p, &p->heads, err);
    p->config.heads_file = NULL; /* copied there */
    for (md_seq seq = 0; st == MD_OK && seq < md_engine_info(engine)->seq_count; seq++)
        st = md_engine_truncate(engine, seq, 0, err);
    if (st == MD_OK)
        st = md_store_open_all(p, err);
    if (st != MD_OK) {
        md_pool_close(p);
        return st;
    }
    *ret_pool = p;
    return MD_OK;
}

void md_pool_close(struct md_pool *p)
{
    if (p == NULL)
        return;
    md_heads_close(p->heads); /* while there is the disk: what it has there goes */
    p->config.disk = NULL;    /* what is there stays there */
    if (p->cold != NULL)
        md_cold_set_disk(p->cold, NULL);
    while (p->first != NULL)
        md_session_close(p->first);
    md_retriever_close(p->retriever);
    md_attend_close(p->attend);
    md_cold_close(p->cold);
    md_free(p->config.alloc, p);
}

/* ---- conversations ---- */

static void session_free(struct md_session *s, bool keep_kv)
{
    if (s->pool->config.disk != NULL)
        md_disk_drop_record(s->pool->config.disk, s->id);
    struct md_pool *p = s->pool;
    struct md_session **at = &p->first;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (p->last == &s->next)
        p->last = at;
    p->count--;
    p->closed_requests += s->requests;
    p->closed_prefilled_tokens += s->prefilled_tokens;
    p->closed_prefill_ns += s->prefill_ns;
    md_drive_close(&s->drive, keep_kv);
    md_tape_done(&s->tape);
    md_tokens_done(&s->context);
    md_buf_done(&s->notes);
    md_free(p->config.alloc, s->segments);
    md_free(p->config.alloc, s);
}

void md_pool_discard(struct md_session *s)
{
    struct md_pool *p = s->pool;
    struct md_disk *disk = p->config.disk;
    p->config.disk = NULL;
    session_free(s, true);
    p->config.disk = disk;
}

void md_session_close(struct md_session *s)
{
    if (s != NULL)
        session_free(s, false);
}

/* 0: goes first.  A fatal one is of no use to anybody; of a bound one somebody sends the id. */
static int rank_of(const struct md_session *s)
{
    return s->bound ? 2 : s->drive.fatal.status != MD_OK ? 0 : 1;
}

/* The one that may go for `other` (NULL: for one that is not open yet): of the lowest rank the one that was idle longest. */
static struct md_session *least_wanted(struct md_pool *p, const struct md_session *other)
{
    struct md_session *least = NULL;
    for (struct md_session *s = p->first; s != NULL; s = s->next) {
        if (s->kept || s == other)
            continue;
        if (least == NULL || rank_of(s) < rank_of(least) ||
            (rank_of(s) == rank_of(least) && s->drive.last_live < least->drive.last_live))
            least = s;
    }
    return least;
}

enum md_status md_pool_new_beside(struct md_pool *p, struct md_session **ret_session, struct md_err *err)
{
    if (p->count >= p->config.session_limit && least_wanted(p, NULL) == NULL)
        return md_fail(err, MD_BUSY,
                       "%d sessions are open, as many as may be: close one (or raise --sessions)", p->count);
    struct md_session *s = md_calloc(p->config.alloc, 1, sizeof *s);
    if (s == NULL)
        return md_fail(err, MD_NO_MEMORY, "session");
    s->pool = p;
    s->id = ++p->next_id;
    s->last_turn_ns = md_clock_mono_ns();
    s->context.alloc = p->config.alloc;
    md_buf_init(&s->notes, p->config.alloc, MD_NOTES_BYTES_MAX);
    s->edited_from = -1;
    md_tape_init(&s->tape, p->config.alloc, p->config.block_tokens,
                 md_prefix_root(md_engine_info(p->engine)->identity));
    s->tape.sparse_from = md_engine_info(p->engine)->sparse_from_tokens;
    md_drive_open(&s->drive, &p->hot, &s->tape);
    s->drive.last_live = p->hot.clock;
    *p->last = s;
    p->last = &s->next;
    p->count++;
    *ret_session = s;
    return MD_OK;
}

void md_pool_make_way(struct md_session *s)
{
    struct md_pool *p = s->pool;
    struct md_session *least = p->count > p->config.session_limit ? least_wanted(p, s) : NULL;
    if (p->config.disk != NULL)
        md_disk_note_id(p->config.disk, s->id);
    if (least != NULL)
        session_free(least, true);
}

void md_pool_take_back(struct md_session *s)
{
    struct md_pool *p = s->pool;
    const int64_t id = s->id;
    session_free(s, false);
    if (id == p->next_id)
        p->next_id--;
}

enum md_status md_pool_new(struct md_pool *p, struct md_session **ret_session, struct md_err *err)
{
    enum md_status st = md_pool_new_beside(p, ret_session, err);
    if (st == MD_OK)
        md_pool_make_way(*ret_session);
    return st;
}

struct md_session *md_pool_find(struct md_pool *p, int64_t id)
{
    struct md_session *s = p->first;
    while (s != NULL && s->id != id)
        s = s->next;
    return s;
}

/* The end of the first thing that is the conversation's own: what its user said first; without that, its first
 * segment that is not stable.  A map of the repository or the time of day stands before many conversations. */
static int32_t anchor_of(const struct md_session *s)
{
    int32_t first = 0;
    for (size_t i = 0; i < s->segment_count; i++) {
        const struct md_segment *g = &s->segments[i];
        if (g->stable || md_range_len(g->range) == 0)
            continue;
        if (g->kind == MD_SEGMENT_USER)
            return g->range.end;
        first = first > 0 ? first : g->range.end;
    }
    return first;
}

enum md_status md_pool_find_by_prompt(struct md_pool *p, const struct md_request *request,
                                      struct md_session **ret_session, struct md_err *err)
{
    const struct md_context *prompt = &request->prompt;
    enum md_status st = md_session_check_request(p, request, err);
    if (st != MD_OK)
        return st;
    struct md_identity_candidate *candidates =
        md_calloc(p->config.alloc, (size_t)p->count + 1, sizeof *candidates);
    if (candidates == NULL)
        return md_fail(err, MD_NO_MEMORY, "list of %d sessions", p->count);
    size_t count = 0;
    for (const struct md_session *s = p->first; s != NULL; s = s->next) {
        /* 0: nobody goes on with it */
        const size_t known = s->drive.fatal.status == MD_OK && !s->bound ? s->context.count : 0;
        candidates[count++] = (struct md_identity_candidate){
            .common = (int32_t)md_prefix_common(s->context.ids, known, prompt->tokens, (size_t)prompt->count),
            .tape = (int32_t)known,
            .anchor = anchor_of(s),
            .last_used = s->drive.last_live,
        };
    }
    struct md_identity choice = md_identity_of(candidates, count);
    const int32_t nearest = choice.candidate < count ? candidates[choice.candidate].common : 0;
    md_free(p->config.alloc, candidates);
    if (choice.is_new) {
        st = md_pool_new(p, ret_session, err);
        if (st == MD_OK)
            (*ret_session)->nearest_common = nearest;
        return st;
    }
    struct md_session *s = p->first;
    for (size_t i = 0; i < choice.candidate; i++)
        s = s->next;
    *ret_session = s;
    return MD_OK;
}

bool md_pool_wants_idle(const struct md_pool *p)
{
    return md_heads_wants(p->heads);
}

void md_pool_idle(struct md_pool *p, bool (*wanted)(void *user), void *user)
{
    if (md_pool_wants_idle(p))
        md_heads_step(p->heads, wanted, user);
}

enum md_status md_pool_print_heads(const struct md_pool *p, struct md_buf *buf, struct md_err *err)
{
    return md_heads_print(p->heads, buf, err);
}

void md_pool_observe_retrieval(struct md_pool *p, const struct md_retrieve_observer *observer)
{
    md_retriever_observe(p->retriever, *observer);
}

void md_pool_keep(struct md_session *s)
{
    s->kept = true;
}

void md_pool_bind(struct md_session *s)
{
    s->bound = true;
}

struct md_session *md_pool_next(struct md_pool *p, const struct md_session *after)
{
    return after == NULL ? p->first : after->next;
}
