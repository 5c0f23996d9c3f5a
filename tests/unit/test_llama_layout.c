/* From headers to KV layouts, without a model and without the library.  Files are headers only, made here.
 * What a family does is quoted from llama.cpp 0.4.0: models/NAME.cpp stands for src/models/NAME.cpp, function
 * load_arch_hparams. */
#include "adapters/llama/llama_backend.h"
#include "support/gguf_spec.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct md_model_facts facts;
static struct md_err err;

/* ---- files ---- */

/* What every file needs: 6 or 12 layers, 16 heads and 4 KV heads of 64. */
#define LAYERS(n) "block_count=" #n " context_length=32768 embedding_length=1024 "
#define HEADS "attention.head_count=16 "
#define KV_HEADS "attention.head_count_kv=4 "
#define WHOLE(n) LAYERS(n) HEADS KV_HEADS
#define EXPERTS "expert_count=8 expert_used_count=2 expert_gating_func=2 "

static void accept(const char *arch, const char *spec)
{
    ck_assert_msg(gw_probe_spec(&md_backend_llama, arch, spec, &facts, &err) == MD_OK, "%s, %s: %s", arch,
                  spec, err.text);
}

static void refuse(const char *arch, const char *spec, enum md_status want, const char *part)
{
    enum md_status s = gw_probe_spec(&md_backend_llama, arch, spec, &facts, &err);
    ck_assert_msg(s == want && strstr(err.text, part) != NULL, "%s, %s: %s '%s'", arch, spec,
                  md_status_name(s), err.text);
}

static int64_t plan(int32_t context, const char *type_k, const char *type_v)
{
    const struct md_open_params p = { .flash_attn = -1, .type_k = type_k, .type_v = type_v };
    struct md_open_cost c;
    ck_assert_msg(md_backend_llama.cost(&facts, &p, 1, &c, &err) == MD_OK, "%s", err.text);
    return md_kv_bytes(&facts.shape, &c.mode, context);
}

/* "1101": by what the layers say of themselves. */
static const char *windows(bool cells)
{
    static char text[MD_LAYERS_MAX + 1];
    for (int32_t i = 0; i < facts.shape.layer_count; i++)
        text[i] = (cells ? facts.shape.layers[i].window_cells : facts.shape.layers[i].window > 0) ? '1' : '0';
    text[facts.shape.layer_count] = '\0';
    return text;
}

/* ---- the cases ---- */

START_TEST(b009_heads_per_layer)
{
    static const struct {
        const char *heads;
        int64_t bytes; /* the case's */
    } rows[] = { { HEADS "attention.head_count_kv=i32:[4,4,0,4,1,4]", 17825792 },
                 { HEADS "attention.head_count_kv=u32:[4,4,0,4,1,4]", 17825792 },
                 { HEADS "attention.head_count_kv=4", 25165824 },
                 { HEADS "attention.head_count_kv=i32:4", 25165824 },
                 { "attention.head_count=[16,16,16,16,16,16] attention.head_count_kv=4", 25165824 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char spec[256];
        snprintf(spec, sizeof spec, LAYERS(6) "%s", rows[i].heads);
        accept("llama", spec);
        ck_assert_int_eq(plan(4096, NULL, NULL), rows[i].bytes);
        ck_assert_int_eq(facts.shape.layers[2].kv_heads, i < 2 ? 0 : 4);
        ck_assert_int_eq(facts.shape.layers[4].kv_heads, i < 2 ? 1 : 4);
    }
}
END_TEST

START_TEST(b011_arrays_of_a_wrong_length)
{
    refuse("llama", LAYERS(6) HEADS "attention.head_count_kv=[4,4,4,4,4]", MD_INVALID, "expected 6, found 5");
    refuse("llama", LAYERS(6) HEADS "attention.head_count_kv=[4,4,4,4,4,4,4]", MD_INVALID,
           "expected 6, found 7");
    refuse("llama", LAYERS(6) HEADS "attention.head_count_kv=[]", MD_INVALID, "expected 6, found 0");
    accept("llama", LAYERS(6) HEADS "nextn_predict_layers=1 attention.head_count_kv=[4,4,4,4,4,2]");
    ck_assert_int_eq(facts.shape.layer_count, 6); /* create_memory filters them in a few families only */
    ck_assert_int_eq(facts.shape.layers[5].kv_heads, 2);
    refuse("llama", WHOLE(6) "nextn_predict_layers=6", MD_INVALID, "nextn_predict_layers");
}
END_TEST

/* llama is a family that uses no windows: what the file declares shows, and costs nothing less. */
START_TEST(b012_window_patterns)
{
    static const struct {
        const char *pattern, *mask; /* the case's */
    } rows[] = { { "4", "11101110" },
                 { "1", "00000000" },
                 { "0", "11111111" },
                 { "3", "11011011" },
                 { "bool:[1,1,1,0,1,1,1,0]", "11101110" },
                 { "u8:[1,1,1,0,1,1,1,0]", "11101110" },
                 { "u32:[1,1,1,0,1,1,1,0]", "11101110" },
                 { "i32:[1,1,1,0,1,1,1,0]", "11101110" } };
    char spec[400];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(spec, sizeof spec,
                 WHOLE(8) "attention.sliding_window=256 attention.sliding_window_pattern=%s",
                 rows[i].pattern);
        accept("llama", spec);
        ck_assert_str_eq(windows(false), rows[i].mask);
        ck_assert_str_eq(windows(true), "00000000");
        ck_assert_ptr_nonnull(facts.note);
        accept("novarch", spec); /* a family that is not known is taken at its word */
        ck_assert_str_eq(windows(true), rows[i].mask);
    }
    refuse("llama", WHOLE(8) "attention.sliding_window=256 attention.sliding_window_pattern=[1,1,1,0,1,1,1]",
           MD_INVALID, "expected 8, found 7");
}
END_TEST

START_TEST(b014_too_many_layers)
{
    const char *rest = " context_length=32768 embedding_length=1024 " HEADS KV_HEADS;
    static const char *const counts[] = { "513", "65536", "4294967295" };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char spec[256], want[80];
        snprintf(spec, sizeof spec, "block_count=%s%s", counts[i], rest);
        snprintf(want, sizeof want, "has %s layers, at most 512 supported", counts[i]);
        refuse("llama", spec, MD_INVALID, want);
    }
    accept("llama", WHOLE(512));
    ck_assert_int_eq(facts.shape.layer_count, 512);
}
END_TEST

START_TEST(b015_missing_and_zero_keys)
{
    refuse(NULL, "", MD_INVALID, "'general.architecture' is missing");
    refuse("llama", "", MD_INVALID, "'llama.block_count' is missing");
    refuse("llama", "block_count=12", MD_INVALID, "'llama.context_length' is missing");
    refuse("llama", "block_count=0", MD_INVALID, "'llama.block_count' is 0");
    refuse("llama", LAYERS(12), MD_INVALID, "'llama.attention.head_count' is missing");
    refuse("llama", LAYERS(12) "attention.head_count=0 " KV_HEADS, MD_INVALID,
           "'llama.attention.head_count' is 0");
    refuse("", "", MD_INVALID, "'general.architecture' is empty");
    accept("llama", LAYERS(12) HEADS);
    ck_assert_int_eq(facts.shape.layers[11].kv_heads, 16);
    ck_assert_int_eq(facts.shape.layers[11].key_length, 64);
    ck_assert_int_eq(facts.shape.layers[11].value_length, 64);
}
END_TEST

#define ALTERNATING "1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0"

START_TEST(b018_an_unknown_architecture)
{
    const char *base = "block_count=24 context_length=32768 embedding_length=1024 " HEADS
                       "attention.head_count_kv=8 attention.key_length=64 attention.value_length=64 "
                       "attention.sliding_window=128 ";
    char spec[512];
    snprintf(spec, sizeof spec, "%sattention.sliding_window_pattern=bool:[" ALTERNATING "]", base);
    accept("novarch", spec);
    ck_assert_int_eq(plan(32768, NULL, NULL), 824180736); /* the case's */
    ck_assert(!facts.loadable);
    ck_assert_str_eq(facts.unsupported[0], "unsupported_architecture");
    ck_assert_ptr_null(facts.unsupported[1]);
    refuse("novarch", "", MD_UNSUPPORTED, "architecture 'novarch' is not known");
    accept("novarch", base); /* a window and no word of which layers: counted whole, never low */
    ck_assert_int_eq(plan(32768, NULL, NULL), 1610612736);
}
END_TEST

#define LATENT                                                                           \
    "block_count=27 context_length=32768 embedding_length=2048 attention.head_count=16 " \
    "attention.head_count_kv=1 attention.key_length=576 attention.value_length=512 "     \
    "attention.kv_lora_rank=512 rope.dimension_count=64 "

START_TEST(b023_latent_attention)
{
    const struct md_open_params mixed = { .flash_attn = -1, .type_k = "q8_0" };
    struct md_open_cost c;
    accept("deepseek2", LATENT "attention.key_length_mla=192 attention.value_length_mla=128");
    ck_assert_int_eq(plan(32768, NULL, NULL), 1019215872); /* the case's */
    /* llama-context.cpp: "model does not support different K and V cache types" */
    ck_assert_int_eq(md_backend_llama.cost(&facts, &mixed, 0, &c, &err), MD_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "must be equal, not 'q8_0' and 'f16'") != NULL, "%s", err.text);
    accept("deepseek2", LATENT); /* an old file: keys and values are both kept */
    ck_assert_int_eq(plan(32768, NULL, NULL), 1925185536);
    accept("deepseek2", LATENT "attention.key_length_mla=192"); /* one of the two is none (is_mla) */
    ck_assert_int_eq(plan(32768, NULL, NULL), 1925185536);
    accept("novarch", LATENT "attention.key_length_mla=192 attention.value_length_mla=128");
    ck_assert_int_eq(plan(32768, NULL, NULL), 1925185536); /* unknown: never low */
    /* models/deepseek2ocr.cpp does not read them: 27 layers of 128 + 128 values of 2 bytes */
    accept("deepseek2-ocr",
           "block_count=27 context_length=32768 embedding_length=2048 attention.head_count=16 "
           "attention.head_count_kv=1 attention.key_length_mla=192 attention.value_length_mla=128");
    ck_assert_int_eq(plan(32768, NULL, NULL), 27LL * 32768 * (128 + 128) * 2);
}
END_TEST

START_TEST(b024_types)
{
    struct gguf_writer w;
    gw_base12(&w);
    ck_assert_int_eq(gw_probe(&w, &md_backend_llama, &facts, &err), MD_OK);
    ck_assert_int_eq(plan(32768, "f16", "f16"), 402653184);
    ck_assert_int_eq(plan(32768, "q8_0", "q8_0"), 213909504);
    ck_assert_int_eq(plan(32768, "q4_0", "q4_0"), 113246208);
    ck_assert_int_eq(plan(32768, "q8_0", NULL), 308281344);
    ck_assert_int_eq(facts.trained_tokens, 32768);
    ck_assert_str_eq(facts.architecture, "llama");
    ck_assert_int_eq(facts.file_bytes, 263);
    ck_assert(facts.loadable);
    ck_assert_ptr_null(facts.unsupported[0]);
    ck_assert_ptr_null(facts.note);
}
END_TEST

START_TEST(b118_positions)
{
    accept("llama", "block_count=12 context_length=16384 embedding_length=1024 " HEADS KV_HEADS
                    "rope.scaling.type=text:yarn rope.scaling.factor=f32:4 "
                    "rope.scaling.original_context_length=4096 rope.freq_base=f32:500000");
    ck_assert_int_eq(facts.trained_tokens, 16384); /* not 4096, and not 4 times that of something else */
    ck_assert_double_eq(facts.rope_base, 500000);
    ck_assert_double_eq(facts.rope_base_window, 0); /* no windowed layers */
    ck_assert(facts.rope.scaling == MD_ROPE_YARN && facts.rope.original_tokens == 4096);
    ck_assert(!facts.rope.absent && facts.rope.context_tokens == 16384);
    ck_assert_double_eq(facts.rope.factor, 4);
    ck_assert_double_eq(facts.rope.base, 500000);
    accept("llama", WHOLE(12));
    ck_assert_double_eq(facts.rope_base, 10000); /* load_hparams */
    accept("gemma3", WHOLE(12) "attention.sliding_window=512 rope.freq_base=f32:1000000");
    ck_assert_double_eq(facts.rope_base, 1000000);
    ck_assert_double_eq(facts.rope_base_window, 10000); /* llama-hparams.h; the key is not in the file */
    accept("gemma3", WHOLE(12) "attention.sliding_window=512 rope.freq_base_swa=f32:20000");
    ck_assert_double_eq(facts.rope_base_window, 20000);
    accept("gemma2", WHOLE(12) "rope.freq_base=f32:30000"); /* gemma2.cpp: as the others */
    ck_assert_double_eq(facts.rope_base_window, 30000);
}
END_TEST

/* Keys of the library: llama-arch.cpp; what it makes of them: load_hparams. */
START_TEST(scaled_positions)
{
    accept("llama", WHOLE(12) "rope.scaling.type=text:linear rope.scaling.factor=f32:8");
    ck_assert(facts.rope.scaling == MD_ROPE_LINEAR && facts.rope.original_tokens == 0);
    ck_assert_double_eq(facts.rope.factor, 8);
    ck_assert_int_eq(facts.trained_tokens, facts.rope.context_tokens);
    accept("llama", WHOLE(12) "rope.scale_linear=f32:2"); /* an old file: linear is the default */
    ck_assert(facts.rope.scaling == MD_ROPE_LINEAR);
    ck_assert_double_eq(facts.rope.factor, 2);
    accept("llama", WHOLE(12) "rope.scale_linear=f32:2 rope.scaling.factor=f32:3");
    ck_assert_double_eq(facts.rope.factor, 3);
    accept("llama", WHOLE(12) "rope.scaling.type=text:none rope.scaling.factor=f32:8");
    ck_assert(facts.rope.scaling == MD_ROPE_NONE);
    accept("phi3", WHOLE(12) "rope.scaling.type=text:longrope rope.scaling.original_context_length=4096");
    ck_assert(facts.rope.scaling == MD_ROPE_LONGROPE);
    /* made longer by hand: the window is what the two values make */
    accept("llama", "block_count=12 context_length=4096 embedding_length=1024 " HEADS KV_HEADS
                    "rope.scaling.type=text:yarn rope.scaling.factor=f32:4 "
                    "rope.scaling.original_context_length=4096");
    ck_assert_int_eq(facts.trained_tokens, 16384);
    refuse("llama", WHOLE(12) "rope.scaling.factor=f32:-1", MD_INVALID, "'llama.rope.scaling.factor' is -1");
    refuse("llama", WHOLE(12) "rope.scaling.type=text:yarn rope.scaling.original_context_length=4294967295",
           MD_INVALID, "original_context_length");
}
END_TEST

START_TEST(families_without_rotary_positions)
{
    static const char *const without[] = { "gpt2", "bloom", "mpt", "jais", "refact", "starcoder" };
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        accept(without[i], WHOLE(12));
        ck_assert_msg(facts.rope.absent, "%s", without[i]);
    }
    static const char *const with[] = { "llama", "qwen2", "gemma3", "gptneox", "falcon" };
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        accept(with[i], WHOLE(12) "attention.sliding_window=512");
        ck_assert_msg(!facts.rope.absent, "%s", with[i]);
    }
}
END_TEST

/* ---- families ---- */

#define WINDOW "attention.sliding_window=512 "
#define PATTERN "attention.sliding_window_pattern="
#define MASK PATTERN "[1,1,0,0,1,0,0,0,1,0,0,1]"

START_TEST(windowed_families)
{
    static const struct {
        const char *arch, *spec, *mask; /* of 12 layers: those with cells for their window only */
        int32_t window;
    } rows[] = {
        /* the family's period; a declared array does not count there: get_key_or_arr(uint32_t &) */
        { "afmoe", WINDOW, "111011101110", 512 },
        { "cohere2", WINDOW, "111011101110", 512 },
        { "cohere2", WINDOW PATTERN "3", "110110110110", 512 },
        { "exaone-moe", WINDOW, "111011101110", 512 },
        { "gemma2", "", "101010101010", 4096 }, /* gemma2.cpp: n_swa = 4096 */
        { "gemma2", WINDOW, "101010101010", 512 },
        { "gemma3", WINDOW, "111110111110", 512 },
        { "gemma3", WINDOW MASK, "111110111110", 512 },
        { "gemma3", WINDOW PATTERN "4", "111011101110", 512 },
        { "gemma3", "", "000000000000", 0 },
        { "gemma3", "attention.sliding_window=0", "000000000000", 0 },
        { "gemma3n", WINDOW, "111101111011", 512 },
        { "gpt-oss", WINDOW, "101010101010", 512 },
        { "laguna", WINDOW, "011101110111", 512 }, /* dense_first */
        { "olmo2", WINDOW, "111011101110", 512 },
        { "olmo2", "", "000000000000", 0 },
        { "plamo3", WINDOW, "111111101111", 512 },
        { "smallthinker", EXPERTS WINDOW, "011101110111", 4096 }, /* dense_first; n_swa = 4096 */
        { "smallthinker", EXPERTS, "000000000000", 0 },
        { "llama4", "", "111011101110", 8192 }, /* chunked: 8192, declared or not */
        { "llama4", WINDOW, "111011101110", 8192 },
        /* a number or an array, one of them needed */
        { "mellum", WINDOW PATTERN "4", "111011101110", 512 },
        { "mellum", WINDOW MASK, "110010001001", 512 },
        { "mellum", "", "000000000000", 0 },
        { "muse-glimmer", WINDOW PATTERN "4", "111011101110", 512 },
        { "muse-glimmer", WINDOW MASK, "110010001001", 512 },
        { "cohere2moe", WINDOW PATTERN "4", "011101110111", 512 }, /* dense_first */
        { "cohere2moe", WINDOW MASK, "110010001001", 512 },
        /* an array; one number holds for all layers */
        { "gemma4", WINDOW MASK, "110010001001", 512 },
        { "mimo2", WINDOW MASK, "110010001001", 512 },
        { "mimo2", WINDOW PATTERN "1", "111111111111", 512 },
        { "step35", WINDOW MASK, "110010001001", 512 },
        { "granite_swa", WINDOW MASK, "110010001001", 512 },
        /* 64 layers only; and the two that declare windows which are not used */
        { "exaone4", WINDOW, "000000000000", 512 },
        { "phi3", WINDOW, "000000000000", 512 },
        { "phimoe", WINDOW, "000000000000", 512 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char spec[512];
        int32_t window = 0;
        snprintf(spec, sizeof spec, WHOLE(12) "%s", rows[i].spec);
        accept(rows[i].arch, spec);
        ck_assert_msg(strcmp(windows(true), rows[i].mask) == 0, "%s, %s: %s", rows[i].arch, rows[i].spec,
                      windows(true));
        for (int32_t l = 0; l < 12; l++)
            window = facts.shape.layers[l].window > window ? facts.shape.layers[l].window : window;
        ck_assert_msg(window == rows[i].window, "%s, %s: window %d", rows[i].arch, rows[i].spec, window);
        ck_assert_msg((facts.note != NULL) == (window > 0 && strchr(rows[i].mask, '1') == NULL), "%s, %s: %s",
                      rows[i].arch, rows[i].spec, facts.note);
        ck_assert_msg(facts.loadable, "%s, %s", rows[i].arch, rows[i].spec);
    }
    accept("llama4", WHOLE(12) "attention.sliding_window=0"); /* llama-graph.cpp: f_attn_temp_scale != 0 */
    ck_assert_str_eq(windows(true), "000000000000");
    ck_assert(!facts.loadable);
    accept("exaone4", WHOLE(64));
    ck_assert_int_eq(facts.shape.layers[0].window, 4096);
    ck_assert(facts.shape.layers[0].window_cells && !facts.shape.layers[3].window_cells);
}
END_TEST

START_TEST(windows_that_are_refused)
{
    /* get_key(LLM_KV_ATTENTION_SLIDING_WINDOW, n_swa), which is required there */
    static const char *const needed[] = { "cohere2", "cohere2moe",  "exaone-moe", "gemma3n",      "gemma4",
                                          "gpt-oss", "granite_swa", "mimo2",      "muse-glimmer", "step35" };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        refuse(needed[i], WHOLE(12) MASK, MD_INVALID, ".attention.sliding_window' is missing");
        refuse(needed[i], WHOLE(12) MASK " attention.sliding_window=0", MD_INVALID,
               ".attention.sliding_window' is 0");
    }
    static const char *const masked[] = { "cohere2moe", "gemma4",       "granite_swa", "mellum",
                                          "mimo2",      "muse-glimmer", "step35" };
    for (size_t i = 0; i < sizeof masked / sizeof masked[0]; i++) {
        refuse(masked[i], WHOLE(12) WINDOW, MD_INVALID, ".attention.sliding_window_pattern' is missing");
        refuse(masked[i], WHOLE(12) WINDOW PATTERN "[1,0,1]", MD_INVALID, "expected 12, found 3");
    }
    refuse("granite_swa", WHOLE(12) WINDOW PATTERN "1", MD_INVALID, "must be an array");
    /* with nextn layers: n_layer() elements, in step35 n_layer_all */
    accept("mimo2", WHOLE(12) WINDOW "nextn_predict_layers=2 " PATTERN "[1,1,1,0,1,1,1,0,1,1]");
    ck_assert_str_eq(windows(true), "111011101100");
    refuse("mimo2", WHOLE(12) WINDOW "nextn_predict_layers=2 " MASK, MD_INVALID, "expected 10, found 12");
    accept("step35", WHOLE(12) WINDOW "nextn_predict_layers=2 " MASK);
    /* create_memory: GGML_ASSERT(hparams.is_swa_any()) would end the process */
    accept("gemma3", WHOLE(12) WINDOW PATTERN "1");
    ck_assert(!facts.loadable);
    ck_assert_str_eq(facts.unsupported[0], "unsupported_layer_pattern");
}
END_TEST

/* One sign per layer: K keys and values, S state, B both, - nothing, F from another layer. */
static const char *kinds(void)
{
    static char text[MD_LAYERS_MAX + 1];
    for (int32_t i = 0; i < facts.shape.layer_count; i++) {
        const struct md_kv_layer *l = &facts.shape.layers[i];
        const bool kv = l->kv_heads > 0, state = l->state_bytes > 0;
        text[i] = l->shared && kv ? 'F' : kv && state ? 'B' : kv ? 'K' : state ? 'S' : '-';
    }
    text[facts.shape.layer_count] = '\0';
    return text;
}

#define SSM "ssm.conv_kernel=4 ssm.inner_size=2048 ssm.state_size=16 ssm.time_step_rank=64 "
#define GROUPS "ssm.group_count=2 "
/* qwen35.cpp: the heads of values are as long as the state, so inner size = state x heads */
#define DELTA "ssm.conv_kernel=4 ssm.inner_size=2048 ssm.state_size=16 ssm.time_step_rank=128 "
#define SOME_KV "attention.head_count_kv=[0,0,4,0,0,4] "

START_TEST(layers_with_a_state)
{
    /* llama-hparams.cpp: n_embd_r and n_embd_s, 4 bytes each */
    const int64_t ssm = 4 * (3 * 2048 + 16 * 2048), ssm_groups = 4 * (3 * (2048 + 2 * 2 * 16) + 16 * 2048);
    static const char no_ffn[] = "feed_forward_length=[0,512,0,0,512,0] ";
    char nemotron[300];
    snprintf(nemotron, sizeof nemotron, LAYERS(6) HEADS SOME_KV SSM GROUPS "%s", no_ffn);
    const struct {
        const char *arch, *spec, *kinds;
        int64_t state_bytes;
    } rows[] = {
        { "jamba", LAYERS(6) HEADS SOME_KV SSM, "SSKSSK", ssm },
        { "plamo2",
          LAYERS(6) "attention.head_count=[0,0,16,0,0,16] attention.key_length=64 "
                    "attention.value_length=64 " SOME_KV SSM "ssm.group_count=0",
          "SSKSSK", ssm },
        { "granitehybrid", LAYERS(6) HEADS SOME_KV SSM GROUPS, "SSKSSK", ssm_groups },
        { "falcon-h1", WHOLE(6) SSM GROUPS, "BBBBBB", ssm_groups },
        { "nemotron_h", nemotron, "S-KS-K", ssm_groups },
        { "nemotron_h_moe", nemotron, "S-KS-K", ssm_groups },
        /* (n_embd, 1024) x (l_cache - 1); no state matrix */
        { "lfm2", LAYERS(6) HEADS SOME_KV "shortconv.l_cache=3", "SSKSSK", 4 * 1024 * 2 },
        { "lfm2moe", LAYERS(6) HEADS SOME_KV EXPERTS "shortconv.l_cache=3", "SSKSSK", 4 * 1024 * 2 },
        { "qwen3next", WHOLE(6) DELTA GROUPS, "SSSKSS", ssm_groups },
        { "qwen35", WHOLE(6) DELTA GROUPS "full_attention_interval=3", "SSKSSK", ssm_groups },
        { "qwen35moe", WHOLE(6) DELTA GROUPS "attention.recurrent_layers=bool:[1,1,0,0,1,1]", "SSKKSS",
          ssm_groups },
        { "qwen35moe", WHOLE(6) DELTA GROUPS "nextn_predict_layers=1", "SSSKSF", ssm_groups },
        { "minimax-01", WHOLE(9), "SSSSSSSKS",
          4 * 64 * 64 * 16 }, /* key length^2 x heads; every 8th is full */
        /* 3 x (kernel - 1) x heads x length, and length^2 x heads */
        { "kimi-linear",
          LAYERS(6) HEADS
          "attention.head_count_kv=[0,0,1,0,0,1] attention.key_length_mla=192 attention.value_length_mla=128 "
          "ssm.conv_kernel=4 kda.head_dim=128",
          "SSKSSK", 4 * (3 * 3 * 16 * 128 + 128 * 128 * 16) },
        { "mamba", LAYERS(6) SSM, "SSSSSS", ssm },
        { "mamba", LAYERS(6) "attention.head_count=0 " SSM, "SSSSSS", ssm },
        { "mamba2", LAYERS(6) SSM GROUPS, "SSSSSS", ssm_groups },
        { "rwkv6", LAYERS(6) "wkv.head_size=64", "SSSSSS", 4 * 1024 * (2 + 64) },
        { "rwkv7", LAYERS(6) "wkv.head_size=64", "SSSSSS", 4 * 1024 * (2 + 64) },
        { "arwkv7", LAYERS(6) "wkv.head_size=64 token_shift_count=1", "SSSSSS", 4 * 1024 * (1 + 64) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        accept(rows[i].arch, rows[i].spec);
        ck_assert_msg(strcmp(kinds(), rows[i].kinds) == 0, "%s: %s", rows[i].arch, kinds());
        const int64_t got = facts.shape.layers[0].state_bytes;
        ck_assert_msg(got == rows[i].state_bytes, "%s: %lld", rows[i].arch, (long long)got);
        ck_assert_msg(facts.loadable, "%s", rows[i].arch);
        struct md_open_cost c;
        const struct md_open_params p = { .flash_attn = -1 };
        ck_assert_int_eq(md_backend_llama.cost(&facts, &p, 0, &c, &err), MD_OK);
        const bool pure = strcmp(rows[i].kinds, "SSSSSS") == 0;
        ck_assert_msg(c.checkpoints && c.cold_store == !pure, "%s", rows[i].arch);
        ck_assert_int_eq(c.mode.seq_count, pure ? 1 : 2); /* beside attention there is scratch */
    }
    accept("lfm2", LAYERS(6) HEADS SOME_KV "shortconv.l_cache=3 " WINDOW); /* each attention layer */
    ck_assert_str_eq(windows(true), "001001");
    refuse("jamba", LAYERS(6) HEADS SOME_KV "ssm.conv_kernel=4 ssm.state_size=16", MD_INVALID,
           "'jamba.ssm.inner_size' is missing");
    refuse("qwen35", WHOLE(6) DELTA GROUPS "full_attention_interval=0", MD_INVALID,
           "full_attention_interval");
}
END_TEST

START_TEST(layers_that_keep_nothing)
{
    accept("gemma3n", WHOLE(30) WINDOW); /* n_layer_kv_from_start = 20 */
    ck_assert_str_eq(kinds(), "KKKKKKKKKKKKKKKKKKKKFFFFFFFFFF");
    accept("gemma4", WHOLE(12) WINDOW PATTERN "[1,1,0,1,1,1,0,1,1,0,1,1] attention.shared_kv_layers=5 "
                                              "attention.key_length_swa=32 attention.value_length_swa=32 "
                                              "rope.dimension_count_swa=32");
    ck_assert_str_eq(kinds(), "KKKKKKKFFFFF");
    ck_assert_int_eq(facts.shape.layers[0].key_length, 32);
    ck_assert_int_eq(facts.shape.layers[0].value_length, 32);
    ck_assert_int_eq(facts.shape.layers[2].key_length, 64);
    ck_assert(facts.loadable);
    /* the last layer with KV of its own is windowed: the library looks for it among the global ones */
    accept("gemma4", WHOLE(12) WINDOW PATTERN "[1,1,0,1,1,0,1,1,0,1,1,0] attention.shared_kv_layers=5");
    ck_assert(!facts.loadable);
    accept("gemma4", WHOLE(12) WINDOW PATTERN "[1,1,0,1,1,0,1,1,0,1,1,0] attention.shared_kv_layers=11");
    ck_assert(!facts.loadable);
    refuse("gemma4", WHOLE(12) WINDOW MASK " attention.shared_kv_layers=13", MD_INVALID, "shared_kv_layers");
    accept("mimo2", WHOLE(6) WINDOW PATTERN "[0,1,0,0,0,0] attention.value_length_swa=16");
    ck_assert_int_eq(facts.shape.layers[1].key_length, 64);
    ck_assert_int_eq(facts.shape.layers[1].value_length, 16);
    /* create_memory: filter il < n_layer() */
    accept("hy_v3", WHOLE(6) "nextn_predict_layers=2");
    ck_assert_str_eq(kinds(), "KKKKFF");
    accept("step35", WHOLE(6) WINDOW "nextn_predict_layers=2 " PATTERN "[1,1,1,0,0,0]");
    ck_assert_str_eq(kinds(), "KKKKFF");
    accept("glm4moe", WHOLE(6) EXPERTS "nextn_predict_layers=2"); /* no filter there */
    ck_assert_str_eq(kinds(), "KKKKKK");
}
END_TEST

START_TEST(layers_that_are_more)
{
    accept("nanbeige", WHOLE(6) "num_loops=3");
    ck_assert_int_eq(facts.shape.layer_count, 18);
    ck_assert_int_eq(plan(4096, NULL, NULL), 3 * 25165824); /* case B009's six layers, three times */
    refuse("nanbeige", WHOLE(6) "num_loops=86", MD_INVALID, "516 layers in all, at most 512 supported");
    refuse("nanbeige", WHOLE(6) "num_loops=0", MD_INVALID, "num_loops");
    accept("graniteswitch", WHOLE(6)); /* granite-switch.cpp: one more, of a single head */
    ck_assert_int_eq(facts.shape.layer_count, 7);
    ck_assert_int_eq(facts.shape.layers[6].kv_heads, 1);
    refuse("graniteswitch", WHOLE(512), MD_INVALID, "513 layers in all");
}
END_TEST

START_TEST(families_that_are_not_planned)
{
    static const char *const layouts[] = { "deepseek4", "deepseek32", "glm-dsa",
                                           "dots3note", "minimax-m3", "qwen4exp",
                                           "dflash",    "eagle3",     "gemma4-assistant" };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char want[80];
        snprintf(want, sizeof want, "KV layout of architecture '%s' is not known", layouts[i]);
        refuse(layouts[i], WHOLE(12), MD_UNSUPPORTED, want);
    }
    static const struct {
        const char *arch, *code;
    } rows[] = { { "bert", "embedding_model" },
                 { "gemma-embedding", "embedding_model" },
                 { "dream", "diffusion_model" },
                 { "llada-moe", "diffusion_model" },
                 { "t5", "encoder_model" },
                 { "clip", "projector" },
                 { "wavtokenizer-dec", "audio_model" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        accept(rows[i].arch, ""); /* clip has none of the keys */
        ck_assert_msg(!facts.loadable, "%s", rows[i].arch);
        ck_assert_str_eq(facts.unsupported[0], rows[i].code);
        ck_assert_int_eq(facts.shape.layer_count, 0);
    }
    accept("gptj", WHOLE(12)); /* a name without a model class: llama_model_create throws */
    ck_assert(!facts.loadable);
}
END_TEST

/* ---- values that lie ---- */

START_TEST(huge_values_are_refused)
{
    refuse("llama", LAYERS(6) "attention.head_count=65537", MD_INVALID, "attention.head_count");
    refuse("llama", LAYERS(6) "attention.head_count=16 attention.head_count_kv=i32:-1", MD_INVALID,
           "head_count_kv");
    refuse("llama", WHOLE(6) "attention.key_length=65537", MD_INVALID, "attention.key_length");
    refuse("llama", LAYERS(6) "attention.head_count=65536 attention.value_length=65536", MD_INVALID,
           "65536 KV heads of 65536 in layer 0, at most 1048576 values");
    refuse("mamba2",
           LAYERS(6) "ssm.conv_kernel=65536 ssm.inner_size=1 ssm.state_size=65536 ssm.group_count=65536",
           MD_INVALID, "a recurrent state of");
    /* the largest that is left */
    accept("llama",
           LAYERS(512) "attention.head_count=1048 attention.key_length=1000 attention.value_length=1000");
    ck_assert_int_eq(plan(1 << 20, "f32", "f32"), 512LL * 2 * 4 * 1048000 * (1LL << 20));
    ck_assert_int_gt(plan(1 << 30, "f32", "f32"), 0);
}
END_TEST

/* ---- cost ---- */

START_TEST(cost_of_opening)
{
    struct md_open_cost c;
    accept("llama", WHOLE(12));
    static const struct {
        struct md_open_params p;
        int32_t seqs;
        enum md_status want;
        const char *part;
    } bad[] = {
        { { .type_k = "q9" }, 0, MD_INVALID, "unknown KV type 'q9' for keys" },
        { { .type_v = "q9" }, 0, MD_INVALID, "unknown KV type 'q9' for values" },
        { { .type_v = "q8_0", .flash_attn = 0 }, 0, MD_INVALID, "'q8_0' for values needs flash attention" },
        { { .batch_tokens = -1 }, 0, MD_INVALID, "batch sizes" },
        { { .ubatch_tokens = INT32_MAX }, 0, MD_INVALID, "batch sizes" },
        { { .flash_attn = 0 }, -1, MD_INVALID, "sequences" },
        { { .flash_attn = 0 }, 257, MD_INVALID, "sequences" },
        { { .seq_count = -1 }, 0, MD_INVALID, "sequences must be 0 to 127, got -1" },
        { { .seq_count = 128 }, 0, MD_INVALID, "sequences must be 0 to 127, got 128" }
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum md_status s = md_backend_llama.cost(&facts, &bad[i].p, bad[i].seqs, &c, &err);
        ck_assert_msg(s == bad[i].want && strstr(err.text, bad[i].part) != NULL, "row %zu: '%s'", i,
                      err.text);
    }
    static const struct {
        struct md_open_params p;
        int32_t ubatch;
    } good[] = { { { .flash_attn = 1 }, 512 },
                 { { .batch_tokens = 100 }, 100 },
                 { { .batch_tokens = 2048 }, 512 },
                 { { .batch_tokens = 2048, .ubatch_tokens = 1024 }, 1024 },
                 { { .ubatch_tokens = 64 }, 64 } };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_int_eq(md_backend_llama.cost(&facts, &good[i].p, 0, &c, &err), MD_OK);
        ck_assert_int_eq(c.mode.ubatch_tokens, good[i].ubatch);
        ck_assert_int_eq(c.mode.seq_count, 1); /* llama_engine.c: scratch, whatever the user may name */
        ck_assert(c.mode.values_padded == (good[i].p.flash_attn == 0));
        ck_assert(c.cold_store && !c.checkpoints && !c.mode.window_full);
    }
    const struct md_open_params quantized = { .flash_attn = -1, .type_k = "q8_0" },
                                full = { .window_full = true };
    accept("llama", LAYERS(12) "attention.head_count=16 attention.key_length=80 attention.value_length=80");
    ck_assert_int_eq(md_backend_llama.cost(&facts, &quantized, 0, &c, &err), MD_UNSUPPORTED);
    accept("grok", WHOLE(12)); /* llama-context.cpp: "flash_attn is not compatible with Grok" */
    ck_assert_int_eq(md_backend_llama.cost(&facts, &quantized, 0, &c, &err), MD_OK);
    ck_assert(c.mode.values_padded);
    const struct md_open_params values = { .flash_attn = -1, .type_v = "q8_0" };
    ck_assert_int_eq(md_backend_llama.cost(&facts, &values, 0, &c, &err), MD_UNSUPPORTED);
    accept("gemma3", WHOLE(12) WINDOW);
    ck_assert_int_eq(md_backend_llama.cost(&facts, &full, 0, &c, &err), MD_OK);
    ck_assert(c.mode.window_full && c.mode.seq_count == 1 && !c.cold_store && !c.checkpoints);
    const struct md_open_params one = { .seq_count = 1 }, two = { .seq_count = 2 };
    ck_assert_int_eq(md_backend_llama.cost(&facts, &one, 0, &c, &err), MD_OK);
    ck_assert(c.mode.seq_count == 1 && c.cold_store && c.checkpoints);
    ck_assert_int_eq(md_backend_llama.cost(&facts, &two, 0, &c, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "this model can be run with one sequence, not with 2");
}
END_TEST

START_TEST(descriptions)
{
    static const struct {
        const char *basename, *name, *size;
        int file_type;
        const char *want;
    } rows[] = { { "smollm2", "Smollm2 135M 8k", "135M", 3, "smollm2 135M Q4_1" },
                 { NULL, "My 7B model", "7B", 15, "My 7B model Q4_K_M" },
                 { NULL, NULL, NULL, 1, "llama F16" },
                 { NULL, "bell\a", NULL, 9999, "bell? Q4_0" },
                 { NULL, "x", NULL, -1, "x Q4_0" } }; /* none declared: the type of most bytes */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_writer w;
        gw_base12(&w);
        if (rows[i].basename != NULL)
            gw_string(&w, "general.basename", rows[i].basename);
        if (rows[i].name != NULL)
            gw_string(&w, "general.name", rows[i].name);
        if (rows[i].size != NULL)
            gw_string(&w, "general.size_label", rows[i].size);
        if (rows[i].file_type >= 0)
            gw_u32(&w, "general.file_type", (uint32_t)rows[i].file_type);
        gw_tensor(&w, "a.weight", GW_F32, (uint64_t[]){ 8 }, 1, 32);
        gw_tensor(&w, "b.weight", GW_F32, (uint64_t[]){ 8 }, 1, 32);
        gw_tensor(&w, "c.weight", GW_Q4_0, (uint64_t[]){ 32, 16 }, 2, 288);
        gw_zeros(&w);
        ck_assert_msg(gw_probe(&w, &md_backend_llama, &facts, &err) == MD_OK, "%s", err.text);
        ck_assert_str_eq(facts.description, rows[i].want);
    }
}
END_TEST

START_TEST(the_machine)
{
    static struct md_machine m;
    ck_assert_msg(md_backend_llama.machine(&m, &err) == MD_OK, "%s", err.text);
    ck_assert_str_eq(m.runtime_name, "llama.cpp");
    ck_assert_msg(strncmp(m.runtime_version, "0.4.0", 5) == 0, "%s", m.runtime_version); /* deps/ pins it */
    ck_assert_msg(strstr(m.system_info, "CPU") != NULL, "%s", m.system_info);
    ck_assert_int_ge(m.device_count, 0);
    ck_assert_int_le(m.device_count, MD_DEVICES_MAX);
    for (int32_t i = 0; i < m.device_count; i++)
        ck_assert_msg(m.devices[i].id[0] != '\0' && m.devices[i].kind[0] != '\0', "device %d", i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_layout");
    TCase *c = tcase_create("cases");
    tcase_add_test(c, b009_heads_per_layer);
    tcase_add_test(c, b011_arrays_of_a_wrong_length);
    tcase_add_test(c, b012_window_patterns);
    tcase_add_test(c, b014_too_many_layers);
    tcase_add_test(c, b015_missing_and_zero_keys);
    tcase_add_test(c, b018_an_unknown_architecture);
    tcase_add_test(c, b023_latent_attention);
    tcase_add_test(c, b024_types);
    tcase_add_test(c, b118_positions);
    tcase_add_test(c, scaled_positions);
    tcase_add_test(c, families_without_rotary_positions);
    suite_add_tcase(suite, c);
    c = tcase_create("families");
    tcase_add_test(c, windowed_families);
    tcase_add_test(c, windows_that_are_refused);
    tcase_add_test(c, layers_with_a_state);
    tcase_add_test(c, layers_that_keep_nothing);
    tcase_add_test(c, layers_that_are_more);
    tcase_add_test(c, families_that_are_not_planned);
    tcase_add_test(c, huge_values_are_refused);
    tcase_add_test(c, cost_of_opening);
    tcase_add_test(c, descriptions);
    tcase_add_test(c, the_machine);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
