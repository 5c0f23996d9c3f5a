/* eval_run.c - one unit of `modeld eval`: prefill a haystack, ask, look at what was hot.  See eval.h. */
#include "commands/eval.h"
#include "commands/eval_dump.h"

#include "base/clock.h"
#include "commands/sizing.h"
#include "policy/residency.h"

#include <assert.h>
#include <stdlib.h>

static const char haystack_mark[] =
    "[[modeld eval: the haystack]]"; /* stands in a rendered chat for its tokens */
static const char before_haystack[] = "Read the following text. You will be asked about it.\n\n";
enum { PROMPT_BYTES_MAX = 1 << 20, ANSWER_BYTES_MAX = 1 << 16, ARENA_BYTES_MAX = 4 << 20 };
/* Around a haystack, and of each question, with what a template puts around it; the exact model has one token a byte. */
enum { AROUND_TOKENS = 512, QUESTION_TOKENS = 384 };

/* ---- policies ---- */

static void by_place(struct md_pool_config *config)
{
    config->evict = MD_EVICT_RECENCY;
    config->retrieval = MD_RETRIEVAL_OFF;
}

static void with_retrieval(struct md_pool_config *config)
{
    config->evict = MD_EVICT_RECENCY;
    config->retrieval = MD_RETRIEVAL_AUTO;
}

static void by_attention(struct md_pool_config *config)
{
    config->evict = MD_EVICT_ATTENTION;
    config->retrieval = MD_RETRIEVAL_OFF;
}

static void by_attention_with_retrieval(struct md_pool_config *config)
{
    config->evict = MD_EVICT_ATTENTION;
    config->retrieval = MD_RETRIEVAL_AUTO;
}

static const char needs_scores[] = "scores of attention for this model and KV type";

const struct md_eval_policy md_eval_policies[] = {
    { .name = "dense", .all_hot = true, .by_place = true, .configure = by_place },
    { .name = "t1", .by_place = true, .configure = by_place },
    { .name = "t1-retrieval",
      .caps = MD_CAP_ATTENTION_SCORES,
      .needs = needs_scores,
      .retrieves = true,
      .configure = with_retrieval },
    { .name = "t2", .caps = MD_CAP_ATTENTION_SCORES, .needs = needs_scores, .configure = by_attention },
    { .name = "t2-retrieval",
      .caps = MD_CAP_ATTENTION_SCORES,
      .needs = needs_scores,
      .retrieves = true,
      .configure = by_attention_with_retrieval },
    { .name = NULL },
};

/* ---- the order of things ---- */

int md_eval_unit_count(const struct md_eval_settings *s)
{
    return s->policy_count * s->length_count * s->trials * s->depth_count;
}

struct md_eval_unit md_eval_unit_at(const struct md_eval_settings *s, int i)
{
    struct md_eval_unit u = { .depth = i % s->depth_count };
    i /= s->depth_count;
    u.trial = i % s->trials;
    i /= s->trials;
    u.length = i % s->length_count;
    u.policy = i / s->length_count;
    return u;
}

int md_eval_item_count(const struct md_eval_settings *s)
{
    return s->all_orders ? s->needles * s->needles : s->needles;
}

int md_eval_asked(const struct md_eval_settings *s, int order, int turn)
{
    return (order + turn) % s->needles;
}

void md_eval_result_done(struct md_eval_result *r)
{
    md_free(NULL, r->items);
    *r = (struct md_eval_result){ 0 };
}

/* ---- open and close ---- */

static int32_t longest(const struct md_eval_settings *s)
{
    int32_t most = 0;
    for (int i = 0; i < s->length_count; i++)
        most = s->lengths[i] > most ? s->lengths[i] : most;
    return most;
}

/* The flags as the stack is opened with them.  `hot_tokens` 0: all of the window. */
static enum md_status sized(const struct md_options *o, const struct md_eval_settings *s, int32_t hot_tokens,
                            struct md_options *ret, struct md_err *err)
{
    const int64_t window =
        (int64_t)longest(s) + AROUND_TOKENS + (int64_t)s->needles * (QUESTION_TOKENS + MD_EVAL_ANSWER_TOKENS);
    if (window > INT32_MAX)
        return md_fail(err, MD_TOO_LARGE, "--length %d and its questions are more than any window",
                       longest(s));
    *ret = *o;
    ret->ctx_size = window;
    ret->hot = hot_tokens == 0 || hot_tokens > window ? window : hot_tokens;
    ret->min_hot_context = 0;
    ret->retrieval = "off";
    for (int i = 0; i < s->policy_count; i++)
        if (s->policies[i]->caps & MD_CAP_ATTENTION_SCORES)
            ret->retrieval =
                "auto"; /* the engine is asked for scores; the policy says whether they are used */
    return MD_OK;
}

static enum md_status check_window(const struct md_options *o, const struct md_backend *backends,
                                   const struct md_eval_settings *s, struct md_err *err)
{
    struct md_sizing z;
    enum md_status st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check_model(&z, err);
    if (st != MD_OK)
        return st;
    if (z.facts.trained_tokens > 0 && o->ctx_size > z.facts.trained_tokens)
        return md_fail(
            err, MD_TOO_LARGE,
            "--length %d with its questions needs a window of %lld tokens, the model was trained for %d: "
            "lower --length or --needles",
            longest(s), (long long)o->ctx_size, z.facts.trained_tokens);
    return MD_OK;
}

enum md_status md_eval_check(const struct md_options *o, const struct md_backend *backends,
                             const struct md_eval_settings *settings, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int i = 0; i < settings->policy_count && s == MD_OK; i++) {
        const struct md_eval_policy *p = settings->policies[i];
        struct md_options mine;
        s = sized(o, settings, p->all_hot ? 0 : settings->hot_tokens, &mine, err);
        if (s == MD_OK)
            s = check_window(&mine, backends, settings, err);
        if (s == MD_OK)
            s = md_stack_check(&mine, backends, p->configure, err);
    }
    return s;
}

static enum md_status check_policy(const struct md_eval_policy *p, const struct md_engine *e,
                                   struct md_err *err)
{
    if ((md_engine_caps(e) & p->caps) != p->caps)
        return md_fail(err, MD_UNSUPPORTED, "--policy %s: engine '%s' does not give %s: leave it out",
                       p->name, md_engine_info(e)->engine, p->needs);
    return MD_OK;
}

/* A pool that does not what the policy is about would only show the other one's figures under its name. */
static enum md_status check_pool(const struct md_eval_policy *p, const struct md_pool *pool,
                                 struct md_err *err)
{
    const char *why = md_pool_status(pool).not_by_attention;
    return why == NULL
               ? MD_OK
               : md_fail(err, MD_UNSUPPORTED, "--policy %s: %s: leave it out, or lower --hot", p->name, why);
}

enum md_status md_eval_open(const struct md_options *o, const struct md_backend *backends,
                            const struct md_eval_settings *settings, int policy, struct md_eval_dump *dump,
                            struct md_eval_bench *ret, struct md_err *err)
{
    const struct md_eval_policy *p = settings->policies[policy];
    struct md_eval_bench b = { .settings = settings, .policy = policy, .filler_trial = -1, .dump = dump };
    struct md_options mine;
    const bool all_hot = p->all_hot || settings->dense_prefill;
    md_buf_init(&b.text, NULL, MD_EVAL_TEXT_BYTES_MAX + (1 << 20));
    enum md_status s = sized(o, settings, all_hot ? 0 : settings->hot_tokens, &mine, err);
    if (s == MD_OK)
        s = md_stack_open_with(&mine, backends, dump != NULL ? md_eval_dump_configure : p->configure,
                               &b.stack, err);
    for (int i = 0; i < settings->policy_count && s == MD_OK; i++)
        s = check_policy(settings->policies[i], b.stack.engine, err);
    if (s == MD_OK)
        s = check_pool(p, b.stack.pool, err);
    if (s == MD_OK && dump != NULL) {
        const struct md_retrieve_observer observer = md_eval_dump_observer(dump);
        md_pool_observe_retrieval(b.stack.pool, &observer);
    }
    if (s == MD_OK)
        *ret = b;
    else
        md_stack_close(&b.stack);
    return s;
}

void md_eval_close(struct md_eval_bench *b)
{
    md_eval_filler_done(&b->filler);
    md_buf_done(&b->text);
    md_stack_close(&b->stack);
    *b = (struct md_eval_bench){ .policy = -1, .filler_trial = -1 };
}

/* ---- the haystack ---- */

static uint64_t trial_seed(const struct md_eval_settings *s, int trial)
{
    struct md_eval_rng r = md_eval_rng(s->seed, 'T', (uint64_t)trial);
    return md_eval_next(&r);
}

static struct md_bytes filler_text(const struct md_eval_bench *b)
{
    return b->settings->file != NULL ? b->settings->contents : (struct md_bytes){ b->text.data, b->text.len };
}

/* As much as the longest haystack takes: a token has some 4 bytes in most texts; where that is not enough, twice as much. */
static enum md_status write_filler(struct md_eval_bench *b, int trial, struct md_err *err)
{
    const struct md_eval_settings *s = b->settings;
    const size_t need = (size_t)longest(s);
    enum md_status st = MD_OK;
    for (size_t bytes = need + 4096; st == MD_OK; bytes *= 2) {
        if (bytes > MD_EVAL_TEXT_BYTES_MAX)
            bytes = MD_EVAL_TEXT_BYTES_MAX;
        b->text.len = 0;
        md_eval_filler_done(&b->filler);
        st = md_eval_text_write(s->text, trial_seed(s, trial), bytes, &b->text, err);
        if (st == MD_OK)
            st = md_eval_filler_read(b->stack.text, filler_text(b), &b->filler, err);
        if (st == MD_OK && b->filler.tokens.count >= need)
            break;
        if (st == MD_OK && bytes == MD_EVAL_TEXT_BYTES_MAX)
            st = md_fail(err, MD_TOO_LARGE, "--length %zu: the longest text that is written has %zu tokens",
                         need, b->filler.tokens.count);
    }
    return st;
}

static enum md_status prepare_filler(struct md_eval_bench *b, int trial, struct md_err *err)
{
    if (b->filler_trial == trial || (b->settings->file != NULL && b->filler_trial >= 0))
        return MD_OK;
    enum md_status s = b->settings->file != NULL
                           ? md_eval_filler_read(b->stack.text, b->settings->contents, &b->filler, err)
                           : write_filler(b, trial, err);
    b->filler_trial = s == MD_OK ? trial : -1;
    return s;
}

/* ---- a conversation ---- */

struct talk {
    struct md_eval_bench *b;
    const struct md_eval_needle *needles;
    struct md_eval_haystack haystack;
    struct md_session *session;
    struct md_arena arena;  /* questions and answers as messages */
    struct md_buf contents; /* of the first message: the instruction, the mark, the first question */
    struct md_chat_message messages[2 * MD_EVAL_NEEDLES_MAX];
    size_t count;
    struct md_tokens prompt;
    int32_t haystack_at; /* where the haystack begins in every prompt */
    /* of the question that is on its way */
    struct md_buf answer;
    struct md_eval_item *item;
    struct md_block_view *map; /* what was hot, as last seen before the answer began */
    size_t map_cap, map_count;
    bool answering;
};

static void talk_done(struct talk *t)
{
    md_session_close(t->session);
    md_eval_haystack_done(&t->haystack);
    md_tokens_done(&t->prompt);
    md_buf_done(&t->answer);
    md_buf_done(&t->contents);
    md_arena_done(&t->arena);
    md_free(NULL, t->map);
}

static enum md_status say(struct talk *t, const char *role, struct md_bytes text, struct md_err *err)
{
    const char *copy = md_arena_strndup(&t->arena, text.data, text.len);
    if (copy == NULL)
        return md_fail(err, MD_NO_MEMORY, "a conversation of %zu messages", t->count + 1);
    assert(t->count < sizeof t->messages / sizeof t->messages[0]);
    t->messages[t->count++] =
        (struct md_chat_message){ .role = { role, strlen(role) }, .content = { copy, text.len } };
    return MD_OK;
}

/* The first question stands in the message of the haystack, the others follow as messages of their own. */
static enum md_status ask(struct talk *t, const char *question, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (t->count > 0)
        return say(t, "user", (struct md_bytes){ question, strlen(question) }, err);
    t->contents.len = 0;
    s = md_buf_printf(&t->contents, err, "%s%s\n\n%s", before_haystack, haystack_mark, question);
    return s == MD_OK ? say(t, "user", (struct md_bytes){ t->contents.data, t->contents.len }, err) : s;
}

/* Without a template: text with questions and answers in it. */
static enum md_status render_plain(const struct talk *t, struct md_buf *out, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (size_t i = 0; i < t->count && s == MD_OK; i++) {
        const struct md_chat_message *m = &t->messages[i];
        s = i % 2 == 1 ? md_buf_append(out, " ", 1, err)
            : i > 0    ? md_buf_printf(out, err, "\n\nQuestion: ")
                       : MD_OK;
        if (s == MD_OK)
            s = md_buf_append(out, m->content.data, m->content.len, err);
        if (s == MD_OK && i % 2 == 0)
            s = md_buf_printf(out, err, "\nAnswer:");
    }
    return s;
}

static enum md_status render(const struct talk *t, struct md_buf *out, struct md_err *err)
{
    const struct md_text *text = t->b->stack.text;
    if (!text->info.has_chat_template)
        return render_plain(t, out, err);
    struct md_chat_form *form = NULL;
    const struct md_chat_input in = { .messages = t->messages,
                                      .count = t->count,
                                      .add_generation_prompt = true };
    enum md_status s = md_text_render_chat(text, &in, out, &form, err);
    md_chat_form_unref(form);
    return s;
}

/* The messages as tokens, those of the haystack where its mark is. */
static enum md_status make_prompt(struct talk *t, struct md_err *err)
{
    struct md_buf out MD_CLEANUP(md_buf_done);
    const struct md_text *text = t->b->stack.text;
    md_buf_init(&out, NULL, PROMPT_BYTES_MAX);
    enum md_status s = render(t, &out, err);
    if (s != MD_OK)
        return s;
    const char *start = (const char *)out.data;
    const char *mark = out.len > 0 ? memmem(start, out.len, haystack_mark, strlen(haystack_mark)) : NULL;
    if (mark == NULL)
        return md_fail(err, MD_UNSUPPORTED, "the chat template of model '%s' changes what users say",
                       t->b->stack.model_name);
    const char *rest = mark + strlen(haystack_mark);
    t->prompt.count = 0;
    s = md_text_tokenize(text, (struct md_bytes){ start, (size_t)(mark - start) }, true, true, &t->prompt,
                         err);
    t->haystack_at = (int32_t)t->prompt.count;
    if (s == MD_OK)
        s = md_tokens_append(&t->prompt, t->haystack.tokens.ids, t->haystack.tokens.count, err);
    if (s == MD_OK)
        s = md_text_tokenize(text, (struct md_bytes){ rest, out.len - (size_t)(rest - start) }, false, true,
                             &t->prompt, err);
    if (s == MD_OK && t->prompt.count + MD_EVAL_ANSWER_TOKENS > (size_t)t->b->stack.window_tokens)
        s = md_fail(err, MD_TOO_LARGE,
                    "a prompt of %zu tokens and its answer do not fit the window of %d: lower --needles",
                    t->prompt.count, t->b->stack.window_tokens);
    return s;
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

static bool is_hot(const struct talk *t, struct md_range r, int32_t block_tokens)
{
    for (int32_t i = r.start / block_tokens; i <= (r.end - 1) / block_tokens; i++)
        if ((size_t)i >= t->map_count || t->map[i].state != MD_STATE_HOT)
            return false;
    return true;
}

/* From the haystack's first token to the prompt's. */
static struct md_range in_prompt(const struct talk *t, struct md_range r)
{
    return (struct md_range){ r.start + t->haystack_at, r.end + t->haystack_at };
}

static void judge(struct talk *t, const struct md_eval_needle *n, int needle)
{
    struct md_eval_item *item = t->item;
    const int32_t block = md_pool_status(t->b->stack.pool).block_tokens;
    item->needle = needle;
    item->depth = n->depth;
    item->part_count = n->part_count;
    item->recalled = true;
    for (int k = 0; k < n->part_count; k++) {
        item->spans[k] = in_prompt(t, t->haystack.spans[needle][k]);
        item->recalled = item->recalled && is_hot(t, item->spans[k], block);
    }
    item->found = md_eval_found((struct md_bytes){ t->answer.data, t->answer.len }, n->value);
    snprintf(item->value, sizeof item->value, "%s", n->value);
    snprintf(item->answer, sizeof item->answer, "%.*s", (int)t->answer.len, (const char *)t->answer.data);
}

/* ---- dense prefill, then out ---- */

/* Blocks of the haystack that the policy would not have hot behind the unit's first question are held out: so the text was
 * computed with all of it in view, and the questions see what the policy leaves. */
static enum md_status evict_afterwards(struct talk *t, struct md_err *err)
{
    const struct md_pool_config *c = md_pool_config(t->b->stack.pool);
    const int32_t block = md_pool_status(t->b->stack.pool).block_tokens;
    const int32_t hot = t->b->settings->hot_tokens, end = t->haystack_at + (int32_t)t->haystack.tokens.count;
    struct md_stream_policy stream;
    struct md_plan plan = { 0 };
    struct md_arena arena;
    md_arena_init(&arena, NULL, ARENA_BYTES_MAX + (size_t)end);
    enum md_status s = md_residency_derive(hot, 0, block, c->sink_tokens, c->recent_tokens, &stream, err);
    const size_t count = (size_t)(((int32_t)t->prompt.count + block - 1) / block);
    struct md_block *blocks = s == MD_OK ? md_arena_get(&arena, count, sizeof *blocks) : NULL;
    if (s == MD_OK && blocks == NULL)
        s = md_fail(err, MD_NO_MEMORY, "plan of %zu blocks", count);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        const int32_t start = (int32_t)i * block, next = start + block, last = (int32_t)t->prompt.count;
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

static enum md_status answer(struct talk *t, int needle, struct md_err *err)
{
    const struct md_eval_needle *n = &t->needles[needle];
    struct md_sink sink = { .user = t, .progress = on_progress, .text = on_text };
    struct md_result r = { 0 };
    struct md_request q = { .decode = { .max_tokens = MD_EVAL_ANSWER_TOKENS,
                                        .sample = md_sample_defaults() } };
    q.decode.sample.temperature = 0;
    const int64_t start = md_clock_mono_ns();
    enum md_status s = ask(t, n->question, err);
    if (s == MD_OK)
        s = make_prompt(t, err);
    if (s != MD_OK)
        return s;
    q.prompt = (struct md_context){ .tokens = t->prompt.ids, .count = (int32_t)t->prompt.count };
    struct md_range spans[MD_EVAL_PARTS_MAX];
    for (int k = 0; k < n->part_count; k++)
        spans[k] = in_prompt(t, t->haystack.spans[needle][k]);
    if (t->b->dump != NULL)
        md_eval_dump_next(t->b->dump, t->session, t->item, needle, spans, n->part_count);
    t->answer.len = 0;
    t->answering = false;
    s = md_session_run(t->session, &q, &sink, &r, err);
    look(t); /* an answer without text */
    if (s == MD_CANCELLED)
        s = md_fail(err, MD_NO_MEMORY, "an answer of %zu bytes", t->answer.len);
    if (s == MD_OK) {
        judge(t, n, needle);
        t->item->prompt = r.prompt;
        t->item->attended = r.attended;
        s = say(t, "assistant", (struct md_bytes){ t->answer.data, t->answer.len }, err);
    }
    md_result_done(&r);
    t->item->seconds = (double)(md_clock_mono_ns() - start) / 1e9;
    return s;
}

/* The haystack and what stands before it: what all prompts of the unit begin with. */
static enum md_status prefill(struct talk *t, struct md_err *err)
{
    struct md_prefill_status ignored;
    enum md_status s = ask(t, t->needles[0].question, err);
    if (s == MD_OK)
        s = make_prompt(t, err);
    t->count = 0;
    if (s != MD_OK)
        return s;
    const int32_t end = t->haystack_at + (int32_t)t->haystack.tokens.count;
    const struct md_context prefix = { .tokens = t->prompt.ids, .count = end };
    s = md_session_ensure_prefix(t->session, &prefix, false, NULL, &ignored, err);
    md_result_done(&ignored.work);
    const bool evicts = t->b->settings->dense_prefill && !t->b->settings->policies[t->b->policy]->all_hot;
    return s == MD_OK && evicts ? evict_afterwards(t, err) : s;
}

static enum md_status ask_all(struct talk *t, struct md_eval_result *out, struct md_err *err)
{
    const struct md_eval_settings *set = t->b->settings;
    const int64_t start = md_clock_mono_ns();
    enum md_status s = prefill(t, err);
    const double shared = (double)(md_clock_mono_ns() - start) / 1e9 / md_eval_item_count(set);
    for (int order = 0; order < (set->all_orders ? set->needles : 1) && s == MD_OK; order++) {
        t->count = 0;
        for (int turn = 0; turn < set->needles && s == MD_OK; turn++) {
            t->item = &out->items[out->count++];
            t->item->order = order;
            t->item->turn = turn;
            s = answer(t, md_eval_asked(set, order, turn), err);
            t->item->seconds += shared;
        }
    }
    return s;
}

static enum md_status open_talk(struct talk *t, struct md_eval_bench *b, struct md_err *err)
{
    *t = (struct talk){ .b = b };
    md_arena_init(&t->arena, NULL, ARENA_BYTES_MAX + (size_t)MD_EVAL_NEEDLES_MAX * MD_EVAL_NEEDLES_MAX * 512);
    md_buf_init(&t->contents, NULL, PROMPT_BYTES_MAX);
    md_buf_init(&t->answer, NULL, ANSWER_BYTES_MAX);
    t->map_cap = (size_t)b->stack.window_tokens / MD_BLOCK_TOKENS_MIN + 2;
    t->map = md_calloc(NULL, t->map_cap, sizeof *t->map);
    return t->map != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "map of %d tokens", b->stack.window_tokens);
}

/* Needles, and the haystack with them in it. */
static enum md_status plant(struct talk *t, struct md_eval_unit unit, struct md_eval_needle *needles,
                            struct md_err *err)
{
    struct md_eval_bench *b = t->b;
    const struct md_eval_settings *set = b->settings;
    const struct md_eval_spec spec = { .task = set->task,
                                       .near_duplicates = set->near_duplicates,
                                       .count = set->needles,
                                       .depth = set->depths[unit.depth],
                                       .seed = trial_seed(set, unit.trial) };
    enum md_status s = prepare_filler(b, unit.trial, err);
    if (s == MD_OK)
        s = md_eval_needles(&spec, filler_text(b), &t->arena, needles, err);
    t->needles = needles;
    if (s == MD_OK)
        s = md_eval_haystack_build(b->stack.text, &b->filler, set->lengths[unit.length], needles,
                                   set->needles, &t->haystack, err);
    return s;
}

enum md_status md_eval_rehearse(struct md_eval_bench *b, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int l = 0; l < b->settings->length_count && s == MD_OK; l++) {
        const struct md_eval_unit unit = { .policy = b->policy, .length = l };
        struct md_eval_needle needles[MD_EVAL_NEEDLES_MAX];
        struct talk t;
        s = open_talk(&t, b, err);
        if (s == MD_OK)
            s = plant(&t, unit, needles, err);
        talk_done(&t);
    }
    return s;
}

enum md_status md_eval_run(struct md_eval_bench *b, struct md_eval_unit unit, struct md_eval_result *ret,
                           struct md_err *err)
{
    struct md_eval_needle needles[MD_EVAL_NEEDLES_MAX];
    struct md_eval_result out = { .unit = unit };
    struct talk t;
    const int questions = md_eval_item_count(b->settings);
    assert(unit.policy == b->policy);
    if (b->dump != NULL)
        b->dump->unit = unit;
    out.items = md_calloc(NULL, (size_t)questions, sizeof *out.items);
    enum md_status s = open_talk(&t, b, err);
    if (s == MD_OK && out.items == NULL)
        s = md_fail(err, MD_NO_MEMORY, "%d questions", questions);
    if (s == MD_OK)
        s = plant(&t, unit, needles, err);
    if (s == MD_OK)
        s = md_pool_new(b->stack.pool, &t.session, err);
    if (s == MD_OK)
        s = ask_all(&t, &out, err);
    talk_done(&t);
    if (s == MD_OK && b->dump != NULL)
        s = md_eval_dump_check(b->dump, err);
    if (s == MD_OK)
        *ret = out;
    else
        md_eval_result_done(&out);
    return s;
}
