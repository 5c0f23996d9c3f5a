/* eval_ask.c - see eval_ask.h. */
#include "commands/eval_ask.h"

#include "base/clock.h"
#include "commands/eval_chat.h"
#include "commands/eval_dump.h"
#include "policy/residency.h"
#include "session/retrieve.h"

#include <assert.h>

enum { ANSWER_BYTES_MAX = 1 << 16, PLAN_BYTES_MAX = 4 << 20 };

struct talk {
    struct md_eval_bench *b; /* borrowed, as the needles and the haystack are */
    const struct md_eval_needle *needles;
    const struct md_eval_haystack *haystack;
    struct md_eval_chat chat;
    struct md_session *base;    /* has the haystack */
    struct md_session *session; /* asks: a branch of it, or itself; NULL: none */
    /* of the message that is on its way */
    struct md_buf answer;
    struct md_eval_item *items; /* what it asks for */
    int item_count;
    struct md_block_view *map; /* what was hot, as last seen before the answer began */
    size_t map_cap, map_count;
    bool answering;
    int32_t first_prompt; /* tokens of the haystack and the first question */
};

static int32_t block_tokens(const struct talk *t)
{
    return md_pool_status(t->b->stack.pool).block_tokens;
}

static int32_t haystack_end(const struct talk *t)
{
    return md_eval_chat_prefix(&t->chat).count;
}

static bool branches(const struct talk *t)
{
    return md_engine_caps(t->b->stack.engine) & MD_CAP_SHARE;
}

/* ---- what was scored ---- */

int32_t md_eval_rank(const struct md_attention_block *blocks, const struct md_scores *scores,
                     const struct md_range *spans, int span_count)
{
    int32_t worst = 0;
    for (size_t g = 0; g < scores->block_count; g++) {
        const struct md_range r = { blocks[g].start, blocks[g].start + blocks[g].tokens };
        const float mine = scores->overall[g] + scores->listed[g];
        bool gold = false;
        int32_t rank = 1;
        for (int k = 0; k < span_count; k++)
            gold = gold || (spans[k].start < r.end && r.start < spans[k].end);
        if (!gold || !blocks[g].candidate)
            continue;
        for (size_t i = 0; i < scores->block_count; i++) {
            const float other = scores->overall[i] + scores->listed[i];
            rank += blocks[i].candidate && (other > mine || (other == mine && i < g));
        }
        worst = rank > worst ? rank : worst;
    }
    return worst;
}

static void on_scoring(void *user, const struct md_attention_input *in, const struct md_calibrate_set *heads,
                       const size_t *index, int32_t from, int32_t pass)
{
    const struct talk *t = user;
    if (t->b->dump == NULL)
        return;
    const struct md_retrieve_observer dump = md_eval_dump_observer(t->b->dump);
    dump.seen(dump.user, in, heads, index, from, pass);
}

static void on_scores(void *user, const struct md_attention_block *blocks, const struct md_scores *scores,
                      int32_t pass)
{
    const struct talk *t = user;
    for (int i = 0; i < t->item_count; i++) {
        struct md_eval_item *item = &t->items[i];
        item->rank = md_eval_rank(blocks, scores, item->spans, item->part_count);
        if (pass == 0)
            item->first_rank = item->rank;
    }
}

/* ---- what was hot ---- */

static void look(struct talk *t)
{
    if (!t->answering)
        t->map_count = md_session_map(t->session, t->map, t->map_cap);
}

/* The hot set is planned before the end of the prompt is evaluated, and reported then: the last look counts. */
static void on_progress(void *user, const struct md_progress *p)
{
    (void)p;
    look(user);
}

static bool on_text(void *user, struct md_bytes text)
{
    struct talk *t = user;
    look(t);
    t->answering = true;
    return md_buf_append(&t->answer, text.data, text.len, NULL) == MD_OK;
}

static bool is_hot(const struct talk *t, struct md_range r, int32_t block)
{
    for (int32_t i = r.start / block; i <= (r.end - 1) / block; i++)
        if ((size_t)i >= t->map_count || t->map[i].state != MD_STATE_HOT)
            return false;
    return true;
}

static char letter_of(const struct md_block_view *v, bool chose)
{
    if (v->state != MD_STATE_HOT)
        return MD_EVAL_COLD_BLOCK;
    return chose && v->retrieved && v->why <= MD_SELECT_INCUMBENT ? MD_EVAL_CHOSEN_BLOCK : MD_EVAL_HOT_BLOCK;
}

static enum md_status note_blocks(const struct talk *t, struct md_eval_item *item, struct md_err *err)
{
    const size_t count = (size_t)(haystack_end(t) / block_tokens(t));
    item->blocks = md_calloc(NULL, count + 1, 1);
    if (item->blocks == NULL)
        return md_fail(err, MD_NO_MEMORY, "map of %zu blocks", count);
    for (size_t i = 0; i < count; i++)
        item->blocks[i] =
            i < t->map_count ? letter_of(&t->map[i], item->evaluations > 0) : MD_EVAL_COLD_BLOCK;
    return MD_OK;
}

static enum md_status judge(const struct talk *t, struct md_eval_item *item, const struct md_result *r,
                            struct md_err *err)
{
    const struct md_eval_needle *n = &t->needles[item->needle];
    const int32_t block = block_tokens(t);
    item->recalled = true;
    for (int k = 0; k < item->part_count; k++)
        item->recalled = item->recalled && is_hot(t, item->spans[k], block);
    item->found = md_eval_found((struct md_bytes){ t->answer.data, t->answer.len }, n->value);
    item->prompt = r->prompt;
    item->attended = r->attended;
    item->question = r->retrieval.question;
    item->evaluations = r->retrieval.evaluations;
    item->heads_used = r->retrieval.heads_used;
    snprintf(item->value, sizeof item->value, "%s", n->value);
    snprintf(item->answer, sizeof item->answer, "%.*s", (int)t->answer.len, (const char *)t->answer.data);
    return note_blocks(t, item, err);
}

/* ---- dense prefill, then out ---- */

/* Blocks of the haystack that the policy would not have hot behind the first question are held out: so the text was
 * computed with all of it in view, and the questions see what the policy leaves. */
static enum md_status evict_afterwards(struct talk *t, struct md_err *err)
{
    const struct md_pool_config *c = md_pool_config(t->b->stack.pool);
    const int32_t block = block_tokens(t), end = haystack_end(t);
    const int32_t hot = t->b->settings->hot_tokens, last = t->first_prompt;
    struct md_stream_policy stream;
    struct md_plan plan = { 0 };
    struct md_arena arena;
    md_arena_init(&arena, NULL, PLAN_BYTES_MAX + (size_t)end);
    enum md_status s = md_residency_derive(hot, 0, block, c->sink_tokens, c->recent_tokens, &stream, err);
    const size_t count = (size_t)((last + block - 1) / block);
    struct md_block *blocks = s == MD_OK ? md_arena_get(&arena, count, sizeof *blocks) : NULL;
    if (s == MD_OK && blocks == NULL)
        s = md_fail(err, MD_NO_MEMORY, "plan of %zu blocks", count);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        const int32_t start = (int32_t)i * block, next = start + block;
        blocks[i] =
            (struct md_block){ .range = { start, next < last ? next : last }, .cls = MD_CLASS_VOLATILE };
    }
    if (s == MD_OK) /* a block for the answer, as the session plans for it */
        s = md_residency_plan(blocks, count, NULL, hot - block, stream,
                              (struct md_residency_gate){ .remove_middle = true }, &arena, &plan, err);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        int32_t evicted;
        if (!plan.hot[i] && blocks[i].range.end <= end)
            s = md_session_evict_range(t->session, blocks[i].range, &evicted, err);
    }
    md_arena_done(&arena);
    return s;
}

/* ---- questions ---- */

/* What a message asks for: items[0 .. item_count) are filled with it. */
static enum md_status put_question(struct talk *t, struct md_err *err)
{
    struct md_buf b MD_CLEANUP(md_buf_done);
    enum md_status s = MD_OK;
    md_buf_init(&b, NULL, ANSWER_BYTES_MAX);
    if (t->item_count > 1)
        s = md_buf_printf(&b, err, "Answer each of these questions on a line of its own.\n");
    for (int i = 0; i < t->item_count && s == MD_OK; i++) {
        const char *question = t->needles[t->items[i].needle].question;
        s = t->item_count > 1 ? md_buf_printf(&b, err, "%s%d. %s", i > 0 ? "\n" : "", i + 1, question)
                              : md_buf_printf(&b, err, "%s", question);
    }
    return s == MD_OK ? md_eval_chat_say(&t->chat, "user", (struct md_bytes){ b.data, b.len }, err) : s;
}

/* What was asked before is a part of the window as well. */
static enum md_status check_room(const struct talk *t, int32_t answer_tokens, struct md_err *err)
{
    if (t->chat.prompt.count + (size_t)answer_tokens <= (size_t)t->b->stack.window_tokens)
        return MD_OK;
    return md_fail(err, MD_TOO_LARGE,
                   "a prompt of %zu tokens and its answer do not fit the window of %d: lower --needles",
                   t->chat.prompt.count, t->b->stack.window_tokens);
}

/* KV that is gone can be neither chosen nor kept: it is computed again under another hot set, and figures would be those of the cold
 * store's size.  `gone` tokens are, and `unscored` blocks could not be chosen. */
static enum md_status check_lost(int32_t gone, int32_t unscored, struct md_err *err)
{
    if (gone + unscored == 0)
        return MD_OK;
    return md_fail(err, MD_NO_MEMORY,
                   "%d tokens of the haystack were lost and %d blocks could not be scored: raise --mem-cold",
                   gone, unscored);
}

/* A branch has all of the haystack; what it has not was lost since.  Where an engine goes back to a checkpoint, or in its one
 * conversation, some may be computed again for that alone. */
static int32_t computed_again(const struct talk *t, const struct md_result *r)
{
    const int32_t end = haystack_end(t) - 1; /* its last token is left for what follows: a step needs one */
    const bool whole = branches(t) && !(md_engine_caps(t->b->stack.engine) & MD_CAP_CHECKPOINT);
    return whole && r->cached < end ? end - r->cached : 0;
}

static void place_spans(struct talk *t)
{
    for (int i = 0; i < t->item_count; i++) {
        struct md_eval_item *item = &t->items[i];
        const struct md_eval_needle *n = &t->needles[item->needle];
        item->depth = n->depth;
        item->part_count = n->part_count;
        for (int k = 0; k < n->part_count; k++) {
            const struct md_range r = t->haystack->spans[item->needle][k];
            item->spans[k] = (struct md_range){ r.start + t->chat.haystack_at, r.end + t->chat.haystack_at };
        }
    }
}

static void tell_dump(struct talk *t)
{
    if (t->b->dump == NULL)
        return;
    const struct md_eval_item *i = &t->items[0];
    const struct md_context c = md_eval_chat_context(&t->chat);
    md_eval_dump_next(t->b->dump, &(struct md_eval_dumped){ .session = t->session,
                                                            .item = i,
                                                            .text = t->b->stack.text,
                                                            .prompt = c.tokens,
                                                            .prompt_count = c.count });
}

static enum md_status answer(struct talk *t, struct md_err *err)
{
    struct md_sink sink = { .user = t, .progress = on_progress, .text = on_text };
    struct md_result r = { 0 };
    struct md_request q = { .decode = { .max_tokens = MD_EVAL_ANSWER_TOKENS * t->item_count,
                                        .sample = md_sample_defaults() } };
    q.decode.sample.temperature = 0;
    enum md_status s = put_question(t, err);
    if (s == MD_OK)
        s = md_eval_chat_render(&t->chat, err);
    if (s == MD_OK)
        s = check_room(t, q.decode.max_tokens, err);
    if (s != MD_OK)
        return s;
    q.prompt = md_eval_chat_context(&t->chat);
    place_spans(t);
    tell_dump(t);
    t->answer.len = 0;
    t->answering = false;
    s = md_session_run(t->session, &q, &sink, &r, err);
    look(t); /* an answer without text */
    if (s == MD_CANCELLED)
        s = md_fail(err, MD_NO_MEMORY, "an answer of %zu bytes", t->answer.len);
    if (s == MD_OK)
        s = check_lost(r.lost + r.recomputed + computed_again(t, &r), r.retrieval.unscored, err);
    for (int i = 0; i < t->item_count && s == MD_OK; i++)
        s = judge(t, &t->items[i], &r, err);
    if (s == MD_OK)
        s = md_eval_chat_say(&t->chat, "assistant", (struct md_bytes){ t->answer.data, t->answer.len }, err);
    md_result_done(&r);
    return s;
}

/* ---- a unit ---- */

static void end_rotation(struct talk *t)
{
    if (t->session != t->base)
        md_session_close(t->session);
    t->session = NULL;
}

/* The conversation is the haystack again, and what is hot is what the policy makes of that. */
static enum md_status begin_rotation(struct talk *t, struct md_err *err)
{
    const bool evicts = t->b->settings->dense_prefill && !t->b->settings->policies[t->b->policy]->all_hot;
    end_rotation(t);
    t->session = t->base;
    enum md_status s = MD_OK;
    if (branches(t)) {
        t->session = NULL;
        s = md_session_branch(t->base, -1, &t->session, err);
    }
    if (s == MD_OK && evicts)
        s = evict_afterwards(t, err);
    return s == MD_OK ? md_eval_chat_begin(&t->chat, err) : s;
}

/* The haystack and what stands before it: what all prompts of the unit begin with. */
static enum md_status prefill(struct talk *t, struct md_eval_item *first, struct md_err *err)
{
    struct md_prefill_status did;
    enum md_status s = md_eval_chat_begin(&t->chat, err);
    t->items = first;
    t->item_count = 1;
    if (s == MD_OK)
        s = put_question(t, err);
    if (s == MD_OK)
        s = md_eval_chat_render(&t->chat, err);
    if (s != MD_OK)
        return s;
    const struct md_context prefix = md_eval_chat_prefix(&t->chat);
    t->first_prompt = (int32_t)t->chat.prompt.count;
    s = md_session_ensure_prefix(t->base, &prefix, false, NULL, &did, err);
    if (s == MD_OK)
        s = check_lost(did.work.lost + did.work.recomputed + did.work.dropped, 0, err);
    md_result_done(&did.work);
    return s;
}

/* Which items a message asks for: one, or all of a rotation. */
static int per_message(const struct md_eval_settings *s)
{
    return s->asking == MD_EVAL_TOGETHER ? s->needles : 1;
}

static enum md_status ask_all(struct talk *t, struct md_eval_result *out, struct md_err *err)
{
    const struct md_eval_settings *set = t->b->settings;
    const int count = md_eval_item_count(set), step = per_message(set);
    int64_t start = md_clock_mono_ns();
    enum md_status s = prefill(t, &out->items[0], err);
    const double shared = (double)(md_clock_mono_ns() - start) / 1e9 / count;
    for (int i = 0; i < count && s == MD_OK; i += step) {
        start = md_clock_mono_ns();
        t->items = &out->items[i];
        t->item_count = step;
        for (int k = 0; k < step; k++) {
            struct md_eval_item *item = &out->items[out->count++];
            item->order = (i + k) / set->needles;
            item->turn = (i + k) % set->needles;
            item->needle = md_eval_asked(set, item->order, item->turn);
        }
        if (t->items->turn == 0 || set->asking == MD_EVAL_ALONE)
            s = begin_rotation(t, err);
        if (s == MD_OK)
            s = answer(t, err);
        for (int k = 0; k < step; k++)
            t->items[k].seconds = shared + (double)(md_clock_mono_ns() - start) / 1e9 / step;
    }
    end_rotation(t);
    return s;
}

enum md_status md_eval_ask(struct md_eval_bench *b, const struct md_eval_needle *needles,
                           const struct md_eval_haystack *haystack, struct md_eval_result *out,
                           struct md_err *err)
{
    struct talk t = { .b = b, .needles = needles, .haystack = haystack };
    const struct md_retrieve_observer watch = { .seen = on_scoring, .judged = on_scores, .user = &t };
    md_eval_chat_init(&t.chat, b->stack.text, b->stack.model_name, &haystack->tokens);
    md_buf_init(&t.answer, NULL, ANSWER_BYTES_MAX);
    t.map_cap = (size_t)b->stack.window_tokens / MD_BLOCK_TOKENS_MIN + 2;
    t.map = md_calloc(NULL, t.map_cap, sizeof *t.map);
    enum md_status s =
        t.map != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "map of %d tokens", b->stack.window_tokens);
    if (s == MD_OK)
        s = md_pool_new(b->stack.pool, &t.base, err);
    if (s == MD_OK) {
        md_pool_observe_retrieval(b->stack.pool, &watch);
        s = ask_all(&t, out, err);
        md_pool_observe_retrieval(b->stack.pool, &(struct md_retrieve_observer){ 0 });
    }
    end_rotation(&t);
    md_session_close(t.base);
    md_eval_chat_done(&t.chat);
    md_buf_done(&t.answer);
    md_free(NULL, t.map);
    return s;
}
