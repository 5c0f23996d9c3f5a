/* test_kv_shape.c - bytes of a KV cache and their inversion: B009, B018, B019, B023-B025, B031, B131, and a
 * walk against a count unit by unit.
 *
 * Expected bytes are worked out by hand from the block layouts of ggml-common.h and the cell counts of
 * llama-kv-cache.cpp and llama-kv-cache-iswa.cpp; the figures of the cases are theirs. */
#include "policy/kv_shape.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <string.h>

static const struct md_kv_mode f16 = {
    .type_k = MD_KV_F16, .type_v = MD_KV_F16, .seq_count = 1, .ubatch_tokens = 512
};

/* `count` dense layers of equal heads. */
static struct md_kv_shape equal_layers(int32_t count, int32_t heads, int32_t length)
{
    struct md_kv_shape s = { .layer_count = count };
    for (int32_t i = 0; i < count; i++)
        s.layers[i] = (struct md_kv_layer){ .kv_heads = heads, .key_length = length, .value_length = length };
    return s;
}

/* The same where all but every `stride`th layer is windowed. */
static struct md_kv_shape windowed_layers(int32_t count, int32_t heads, int32_t length, int32_t window,
                                          int32_t stride)
{
    struct md_kv_shape s = equal_layers(count, heads, length);
    for (int32_t i = 0; i < count; i++) {
        if ((i + 1) % stride != 0) {
            s.layers[i].window = window;
            s.layers[i].window_cells = true;
        }
    }
    return s;
}

/* ---- types ---- */

/* A block of 32: half a byte per value for q4, that and 4 bytes of fifth bits for q5, one byte for q8; a
 * scale of 2 bytes, and a minimum of 2 more for the _1 kinds. */
START_TEST(types)
{
    static const struct {
        const char *name;
        enum md_kv_type type;
        int32_t block, block_bytes;
    } rows[] = {
        { "f32", MD_KV_F32, 1, 4 },
        { "f16", MD_KV_F16, 1, 2 },
        { "bf16", MD_KV_BF16, 1, 2 },
        { "q8_0", MD_KV_Q8_0, 32, 2 + 32 },
        { "q5_1", MD_KV_Q5_1, 32, 2 + 2 + 4 + 16 },
        { "q5_0", MD_KV_Q5_0, 32, 2 + 4 + 16 },
        { "q4_1", MD_KV_Q4_1, 32, 2 + 2 + 16 },
        { "q4_0", MD_KV_Q4_0, 32, 2 + 16 },
        { "iq4_nl", MD_KV_IQ4_NL, 32, 2 + 16 },
    };
    ck_assert_int_eq(sizeof rows / sizeof rows[0], MD_KV_LISTED);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum md_kv_type t = MD_KV_TYPE_COUNT;
        ck_assert_int_eq(md_kv_type_find(rows[i].name, "keys", &t, NULL), MD_OK);
        ck_assert_msg(t == rows[i].type, "%s", rows[i].name);
        ck_assert_str_eq(md_kv_type_name(t), rows[i].name);
        ck_assert_msg(md_kv_type_block(t) == rows[i].block, "%s", rows[i].name);
        ck_assert_msg(md_kv_type_is_quantized(t) == (rows[i].block > 1), "%s", rows[i].name);
        ck_assert_int_eq(md_kv_type_bytes(t, 0), 0);
        ck_assert_int_eq(md_kv_type_bytes(t, 96), 96 / rows[i].block * rows[i].block_bytes);
        ck_assert_int_eq(md_kv_type_bytes(t, 1), rows[i].block_bytes); /* a block that is begun counts */
        ck_assert_int_eq(md_kv_type_bytes(t, 33), (rows[i].block == 1 ? 33 : 2) * rows[i].block_bytes);
    }
}
END_TEST

START_TEST(type_names_from_outside)
{
    enum md_kv_type t = MD_KV_Q8_0;
    struct md_err err = { 0 };
    ck_assert_int_eq(md_kv_type_find(NULL, "keys", &t, &err), MD_OK);
    ck_assert_int_eq(t, MD_KV_F16);

    static const char *const bad[] = { "", "q9_9", "F16", "q8_0 ", "q8", "f16f16", "u8" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        t = MD_KV_Q5_1;
        ck_assert_msg(md_kv_type_find(bad[i], "values", &t, &err) == MD_INVALID, "%s", bad[i]);
        ck_assert_int_eq(t, MD_KV_Q5_1);
    }
    ck_assert_int_eq(md_kv_type_find("q9_9", "values", &t, &err), MD_INVALID);
    ck_assert_str_eq(err.text, "unknown KV type 'q9_9' for values: one of f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 "
                               "q4_0 iq4_nl");
    char longer[2000] = "";
    memset(longer, 'x', sizeof longer - 1);
    ck_assert_int_eq(md_kv_type_find(longer, "keys", &t, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "iq4_nl")); /* the list is not cut off by what was asked for */
}
END_TEST

START_TEST(types_that_do_not_divide_a_head)
{
    struct md_kv_shape s = equal_layers(6, 4, 80); /* 80 = 2 blocks and a half */
    struct md_kv_mode mode = f16;
    struct md_err err;
    ck_assert_int_eq(md_kv_check_types(&s, &mode, &err), MD_OK);
    for (int i = 0; i < 6; i++)
        s.layers[i].value_length = i == 4 ? 48 : 64;
    s.layers[0].kv_heads = 0; /* of no interest */
    s.layers[1].shared = true;
    s.layers[2].key_length = 64;
    mode.type_k = MD_KV_Q8_0;
    ck_assert_int_eq(md_kv_check_types(&s, &mode, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "KV type 'q8_0' for keys does not fit layer 3: heads of 80 are not made of "
                               "blocks of 32; use f16");
    mode = f16;
    mode.type_v = MD_KV_Q4_0;
    ck_assert_int_eq(md_kv_check_types(&s, &mode, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "KV type 'q4_0' for values does not fit layer 4: heads of 48 are not made of "
                               "blocks of 32; use f16");
    s.layers[4].keys_only = true; /* has no values */
    ck_assert_int_eq(md_kv_check_types(&s, &mode, &err), MD_OK);
}
END_TEST

/* ---- the cases ---- */

/* 12 layers, 4 heads of 64, 32,768 cells: 12 * 256 * 32,768 = 100,663,296 numbers of keys and as many of
 * values, in blocks of 32: 3,145,728 each. */
START_TEST(b024_bytes_by_type)
{
    static const struct {
        enum md_kv_type k, v;
        int64_t bytes;
    } rows[] = {
        { MD_KV_F16, MD_KV_F16, 402653184 },
        { MD_KV_Q8_0, MD_KV_Q8_0, 213909504 },
        { MD_KV_Q4_0, MD_KV_Q4_0, 113246208 },
        { MD_KV_Q8_0, MD_KV_F16, 308281344 },
        { MD_KV_F16, MD_KV_Q8_0, 308281344 },
        { MD_KV_F32, MD_KV_F32, 805306368 },       /* 2 * 100,663,296 * 4 */
        { MD_KV_BF16, MD_KV_BF16, 402653184 },     /* as f16 */
        { MD_KV_Q5_1, MD_KV_Q5_1, 150994944 },     /* 2 * 3,145,728 * 24 */
        { MD_KV_Q5_0, MD_KV_Q5_0, 138412032 },     /* * 22 */
        { MD_KV_Q4_1, MD_KV_Q4_1, 125829120 },     /* * 20 */
        { MD_KV_IQ4_NL, MD_KV_IQ4_NL, 113246208 }, /* * 18 */
        { MD_KV_Q4_0, MD_KV_F32, 459276288 },      /* 3,145,728 * 18 + 100,663,296 * 4 */
        { MD_KV_U8, MD_KV_U8, 226492416 },         /* 2 * (100,663,296 + 12 * 4 * 32,768 * 8) */
    };
    struct md_kv_shape s = equal_layers(12, 4, 64);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_kv_mode mode = f16;
        mode.type_k = rows[i].k;
        mode.type_v = rows[i].v;
        ck_assert_int_eq(md_kv_bytes(&s, &mode, 32768), rows[i].bytes);
        ck_assert_int_eq(md_kv_bytes_per_token(&s, &mode), rows[i].bytes / 32768);
        ck_assert_int_eq(md_kv_layer_bytes(&s, 11, &mode, 32768), rows[i].bytes / 12);
    }
}
END_TEST

START_TEST(b009_heads_by_layer)
{
    static const int32_t heads[] = { 4, 4, 0, 4, 1, 4 };
    struct md_kv_shape s = equal_layers(6, 4, 64);
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 4096), 25165824);
    for (int i = 0; i < 6; i++)
        s.layers[i].kv_heads = heads[i];
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 4096), 17825792);
    ck_assert_int_eq(md_kv_layer_cells(&s.layers[2], &f16, 4096), 0);
    ck_assert_int_eq(md_kv_largest_tensor(&s, &f16, 4096), 2097152); /* 4096 * 4 * 64 * 2 */

    /* Values as wide as the widest layer's, 256: the layer of one head has 3 * 64 values more, that of none
     * 4 * 64 (seen in test_llama_tiny_layouts).
     * Source: llama-kv-cache.cpp takes n_embd_v_gqa_max when values are stored transposed. */
    struct md_kv_mode padded = f16;
    padded.values_padded = true;
    ck_assert_int_eq(md_kv_bytes(&s, &padded, 4096), 17825792 + 4096 * (3 + 4) * 64 * 2);
    ck_assert_int_eq(md_kv_bytes_per_token(&s, &padded), 17825792 / 4096 + (3 + 4) * 64 * 2);
    s.layers[0].shared = true; /* 4 heads fewer of keys and of values */
    ck_assert_int_eq(md_kv_layer_cells(&s.layers[0], &f16, 4096), 0);
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 4096), 17825792 - 4096 * 2 * 4 * 64 * 2);
}
END_TEST

START_TEST(b018_every_other_layer_windowed)
{
    struct md_kv_shape s = windowed_layers(24, 8, 64, 128, 2);
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 32768), 824180736);
    ck_assert_int_eq(md_kv_layer_cells(&s.layers[0], &f16, 32768), 768); /* pad(128 + 512) */
    ck_assert_int_eq(md_kv_layer_cells(&s.layers[1], &f16, 32768), 32768);
    struct md_kv_mode full = f16;
    full.window_full = true;
    ck_assert_int_eq(md_kv_bytes(&s, &full, 32768), 1610612736);
}
END_TEST

/* 1024 bytes in a cell of a layer, 3 global layers and 15 windowed ones. */
START_TEST(b019_windows_sequences_and_context)
{
    static const struct {
        int32_t context, seq_count, ubatch;
        bool full;
        int64_t bytes;
    } rows[] = {
        { 4096, 1, 512, false, 28311552 },
        { 8192, 1, 512, false, 40894464 },
        { 32768, 1, 512, false, 116391936 },
        { 32768, 1, 512, true, 603979776 },
        { 32768, 2, 512, false, 124256256 }, /* 1024 * (3 * 32768 + 15 * 1536) */
        { 32768, 5, 512, false, 147849216 }, /* 1024 * (3 * 32768 + 15 * 3072) */
        { 4096, 2, 512, false, 36175872 },   /* 1024 * (3 * 4096 + 15 * 1536) */
        { 4096, 5, 512, false, 59768832 },   /* 1024 * (3 * 4096 + 15 * 3072) */
        { 4096, 8, 512, false, 75497472 },   /* 4608 > 4096 cells: 1024 * 18 * 4096 */
        { 4096, 8, 512, true, 75497472 },
        { 32768, 1, 513, false, 120324096 }, /* pad(1025) = 1280 */
        { 1000, 1, 512, false, 18874368 },   /* 1024 * 18 * 1024 */
        { 1024, 1, 512, false, 18874368 },
        { 1025, 1, 512, false, 19660800 }, /* 1024 * (3 * 1280 + 15 * 1024) */
        { 1, 1, 512, false, 4718592 },     /* 1024 * 18 * 256 */
        { 0, 1, 512, false, 0 },
    };
    struct md_kv_shape s = windowed_layers(18, 1, 256, 512, 6);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_kv_mode mode = f16;
        mode.seq_count = rows[i].seq_count;
        mode.ubatch_tokens = rows[i].ubatch;
        mode.window_full = rows[i].full;
        ck_assert_msg(md_kv_bytes(&s, &mode, rows[i].context) == rows[i].bytes, "row %zu: %lld", i,
                      (long long)md_kv_bytes(&s, &mode, rows[i].context));
        /* three layers have no window, at full size all 18 grow */
        ck_assert_int_eq(md_kv_growing_bytes(&s, &mode), (rows[i].full ? 18 : 3) * 1024);
    }
}
END_TEST

/* A window the engine gives all cells costs like none; one of 0 attends to everything. */
START_TEST(windows_without_cells_of_their_own)
{
    struct md_kv_shape dense = equal_layers(18, 1, 256), s = windowed_layers(18, 1, 256, 512, 6);
    const int64_t all = md_kv_bytes(&dense, &f16, 32768);
    for (int i = 0; i < 18; i++)
        s.layers[i].window_cells = false;
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 32768), all);
    for (int i = 0; i < 18; i++) {
        s.layers[i].window = 0;
        s.layers[i].window_cells = true;
    }
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 32768), all);
}
END_TEST

START_TEST(b023_keys_only)
{
    struct md_kv_shape s = equal_layers(27, 1, 576);
    for (int i = 0; i < 27; i++) {
        s.layers[i].value_length = 512;
        s.layers[i].keys_only = true;
    }
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 32768), 1019215872);
    ck_assert_int_eq(md_kv_bytes_per_token(&s, &f16), 31104);          /* 27 * 576 * 2 */
    ck_assert_int_eq(md_kv_largest_tensor(&s, &f16, 32768), 37748736); /* 576 * 2 * 32768 */
}
END_TEST

START_TEST(b025_cells_come_in_units)
{
    struct md_kv_shape s = equal_layers(30, 3, 64);
    ck_assert_int_eq(md_kv_bytes_per_token(&s, &f16), 23040);
    ck_assert_int_eq(md_kv_bytes(&s, &f16, 1000), 23592960);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 23040000, 0, 0, 8192), 768);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 23592959, 0, 0, 8192), 768);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 23592960, 0, 0, 8192), 1024);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 23592960, 0, 0, 1000), 1000); /* the limit itself */
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 23592959, 0, 0, 1000), 768);
    static const int32_t pads[][2] = { { 0, 0 },     { 1, 256 },     { 255, 256 },        { 256, 256 },
                                       { 257, 512 }, { 1000, 1024 }, { 1 << 30, 1 << 30 } };
    for (size_t i = 0; i < sizeof pads / sizeof pads[0]; i++)
        ck_assert_int_eq(md_kv_pad(pads[i][0]), pads[i][1]);
}
END_TEST

START_TEST(b031_tokens_of_a_budget)
{
    static const struct {
        const char *label;
        int64_t budget, extra;
        int32_t limit, tokens;
    } rows[] = {
        { "100 MiB", 104857600, 0, 32768, 8448 }, /* 8448 * 12,288 = 103,809,024 */
        { "1 GiB", INT64_C(1) << 30, 0, 32768, 32768 },
        { "just 8448", 103809024, 0, 32768, 8448 },
        { "a byte less", 103809023, 0, 32768, 8192 },
        { "a mask of 1 KiB per cell", 104857600, 1024, 32768, 7680 }, /* 104,857,600 / 13,312 = 7876.9 */
        { "one unit", 12288 * 256, 0, 32768, 256 },
        { "a byte less than a unit", 12288 * 256 - 1, 0, 32768, 0 },
        { "nothing", 0, 0, 32768, 0 },
        { "less than nothing", -5, 0, 32768, 0 },
        { "limit 0", 104857600, 0, 0, 0 },
        { "limit 1", 104857600, 0, 1, 1 },
        { "all there is", INT64_MAX, 0, 1 << 30, 1 << 30 },
        { "16 TiB", INT64_C(1) << 44, 0, 1 << 30, 1 << 30 },    /* 2^30 * 12,288 = 12 TiB */
        { "11 TiB", INT64_C(11) << 40, 0, 1 << 30, 984263168 }, /* 11 * 2^40 / 12,288 = 984,263,338.7 */
    };
    struct md_kv_shape s = equal_layers(12, 4, 64);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t tokens = md_kv_tokens(&s, &f16, rows[i].budget, rows[i].extra, 0, rows[i].limit);
        ck_assert_msg(tokens == rows[i].tokens, "%s: %d", rows[i].label, tokens);
    }
}
END_TEST

/* Two layers of 8 heads of 128: keys of a layer take 2048 bytes per cell in f16, 1088 in q8_0. */
START_TEST(b131_no_tensor_over_the_limit)
{
    const int64_t gib = INT64_C(1) << 30;
    struct md_kv_shape s = equal_layers(2, 8, 128);
    const int32_t asked = 629248; /* 629,248 * 2048 = 1.2 GiB */
    ck_assert_int_eq(md_kv_largest_tensor(&s, &f16, asked), 1288699904);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 8 * gib, 0, 0, asked), asked);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 8 * gib, 0, gib, asked), 524288); /* 2^30 / 2048 */
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 8 * gib, 0, gib - 1, asked), 524288 - 256);
    ck_assert_int_eq(md_kv_tokens(&s, &f16, 2 * gib, 0, gib, asked), 262144); /* the budget is less */
    struct md_kv_mode mode = f16;
    mode.type_k = MD_KV_Q8_0; /* now the values are the largest */
    ck_assert_int_eq(md_kv_largest_tensor(&s, &mode, 1024), 1024 * 2048);
    mode.type_v = MD_KV_Q4_0; /* and now the keys */
    ck_assert_int_eq(md_kv_largest_tensor(&s, &mode, 1024), 1024 * 1088);
    s.layers[1].window = 128; /* a windowed layer of twice the width is still the smaller one */
    s.layers[1].window_cells = true;
    s.layers[1].kv_heads = 16;
    ck_assert_int_eq(md_kv_largest_tensor(&s, &mode, 32768), 32768 * 1088);
    ck_assert_int_eq(md_kv_largest_tensor(&s, &mode, 768), 768 * 2176);
}
END_TEST

/* A recurrent model costs the same at any length: all tokens or none. */
START_TEST(state_is_per_sequence)
{
    struct md_kv_shape s = { .layer_count = 4 };
    for (int i = 0; i < 4; i++)
        s.layers[i].state_bytes = 1000;
    struct md_kv_mode mode = f16;
    mode.seq_count = 3;
    ck_assert_int_eq(md_kv_bytes(&s, &mode, 0), 12000);
    ck_assert_int_eq(md_kv_bytes(&s, &mode, 32768), 12000);
    ck_assert_int_eq(md_kv_bytes_per_token(&s, &mode), 0);
    ck_assert_int_eq(md_kv_tokens(&s, &mode, 12000, 0, 0, 32768), 32768);
    ck_assert_int_eq(md_kv_tokens(&s, &mode, 11999, 0, 0, 32768), 0);
    struct md_kv_shape none = { 0 };
    ck_assert_int_eq(md_kv_bytes(&none, &mode, 32768), 0);
    ck_assert_int_eq(md_kv_tokens(&none, &mode, 0, 0, 0, 777), 777);
}
END_TEST

/* What no file should declare: nothing wraps (the sanitizer build would say), nothing fits. */
START_TEST(numbers_as_large_as_a_file_can_say)
{
    const int64_t ceiling = INT64_C(1) << 60;
    struct md_kv_shape s = equal_layers(MD_LAYERS_MAX, INT32_MAX, INT32_MAX);
    struct md_kv_mode mode = { MD_KV_F32, MD_KV_F32, INT32_MAX, INT32_MAX, false, true };
    for (int i = 0; i < MD_LAYERS_MAX; i++) {
        s.layers[i].state_bytes = INT64_MAX;
        s.layers[i].window = INT32_MAX;
        s.layers[i].window_cells = i % 2 == 0;
    }
    ck_assert_int_eq(md_kv_bytes(&s, &mode, 1 << 30), ceiling);
    ck_assert_int_eq(md_kv_bytes_per_token(&s, &mode), ceiling);
    ck_assert_int_eq(md_kv_largest_tensor(&s, &mode, 1 << 30), ceiling);
    ck_assert_int_eq(md_kv_tokens(&s, &mode, INT64_C(1) << 50, INT64_MAX, 1, 1 << 30), 0);
    struct md_kv_profile p = md_kv_profile_of(&s, &mode);
    ck_assert_int_gt(p.per_layer_kv_bytes, 0);
    p = (struct md_kv_profile){ INT32_MAX, INT32_MAX, INT32_MAX, INT64_MAX };
    ck_assert_int_eq(md_kv_profile_bytes(&p, INT32_MAX), ceiling);
    ck_assert_int_eq(md_kv_profile_dense(&p), ceiling);
    ck_assert_int_eq(md_kv_profile_tokens(&p, INT64_C(1) << 50, 0), 0);
}
END_TEST

/* ---- the summary ---- */

/* 42 layers of which 7 are global, window 512, 168 KiB per token: 4096 bytes per layer and token. */
START_TEST(profile_of_the_seeds)
{
    const struct md_kv_profile p = { 7, 35, 512, 4096 };
    ck_assert_int_eq(md_kv_profile_dense(&p), 168 * 1024);
    ck_assert_int_eq(md_kv_profile_marginal(&p), 28672);
    ck_assert_int_eq(md_kv_profile_bytes(&p, 131072),
                     3831496704); /* 4096 * (7 * 131072 + 35 * 512): 3.6 GiB */
    ck_assert_int_eq(md_kv_profile_dense(&p) * 131072, INT64_C(21) << 30);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 3831496704, 0), 131072);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 3831496703, 0), 131071);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 10608 * md_kv_profile_dense(&p), 0), 61088);
    ck_assert_int_eq(md_kv_profile_bytes(&p, 61088), 10608 * md_kv_profile_dense(&p));
    /* within the window both cost the same */
    ck_assert_int_eq(md_kv_profile_bytes(&p, 512), 512 * md_kv_profile_dense(&p));
    ck_assert_int_eq(md_kv_profile_bytes(&p, 513), 512 * md_kv_profile_dense(&p) + 28672);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 512 * md_kv_profile_dense(&p), 0), 512);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 512 * md_kv_profile_dense(&p) - 1, 0), 511);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 0, 99), 0);
    ck_assert_int_eq(md_kv_profile_tokens(&p, -1, 99), 0);
}
END_TEST

START_TEST(profile_that_does_not_grow)
{
    const struct md_kv_profile p = { 0, 10, 512, 1000 };
    ck_assert_int_eq(md_kv_profile_tokens(&p, 5119999, 32768), 511);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 5120001, 32768), 32768);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 5120001, 0), 512);
    ck_assert_int_eq(md_kv_profile_tokens(&p, 5120001, 100), 512);
    const struct md_kv_profile none = { 0, 0, 0, 1000 };
    ck_assert_int_eq(md_kv_profile_tokens(&none, 5120001, 32768), 0);
    ck_assert_int_eq(md_kv_profile_marginal(&none), 0);
}
END_TEST

/* Dense: 2 (keys and values) * layers * heads * length * 2 bytes per token, in shape and summary alike. */
START_TEST(profile_of_equal_layers_is_the_flat_formula)
{
    static const struct {
        int32_t layers, heads, length;
        int64_t per_token; /* f16 */
    } rows[] = {
        { 28, 2, 128, 28672 },  { 12, 4, 64, 12288 },   { 30, 3, 64, 23040 },  { 1, 1, 1, 4 },
        { 32, 8, 128, 131072 }, { 80, 8, 128, 327680 }, { 18, 1, 256, 18432 }, { 512, 128, 256, 67108864 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_kv_shape s = equal_layers(rows[i].layers, rows[i].heads, rows[i].length);
        struct md_kv_profile p = md_kv_profile_of(&s, &f16);
        const int64_t per_token = rows[i].per_token;
        ck_assert_int_eq(per_token, INT64_C(2) * rows[i].layers * rows[i].heads * rows[i].length * 2);
        ck_assert_int_eq(p.global_layers, rows[i].layers);
        ck_assert_int_eq(p.windowed_layers, 0);
        ck_assert_int_eq(md_kv_profile_dense(&p), per_token);
        ck_assert_int_eq(md_kv_profile_marginal(&p), per_token);
        ck_assert_int_eq(md_kv_bytes_per_token(&s, &f16), per_token);
        for (int32_t tokens = 1; tokens < 1 << 21; tokens = tokens * 3 + 1) {
            ck_assert_int_eq(md_kv_profile_bytes(&p, tokens), per_token * tokens);
            ck_assert_int_eq(md_kv_bytes(&s, &f16, tokens), per_token * ((tokens + 255) / 256 * 256));
            ck_assert_int_eq(md_kv_profile_tokens(&p, per_token * tokens, 0), tokens);
            ck_assert_int_eq(md_kv_profile_tokens(&p, per_token * tokens - 1, 0), tokens - 1);
        }
    }
}
END_TEST

START_TEST(profile_of_a_shape)
{
    struct md_kv_shape s = windowed_layers(18, 1, 256, 512, 6);
    struct md_kv_profile p = md_kv_profile_of(&s, &f16);
    ck_assert(p.global_layers == 3 && p.windowed_layers == 15 && p.window == 512);
    ck_assert_int_eq(p.per_layer_kv_bytes, 1024);
    struct md_kv_mode full = f16;
    full.window_full = true;
    p = md_kv_profile_of(&s, &full);
    ck_assert(p.global_layers == 18 && p.windowed_layers == 0 && p.window == 0);
    s.layers[0].window = 1024; /* the widest window counts */
    s.layers[5].kv_heads = 3;  /* 17 * 1024 + 3072 = 20,480 bytes over 17 layers: 1204.7 */
    s.layers[1].shared = true;
    p = md_kv_profile_of(&s, &f16);
    ck_assert(p.global_layers == 3 && p.windowed_layers == 14 && p.window == 1024);
    ck_assert_int_eq(p.per_layer_kv_bytes, 1145); /* (16 * 1024 + 3072) / 17 = 1144.5 */
}
END_TEST

/* ---- the walk ---- */

/* A row of values, block by block. */
static int64_t naive_row(enum md_kv_type t, int32_t values)
{
    static const int32_t block[] = { 1, 1, 1, 32, 32, 32, 32, 32, 32 }; /* in the order of the enum */
    static const int32_t bytes[] = { 4, 2, 2, 34, 24, 22, 20, 18, 18 };
    int64_t row = 0;
    for (; values > 0; values -= block[t])
        row += bytes[t];
    return row;
}

struct naive {
    int64_t bytes, largest;
};

/* Layer by layer, and in each, one unit of cells after the other for as long as somebody needs it. */
static struct naive naive_cost(const struct md_kv_shape *s, const struct md_kv_mode *m, int32_t context)
{
    struct naive n = { 0, 0 };
    int32_t widest = 0;
    for (int i = 0; i < s->layer_count; i++) {
        int32_t w = s->layers[i].kv_heads * s->layers[i].value_length;
        widest = w > widest ? w : widest;
    }
    for (int i = 0; i < s->layer_count; i++) {
        const struct md_kv_layer *l = &s->layers[i];
        for (int seq = 0; seq < m->seq_count; seq++)
            n.bytes += l->state_bytes;
        if (l->shared || (l->kv_heads == 0 && (!m->values_padded || l->state_bytes > 0)))
            continue;
        int32_t values = m->values_padded ? widest : l->kv_heads * l->value_length;
        const int64_t k = naive_row(m->type_k, l->kv_heads * l->key_length);
        const int64_t v = l->keys_only ? 0 : naive_row(m->type_v, values);
        int64_t wanted = m->ubatch_tokens;
        for (int seq = 0; seq < m->seq_count; seq++)
            wanted += l->window;
        const bool windowed = l->window_cells && l->window > 0 && !m->window_full;
        int64_t keys = 0, vals = 0;
        for (int32_t first = 0; first < context && (!windowed || first < wanted); first += 256) {
            keys += 256 * k;
            vals += 256 * v;
        }
        n.bytes += keys + vals;
        n.largest = keys > n.largest ? keys : n.largest;
        n.largest = vals > n.largest ? vals : n.largest;
    }
    return n;
}

static struct md_kv_layer random_layer(struct rng *r)
{
    const uint32_t kind = rng_below(r, 12);
    struct md_kv_layer l = { .kv_heads = 1 + (int32_t)rng_below(r, 4),
                             .key_length = (int32_t)rng_below(r, 4) * 32,
                             .value_length = (int32_t)rng_below(r, 4) * 32 };
    if (kind == 0)
        l.kv_heads = 0;
    if (kind <= 1) {
        l.kv_heads = 0;
        l.state_bytes = rng_below(r, 100000);
    }
    l.shared = kind == 2;
    l.keys_only = kind == 3;
    if (kind >= 8) {
        l.window = (int32_t)rng_below(r, 1500);
        l.window_cells = rng_below(r, 8) != 0;
    }
    if (rng_below(r, 16) == 0)
        l.key_length = (int32_t)rng_below(r, 100); /* rows that end within a block */
    return l;
}

struct walk {
    struct md_kv_shape shape;
    struct md_kv_mode mode;
    int64_t budget, extra, max_tensor;
    int32_t limit;
};

static int32_t walk_tokens(const struct walk *w)
{
    return md_kv_tokens(&w->shape, &w->mode, w->budget, w->extra, w->max_tensor, w->limit);
}

static void random_walk(struct rng *r, struct walk *w)
{
    w->shape.layer_count = (int32_t)rng_below(r, rng_below(r, 8) == 0 ? 41 : 7);
    for (int i = 0; i < w->shape.layer_count; i++)
        w->shape.layers[i] = random_layer(r);
    w->mode = (struct md_kv_mode){ .type_k = rng_below(r, MD_KV_LISTED),
                                   .type_v = rng_below(r, MD_KV_LISTED),
                                   .seq_count = 1 + (int32_t)rng_below(r, 5),
                                   .ubatch_tokens = 1 + (int32_t)rng_below(r, 1024),
                                   .window_full = rng_below(r, 8) == 0,
                                   .values_padded = rng_below(r, 4) == 0 };
    w->limit = (int32_t)rng_below(r, 1 << rng_below(r, 16));
    w->extra = rng_below(r, 4) == 0 ? rng_below(r, 2000) : 0;
    const struct naive most = naive_cost(&w->shape, &w->mode, w->limit);
    w->budget = (int64_t)(rng_next(r) % (uint64_t)(most.bytes + most.bytes / 4 + 1000));
    w->max_tensor = rng_below(r, 3) == 0 ? rng_below(r, (uint32_t)(most.largest * 5 / 4 + 2)) : 0;
}

/* The budget holds these tokens and, short of the limit, not one unit more. */
static bool naive_fits(const struct walk *w, int32_t context)
{
    const struct naive n = naive_cost(&w->shape, &w->mode, context);
    return n.bytes + w->extra * ((context + 255) / 256 * 256) <= w->budget &&
           (w->max_tensor == 0 || n.largest <= w->max_tensor);
}

/* More of anything never costs less, and more budget never holds less. */
static void walk_is_monotone(struct rng *r, const struct walk *w, int32_t context, int64_t bytes,
                             int32_t tokens, int round)
{
    struct walk more = *w;
    const int32_t step = (int32_t)rng_below(r, 700);
    ck_assert_msg(md_kv_bytes(&w->shape, &w->mode, context + step) >= bytes, "round %d", round);
    more.mode.seq_count++;
    ck_assert_msg(md_kv_bytes(&w->shape, &more.mode, context) >= bytes, "round %d: sequences", round);
    more.mode = w->mode;
    more.mode.ubatch_tokens += step;
    ck_assert_msg(md_kv_bytes(&w->shape, &more.mode, context) >= bytes, "round %d: ubatch", round);
    ck_assert_msg(walk_tokens(&more) <= tokens, "round %d: ubatch", round);
    more = *w;
    switch (rng_below(r, 4)) {
    case 0: more.budget += rng_below(r, 1000000); break;
    case 1: more.limit += step; break;
    case 2: more.max_tensor += w->max_tensor == 0 ? 0 : rng_below(r, 1000000); break;
    default: more.extra = w->extra / 2; break;
    }
    ck_assert_msg(walk_tokens(&more) >= tokens, "round %d: %d then %d", round, tokens, walk_tokens(&more));
}

START_TEST(walk_against_naive)
{
    struct rng r = rng_open("KV shape walk");
    static struct walk w;
    int none = 0, between = 0, at_limit = 0;
    for (int round = 0; round < 40000; round++) {
        random_walk(&r, &w);
        const int32_t context = (int32_t)rng_below(&r, 1 << rng_below(&r, 15));
        const struct naive want = naive_cost(&w.shape, &w.mode, context);
        const int64_t bytes = md_kv_bytes(&w.shape, &w.mode, context);
        ck_assert_msg(bytes == want.bytes, "round %d: %lld for %lld", round, (long long)bytes,
                      (long long)want.bytes);
        ck_assert_msg(md_kv_largest_tensor(&w.shape, &w.mode, context) == want.largest, "round %d", round);

        const int32_t tokens = walk_tokens(&w);
        ck_assert_msg(tokens == w.limit || (tokens % 256 == 0 && tokens < w.limit), "round %d: %d of %d",
                      round, tokens, w.limit);
        ck_assert_msg(tokens == 0 || naive_fits(&w, tokens), "round %d: %d", round, tokens);
        ck_assert_msg(tokens == w.limit || !naive_fits(&w, tokens + 256 < w.limit ? tokens + 256 : w.limit),
                      "round %d: more than %d", round, tokens);
        walk_is_monotone(&r, &w, context, bytes, tokens, round);
        none += tokens == 0;
        between += tokens > 0 && tokens < w.limit;
        at_limit += tokens > 0 && tokens == w.limit;
    }
    ck_assert_msg(none > 200 && between > 1000 && at_limit > 1000, "%d %d %d", none, between, at_limit);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv_shape");
    TCase *t = tcase_create("kv_shape");
    tcase_add_test(t, types);
    tcase_add_test(t, type_names_from_outside);
    tcase_add_test(t, types_that_do_not_divide_a_head);
    tcase_add_test(t, b024_bytes_by_type);
    tcase_add_test(t, b009_heads_by_layer);
    tcase_add_test(t, b018_every_other_layer_windowed);
    tcase_add_test(t, b019_windows_sequences_and_context);
    tcase_add_test(t, windows_without_cells_of_their_own);
    tcase_add_test(t, b023_keys_only);
    tcase_add_test(t, b025_cells_come_in_units);
    tcase_add_test(t, b031_tokens_of_a_budget);
    tcase_add_test(t, b131_no_tensor_over_the_limit);
    tcase_add_test(t, state_is_per_sequence);
    tcase_add_test(t, numbers_as_large_as_a_file_can_say);
    tcase_add_test(t, profile_of_the_seeds);
    tcase_add_test(t, profile_that_does_not_grow);
    tcase_add_test(t, profile_of_equal_layers_is_the_flat_formula);
    tcase_add_test(t, profile_of_a_shape);
    tcase_add_test(t, walk_against_naive);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
