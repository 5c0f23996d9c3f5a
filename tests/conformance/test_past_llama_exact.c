/* A conversation far past the trained window on llama.cpp, with the exact model: f32 weights and KV, no flash attention.
 *
 * The model was trained for 2,344 tokens here (the file says so), so the step is 293; turns of 300 make the first block
 * move with every one of them.  MODELD_TEST_PAST_TOKENS says how far it goes: 20,000 here, 310,000 in `make past`, which
 * are a thousand moves of that block and more.  Another file says 64 tokens, and the step is 8: there it has as many behind
 * 9,000 tokens.  What is right is said in support/past_far.h. */
#include "adapters/llama/llama_backend.h"
#include "commands/sizing.h"
#include "commands/stack.h"
#include "session/session_internal.h"
#include "support/past_far.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    TRAINED = 2344,
    HOT = 2048,
    BATCH = 300,
    BLOCK = 64,
    COLD = 64 << 20,
    MOVES = 1000, /* of the first block, where that many are asked for */
    SMALL_TRAINED = 64,
    SMALL_HOT = 56,
    SMALL_BATCH = 9, /* more than the step */
    SMALL_BLOCK = 8,
    SMALL_TOTAL = SMALL_TRAINED + SMALL_BATCH * (MOVES + 10)
};

static char path[512], small_path[512];
static md_token *tokens;
static int32_t total;

static void setup(void)
{
    const char *asked = getenv("MODELD_TEST_PAST_TOKENS");
    past_far_write(path, sizeof path, "past", TRAINED);
    past_far_write(small_path, sizeof small_path, "past-small", SMALL_TRAINED);
    total = asked != NULL ? (int32_t)strtol(asked, NULL, 10) : 20000;
    ck_assert_int_ge(total, 4 * TRAINED);
    ck_assert_int_ge(total, SMALL_TOTAL);
    tokens = past_far_tokens(total + 1);
}

static void teardown(void)
{
    free(tokens);
    unlink(path);
    unlink(small_path);
}

START_TEST(far_past_the_window)
{
    past_far_run(&(struct past_far){ .backend = &md_backend_llama,
                                     .path = path,
                                     .hot = HOT,
                                     .batch = BATCH,
                                     .block = BLOCK,
                                     .total = total,
                                     .moves = total >= BATCH * MOVES + TRAINED + BATCH ? MOVES : 10,
                                     .speed = true,
                                     .logits = true });
}
END_TEST

/* A thousand moves of one block are as exact as one. */
START_TEST(a_thousand_moves_of_the_first_block)
{
    past_far_run(&(struct past_far){ .backend = &md_backend_llama,
                                     .path = small_path,
                                     .hot = SMALL_HOT,
                                     .batch = SMALL_BATCH,
                                     .block = SMALL_BLOCK,
                                     .total = SMALL_TOTAL,
                                     .moves = MOVES });
}
END_TEST

/* A cold store of exactly the bytes that the sizing counts for a context holds all of it; a byte less is refused before the
 * model is read. */
START_TEST(a_store_of_the_planned_size_holds_the_context)
{
    enum { CONTEXT = 3 * TRAINED, BLOCKS = (CONTEXT + BLOCK - 1) / BLOCK };
    const struct md_backend backends[] = { md_backend_llama, { .name = NULL } };
    char window[16], cold[24];
    char *argv[] = {
        (char *)"serve", (char *)"-m",         path,          (char *)"--past-window", (char *)"-c",
        window,          (char *)"--mem-cold", cold,          (char *)"-ctk",          (char *)"f32",
        (char *)"-ctv",  (char *)"f32",        (char *)"-fa", (char *)"off",           (char *)"-t",
        (char *)"1"
    };
    enum { WORDS = sizeof argv / sizeof argv[0] };
    struct md_options o;
    struct md_sizing z;
    struct md_stack stack;
    struct md_session *s;
    struct md_prefill_status did;
    struct md_err err = { 0 };
    snprintf(window, sizeof window, "%d", CONTEXT + 1);
    snprintf(cold, sizeof cold, "%d", COLD);
    ck_assert_int_eq(md_options_parse(WORDS, argv, MD_CMD_SERVE, &o, &err), MD_OK);
    ck_assert_msg(md_sizing_resolve(&o, backends, NULL, &z, &err) == MD_OK, "%s", err.text);
    const int64_t need = BLOCKS * z.params.cold_block_bytes;
    o.mem_cold = need - 1;
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &z, &err), MD_OK);
    ck_assert_int_eq(md_sizing_check(&o, &z, &err), MD_NO_MEMORY);
    o.mem_cold = need;
    ck_assert_msg(md_stack_open(&o, backends, &stack, &err) == MD_OK, "%s", err.text);
    ck_assert_uint_eq(stack.cold_bytes, (size_t)need);
    const int64_t block = (int64_t)md_cold_block_bytes(md_engine_export_bytes(stack.engine, BLOCK), BLOCK);
    ck_assert_int_le(block, z.params.cold_block_bytes);
    ck_assert_int_ge(block, z.params.cold_block_bytes - 64); /* a bound, and a close one */
    ck_assert_int_eq(md_pool_new(stack.pool, &s, &err), MD_OK);
    const struct md_context c = { .tokens = tokens, .count = CONTEXT };
    ck_assert_msg(md_session_ensure_prefix(s, &c, false, NULL, &did, &err) == MD_OK, "%s", err.text);
    int32_t gone;
    const struct md_range all = { 0, CONTEXT - 1 };
    ck_assert_msg(md_session_evict_range(s, all, &gone, &err) == MD_OK, "%s", err.text);
    const struct md_session_status st = md_session_status(s);
    const struct md_coldstore_stats cs = md_pool_status(stack.pool).cold;
    ck_assert_int_eq(st.tape_tokens, CONTEXT - 1);
    ck_assert_int_eq(st.cold_tokens, CONTEXT - 1); /* none of it is hot now, and none is lost */
    ck_assert_int_eq(st.lost_tokens, 0);
    ck_assert_int_eq(cs.dropped + cs.refused, 0);
    md_stack_close(&stack);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("past_llama_exact");
    TCase *c = tcase_create("past");
    tcase_set_timeout(c, 1800);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, a_thousand_moves_of_the_first_block);
    tcase_add_test(c, far_past_the_window);
    tcase_add_test(c, a_store_of_the_planned_size_holds_the_context);
    suite_add_tcase(s, c);
    return md_run_suite_here(s);
}
