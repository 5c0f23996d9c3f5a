/* Each KV type of keys with each of values, on llama.cpp and a tiny model whose heads are as long as a block of the
 * quantised types: a session with a small hot set works with it, or is refused when it is opened. */
#include "adapters/llama/llama_backend.h"
#include "policy/kv_shape.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* hot 256, 600 tokens, 64 decoded: the case's figures */
enum { HOT = 256, WINDOW = 1024, PROMPT = 600, ANSWER = 64, KEPT = 300, QUESTION = 20, TOKENS = 1000 };
enum { LAYERS = 2, HEAD = 32 };

static char path[] = "/tmp/modeld-kv-types-XXXXXX";
static md_token tokens[TOKENS];
static struct talker t;

static void setup(void)
{
    struct md_fake_dims dims = md_fake_dims_exact();
    struct md_fake_model *model = NULL;
    struct md_err err = { 0 };
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    dims.layers = LAYERS;
    dims.heads = 2;
    dims.kv_heads = 1;
    dims.head_dim = HEAD;
    ck_assert_msg(md_fake_model_open(&dims, 1, NULL, &model, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_exact_model_write(model, path, &err) == MD_OK, "%s", err.text);
    md_fake_model_close(model);
    md_subject_random_tokens(tokens, TOKENS);
    t.banned[0] = MD_EXACT_TOKEN_END;
    t.banned_count = 1;
}

static void teardown(void)
{
    unlink(path);
}

static struct md_pool_config config(enum md_reuse reuse)
{
    return (struct md_pool_config){ .window_tokens = WINDOW,
                                    .hot_tokens = HOT,
                                    .residency = true,
                                    .block_tokens = 16,
                                    .sink_tokens = -1,
                                    .recent_tokens = -1,
                                    .cold_bytes = 16 << 20,
                                    .reuse = reuse };
}

/* Tokens came, none of their logits is a NaN, and nothing was lost on the way. */
static void check_answer(const char *types, int32_t prefilled, int32_t count)
{
    ck_assert_msg(t.last.completion == count && t.steps == count, "%s: %d tokens", types, t.last.completion);
    for (int i = 0; i < t.steps; i++)
        ck_assert_msg(isfinite(t.gap[i]), "%s: step %d: gap %g", types, i, (double)t.gap[i]);
    ck_assert_msg(t.last.prefilled == prefilled, "%s: %d prefilled", types, t.last.prefilled);
    ck_assert_int_eq(t.last.dropped + t.last.recomputed + t.last.lost, 0);
    ck_assert_int_le(t.cells_max, HOT);
}

static void talk(struct md_engine *engine, struct md_text *text, const char *types)
{
    md_token branch[KEPT + QUESTION];
    talker_open(&t, engine, text, config(MD_REUSE_PLACE));
    ck_assert_msg(talker_ask(&t, tokens, PROMPT, ANSWER) == MD_OK, "%s: %s", types, t.err.text);
    check_answer(types, PROMPT, ANSWER);
    ck_assert_int_ge((int)md_session_status(t.session).evicted_blocks, (PROMPT - HOT) / 16);
    memcpy(branch, tokens, KEPT * sizeof *branch); /* what went out of the hot set comes back */
    memcpy(branch + KEPT, tokens + PROMPT, QUESTION * sizeof *branch);
    ck_assert_msg(talker_ask(&t, branch, KEPT + QUESTION, 8) == MD_OK, "%s: %s", types, t.err.text);
    check_answer(types, QUESTION, 8);
    ck_assert_int_gt(t.last.restored, 0);
    talker_close(&t);
}

/* Text put at other positions needs its keys turned: a type whose keys cannot be is refused when the pool is opened. */
static void reposition(struct md_engine *engine, struct md_text *text, enum md_kv_type keys,
                       const char *types)
{
    const struct md_pool_config c = config(MD_REUSE_APPROXIMATE);
    const bool turns = keys == MD_KV_F32 || keys == MD_KV_F16; /* llama.cpp's ggml_compute_forward_rope */
    struct md_pool *pool = NULL;
    struct md_err err = { 0 };
    const enum md_status s = md_pool_open(&c, engine, text, &pool, &err);
    ck_assert_msg(s == (turns ? MD_OK : MD_UNSUPPORTED), "%s: %s", types, md_status_name(s));
    ck_assert_msg(turns || (strstr(err.text, types) != NULL && strstr(err.text, "repositioned") != NULL),
                  "%s", err.text);
    md_pool_close(pool);
}

START_TEST(b035_keys_of_a_type_with_values_of_each)
{
    const char *keys = md_kv_type_name((enum md_kv_type)_i);
    for (int v = 0; v < MD_KV_LISTED; v++) {
        const struct md_open_params params = { .model_path = path,
                                               .cell_count = HOT,
                                               .threads = 1, /* the model is too small for more */
                                               .flash_attn = 1,
                                               .type_k = keys,
                                               .type_v = md_kv_type_name((enum md_kv_type)v) };
        struct md_engine *engine = NULL;
        struct md_text *text = NULL;
        struct md_err err = { 0 };
        char types[64];
        snprintf(types, sizeof types, "KV type %s/%s", params.type_k, params.type_v);
        ck_assert_msg(md_backend_llama.open(&params, &engine, &text, &err) == MD_OK, "%s: %s", types,
                      err.text);
        ck_assert_str_eq(md_engine_info(engine)->type_k, params.type_k);
        ck_assert_str_eq(md_engine_info(engine)->type_v, params.type_v);
        /* what is really there: the engine measures its exports */
        ck_assert_int_eq(md_engine_info(engine)->kv_bytes_per_token,
                         LAYERS * (md_kv_type_bytes((enum md_kv_type)_i, HEAD) +
                                   md_kv_type_bytes((enum md_kv_type)v, HEAD)));
        talker_watch(&t, &engine);
        talk(engine, text, types);
        reposition(engine, text, (enum md_kv_type)_i, types);
        md_engine_close(engine);
        md_text_close(text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_types_llama_exact");
    TCase *c = tcase_create("types");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, b035_keys_of_a_type_with_values_of_each, 0, MD_KV_LISTED);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
