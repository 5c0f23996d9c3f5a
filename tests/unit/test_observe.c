/* test_observe.c - the hot set goes by attention, on the fake engine.  What blocks are worth is computed here once more, with sums
 * of exponentials in double; what then stays or leaves is known beforehand on a model whose attention looks up equal tokens
 * (support/lookup_model.h); and a pool that goes by recency says what must be where nothing is scored. */
#include "base/half.h"
#include "engine/attention.h"
#include "engine/fake.h"
#include "session/session_internal.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "support/session_rig.h"
#include "support/store_rig.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { WINDOW = 1000, HOT = 256, BLOCK = 16, SINK = 16, RECENT = 32, COLD = 64 << 20, BLOCKS_MAX = 80 };

static md_token text[WINDOW];

static void fill(void)
{
    rig_tokens(text, WINDOW, 5);
}

static struct md_pool_config config(enum md_evict evict)
{
    struct md_pool_config c = rig_config(WINDOW, HOT, COLD);
    c.evict = evict;
    return c;
}

struct states {
    size_t count;
    struct md_block_view at[BLOCKS_MAX];
};

static struct states look(const struct md_session *s)
{
    struct states m = { 0 };
    m.count = md_session_map(s, m.at, BLOCKS_MAX);
    ck_assert_uint_le(m.count, BLOCKS_MAX);
    return m;
}

static void check_same(const struct states *a, const struct states *b)
{
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++)
        ck_assert_msg(a->at[i].state == b->at[i].state, "block %zu", i);
}

/* ---- where there are no scores it is recency ---- */

static const struct {
    const char *says;
    unsigned caps_off;
    size_t cold;
    enum rig_model model;
} reasons[] = {
    { "gives no scores", MD_CAP_ATTENTION_SCORES, COLD, RIG_DENSE },
    { "no cold store", 0, 0, RIG_DENSE },
    { "does not go back", MD_CAP_REMOVE_TAIL, COLD, RIG_DENSE },
};

START_TEST(reasons_are_told)
{
    struct states got[2];
    rig_use_model(reasons[_i].model);
    for (int k = 0; k < 2; k++) {
        struct md_pool_config c = config(k == 0 ? MD_EVICT_ATTENTION : MD_EVICT_RECENCY);
        struct rig r;
        c.cold_bytes = reasons[_i].cold;
        rig_open(&r, c, reasons[_i].caps_off);
        const struct md_pool_status st = md_pool_status(r.pool);
        ck_assert_int_eq(st.evict, c.evict);
        ck_assert(k == 1
                      ? st.not_by_attention == NULL
                      : st.not_by_attention != NULL && strstr(st.not_by_attention, reasons[_i].says) != NULL);
        ck_assert_uint_eq(st.mirror_budget_bytes, 0);
        ck_assert_int_eq(rig_ask(&r, text, 600, 4, false), MD_OK);
        ck_assert(!r.last.eviction.due);
        got[k] = look(r.session);
        rig_close(&r);
    }
    check_same(&got[0], &got[1]);
}
END_TEST

START_TEST(all_hot_costs_nothing)
{
    struct rig r;
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    ck_assert_int_eq(rig_ask(&r, text, HOT - BLOCK - 8, 4, false), MD_OK);
    ck_assert_int_eq(r.last.eviction.scorings, 0);
    ck_assert_int_eq(r.fault.calls[MD_OP_WATCH] + r.fault.calls[MD_OP_QUERIES] + r.fault.calls[MD_OP_EXPORT],
                     0);
    ck_assert_int_eq(md_session_status(r.session).scorings, 0);
    rig_close(&r);
}
END_TEST

/* Every scoring fails: the same set as by recency, and it is said. */
START_TEST(failing_scores_are_recency)
{
    static const enum md_engine_op ops[] = { MD_OP_WATCH, MD_OP_QUERIES };
    struct states want, got;
    struct rig r;
    rig_open(&r, config(MD_EVICT_RECENCY), 0);
    ck_assert_int_eq(rig_ask(&r, text, 700, 4, false), MD_OK);
    want = look(r.session);
    rig_close(&r);
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    r.fault = (struct md_fault){ .op = ops[_i], .nth = 1, .from_then_on = true, .status = MD_INTERNAL };
    ck_assert_int_eq(rig_ask(&r, text, 700, 4, false), MD_OK);
    ck_assert_int_eq(r.last.eviction.scorings, 0);
    ck_assert_int_gt(r.last.eviction.missed, 3);
    got = look(r.session);
    check_same(&want, &got);
    rig_close(&r);
}
END_TEST

/* ---- the scores themselves ---- */

START_TEST(scores_of_a_tape)
{
    static const size_t index[] = { 0, 1, 2, 3, 5 };
    struct md_tape t;
    struct md_arena arena;
    const float *scores;
    md_tape_init(&t, NULL, BLOCK, (struct md_key){ 0, 1 });
    ck_assert_int_eq(md_tape_reserve(&t, 6 * BLOCK, NULL), MD_OK);
    md_tape_append_computed(&t, text, 6 * BLOCK, MD_CLASS_VOLATILE);
    md_arena_init(&arena, NULL, 4096);
    t.blocks[0].profile = 0.5f;
    t.blocks[1].profile = 0.25f;
    t.blocks[0].judged = t.blocks[3].judged = 3;
    t.blocks[1].judged = 1;
    t.blocks[3].profile = 0.75f;
    t.blocks[3].aside = t.blocks[5].aside = true;
    ck_assert_int_eq(md_tape_scores(&t, index, 5, &arena, &scores, NULL), MD_OK);
    ck_assert_ptr_null(scores); /* nothing was scored */
    t.scorings = 1;
    ck_assert_int_eq(md_tape_scores(&t, index, 5, &arena, &scores, NULL), MD_OK);
    /* 3 turns weigh 1 + 1/2 + 1/4, 1 turn 1; block 2 is young and as good as the best of all, block 3 */
    static const float want[] = { 2.0f / 7, 0.25f, 3.0f / 7, -1, -1 };
    for (int k = 0; k < 5; k++)
        ck_assert_float_eq_tol(scores[k], want[k], 1e-6f);
    md_tape_cut(&t, BLOCK + 3); /* other text joins block 1 */
    ck_assert_float_eq(t.blocks[1].profile, 0);
    ck_assert_int_eq(t.blocks[1].judged, 0);
    ck_assert_int_eq(t.scorings, 1);
    md_tape_cut(&t, 0);
    ck_assert_int_eq(t.scorings, 0);
    md_arena_done(&arena);
    md_arena_init(&arena, NULL, 8);
    t.scorings = 1;
    ck_assert_int_eq(md_tape_scores(&t, index, 0, &arena, &scores, NULL), MD_OK);
    md_tape_append_computed(&t, text, 6 * BLOCK, MD_CLASS_VOLATILE);
    ck_assert_int_eq(md_tape_scores(&t, index, 5, &arena, &scores, NULL), MD_NO_MEMORY);
    md_arena_done(&arena);
    md_tape_done(&t);
}
END_TEST

enum { LAYER = 1, HEADS = 4 }; /* the only layer of two between 30 and 75 % of the depth */

struct naive {
    struct rig *r;
    int scorings, evaluations; /* seen; calls of the engine at the last one */
    bool busy;
    double profile[BLOCKS_MAX];
};

/* What one row of one head pays: mass += of each block that is asked (NULL keys: it is not) and may leave, of what it pays to all
 * of those; returns their part of all that it pays to blocks that are asked. */
static double add_row(const float *query, const struct md_attention_layer *l, int32_t kv,
                      uint16_t *const *keys, size_t count, int32_t end, double *mass)
{
    double each[BLOCKS_MAX] = { 0 }, all = 0, may = 0;
    for (size_t i = 0; i < count; i++) {
        for (int32_t t = 0; keys[i] != NULL && t < BLOCK; t++) {
            const uint16_t *key = keys[i] + ((ptrdiff_t)kv * BLOCK + t) * l->length;
            double sum = 0;
            for (int32_t d = 0; d < l->length; d++)
                sum += (double)query[d] * (double)md_half_to_float(key[d]);
            each[i] += exp((double)l->scale * sum);
        }
        all += each[i];
        if ((int32_t)i * BLOCK < SINK || (int32_t)(i + 1) * BLOCK > end - RECENT)
            each[i] = 0;
        may += each[i];
    }
    for (size_t i = 0; i < count && may > 0; i++)
        mass[i] += each[i] / may;
    return may / all;
}

/* The pool asks for queries: what they pay, once more.  Rows count alike, and heads by the part that they give to what may leave. */
static void score_again(void *user, const struct md_engine_call *call)
{
    static uint16_t room[BLOCKS_MAX][1024];
    struct naive *n = user;
    uint16_t *keys[BLOCKS_MAX] = { NULL };
    double mass[BLOCKS_MAX] = { 0 }, sum = 0;
    struct md_queries q;
    int32_t layers;
    const int evaluations = n->r->fault.calls[MD_OP_PREFILL] + n->r->fault.calls[MD_OP_DECODE];
    if (call->op != MD_OP_QUERIES || n->busy || n->evaluations == evaluations)
        return; /* each group of heads asks */
    n->busy = true;
    n->evaluations = evaluations;
    const struct md_session *s = n->r->session;
    const struct md_attention_layer *l = md_engine_attention(n->r->engine, &layers) + LAYER;
    ck_assert_int_eq(md_engine_queries(n->r->engine, LAYER, &q, NULL), MD_OK);
    const int32_t end = s->tape.count;
    const bool question = end == (int32_t)s->context.count - 1;
    const int32_t from = question ? q.start : end - MD_OBSERVE_ROWS;
    const size_t count = (size_t)(from / BLOCK);
    ck_assert(q.start + q.rows == end && from >= q.start && l->query_heads == HEADS);
    for (size_t i = 0; i < count; i++)
        if (question || s->tape.blocks[i].state == MD_STATE_HOT) {
            keys[i] = room[i];
            rig_block_keys(n->r, LAYER, i, keys[i]);
        }
    for (int32_t h = 0; h < HEADS; h++) {
        double mine[BLOCKS_MAX] = { 0 }, part = 0;
        for (int32_t row = from - q.start; row < q.rows; row++)
            part += add_row(q.at + ((ptrdiff_t)row * q.heads + h) * q.length, l,
                            h * l->key_heads / l->query_heads, keys, count, end, mine);
        for (size_t i = 0; i < count; i++)
            mass[i] += part * mine[i];
    }
    for (size_t i = 0; i < count; i++)
        sum += mass[i];
    for (size_t i = 0; i < BLOCKS_MAX; i++)
        n->profile[i] = n->profile[i] / 2 + (sum > 0 ? mass[i] / sum : 0);
    n->scorings++;
    n->busy = false;
}

START_TEST(profiles_are_attention)
{
    struct rig r;
    struct naive n = { .r = &r };
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    r.fault.watch = score_again;
    r.fault.user = &n;
    ck_assert_int_eq(rig_ask(&r, text, 600, 0, false), MD_OK);
    const struct md_tape *t = &r.session->tape;
    ck_assert_int_eq(t->scorings, r.last.eviction.scorings);
    ck_assert_int_eq(t->scorings, n.scorings);
    ck_assert_int_gt(t->scorings, 4);
    ck_assert_int_eq(r.last.eviction.missed + r.last.eviction.unscored, 0);
    double most = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++) {
        ck_assert_msg(fabs((double)t->blocks[i].profile - n.profile[i]) < 1e-3, "block %zu: %g, %g", i,
                      (double)t->blocks[i].profile, n.profile[i]);
        most = n.profile[i] > most ? n.profile[i] : most;
    }
    ck_assert_double_gt(most, 0.05);
    rig_close(&r);
}
END_TEST

/* ---- who stays ---- */

enum { NEEDLE = 30, TEXT = 640, QUESTION = 16, AT = 4 };

struct lookup {
    struct md_fake_model *model;
    struct md_engine *engine;
    struct md_text *scripted;
    struct md_pool *pool;
    struct md_session *s;
    struct md_result last;
};

static void open_lookup(struct lookup *l, enum md_evict evict)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options options = { .cell_count = HOT, .batch_tokens = 128, .attention = true };
    struct md_err err = { 0 };
    *l = (struct lookup){ 0 };
    ck_assert_int_eq(md_lookup_model_open(&l->model, &err), MD_OK);
    ck_assert_msg(md_fake_open(l->model, &options, &l->engine, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_scripted_open(&script, NULL, &l->scripted, NULL), MD_OK);
    const struct md_pool_config c = config(evict);
    ck_assert_msg(md_pool_open(&c, l->engine, l->scripted, &l->pool, &err) == MD_OK, "%s", err.text);
    ck_assert_ptr_null(md_pool_status(l->pool).not_by_attention);
    ck_assert_int_eq(md_pool_new(l->pool, &l->s, &err), MD_OK);
}

static void close_lookup(struct lookup *l)
{
    md_result_done(&l->last);
    md_pool_close(l->pool);
    md_engine_close(l->engine);
    md_text_close(l->scripted);
    md_fake_model_close(l->model);
}

/* Pieces of four blocks, three of common bytes and one of the needle: what is read last in each piece pays most to the needles
 * of the others.  Or, alone: the needle in block AT, and common bytes.  No block stands there twice, for text that is sent
 * again comes back in any case. */
enum { PIECE = 64 };

static void write_text(md_token *out, bool alone)
{
    struct rng rng = { 77 };
    for (int32_t i = 0; i < TEXT; i++) {
        const bool needle = alone ? i / BLOCK == AT : i % PIECE >= PIECE - BLOCK;
        int32_t byte = 8 + (int32_t)rng_below(&rng, 16);
        if (needle)
            byte = i % BLOCK == 0 ? 24 + i / PIECE % 4 : i % BLOCK == 1 ? 24 + i / PIECE / 4 : NEEDLE;
        out[i] = MD_EXACT_TOKEN_OF_BYTE_0 + byte;
    }
}

static bool is_needle(size_t block)
{
    return block % (PIECE / BLOCK) == PIECE / BLOCK - 1;
}

/* Piece by piece, all but the needles of a class. */
static void read_text(struct lookup *l, const md_token *tokens, enum md_cache_class cls)
{
    for (int32_t at = 0; at < TEXT; at += PIECE) {
        const struct md_segment most = { .range = { 0, PIECE - BLOCK },
                                         .kind = MD_SEGMENT_REPO_MAP,
                                         .cls = cls };
        const struct md_context c = { tokens + at, PIECE, &most, 1 };
        struct md_prefill_status did;
        struct md_err err = { 0 };
        enum md_status s = at == 0 ? md_session_ensure_prefix(l->s, &c, false, NULL, &did, &err)
                                   : md_session_prefill_suffix(l->s, &c, -1, NULL, &did, &err);
        ck_assert_msg(s == MD_OK, "%s", err.text);
        ck_assert(md_pool_check(l->pool));
    }
}

static void ask_lookup(struct lookup *l, md_token *tokens, int32_t byte)
{
    struct md_segment question = { .range = { TEXT, TEXT + QUESTION },
                                   .kind = MD_SEGMENT_USER,
                                   .cls = MD_CLASS_VOLATILE };
    struct md_request q = { .prompt = { tokens, TEXT + QUESTION, &question, 1 },
                            .decode = { .max_tokens = 1, .sample = md_sample_defaults() } };
    struct md_err err = { 0 };
    for (int32_t i = 0; i < QUESTION; i++)
        tokens[TEXT + i] = MD_EXACT_TOKEN_OF_BYTE_0 + byte;
    q.decode.sample.temperature = 0;
    md_result_done(&l->last);
    l->last = (struct md_result){ 0 };
    ck_assert_msg(md_session_run(l->s, &q, NULL, &l->last, &err) == MD_OK, "%s", err.text);
    ck_assert(md_pool_check(l->pool));
}

START_TEST(what_is_attended_stays)
{
    md_token tokens[TEXT];
    struct states m[2];
    write_text(tokens, false);
    for (int k = 0; k < 2; k++) {
        struct lookup l;
        open_lookup(&l, k == 0 ? MD_EVICT_RECENCY : MD_EVICT_ATTENTION);
        read_text(&l, tokens, MD_CLASS_VOLATILE);
        m[k] = look(l.s);
        close_lookup(&l);
    }
    int hot[2] = { 0 }, newer_cold = 0;
    for (size_t i = 0; i < m[0].count; i++) {
        hot[0] += m[0].at[i].state == MD_STATE_HOT;
        hot[1] += m[1].at[i].state == MD_STATE_HOT;
        newer_cold += !is_needle(i) && m[0].at[i].state == MD_STATE_HOT && m[1].at[i].state == MD_STATE_COLD;
        if (is_needle(i))
            ck_assert_msg(m[1].at[i].state == MD_STATE_HOT, "block %zu", i);
        if (i == 0 || i * BLOCK + BLOCK > TEXT - RECENT) /* whatever is paid to them */
            ck_assert_int_eq(m[1].at[i].state, MD_STATE_HOT);
    }
    ck_assert_int_eq(m[0].at[3].state, MD_STATE_COLD); /* the first needle */
    ck_assert_int_eq(hot[0], hot[1]);
    ck_assert_int_gt(newer_cold, 0);
}
END_TEST

/* What is not attended is of a class that leaves later, and there is more of it than fits. */
START_TEST(within_a_class_only)
{
    md_token tokens[TEXT];
    struct lookup l;
    write_text(tokens, false);
    open_lookup(&l, MD_EVICT_ATTENTION);
    read_text(&l, tokens, MD_CLASS_REPO_MAP);
    const struct states m = look(l.s);
    ck_assert_int_gt(md_session_status(l.s).scorings, 2);
    for (size_t i = 1; (int32_t)(i + 1) * BLOCK <= TEXT - RECENT; i++)
        if (is_needle(i)) {
            ck_assert_int_eq(m.at[i].cls, MD_CLASS_VOLATILE);
            ck_assert_int_eq(m.at[i].state, MD_STATE_COLD);
        }
    close_lookup(&l);
}
END_TEST

/* Nobody attends to AT, it leaves; then a question does. */
START_TEST(a_question_brings_it_back)
{
    md_token tokens[TEXT + QUESTION];
    for (int k = 0; k < 2; k++) {
        struct lookup l;
        write_text(tokens, true);
        open_lookup(&l, k == 0 ? MD_EVICT_RECENCY : MD_EVICT_ATTENTION);
        read_text(&l, tokens, MD_CLASS_VOLATILE);
        ck_assert_int_eq(look(l.s).at[AT].state, MD_STATE_COLD);
        const struct md_session_status before = md_session_status(l.s);
        ask_lookup(&l, tokens, NEEDLE);
        const struct md_session_status after = md_session_status(l.s);
        ck_assert_int_eq(look(l.s).at[AT].state, k == 0 ? MD_STATE_COLD : MD_STATE_HOT);
        ck_assert_int_eq(after.scorings - before.scorings, k);
        ck_assert_int_eq(l.last.eviction.scorings, k);
        ck_assert(k == 0 || after.restored_blocks > before.restored_blocks);
        ck_assert_int_eq(l.last.prefilled, QUESTION + 1); /* and the last token before it */
        ck_assert_int_eq(l.last.lost, 0);
        close_lookup(&l);
    }
}
END_TEST

/* Reading more, what left does not come and go: of the blocks put aside those that come back find room that nothing else has. */
START_TEST(reading_moves_each_block_once)
{
    struct md_session_status did[2];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        rig_open(&r, config(k == 0 ? MD_EVICT_RECENCY : MD_EVICT_ATTENTION), 0);
        ck_assert_int_eq(rig_ensure(&r, text, 960), MD_OK);
        did[k] = md_session_status(r.session);
        rig_close(&r);
    }
    ck_assert_int_gt(did[1].scorings, 6);
    ck_assert_int_eq(did[0].restored_blocks, did[1].restored_blocks);
    ck_assert_int_eq(did[0].evicted_blocks, did[1].evicted_blocks);
}
END_TEST

/* However much it was worth, what has left stays away while text is read; a question ends that. */
START_TEST(put_aside_until_a_question)
{
    struct rig r;
    size_t i = 1;
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 600), MD_OK);
    struct md_tape_block *blocks = r.session->tape.blocks;
    while (blocks[i].state != MD_STATE_COLD)
        i++;
    ck_assert(blocks[i].aside);
    blocks[i].profile = 1000;
    ck_assert_int_eq(rig_ensure(&r, text, 800), MD_OK);
    ck_assert(r.session->tape.blocks[i].state == MD_STATE_COLD && r.session->tape.blocks[i].profile > 10);
    ck_assert_int_eq(rig_ask(&r, text, 900, 1, false), MD_OK);
    ck_assert(r.session->tape.blocks[i].state == MD_STATE_HOT && !r.session->tape.blocks[i].aside);
    rig_close(&r);
}
END_TEST

/* ---- life ---- */

START_TEST(the_same_history_has_the_same_set)
{
    struct states m[2];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        rig_open(&r, config(MD_EVICT_ATTENTION), 0);
        ck_assert_int_eq(rig_ask(&r, text, 600, 30, false), MD_OK);
        m[k] = look(r.session);
        rig_close(&r);
    }
    check_same(&m[0], &m[1]);
}
END_TEST

/* Answers are not scored: what leaves the recent window through one was not judged yet, and stays. */
START_TEST(an_answer_has_its_grace)
{
    struct rig r;
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    ck_assert_int_eq(rig_ask(&r, text, 600, 96, false), MD_OK);
    const struct md_tape *t = &r.session->tape;
    int left = 0;
    for (size_t i = 1; i < md_tape_block_count(t); i++) {
        left += i < 600 / BLOCK && t->blocks[i].state == MD_STATE_COLD && t->blocks[i].judged > 0;
        if (i > 600 / BLOCK)
            ck_assert_msg(t->blocks[i].state == MD_STATE_HOT && t->blocks[i].judged == 0, "block %zu", i);
    }
    ck_assert_int_gt(left, 10);
    rig_close(&r);
}
END_TEST

START_TEST(a_branch_begins_without)
{
    struct md_session *branch;
    struct rig r;
    rig_open(&r, config(MD_EVICT_ATTENTION), 0);
    ck_assert_int_eq(rig_ask(&r, text, 600, 4, false), MD_OK);
    ck_assert_int_gt(md_session_status(r.session).scorings, 0);
    ck_assert_int_eq(md_session_branch(r.session, 500, &branch, &r.err), MD_OK);
    ck_assert_int_eq(md_session_status(branch).scorings, 0);
    r.session = branch;
    ck_assert_int_eq(rig_ask(&r, text, 500, 4, false), MD_OK);
    ck_assert_int_eq(md_session_status(branch).scorings, 1); /* its question */
    ck_assert_int_eq(r.last.recomputed, 0);
    rig_close(&r);
}
END_TEST

START_TEST(a_restart_begins_without)
{
    struct store_rig s;
    sr_setup();
    sr_start(&s, config(MD_EVICT_ATTENTION), 64 << 20);
    ck_assert_int_eq(rig_ask(&s.r, text, 600, 0, false), MD_OK);
    ck_assert_int_gt(md_session_status(s.r.session).scorings, 0);
    sr_stop(&s);
    sr_start(&s, config(MD_EVICT_ATTENTION), 64 << 20);
    s.r.session = sr_find(&s, text, 600);
    ck_assert_ptr_nonnull(s.r.session);
    ck_assert_int_eq(md_session_status(s.r.session).scorings, 0);
    ck_assert_int_eq(rig_ask(&s.r, text, 600, 4, false), MD_OK);
    ck_assert_int_eq(md_session_status(s.r.session).scorings, 1);
    ck_assert(md_pool_check(s.r.pool));
    sr_stop(&s);
    sr_teardown();
}
END_TEST

/* One scoring of a question serves both. */
START_TEST(with_retrieval)
{
    struct md_pool_config c = config(MD_EVICT_ATTENTION);
    struct rig r;
    c.retrieval = MD_RETRIEVAL_AUTO;
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ensure(&r, text, 600), MD_OK);
    const int32_t read = md_session_status(r.session).scorings;
    ck_assert_int_eq(rig_ask(&r, text, 700, 4, false), MD_OK);
    ck_assert_int_gt(r.last.retrieval.evaluations, 1);
    ck_assert_int_ge(r.last.eviction.scorings, 1);
    ck_assert_int_eq(md_session_status(r.session).scorings, read + r.last.eviction.scorings);
    const struct states m = look(r.session);
    for (size_t i = 0; i < m.count; i++)
        ck_assert(!m.at[i].retrieved || m.at[i].state == MD_STATE_HOT);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("observe");
    TCase *c = tcase_create("observe");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, reasons_are_told, 0, sizeof reasons / sizeof reasons[0]);
    tcase_add_test(c, all_hot_costs_nothing);
    tcase_add_loop_test(c, failing_scores_are_recency, 0, 2);
    tcase_add_test(c, scores_of_a_tape);
    tcase_add_test(c, profiles_are_attention);
    tcase_add_test(c, what_is_attended_stays);
    tcase_add_test(c, within_a_class_only);
    tcase_add_test(c, a_question_brings_it_back);
    tcase_add_test(c, reading_moves_each_block_once);
    tcase_add_test(c, put_aside_until_a_question);
    tcase_add_test(c, the_same_history_has_the_same_set);
    tcase_add_test(c, an_answer_has_its_grace);
    tcase_add_test(c, a_branch_begins_without);
    tcase_add_test(c, a_restart_begins_without);
    tcase_add_test(c, with_retrieval);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
