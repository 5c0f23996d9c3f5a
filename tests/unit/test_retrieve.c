/* test_retrieve.c - before an answer the blocks that the question attends to come in, on the fake engine, whose KV is exact to
 * the last bit.  Which blocks those are is computed here once more, with sums of exponentials in double, from the keys of exports
 * and the queries that the engine has then; what an answer then is, a pool without
 * retrieval says in which exactly these blocks were admitted by hand. */
#include "base/half.h"
#include "engine/attention.h"
#include "policy/content.h"
#include "session/attend.h"
#include "session/session_internal.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 2000,
    HOT = 256,
    BLOCK = 16,
    COUNT = 800,
    ROWS = 32, /* of a context without messages */
    FROM = COUNT - ROWS,
    BLOCKS = FROM / BLOCK,
    ALL_BLOCKS = (COUNT + BLOCK) / BLOCK + 1,
    HEADS = 4, /* of layer 1, the only one of two between 30 and 75 % of the depth */
    LAYER = 1,
    ANSWER = 6,
    CLAUSES_MOST = 3,
    COLD = 64 << 20
};

static md_token text[WINDOW]; /* bytes */
static struct md_retrieve_params params;
/* Rows of the question that are one clause: here all. */
static struct {
    size_t count, rows[CLAUSES_MOST];
} clauses;

/* The question has a line's end at these rows, and no other end of a clause. */
static void put_lines(const size_t *ends, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < ROWS; i++)
        if (strchr("\n.?!;", (int)text[FROM + i]) != NULL)
            text[FROM + i] = 'a';
    for (clauses.count = 0; clauses.count < count; at = ends[clauses.count++] + 1) {
        text[FROM + ends[clauses.count]] = '\n';
        clauses.rows[clauses.count] = ends[clauses.count] + 1 - at;
    }
    clauses.rows[clauses.count++] = ROWS - at;
}

/* Without an advantage of what was in last time: the same context has the same set then. */
static void fill(void)
{
    rig_tokens(text, WINDOW, 1);
    put_lines(NULL, 0);
    params = md_retrieve_defaults();
    params.select.margin_frac = 0;
    params.select.beaten_most = 1;
}

static struct md_pool_config config(int32_t hot)
{
    struct md_pool_config c = rig_config(WINDOW, hot, COLD);
    c.retrieval = MD_RETRIEVAL_AUTO;
    c.retrieve = &params;
    return c;
}

/* All before the question computed; the same in every pool with this hot set. */
static void prepare(struct rig *r)
{
    ck_assert_int_eq(rig_ensure(r, text, FROM + 1), MD_OK);
    ck_assert_int_eq(r->session->tape.count, FROM);
}

static void open_prepared(struct rig *r)
{
    rig_open(r, config(HOT), 0);
    ck_assert_ptr_null(md_pool_status(r->pool).no_retrieval);
    prepare(r);
}

struct set {
    size_t count;
    struct md_block_view at[ALL_BLOCKS];
};

static struct set look(const struct rig *r)
{
    struct set s = { 0 };
    s.count = md_session_map(r->session, s.at, ALL_BLOCKS);
    ck_assert_uint_le(s.count, ALL_BLOCKS);
    return s;
}

/* Chosen, of the blocks before the question. */
static int chosen(const struct set *s)
{
    int n = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        n += s->at[i].retrieved;
    return n;
}

static void check_same_set(const struct set *a, const struct set *b)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        ck_assert_msg(a->at[i].retrieved == b->at[i].retrieved, "block %zu", i);
        ck_assert_msg(a->at[i].why == b->at[i].why, "block %zu", i);
        ck_assert_msg(a->at[i].state == b->at[i].state, "block %zu", i);
    }
}

/* The reference: a whole context is asked of a rig that nothing happens to. */
struct right {
    struct set set;
    struct md_retrieval did;
    md_token answer[ANSWER];
};

static struct right ask_right(void)
{
    struct right w;
    struct rig r;
    open_prepared(&r);
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    w.set = look(&r);
    w.did = r.last.retrieval;
    memcpy(w.answer, r.last.tokens.ids, sizeof w.answer);
    rig_close(&r);
    return w;
}

static void check_right(const struct rig *r, const struct right *w)
{
    const struct set now = look(r);
    check_same_set(&now, &w->set);
    ck_assert_int_eq(r->last.completion, ANSWER);
    ck_assert_mem_eq(r->last.tokens.ids, w->answer, sizeof w->answer);
}

/* ---- when ---- */

START_TEST(all_fits)
{
    md_token want[ANSWER];
    struct rig r;
    rig_open(&r, config(HOT), 0);
    ck_assert_int_eq(rig_ask(&r, text, HOT - BLOCK, ANSWER, false), MD_OK);
    ck_assert(!r.last.retrieval.due);
    ck_assert_int_eq(r.last.retrieval.evaluations, 0);
    ck_assert_int_eq(r.fault.calls[MD_OP_EXPORT], 0);
    ck_assert_uint_eq(md_pool_status(r.pool).mirror_bytes, 0);
    rig_fresh_answer(text, HOT - BLOCK, ANSWER, want);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    ck_assert_int_eq(rig_ask(&r, text, HOT - BLOCK + 1, ANSWER, false), MD_OK);
    ck_assert(r.last.retrieval.due && r.last.retrieval.evaluations > 0);
    rig_close(&r);
}
END_TEST

static const struct {
    const char *says;
    int32_t window, hot;
    unsigned caps_off;
    size_t cold;
    enum md_retrieval_mode mode;
    enum rig_model model;
    bool past;
} reasons[] = {
    { "off", WINDOW, HOT, 0, COLD, MD_RETRIEVAL_OFF, RIG_DENSE, false },
    { "gives no scores", WINDOW, HOT, MD_CAP_ATTENTION_SCORES, COLD, MD_RETRIEVAL_AUTO, RIG_DENSE, false },
    { "all of the context is hot", HOT, HOT, 0, COLD, MD_RETRIEVAL_AUTO, RIG_DENSE, false },
    { "all of the context is hot", HOT, 0, 0, COLD, MD_RETRIEVAL_AUTO, RIG_DENSE, false },
    { "no cold store", WINDOW, HOT, 0, 0, MD_RETRIEVAL_AUTO, RIG_DENSE, false },
    { "recurrent or windowed layers alone", HOT, HOT, 0, COLD, MD_RETRIEVAL_AUTO, RIG_RECURRENT, false },
    { "recurrent or windowed layers alone", HOT, HOT, 0, COLD, MD_RETRIEVAL_AUTO, RIG_WINDOWS_ALONE, false },
    { "does not go back", WINDOW, HOT, MD_CAP_REMOVE_TAIL, COLD, MD_RETRIEVAL_AUTO, RIG_DENSE, false },
    { "past the trained window", WINDOW, HOT, 0, COLD, MD_RETRIEVAL_AUTO, RIG_DENSE, true },
};

START_TEST(reasons_are_told)
{
    struct rig r;
    struct md_pool_config c = rig_config(reasons[_i].window, reasons[_i].hot, reasons[_i].cold);
    c.retrieval = reasons[_i].mode;
    c.past_window = reasons[_i].past;
    rig_use_model(reasons[_i].model);
    ck_assert_msg(rig_try_open_trained(&r, c, reasons[_i].caps_off, 0,
                                       reasons[_i].past ? 1024 : RIG_TOKENS_MAX) == MD_OK,
                  "%s", r.err.text);
    const char *why = md_pool_status(r.pool).no_retrieval;
    ck_assert(why != NULL && strstr(why, reasons[_i].says) != NULL);
    ck_assert_uint_eq(md_pool_status(r.pool).mirror_budget_bytes, 0);
    ck_assert_int_eq(rig_ask(&r, text, HOT - ANSWER, ANSWER, false), MD_OK);
    ck_assert(!r.last.retrieval.due);
    rig_close(&r);
}
END_TEST

START_TEST(parameters_out_of_range)
{
    struct rig r;
    params.passes = _i == 0 ? 0 : 2;
    params.rows = _i == 1 ? 0 : _i == 2 ? MD_RETRIEVE_ROWS + 1 : 8;
    ck_assert_int_eq(rig_try_open(&r, config(HOT), 0), MD_INVALID);
    rig_close(&r);
}
END_TEST

/* Hot sets that hold little more than what is protected, and questions that begin anywhere in a block. */
START_TEST(small_hot_sets)
{
    struct rig r;
    int asked = 0, silent = 0;
    for (int32_t hot = 64; hot <= 144; hot += 16)
        for (int32_t count = 400; count < 400 + BLOCK; count++) {
            rig_open(&r, config(hot), 0);
            ck_assert_msg(rig_ask(&r, text, count, ANSWER, false) == MD_OK, "hot %d, %d tokens: %s", hot,
                          count, r.err.text);
            const struct md_retrieval *did = &r.last.retrieval;
            ck_assert(did->due);
            ck_assert_int_eq(did->evaluations > 0, did->question > 0);
            ck_assert_int_le(did->chosen_tokens, did->asked_tokens);
            asked += did->evaluations > 0;
            silent += did->evaluations == 0;
            rig_close(&r);
        }
    ck_assert(asked > 0 && silent > 0);
}
END_TEST

/* ---- which ---- */

struct twice {
    struct rig *r;
    int passes, decodes; /* scorings seen; calls of decode at the last one */
    bool busy, measured;
    bool want[BLOCKS]; /* of the last one */
};

/* What one head pays, row by row from `first` to `end`: mass [BLOCKS * BLOCK], share. */
static void slow_head(const struct md_queries *q, const struct md_attention_layer *l, int32_t head,
                      int32_t first, int32_t end, const uint16_t *keys, const struct md_attention_block *at,
                      float *mass, float *share)
{
    static double e[BLOCKS * BLOCK];
    const int32_t kv = head * l->key_heads / l->query_heads;
    double part = 0;
    for (int32_t row = first; row < end; row++) {
        const float *query = q->at + ((ptrdiff_t)row * q->heads + head) * q->length;
        double all = 0, mine = 0;
        for (int32_t t = 0; t < BLOCKS * BLOCK; t++) {
            const uint16_t *key =
                keys + ((ptrdiff_t)(t / BLOCK * l->key_heads + kv) * BLOCK + t % BLOCK) * l->length;
            double sum = 0;
            for (int32_t i = 0; i < l->length; i++)
                sum += (double)query[i] * (double)md_half_to_float(key[i]);
            e[t] = exp((double)l->scale * sum);
            all += e[t];
            mine += at[t / BLOCK].candidate ? e[t] : 0;
        }
        for (int32_t t = 0; t < BLOCKS * BLOCK; t++)
            mass[t] += at[t / BLOCK].candidate ? (float)(e[t] / mine) : 0;
        part += mine / all;
    }
    *share = (float)(part / (end - first));
}

/* Select by these masses, as the pool shall have done. */
static void slow_select(struct twice *w, const struct md_attention_block *at, const float *mass,
                        const float *share)
{
    const struct md_session *s = w->r->session;
    struct md_select_block blocks[BLOCKS] = { 0 };
    struct md_select_budget budget;
    struct md_scores scores;
    struct md_selection chosen_now;
    struct md_arena arena;
    const struct md_score_input in = { .blocks = at,
                                       .block_count = BLOCKS,
                                       .head_count = HEADS,
                                       .clause_count = clauses.count,
                                       .clause_rows = clauses.rows,
                                       .mass = mass,
                                       .share = share };
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i].text = md_content_key(text + i * BLOCK, BLOCK);
    md_arena_init(&arena, NULL, 1 << 26);
    ck_assert_int_eq(md_score_blocks(&in, w->measured ? &params.score_measured : &params.score, &arena,
                                     &scores, NULL),
                     MD_OK);
    ck_assert_int_eq(md_select_budget(HOT - ROWS - BLOCK, s->drive.protected_tokens, &params.shares, &budget,
                                      NULL),
                     MD_OK);
    ck_assert_int_eq(md_select_blocks(at, blocks, &scores, &budget, &params.select, &arena, &chosen_now,
                                      NULL),
                     MD_OK);
    for (size_t i = 0; i < BLOCKS; i++)
        w->want[i] = chosen_now.blocks[i].wanted;
    md_arena_done(&arena);
}

/* The pool asks for the queries of what was just evaluated: here they are, and the blocks are where they were for that. */
static void choose_again(void *user, const struct md_engine_call *call)
{
    static uint16_t keys[BLOCKS * 1024];
    static float mass[HEADS * CLAUSES_MOST][BLOCKS * BLOCK], share[HEADS * CLAUSES_MOST];
    struct twice *w = user;
    struct md_queries q;
    int32_t layers;
    if (call->op != MD_OP_QUERIES || w->busy || w->decodes == w->r->fault.calls[MD_OP_DECODE])
        return;
    w->decodes = w->r->fault.calls[MD_OP_DECODE];
    w->busy = true;
    const struct md_attention_layer *l = md_engine_attention(w->r->engine, &layers) + LAYER;
    const size_t block_keys = (size_t)l->key_heads * BLOCK * (size_t)l->length;
    struct md_attention_block at[BLOCKS];
    ck_assert(block_keys <= 1024 && l->query_heads == HEADS);
    ck_assert_int_eq(md_engine_queries(w->r->engine, LAYER, &q, NULL), MD_OK);
    ck_assert(q.start == FROM && q.rows == ROWS);
    for (size_t i = 0; i < BLOCKS; i++) {
        const int32_t start = (int32_t)i * BLOCK; /* sinks 16, recent 32 */
        at[i] = (struct md_attention_block){ start, BLOCK, start >= 16 && start + BLOCK <= COUNT - 32 };
        rig_block_keys(w->r, LAYER, i, keys + i * block_keys);
    }
    memset(mass, 0, sizeof mass);
    for (size_t n = 0, c = 0, row = 0; n < HEADS * clauses.count; n++, c = n % clauses.count) {
        row = c == 0 ? 0 : row;
        slow_head(&q, l, (int32_t)(n / clauses.count), (int32_t)row, (int32_t)(row + clauses.rows[c]), keys,
                  at, mass[n], &share[n]);
        row += clauses.rows[c];
    }
    slow_select(w, at, mass[0], share);
    w->passes++;
    w->busy = false;
}

START_TEST(by_attention)
{
    struct rig r;
    struct twice w = { .r = &r, .measured = _i >= 6 };
    const size_t lines[] = { 9, 20 };
    params.passes = 1 + _i % 3;
    put_lines(lines, _i < 3 ? 0 : 2);
    open_prepared(&r);
    struct md_calibrate_set heads = *md_attend_heads(r.pool->attend); /* the same ones, told to be measured */
    heads.source = MD_CALIBRATE_CONTRAST;
    if (w.measured)
        ck_assert_int_eq(md_attend_use(r.pool->attend, &heads, NULL), MD_OK);
    r.fault.watch = choose_again;
    r.fault.user = &w;
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    const struct set now = look(&r);
    const struct md_retrieval *did = &r.last.retrieval;
    ck_assert_int_ge(w.passes, 1);
    ck_assert_int_le(w.passes, params.passes);
    ck_assert(did->evaluations == w.passes ||
              did->evaluations == w.passes + 1); /* the last one brought nothing more, or did */
    ck_assert_int_gt(did->evaluations, 1);
    ck_assert_int_eq(did->question, ROWS);
    ck_assert_int_eq(did->scored, BLOCKS);
    ck_assert_int_eq(did->unscored, 0);
    ck_assert(did->heads_used > 0 && did->heads_asked == HEADS);
    ck_assert_int_eq(did->chosen_tokens, chosen(&now) * BLOCK);
    ck_assert_int_gt(did->brought_tokens, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        ck_assert_msg(now.at[i].retrieved == w.want[i], "block %zu", i);
        ck_assert(!now.at[i].retrieved || now.at[i].state == MD_STATE_HOT);
        ck_assert(now.at[i].why < MD_SELECT_WHY_COUNT);
    }
    rig_close(&r);
}
END_TEST

START_TEST(what_each_answer_counts)
{
    struct rig r;
    open_prepared(&r);
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    ck_assert_int_gt(r.last.retrieval.evaluations, 1);
    ck_assert_int_eq(r.last.prefilled, ROWS); /* once, however often */
    ck_assert_int_eq(r.last.cached, FROM);
    ck_assert_int_eq(r.last.recomputed, 0);
    ck_assert_int_eq(r.last.lost, 0);
    ck_assert_int_eq(r.last.dropped, 0);
    ck_assert_int_eq(r.pool->hot.dropped_tokens, 0);
    ck_assert_int_eq(r.last.attended, md_session_status(r.session).hot_tokens - (ANSWER - 1));
    const struct md_session_status st = md_session_status(r.session);
    ck_assert_int_eq(st.prefilled_tokens, FROM + ROWS);
    ck_assert_int_eq(st.dropped_blocks, 0);
    ck_assert_int_eq(st.lost_tokens, 0);
    rig_close(&r);
}
END_TEST

START_TEST(the_same_context_again)
{
    static md_token other[WINDOW];
    const struct right w = ask_right();
    struct md_session *branch;
    struct rig r;
    ck_assert(chosen(&w.set) > 2);
    open_prepared(&r);
    struct md_session *first = r.session;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
        check_right(&r, &w);
    }
    r.session = rig_new(&r); /* another conversation, and one that shares half of it */
    rig_tokens(other, WINDOW, 7);
    ck_assert_int_eq(rig_ask(&r, other, COUNT, ANSWER, false), MD_OK);
    ck_assert(r.last.retrieval.evaluations > 1);
    r.session = first;
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    check_right(&r, &w);
    ck_assert_int_eq(md_session_branch(first, COUNT, &branch, &r.err), MD_OK);
    r.session = branch;
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    check_right(&r, &w);
    r.session = first;
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    check_right(&r, &w);
    rig_close(&r);
}
END_TEST

/* What was in last time and is out now counts as beaten once, however many passes the answer takes. */
START_TEST(an_incumbent_is_beaten_once_an_answer)
{
    struct rig r;
    int beaten = 0;
    params.select.margin_frac = 0.5f;
    params.select.beaten_most = 1 << 20;
    open_prepared(&r);
    for (int32_t turn = 1; turn < 9; turn++) {
        rig_tokens(text + FROM, ROWS, 100 + (uint32_t)turn);
        ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
        for (size_t i = 0; i < BLOCKS; i++) {
            const struct md_tape_block *b = &r.session->tape.blocks[i];
            ck_assert(b->next_beaten == 0 || b->next_beaten == b->beaten + 1);
            beaten += b->next_beaten > 0;
        }
    }
    ck_assert_int_gt(beaten, 0);
    rig_close(&r);
}
END_TEST

START_TEST(as_by_hand)
{
    const struct right w = ask_right();
    struct md_pool_config c = config(HOT);
    struct rig r;
    int32_t tokens;
    c.retrieval = MD_RETRIEVAL_OFF;
    rig_open(&r, c, 0);
    prepare(&r);
    ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 0, FROM }, &tokens, &r.err), MD_OK);
    for (int32_t i = 0; i < BLOCKS; i++)
        if (w.set.at[i].state == MD_STATE_HOT)
            ck_assert_int_eq(md_session_admit_range(r.session,
                                                    (struct md_range){ i * BLOCK, (i + 1) * BLOCK }, &tokens,
                                                    &r.err),
                             MD_OK);
    ck_assert_int_eq(rig_suffix(&r, text + FROM + 1, ROWS - 1), MD_OK);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    const struct set now = look(&r);
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(now.at[i].state, w.set.at[i].state);
    ck_assert_mem_eq(r.last.tokens.ids, w.answer, sizeof w.answer);
    rig_close(&r);
}
END_TEST

START_TEST(call_by_call)
{
    const struct right w = ask_right();
    struct rig r;
    open_prepared(&r);
    ck_assert_int_eq(rig_suffix(&r, text + FROM + 1, ROWS - 1), MD_OK);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    check_right(&r, &w);
    ck_assert_int_eq(r.last.retrieval.evaluations, w.did.evaluations);
    rig_close(&r);
}
END_TEST

/* The answer is many times the recent window: its own older blocks make way, what it answers and what was chosen do not. */
START_TEST(a_long_answer_keeps_question_and_set)
{
    enum { LONG = 160 };
    const struct right w = ask_right();
    struct rig r;
    open_prepared(&r);
    ck_assert_int_eq(rig_ask(&r, text, COUNT, LONG, false), MD_OK);
    ck_assert_uint_eq(r.last.tokens.count, LONG);
    struct md_block_view at[ALL_BLOCKS + LONG / BLOCK];
    const size_t count = md_session_map(r.session, at, ALL_BLOCKS + LONG / BLOCK);
    size_t left = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert_msg(!w.set.at[i].retrieved || at[i].state == MD_STATE_HOT, "chosen block %zu has left", i);
    for (size_t i = BLOCKS; i < COUNT / BLOCK; i++)
        ck_assert_msg(at[i].state == MD_STATE_HOT, "block %zu of the question has left", i);
    for (size_t i = COUNT / BLOCK + 1; i < count; i++)
        left += at[i].state != MD_STATE_HOT;
    ck_assert_uint_gt(left, 0); /* else nothing had to */
    rig_close(&r);
}
END_TEST

/* ---- what is not asked ---- */

START_TEST(held_out_blocks_stay_out)
{
    const struct right w = ask_right();
    struct rig r;
    int32_t tokens;
    size_t best = 0;
    while (!w.set.at[best].retrieved)
        best++;
    const struct md_range range = { (int32_t)best * BLOCK, (int32_t)(best + 1) * BLOCK };
    open_prepared(&r);
    ck_assert_int_eq(md_session_evict_range(r.session, range, &tokens, &r.err), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    const struct set now = look(&r);
    ck_assert(now.at[best].state == MD_STATE_COLD && !now.at[best].retrieved && now.at[best].held_out);
    ck_assert_int_eq(r.last.retrieval.scored, BLOCKS - 1);
    rig_close(&r);
}
END_TEST

START_TEST(pinned_blocks_stay_in)
{
    const struct md_segment segments[] = {
        { .range = { 160, 192 }, .kind = MD_SEGMENT_PINNED, .cls = MD_CLASS_TASK_PINNED },
        { .range = { FROM, COUNT }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE },
    };
    const struct md_context prompt = { text, COUNT, segments, 2 };
    struct rig r;
    rig_open(&r, config(HOT), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    const struct set now = look(&r);
    ck_assert_int_gt(chosen(&now), 0);
    ck_assert_int_eq(r.last.retrieval.question, ROWS);
    for (size_t i = 10; i < 12; i++)
        ck_assert(now.at[i].state == MD_STATE_HOT && now.at[i].why == MD_SELECT_PROTECTED);
    rig_close(&r);
}
END_TEST

/* A question of the fewest tokens: of what stands before it some is in the recent window. */
START_TEST(sinks_and_recent_blocks_are_not_chosen)
{
    const struct md_segment segment = { .range = { COUNT - 8, COUNT },
                                        .kind = MD_SEGMENT_USER,
                                        .cls = MD_CLASS_VOLATILE };
    const struct md_context prompt = { text, COUNT, &segment, 1 };
    struct rig r;
    rig_open(&r, config(HOT), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.retrieval.question, 8);
    const struct set now = look(&r);
    for (size_t i = 0; i < COUNT / BLOCK - 1; i++)
        ck_assert_msg((now.at[i].why == MD_SELECT_PROTECTED) == (i == 0 || i >= COUNT / BLOCK - 2),
                      "block %zu", i);
    rig_close(&r);
}
END_TEST

START_TEST(lost_blocks_are_no_candidates)
{
    struct md_pool_config c = config(HOT);
    struct rig r;
    c.cold_bytes = 40000; /* of some 1,100 bytes a token all cannot be kept */
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask(&r, text, COUNT, ANSWER, false), MD_OK);
    const struct set now = look(&r);
    int lost = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        lost += now.at[i].state == MD_STATE_LOST;
        ck_assert(now.at[i].state != MD_STATE_LOST || !now.at[i].retrieved);
    }
    ck_assert_int_gt(lost, 0);
    ck_assert_int_ge(r.last.retrieval.unscored, lost);
    ck_assert_int_eq(r.last.retrieval.scored + r.last.retrieval.unscored, BLOCKS);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("retrieve");
    TCase *c = tcase_create("retrieve");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_test(c, all_fits);
    tcase_add_loop_test(c, reasons_are_told, 0, sizeof reasons / sizeof reasons[0]);
    tcase_add_loop_test(c, parameters_out_of_range, 0, 3);
    tcase_add_test(c, small_hot_sets);
    tcase_add_loop_test(c, by_attention, 0, 9);
    tcase_add_test(c, what_each_answer_counts);
    tcase_add_test(c, the_same_context_again);
    tcase_add_test(c, an_incumbent_is_beaten_once_an_answer);
    tcase_add_test(c, as_by_hand);
    tcase_add_test(c, call_by_call);
    tcase_add_test(c, a_long_answer_keeps_question_and_set);
    tcase_add_test(c, held_out_blocks_stay_out);
    tcase_add_test(c, pinned_blocks_stay_in);
    tcase_add_test(c, sinks_and_recent_blocks_are_not_chosen);
    tcase_add_test(c, lost_blocks_are_no_candidates);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
