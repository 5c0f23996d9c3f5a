/* Headers that llama.cpp 0.4.0 meets with an assertion, which ends the process: refused, without the library.  A
 * row's comment quotes the assertion; NAME.cpp stands for src/models/NAME.cpp. */
#include "adapters/llama/llama_backend.h"
#include "support/gguf_spec.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static struct md_model_facts facts;
static struct md_err err;

static void accept(const char *arch, const char *spec)
{
    ck_assert_msg(gw_probe_spec(&md_backend_llama, arch, spec, &facts, &err) == MD_OK, "%s, %s: %s", arch,
                  spec, err.text);
    ck_assert_msg(facts.loadable, "%s, %s", arch, spec);
}

/* It can be planned, but not opened, and `part` of the reason is this; a header that says nothing at all is no
 * more than refused. */
static bool refused(enum md_status s, const char *part)
{
    if (s == MD_OK)
        return !facts.loadable && strcmp(facts.unsupported[0], "invalid_for_engine") == 0 &&
               strstr(facts.refusal, part) != NULL;
    return s == MD_INVALID && strstr(err.text, part) != NULL;
}

static void refuse(const char *arch, const char *spec, const char *part)
{
    enum md_status s = gw_probe_spec(&md_backend_llama, arch, spec, &facts, &err);
    ck_assert_msg(refused(s, part), "%s, %s: %s '%s'", arch, spec, md_status_name(s),
                  s == MD_OK ? facts.refusal : err.text);
}

#define LAYERS(n) "block_count=" #n " context_length=32768 embedding_length=1024 "
#define HEADS "attention.head_count=16 "
#define KV_HEADS "attention.head_count_kv=4 "
#define WHOLE(n) LAYERS(n) HEADS KV_HEADS
#define EXPERTS "expert_count=8 expert_used_count=2 expert_gating_func=2 "
#define WINDOW "attention.sliding_window=512 "
#define PATTERN "attention.sliding_window_pattern="
#define SSM "ssm.conv_kernel=4 ssm.inner_size=2048 ssm.state_size=16 ssm.time_step_rank=64 "
#define GROUPS "ssm.group_count=2 "
#define DELTA "ssm.conv_kernel=4 ssm.inner_size=2048 ssm.state_size=16 ssm.time_step_rank=128 "
#define SOME_KV "attention.head_count_kv=[0,0,4,0,0,4] "
#define LATENT_OF(heads, length)                                                         \
    "block_count=27 context_length=32768 embedding_length=2048 attention.head_count=16 " \
    "attention.head_count_kv=" heads " attention.key_length=" length " "                 \
    "attention.value_length=512 attention.kv_lora_rank=512 rope.dimension_count=64 "
#define LATENT LATENT_OF("1", "576")

struct row {
    const char *arch, *spec, *part;
};

static void refuse_all(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        refuse(rows[i].arch, rows[i].spec, rows[i].part);
}

START_TEST(recurrent_layers)
{
    static const struct row rows[] = {
        /* plamo2.cpp: n_group == 0, d_inner % n_heads == 0 */
        { "plamo2", WHOLE(6) SSM GROUPS, "'plamo2.ssm.group_count' is 2, 0 is needed" },
        { "plamo2",
          LAYERS(6) HEADS SOME_KV "ssm.conv_kernel=4 ssm.inner_size=2048 ssm.state_size=16 "
                                  "ssm.time_step_rank=0 ssm.group_count=0",
          "'plamo2.ssm.time_step_rank' is 0, a divisor of the inner size 2048" },
        /* mamba-base.cpp */
        { "mamba2", LAYERS(6) SSM "ssm.group_count=3", "'mamba2.ssm.group_count' is 3, a divisor" },
        { "falcon-h1",
          WHOLE(6) "ssm.conv_kernel=4 ssm.inner_size=2049 ssm.state_size=16 ssm.group_count=1 "
                   "ssm.time_step_rank=64",
          "'falcon-h1.ssm.time_step_rank' is 64, a divisor of the inner size 2049" },
        /* jamba.cpp, granite-hybrid.cpp: 2 * n_embd == d_inner */
        { "jamba",
          LAYERS(6) HEADS SOME_KV "ssm.conv_kernel=4 ssm.inner_size=1024 ssm.state_size=16 "
                                  "ssm.time_step_rank=64",
          "'jamba.ssm.inner_size' is 1024, twice the embedding length 1024" },
        /* delta-net-base.cpp: S_k == S_v, H_v % H_k == 0 */
        { "qwen35", WHOLE(6) SSM GROUPS,
          "'qwen35.ssm.inner_size' is 2048, the state size 16 times the time step rank 64" },
        { "qwen3next", WHOLE(6) DELTA "ssm.group_count=3", "'qwen3next.ssm.group_count' is 3, a divisor" },
        /* ggml-backend.cpp: a cache of no layers has no buffer */
        { "jamba", WHOLE(6) SSM, "of 6 layers none is recurrent" },
        { "jamba", LAYERS(6) HEADS "attention.head_count_kv=0 " SSM, "none has KV heads" },
        { "lfm2", WHOLE(6) "shortconv.l_cache=3", "of 6 layers none is recurrent" },
        { "lfm2", LAYERS(6) HEADS "attention.head_count_kv=0 shortconv.l_cache=3 " WINDOW,
          "none has KV heads ('lfm2.attention.head_count_kv')" },
        { "deci", LAYERS(6) HEADS "attention.head_count_kv=0", "none has KV heads" },
        /* token_shift_count == 2, n_embd == n_embd_r(), n_head % n_head_kv */
        { "rwkv6", LAYERS(6) "wkv.head_size=64 token_shift_count=1", "token_shift_count' is 1, 2 is needed" },
        { "rwkv7", LAYERS(6) "wkv.head_size=64 token_shift_count=3", "token_shift_count' is 3, 2 is needed" },
        { "arwkv7", LAYERS(6) "wkv.head_size=64", "token_shift_count' is missing, 1 is needed" },
        { "rwkv6qwen2", LAYERS(6) "wkv.head_size=64 token_shift_count=2", "token_shift_count' is 2, 1 is" },
        { "rwkv7", LAYERS(6) "wkv.head_size=65",
          "'rwkv7.wkv.head_size' is 65, a divisor of the embedding length" },
        { "rwkv6qwen2", LAYERS(6) "wkv.head_size=64 token_shift_count=1 attention.head_count_kv=5",
          "'rwkv6qwen2.attention.head_count_kv' is 5, a divisor of 16 heads" },
        /* lfm2.cpp: n_shortconv_l_cache > 1 */
        { "lfm2", LAYERS(6) HEADS SOME_KV "shortconv.l_cache=1", "shortconv.l_cache' is 1, 2 or more" },
    };
    refuse_all(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(attention)
{
    static const struct row rows[] = {
        /* ggml.c: ggml_can_mul_mat(k, q) */
        { "llama", LAYERS(6) HEADS "attention.head_count_kv=3",
          "'llama.attention.head_count' is 16 in layer 0, a multiple of its 3 KV heads" },
        { "deci", LAYERS(6) HEADS "attention.head_count_kv=[4,0,4,4,5,4]",
          "in layer 4, a multiple of its 5 KV" },
        /* NAME.cpp: n_embd_head == n_rot, == n_embd_head_k() */
        { "olmo2", WHOLE(6) "rope.dimension_count=8", "'olmo2.rope.dimension_count' is 8, the length 64" },
        { "llama4", WHOLE(6) "rope.dimension_count=0",
          "'llama4.rope.dimension_count_swa' is 0, the length 64" },
        { "qwen3", WHOLE(6) "attention.value_length=32",
          "'qwen3.attention.value_length' is 32, the length 64" },
        { "glm4", WHOLE(6) "attention.value_length=32",
          "'glm4.attention.value_length' is 32, the length 64" },
        { "gemma3", WHOLE(6) "attention.value_length=8",
          "'gemma3.attention.value_length' is 8, the length 64" },
        /* ops.cpp: n_dims <= ne0, n_dims % 2 == 0 */
        { "gptneox", WHOLE(6) "rope.dimension_count=66",
          "'gptneox.rope.dimension_count' is 66, an even number from 2 to the length 64" },
        { "gptneox", WHOLE(6) "rope.dimension_count=17", "is 17, an even number" },
        { "gptneox", WHOLE(6) "rope.dimension_count=0", "is 0, an even number" },
        { "mimo2", WHOLE(6) WINDOW PATTERN "[1,0,1,0,1,0] attention.key_length_swa=32",
          "'mimo2.rope.dimension_count_swa' is 64, an even number from 2 to the length 32" },
        /* graphs that take the lengths of layer 0 for all */
        { "gemma3", WHOLE(6) WINDOW "attention.key_length_swa=32 attention.value_length_swa=32",
          "'gemma3.attention.key_length_swa' is 32, the length 64 of the other layers" },
        { "smallthinker", WHOLE(6) EXPERTS WINDOW "attention.value_length_swa=32",
          "'smallthinker.attention.value_length_swa' is 32, the length 64 of the other" },
        { "gpt-oss", WHOLE(6) EXPERTS WINDOW "rope.dimension_count=32",
          "'gpt-oss.rope.dimension_count_swa' is 32, the length 64" }, /* openai-moe.cpp: heads of n_rot */
        /* the matrix behind attention is as wide as the model */
        { "cohere2", LAYERS(6) "attention.head_count=3 attention.head_count_kv=1 " WINDOW,
          "'cohere2.attention.head_count' is 3 in layer 0, of 341 values each; the embedding length 1024" },
        /* Kcur of deepseek2.cpp: one head, kv_lora_rank and n_rot */
        { "deepseek2", LATENT_OF("2", "576") "attention.key_length_mla=192 attention.value_length_mla=128",
          "'deepseek2.attention.head_count_kv' is 2, 1 is needed" },
        { "mistral4", LATENT_OF("1", "580") "attention.key_length_mla=192 attention.value_length_mla=128",
          "'mistral4.attention.key_length' is 580, the KV rank 512 and the 64 rotated" },
        /* deepseek2.cpp: n_embd_head_qk_nope >= 1 */
        { "deepseek2", LATENT "attention.key_length_mla=64 attention.value_length_mla=128",
          "'deepseek2.rope.dimension_count' is 64, less than the length 64" },
    };
    refuse_all(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(experts)
{
    static const struct row rows[] = {
        /* llama-model.cpp, load_hparams */
        { "llama", WHOLE(6) "expert_count=1025", "'llama.expert_count' is 1025, at most 1024" },
        { "llama", WHOLE(6) "expert_count=4", "'llama.expert_used_count' is 0, 1 to 4 of its experts" },
        { "llama", WHOLE(6) "expert_count=4 expert_used_count=[1,1,5,1,1,1]",
          "expert_used_count' is 5, 1 to 4" },
        { "hunyuan-moe", WHOLE(6) "expert_count=1 expert_used_count=2", "expert_used_count' is 2, 1 to 1" },
        { "hunyuan-moe", WHOLE(6) "expert_used_count=2", "expert_used_count' is 2, 0 to 0" },
        { "llama", WHOLE(6) EXPERTS "expert_group_count=8", "expert_group_count' is 8, less than 8 experts" },
        { "llama", WHOLE(6) "expert_group_count=1", "expert_group_count' is 1, less than 0 experts" },
        { "llama", WHOLE(6) EXPERTS "expert_group_count=3", "expert_group_count' is 3, a divisor of 8" },
        { "llama", WHOLE(6) EXPERTS "expert_group_count=2 expert_group_used_count=2",
          "expert_group_used_count' is 2, 1 or more and less than 2" },
        /* NAME.cpp: n_expert > 0; lfm2moe.cpp: behind the dense layers */
        { "smallthinker", WHOLE(6), "'smallthinker.expert_count' is 0, 1 or more is needed" },
        { "glm4moe", WHOLE(6), "'glm4moe.expert_count' is 0" },
        { "bailingmoe2", WHOLE(6), "'bailingmoe2.expert_count' is 0" },
        { "grovemoe", WHOLE(6) EXPERTS, "'grovemoe.experts_per_group' is missing" },
        { "lfm2moe", LAYERS(6) HEADS SOME_KV "shortconv.l_cache=3 leading_dense_block_count=2",
          "'lfm2moe.expert_count' is 0" },
        /* llama-graph.cpp: the ways of gating it knows */
        { "exaone-moe", WHOLE(6) "expert_count=8 expert_used_count=2 expert_gating_func=5 " WINDOW,
          "expert_gating_func' is 5, 1 to 4" },
        { "dots1", WHOLE(6) "expert_count=8 expert_used_count=2", "expert_gating_func' is missing, 1 to 4" },
        { "step35", WHOLE(6) "expert_count=8 expert_used_count=2 expert_gating_func=16 " WINDOW PATTERN "1",
          "expert_gating_func' is 16, 0 to 4" },
        /* ernie4-5-moe.cpp: n_moe_layer_step > 0 */
        { "ernie4_5-moe", WHOLE(6) EXPERTS "interleave_moe_layer_step=0", "step' is 0, 1 or more" },
    };
    refuse_all(rows, sizeof rows / sizeof rows[0]);
    accept("hunyuan-dense", WHOLE(6) "expert_count=1 expert_used_count=1"); /* taken as none */
    accept("lfm2moe", LAYERS(6) HEADS SOME_KV "shortconv.l_cache=3 leading_dense_block_count=6");
    accept(
        "llama",
        WHOLE(6) "expert_count=8 expert_used_count=2 expert_gating_func=16"); /* llama.cpp does not read it */
}
END_TEST

/* binary-ops.cpp: unsupported types; a type without a product ends in a call of NULL. */
START_TEST(tensors_of_types_that_cannot_be_used)
{
    enum { Q8_0 = 8, Q8_1 = 9, Q8_K = 15, I8 = 24, I32 = 26, F64 = 28, BF16 = 30 }; /* enum ggml_type */
    static const struct {
        const char *name;
        uint32_t type, rows;
        int bytes;
        const char *part; /* NULL: it is taken */
    } tensors[] = {
        { "output_norm.weight", GW_F16, 0, 512, "'output_norm.weight' is of type f16, f32 is needed" },
        { "blk.0.attn_q_norm.weight", BF16, 2, 1024, "type bf16, f32" },
        { "blk.0.attn_q.bias", GW_F16, 0, 512, "type f16, f32" },
        { "blk.0.attn_q.bias", Q8_0, 0, 272, "type q8_0, f32" },
        { "blk.0.ssm_a", GW_F16, 4, 2048, "type f16, f32" },
        { "blk.0.ssm_conv1d.weight", GW_F16, 4, 2048, "type f16, f32" },
        { "rope_freqs.weight", GW_F16, 0, 512, "type f16, f32" },
        { "token_embd.weight", I32, 2, 2048, "'token_embd.weight' is of type i32, a type of weights" },
        { "blk.0.attn_q.weight", I8, 2, 512, "type i8, a type" },
        { "blk.0.attn_q.weight", Q8_1, 2, 576, "type q8_1, a type" },
        { "blk.0.attn_q.weight", Q8_K, 2, 584, "type q8_K, a type" },
        { "blk.0.attn_q.weight", F64, 2, 4096, "type f64, a type" },
        { "blk.0.attn_q.weight", BF16, 2, 1024, NULL },
        { "blk.0.attn_q.weight", Q8_0, 2, 544, NULL },
        { "blk.0.ffn_gate_inp_shexp.weight", GW_F16, 0, 512, NULL }, /* qwen2moe: multiplied, of one row */
        { "output_norm.weight", GW_F32, 0, 1024, NULL },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        struct gguf_writer w;
        gw_base12(&w);
        gw_tensor(&w, tensors[i].name, tensors[i].type, (uint64_t[]){ 256, tensors[i].rows },
                  tensors[i].rows == 0 ? 1 : 2, (uint64_t)tensors[i].bytes);
        gw_zeros(&w);
        const enum md_status s = gw_probe(&w, &md_backend_llama, &facts, &err);
        if (tensors[i].part == NULL)
            ck_assert_msg(s == MD_OK && facts.loadable, "%s: %s", tensors[i].name, err.text);
        else
            ck_assert_msg(refused(s, tensors[i].part), "row %zu: %s '%s'", i, md_status_name(s),
                          facts.refusal);
    }
}
END_TEST

/* mamba-base.cpp adds the bias, which granite-hybrid.cpp takes as not required */
START_TEST(a_tensor_that_is_used_whether_it_is_there_or_not)
{
    for (int missing = 0; missing < 2; missing++) {
        struct gguf_writer w;
        gw_init(&w);
        gw_string(&w, "general.architecture", "granitehybrid");
        gw_spec(&w, "granitehybrid", LAYERS(6) HEADS SOME_KV SSM GROUPS);
        for (int i = 0; i < 5; i++) {
            char name[48];
            snprintf(name, sizeof name, "blk.%d.ssm_conv1d.%s", i, missing && i == 4 ? "tail" : "bias");
            if (i != 2) /* attention */
                gw_tensor(&w, name, GW_F32, (uint64_t[]){ 8 }, 1, 32);
        }
        gw_zeros(&w);
        const enum md_status s = gw_probe(&w, &md_backend_llama, &facts, &err);
        if (missing)
            ck_assert_msg(refused(s, "'blk.4.ssm_conv1d.bias' is missing"), "%s", facts.refusal);
        else
            ck_assert_msg(s == MD_OK && facts.loadable, "%s", err.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_check");
    TCase *c = tcase_create("headers");
    tcase_add_test(c, recurrent_layers);
    tcase_add_test(c, attention);
    tcase_add_test(c, experts);
    tcase_add_test(c, tensors_of_types_that_cannot_be_used);
    tcase_add_test(c, a_tensor_that_is_used_whether_it_is_there_or_not);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
