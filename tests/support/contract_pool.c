/* contract_pool.c - scenarios of several conversations over one engine: what they share, what switching costs,
 * branches, and one that ends. */
#include "support/contract_run.h"

#include <string.h>

static int64_t evicted_blocks(void)
{
    int64_t sum = 0;
    for (struct md_session *s = md_pool_next(ct.pool, NULL); s != NULL; s = md_pool_next(ct.pool, s))
        sum += md_session_status(s).evicted_blocks;
    return sum;
}

/* ---- one beginning, held once ---- */

/* Three places of the text that begin with different tokens. */
static void other_places(int32_t ret_from[3])
{
    for (int k = 0; k < 3; k++) {
        ret_from[k] = 300 + 100 * k;
        for (int i = 0; i < k; i++)
            if (*ct_text(ret_from[k]) == *ct_text(ret_from[i])) {
                ret_from[k]++;
                i = -1; /* with all of them again */
            }
    }
}

void md_contract_one_beginning_is_held_once_and_costs_once(int unused)
{
    (void)unused;
    static const int32_t systems[] = { 112, 117 }; /* at a border of blocks, and inside one */
    for (size_t i = 0; i < 2; i++) {
        const int32_t system = systems[i], tape = system + 40 + CT_ANSWER - 1;
        ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
        struct ct_talk *t[3];
        int32_t from[3];
        other_places(from);
        for (int k = 0; k < 3; k++) {
            t[k] = ct_talk_open(k, system);
            ck_assert(ct_say(t[k], 40, from[k]));
            ck_assert_int_eq(ct.last.prefilled, k == 0 ? system + 40 : 40);
            ck_assert_int_eq(ct.last.restored, k == 0 ? 0 : system);
            ck_assert_int_eq(ct.last.dropped, 0);
        }
        ck_assert_int_ge((int)md_session_status(t[1]->s).shared_blocks, system / CT_BLOCK);
        ck_assert_int_eq(md_engine_cells_used(ct.engine), 3 * tape - 2 * system);
        ck_assert_int_eq(md_pool_status(ct.pool).hot_cells, 3 * tape - 2 * system);
        md_session_close(t[0]->s); /* the others keep what all had, and no more */
        ck_assert_int_eq(md_engine_cells_used(ct.engine), 2 * tape - system);
        ck_assert(ct_say(t[1], 10, 700));
        ck_assert_int_eq(ct.last.prefilled, 11);                       /* and the end of the last answer */
        ck_assert_uint_eq(md_pool_status(ct.pool).cold.used_bytes, 0); /* nobody ever left */
        ct_close();
        if (ct_is_slow())
            break;
    }
}

void md_contract_the_same_prompt_in_two_is_one_token_more(int unused)
{
    (void)unused;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    struct ct_talk *a = ct_talk_open(0, 0), *b = ct_talk_open(1, 0);
    ck_assert(ct_say(a, 100, 0));
    ck_assert(ct_say(b, 100, 0));
    ck_assert_int_eq(ct.last.prefilled, 1); /* the last one is evaluated for its logits */
    /* a; of b its last token and its answer */
    ck_assert_int_eq(md_engine_cells_used(ct.engine), 100 + CT_ANSWER - 1 + CT_ANSWER);
    ct_close();
}

/* ---- switching ---- */

void md_contract_conversations_that_fit_cost_only_new_tokens(int unused)
{
    (void)unused;
    struct ct_talk *t[3];
    const int32_t turns = 3 * (ct_is_slow() ? 2 : 5);
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    for (int i = 0; i < 3; i++)
        t[i] = ct_talk_open(i, 0);
    for (int32_t turn = 0; turn < turns; turn++) {
        ck_assert(ct_say(t[turn % 3], 20, 40 * turn));
        ck_assert_int_eq(ct.last.prefilled, turn < 3 ? 20 : 21); /* the end of the last answer as well */
        if (md_engine_info(ct.engine)->seq_count >= 3)
            ck_assert_int_eq(ct.last.restored, 0);
        else /* one makes way for the other */
            ck_assert_int_eq(ct.last.restored, turn < 3 ? 0 : ct.last.cached);
    }
    if (md_engine_info(ct.engine)->seq_count >= 3)
        ck_assert_int_eq((int)evicted_blocks(), 0);
    if (!ct_goes_back()) /* checkpoints */
        ck_assert_int_eq((int)md_pool_status(ct.pool).cold.stored, 0);
    ct_close();
}

/* One fits the hot set, three do not: switching brings back what left, exactly. */
void md_contract_conversations_that_do_not_fit_are_restored(int unused)
{
    (void)unused;
    const int32_t turns = ct_half_will_do() ? 6 : 12;
    for (int write_through = 0; write_through < 2; write_through++) {
        struct md_pool_config c = ct_config(256, 256, CT_KEEP_ALL);
        struct ct_talk *t[3];
        int restored = 0;
        c.write_through = write_through == 1;
        ct_open(c);
        for (int i = 0; i < 3; i++)
            t[i] = ct_talk_open(i, 80);
        for (int32_t turn = 0; turn < turns; turn++) {
            struct ct_talk *now = t[turn % 3];
            const int32_t before = now->count;
            ck_assert(ct_say(now, 20, 100 + 30 * turn));
            if (turn >= 3)
                ck_assert_int_eq(ct.last.prefilled, 21);
            else
                ck_assert_int_le(ct.last.prefilled, before + 20);
            ck_assert_int_eq(ct.last.recomputed + ct.last.dropped, 0);
            restored += turn >= 3 && ct.last.restored > 0;
        }
        ck_assert_int_ge(restored, turns / 3);
        ck_assert_int_gt((int)evicted_blocks(), 0);
        ct_close();
        if (ct_is_slow())
            break;
    }
}

/* The one that was live longest ago lends its sequence. */
void md_contract_more_conversations_than_sequences(int unused)
{
    (void)unused;
    const int32_t sequences = md_engine_info(ct.engine)->seq_count;
    const int32_t talks = ct_half_will_do() ? CT_TALKS / 2 : CT_TALKS;
    struct ct_talk *t[CT_TALKS];
    int restored = 0;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL)); /* which has room for all */
    for (int i = 0; i < talks; i++)
        t[i] = ct_talk_open(i, 33);
    for (int32_t turn = 0; turn < 2 * talks; turn++) {
        ck_assert(ct_say(t[turn % talks], 20, 100 + 30 * turn));
        ck_assert_int_eq(ct.last.recomputed + ct.last.dropped, 0);
        if (turn >= talks) {
            ck_assert_int_eq(ct.last.prefilled, 21);
            restored += ct.last.restored > 0;
        }
    }
    if (sequences < talks)
        ck_assert_int_eq(restored, talks); /* in turn, so that each finds its own lent */
    ct_close();
}

/* ---- branches ---- */

enum { PARENT = 200, MORE = 20, TAPE = PARENT + CT_ANSWER - 1 };
enum parent_is { ALL_HOT, SOME_COLD, ALL_COLD, SOME_LOST, PARENT_IS_COUNT };

static struct ct_talk *open_parent(enum parent_is is)
{
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, is == SOME_LOST ? 0 : CT_KEEP_ALL));
    struct ct_talk *t = ct_talk_open(0, 0);
    ck_assert(ct_say(t, PARENT, 0));
    if (is == ALL_COLD)
        ck_assert_int_eq(ct_evict(0, TAPE), TAPE);
    else if (is != ALL_HOT)
        ck_assert_int_eq(ct_evict(48, 80), 32);
    return t;
}

/* Go on in a branch; what it costs is what it says that is new, and of what is lost in the parent at least the blocks
 * that are, at most everything from there on. */
static void go_on(struct ct_talk *b, int32_t lost)
{
    const int32_t known = b->count < TAPE ? b->count : TAPE; /* on the parent's tape */
    memcpy(b->said + b->count, ct_text(500), MORE * sizeof *b->said);
    ct.s = b->s;
    CT_OK(ct_suffix(b->said + b->count, MORE));
    b->count += MORE;
    ck_assert_int_ge(ct.did.work.prefilled, b->count - 1 - known + (lost < 32 ? lost : 32));
    ck_assert_int_le(ct.did.work.prefilled,
                     b->count - 1 - known + lost + (ct_goes_back() ? CT_CHECKPOINT : 0));
    ck_assert_int_eq(ct.did.work.recomputed, 0);
    CT_OK(ct_decode(CT_ANSWER));
    ck_assert(ct_is_full()); /* what the parent holds out, the branch does not */
    memcpy(b->said + b->count, ct.last.tokens.ids, CT_ANSWER * sizeof *b->said);
    b->count += CT_ANSWER;
    int32_t count;
    ck_assert_mem_eq(md_session_context(b->s, &count), b->said, (size_t)b->count * sizeof *b->said);
    ck_assert_int_eq(count, b->count);
}

static void branch_from(enum parent_is is, int32_t at, bool close_parent)
{
    struct ct_talk *parent = open_parent(is);
    static struct ct_talk branch;
    const int64_t prefilled = md_session_status(parent->s).prefilled_tokens;
    const int32_t cells = md_engine_cells_used(ct.engine);
    CT_OK(md_session_branch(parent->s, at, &branch.s, &ct.err));
    ck_assert_int_eq(md_engine_cells_used(ct.engine), cells); /* nothing is computed, nothing copied */
    branch.count = at < 0 ? parent->count : at;
    memcpy(branch.said, parent->said, (size_t)branch.count * sizeof *branch.said);
    struct md_session_status st = md_session_status(branch.s);
    ck_assert_int_eq((int)st.parent, (int)md_session_id(parent->s));
    ck_assert_int_eq(st.context_tokens, branch.count);
    /* without a store the lost blocks, and what stands behind them, are not to be had */
    const int32_t reach = branch.count < TAPE ? branch.count : TAPE;
    go_on(&branch, is == SOME_LOST && reach > 48 ? reach - 48 : 0);
    ck_assert_int_eq((int)md_session_status(parent->s).prefilled_tokens, (int)prefilled);
    md_session_close(close_parent ? parent->s : branch.s);
    const bool full = ct_say(close_parent ? &branch : parent, MORE, 600);
    if (is == SOME_LOST && !close_parent && md_engine_info(ct.engine)->seq_count == 1) {
        /* it has made way for the branch, to no store: all is new */
        ck_assert(full && ct.last.prefilled == parent->count - CT_ANSWER);
    } else {
        ck_assert(full == (close_parent || is == ALL_HOT)); /* what the parent holds out stays out */
        ck_assert_int_eq(ct.last.prefilled, MORE + 1);
        ck_assert_int_eq(ct.last.recomputed, 0);
    }
    ck_assert(!close_parent || ct.last.dropped == 0);
    ct_close();
}

void md_contract_branches_cost_only_what_is_new(int unused)
{
    (void)unused;
    static const int32_t points[] = { 0, 1, 5 * CT_BLOCK, 5 * CT_BLOCK + 7, 3 * CT_BLOCK, PARENT, -1 };
    enum { POINTS = sizeof points / sizeof points[0] };
    /* the slow ones: from a hot parent inside a block, from a cold one at a border; each third where the engine computes
     * more for them, for the exact ones do all */
    const int step = ct_is_slow() ? 29 : ct_goes_back() && ct.subject->tolerance > 0 ? 3 : 1;
    for (int n = ct_is_slow() ? 7 : 0; n < PARENT_IS_COUNT * POINTS * 2; n += step)
        branch_from((enum parent_is)(n / (POINTS * 2)), points[n / 2 % POINTS], n % 2 == 1);
}

/* ---- one that ends ---- */

void md_contract_a_fatal_failure_does_not_harm_the_other(int unused)
{
    (void)unused;
    static const enum md_engine_op ops[] = { MD_OP_PREFILL, MD_OP_DECODE };
    for (size_t i = 0; i < 2; i++) {
        ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
        struct ct_talk *a = ct_talk_open(0, 48), *b = ct_talk_open(1, 48);
        ck_assert(ct_say(a, 60, 100));
        ck_assert(ct_say(b, 60, 200));
        ct.fault = (struct md_fault){ .op = ops[i], .nth = 1, .status = MD_SESSION_FATAL };
        memcpy(a->said + a->count, ct_text(300), 20 * sizeof *a->said);
        ct.s = a->s;
        ck_assert_int_eq(ops[i] == MD_OP_PREFILL ? ct_ensure(a->said, a->count + 20)
                                                 : ct_ask(a->said, a->count + 20, CT_ANSWER),
                         MD_SESSION_FATAL);
        ck_assert_int_eq(ct.fault.failed, 1);
        ck_assert(md_session_status(a->s).fatal);
        ck_assert(ct_say(b, 20, 400)); /* nothing of b's is gone */
        ck_assert_int_eq(ct.last.prefilled, 21);
        ck_assert_int_eq(ct.last.recomputed + ct.last.dropped, 0);
        ct.s = a->s; /* every later call says why it ended */
        ck_assert_int_eq(ct_ensure(ct_text(0), 10), MD_SESSION_FATAL);
        ct_says("injected fault", md_engine_op_name(ops[i]));
        ck_assert_int_eq(ct_decode(CT_ANSWER), MD_SESSION_FATAL);
        md_session_close(a->s);
        ck_assert_int_eq(md_engine_cells_used(ct.engine), b->count - 1);
        ck_assert(ct_say(b, 20, 420));
        ct_close();
        if (ct_is_slow())
            break;
    }
}
