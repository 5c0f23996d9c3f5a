/* contract_ranges.c - scenarios of KV moved by hand (EvictRange, AdmitRange, AdmitAtTail) and of text that is known
 * from elsewhere (--reuse). */
#include "support/contract_run.h"
#include "support/rng.h"

#include <string.h>

enum { PROMPT = 250, TAPE = PROMPT + CT_ANSWER - 1, BLOCKS = (TAPE + CT_BLOCK - 1) / CT_BLOCK };

static struct md_range block_range(int32_t block)
{
    const int32_t start = block * CT_BLOCK;
    return (struct md_range){ start, start + CT_BLOCK < TAPE ? start + CT_BLOCK : TAPE };
}

static void shuffle(struct rng *rng, int32_t *order, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        int32_t j = (int32_t)rng_below(rng, (uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

/* Some blocks leave, one by one in an order of their own; those of another order return, and then all. */
static void out_and_in(struct rng *rng, bool kept)
{
    int32_t order[BLOCKS], out = 0;
    const int32_t count = 1 + (int32_t)rng_below(rng, BLOCKS);
    shuffle(rng, order, BLOCKS);
    for (int32_t i = 0; i < count; i++)
        out += ct_evict(block_range(order[i]).start, block_range(order[i]).end);
    struct md_session_status st = md_session_status(ct.s);
    ck_assert_int_eq(st.hot_tokens, TAPE - out);
    ck_assert_int_eq(kept ? st.cold_tokens : st.lost_tokens, out);
    ck_assert_int_eq(st.held_out_tokens, out);
    ck_assert_int_eq(md_engine_cells_used(ct.engine), TAPE - out);
    shuffle(rng, order, BLOCKS);
    for (int32_t i = 0; i < BLOCKS && kept; i++) {
        const struct md_range r = block_range(order[i]);
        ck_assert_int_eq(ct_admit(r.start, r.end), md_range_len(r));
    }
    ck_assert_int_eq(ct_admit(0, TAPE), TAPE);
    ck_assert_int_eq(md_session_status(ct.s).held_out_tokens, 0);
}

static void round_trip(size_t cold_bytes, int rounds)
{
    struct rng rng = rng_open("ranges out and in");
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, cold_bytes));
    struct ct_talk *t = ct_talk_open(0, 0);
    ck_assert(ct_say(t, PROMPT, 0));
    for (int round = 0; round < rounds; round++) {
        struct md_buf before = ct_export(TAPE);
        out_and_in(&rng, cold_bytes > 0);
        struct md_buf after = ct_export(TAPE);
        if (cold_bytes > 0 || ct.subject->tolerance == 0) /* computed again is not the same bits everywhere */
            ct_same_bytes(&before, &after);
        md_buf_done(&before);
        md_buf_done(&after);
    }
    ck_assert(ct_say(t, 40, 400));
    ck_assert_int_eq(ct.last.prefilled, 41);
    ck_assert_int_eq(ct.last.attended, PROMPT + CT_ANSWER + 40);
    ct_close();
}

void md_contract_b069_ranges_go_out_and_come_back_to_the_bit(int unused)
{
    (void)unused;
    round_trip(CT_KEEP_ALL, 10);
}

/* Where no state was kept that a range could be computed from, it is computed with all behind it. */
static void lost_and_computed(void)
{
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, 0));
    struct ct_talk *t = ct_talk_open(0, 0);
    ck_assert(ct_say(t, PROMPT, 0));
    ck_assert_int_eq(ct_evict(96, 128), 32);
    ck_assert_int_eq(md_session_status(ct.s).lost_tokens, 32);
    ck_assert_int_eq(ct_admit(96, 128), 0);
    ck_assert(ct_say(t, 40, 400));
    ck_assert_int_ge(ct.last.prefilled, 41 + TAPE - 96);
    ck_assert_int_eq(ct.last.recomputed, ct.last.prefilled - 41);
    ck_assert_int_eq(ct.last.attended, PROMPT + CT_ANSWER + 40);
    ct_close();
}

void md_contract_ranges_lost_without_a_store_are_computed_in_place(int unused)
{
    (void)unused;
    if (ct_goes_back()) {
        lost_and_computed();
        return;
    }
    round_trip(0, ct_is_slow() ? 1 : 5);
}

/* ---- the tail ---- */

void md_contract_the_tail_goes_out_and_comes_back(int unused)
{
    (void)unused;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    struct ct_talk *t = ct_talk_open(0, 0);
    ck_assert(ct_say(t, 100, 0));
    const int32_t tape = 100 + CT_ANSWER - 1, from = 80; /* the last block is not a whole one */
    struct md_buf before = ct_export(tape);
    ck_assert_int_eq(ct_evict(from, tape), tape - from);
    ck_assert_int_eq(md_engine_end(ct.engine, 0), from);
    ck_assert_int_eq(ct_admit(from, tape), tape - from);
    struct md_buf after = ct_export(tape);
    ct_same_bytes(&before, &after);
    ck_assert(ct_say(t, 20, 300));
    ck_assert_int_eq(ct.last.prefilled, 21);
    ct_close();
}

void md_contract_the_tail_held_out_comes_back_while_it_is_the_last(int unused)
{
    (void)unused;
    static const int32_t counts[] = { 101, 97 }; /* the tape ends inside a block, and at a border */
    for (size_t i = 0; i < 2; i++) {
        const int32_t tape = counts[i] - 1, last = tape % CT_BLOCK == 0 ? CT_BLOCK : tape % CT_BLOCK;
        ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
        CT_OK(ct_ensure(ct_text(0), counts[i]));
        ck_assert_int_eq(ct_evict(tape - last - CT_BLOCK, tape), last + CT_BLOCK);
        ck_assert_int_eq(md_session_status(ct.s).cold_tokens, last + CT_BLOCK);
        /* what follows joins the last block, which comes back for that as long as it is the last */
        CT_OK(ct_suffix(ct_text(counts[i]), 40));
        ck_assert_int_eq(ct.did.work.prefilled, 40);
        CT_OK(ct_decode(CT_ANSWER));
        ck_assert_int_eq(ct.last.attended, counts[i] + 40 - 2 * CT_BLOCK);
        ck_assert(ct_block(tape - 1).held_out);
        ck_assert_int_eq(ct_block(tape - 1).state, MD_STATE_COLD);
        const int32_t all = counts[i] + 40 + CT_ANSWER - 1;
        ck_assert_int_eq(ct_evict(0, all), all - 2 * CT_BLOCK);
        ck_assert_int_eq(md_engine_cells_used(ct.engine), 0);
        CT_OK(ct_decode(CT_ANSWER)); /* over its last block alone */
        ck_assert_int_le(ct.last.attended, CT_BLOCK + 1);
        ct_close();
    }
}

/* ---- text sent again, three ways ---- */

/* A text of 200 tokens and its answer; then 10 others, its tokens [40, 104) once more, and 5 others: of those 64 the
 * blocks [48, 96) are whole ones. */
static void quote(struct ct_talk *t)
{
    (void)ct_say(t, 200, 0);
    memcpy(t->said + 208, ct_text(500), 10 * sizeof *t->said);
    memcpy(t->said + 218, ct_text(40), 64 * sizeof *t->said);
    t->count = 282;
    (void)ct_say(t, 5, 600);
}

void md_contract_text_sent_again_is_computed_in_full(int unused)
{
    (void)unused;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    quote(ct_talk_open(0, 0));
    ck_assert(ct_is_full());
    ck_assert_int_eq(ct.last.moved, 0);
    ck_assert_int_eq(ct.last.prefilled, 1 + 10 + 64 + 5);
    ct_close();
    if (ct_is_slow())
        return;
    /* a hot set of 8 blocks: sink, the recent window and a block for the answer leave room for 3 or 4 others,
     * and the blocks that are quoted get it */
    if (ct_hot(128) > 200)
        return;
    ct_open(ct_config(CT_WINDOW, ct_hot(128), CT_KEEP_ALL));
    struct ct_talk *t = ct_talk_open(0, 0);
    quote(t);
    for (int32_t at = 0; at < t->count - 1; at += CT_BLOCK)
        ck_assert_int_eq(ct_block(at).retrieved, at >= 48 && at < 96);
    for (int32_t at = 48; at < 96; at += CT_BLOCK)
        ck_assert_int_eq(ct_block(at).state, MD_STATE_HOT);
    ck_assert_int_eq(ct_block(192).state, MD_STATE_COLD); /* later ones had to leave for them */
    ck_assert_int_eq(ct.last.dropped + ct.last.recomputed + ct.last.moved, 0);
    (void)ct_say(t, 5, 700);
    ck_assert(!ct_block(48).retrieved); /* that was for one turn */
    ct_close();
}

void md_contract_text_sent_again_is_moved_when_that_is_asked_for(int unused)
{
    (void)unused;
    for (int tight = 0; tight < (ct_is_slow() ? 1 : 2); tight++) {
        struct md_pool_config c = ct_config(CT_WINDOW, tight ? 128 : CT_WINDOW, CT_KEEP_ALL);
        c.reuse = MD_REUSE_APPROXIMATE;
        ct_open(c);
        struct ct_talk *t = ct_talk_open(0, 0);
        quote(t);
        ck_assert_int_eq(ct.last.moved, 48);
        ck_assert_int_eq(ct.last.cached, 207 + 48);
        /* the last answer's end, the new, the edges of the quote */
        ck_assert_int_eq(ct.last.prefilled, 1 + 10 + (64 - 48) + 5);
        ck_assert_int_eq((int)md_session_status(ct.s).moved_tokens, 48);
        /* it stands at [226, 274); all from its first block on is no better */
        ck_assert_int_eq(ct.last.tokens_of[MD_PROVENANCE_APPROXIMATE], t->count - 1 - 224);
        CT_OK(ct_ask(t->said, t->count - CT_ANSWER, CT_ANSWER)); /* now it is known at its place */
        ck_assert_int_eq(ct.last.prefilled, 1);
        ck_assert_int_eq(ct.last.moved, 0);
        ct_close();
    }
}

void md_contract_text_admitted_at_the_tail_is_moved(int unused)
{
    (void)unused;
    for (int held = 0; held < 2; held++) { /* from hot blocks, and from cold ones */
        int32_t tokens = -1, count;
        ct_open(ct_config(256, 256, CT_KEEP_ALL));
        CT_OK(ct_ensure(ct_text(0), 100));
        if (held)
            ck_assert_int_eq(ct_evict(16, 64), 48);
        CT_OK(md_session_admit_at_tail(ct.s, (struct md_range){ 10, 70 }, NULL, &tokens, &ct.err));
        ck_assert_int_eq(tokens, 48); /* the whole blocks: [16, 64) */
        const md_token *context = md_session_context(ct.s, &count);
        ck_assert_int_eq(count, 148);
        ck_assert_mem_eq(context + 100, ct_text(16), 48 * sizeof *context);
        struct md_session_status st = md_session_status(ct.s);
        ck_assert_int_eq(st.tape_tokens, 148);
        ck_assert_int_eq((int)st.moved_tokens, 48);
        ck_assert_int_eq(st.tokens_of[MD_PROVENANCE_APPROXIMATE],
                         148 - 96); /* the block at 96 was lengthened */
        CT_OK(ct_suffix(ct_text(200), 10));
        CT_OK(ct_decode(CT_ANSWER));
        ck_assert_int_eq(ct.last.prefilled, 1);
        ck_assert_int_eq(ct_block(157).provenance, MD_PROVENANCE_APPROXIMATE); /* computed over such KV */
        /* the window: 166 are in, 96 would not fit */
        ck_assert_int_eq(md_session_admit_at_tail(ct.s, (struct md_range){ 0, 96 }, NULL, &tokens, &ct.err),
                         MD_TOO_LARGE);
        ct_says("96 tokens behind 166", "256");
        ct_close();
    }
}
