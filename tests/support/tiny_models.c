#include "support/tiny_models.h"
#include "support/exact_model.h"
#include "support/gguf_spec.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Width 64, feed-forward part of 128, 4 heads of 16 unless said. */
#define KEYS(layers)                                                                           \
    "block_count=" #layers " context_length=8192 embedding_length=64 feed_forward_length=128 " \
    "attention.layer_norm_rms_epsilon=f32:0.00001 "
#define FFN "ffn_norm.weight=64 ffn_gate.weight=64x128 ffn_up.weight=64x128 ffn_down.weight=128x64 "
#define SSM_KEYS "ssm.conv_kernel=2 ssm.inner_size=128 ssm.state_size=256 ssm.time_step_rank=8 "
#define SSM                                                                                 \
    "attn_norm.weight=64 ssm_in.weight=64x256 ssm_conv1d.weight=2x128 ssm_conv1d.bias=128 " \
    "ssm_x.weight=128x520 ssm_dt.weight=8x128 ssm_dt.bias=128 ssm_a=256x128 ssm_d=128 "     \
    "ssm_out.weight=128x64 "
#define RWKV_LAYER                                                                                           \
    "attn_norm.weight=64 attn_norm.bias=64 attn_norm_2.weight=64 attn_norm_2.bias=64 time_mix_w0.weight=64 " \
    "time_mix_w1.weight=64x8 time_mix_w2.weight=8x64 time_mix_a0.weight=64 time_mix_a1.weight=64x8 "         \
    "time_mix_a2.weight=8x64 time_mix_v0.weight=64 time_mix_v1.weight=64x8 time_mix_v2.weight=8x64 "         \
    "time_mix_g1.weight=64x8 time_mix_g2.weight=8x64 time_mix_lerp_fused.weight=64x1x1x6 "                   \
    "time_mix_k_k.weight=64 time_mix_k_a.weight=64 time_mix_r_k.weight=64 time_mix_key.weight=64x64 "        \
    "time_mix_value.weight=64x64 time_mix_receptance.weight=64x64 time_mix_ln.weight=64 "                    \
    "time_mix_ln.bias=64 "                                                                                   \
    "time_mix_output.weight=64x64 channel_mix_lerp_k.weight=64 channel_mix_key.weight=64x128 "               \
    "channel_mix_value.weight=128x64 "
#define RWKV_KEYS                                                                            \
    "attention.layer_norm_epsilon=f32:0.00001 wkv.head_size=64 attention.decay_lora_rank=8 " \
    "attention.iclr_lora_rank=8 attention.value_residual_mix_lora_rank=8 attention.gate_lora_rank=8"
#define RWKV_TENSORS                                                                               \
    "token_embd_norm.weight=64 token_embd_norm.bias=64 output_norm.weight=64 output_norm.bias=64 " \
    "output.weight=64x259"
#define LFM2_ATTENTION                                                                     \
    "attn_norm.weight=64 attn_q_norm.weight=16 attn_k_norm.weight=16 attn_q.weight=64x64 " \
    "attn_k.weight=64x32 attn_v.weight=64x32 attn_output.weight=64x64 " FFN
#define LFM2_CONVOLUTION(reach)                                                               \
    "attn_norm.weight=64 shortconv.conv.weight=" reach "x64 shortconv.in_proj.weight=64x192 " \
    "shortconv.out_proj.weight=64x64 " FFN
#define LFM2_KEYS "attention.head_count=4 attention.head_count_kv=[0,2,0,2] shortconv.l_cache="
#define GEMMA4_LAYER "attn_norm.weight=64 post_attention_norm.weight=64 post_ffw_norm.weight=64 " FFN
#define WINDOWED_LAYER                                                                                    \
    "attn_norm.weight=64 attn_q.weight=64x64 attn_k.weight=64x32 attn_v.weight=64x32 "                    \
    "attn_output.weight=64x64 attn_q_norm.weight=16 attn_k_norm.weight=16 post_attention_norm.weight=64 " \
    "post_ffw_norm.weight=64 " FFN

const struct md_tiny_model md_tiny_windowed = {
    .name = "windows",
    .arch = "gemma3", /* without a pattern key every sixth layer is global */
    .keys = KEYS(7) "attention.head_count=4 attention.head_count_kv=2 attention.key_length=16 "
                    "attention.value_length=16 attention.sliding_window=32",
    .layers = "WWWWWGW",
    .kinds = { { 'W', WINDOWED_LAYER }, { 'G', WINDOWED_LAYER } },
    .random = true,
};

const struct md_tiny_model md_tiny_hybrid = {
    .name = "hybrid",
    .arch = "lfm2",
    .keys = KEYS(4) LFM2_KEYS "4",
    .layers = "CACA",
    .kinds = { { 'C', LFM2_CONVOLUTION("4") }, { 'A', LFM2_ATTENTION } },
    .tensors = "token_embd_norm.weight=64",
    .random = true,
};

const struct md_tiny_model md_tiny_hybrid_windowed = {
    .name = "hybrid with windows",
    .arch = "lfm2",
    .keys = KEYS(4) LFM2_KEYS "4 attention.sliding_window=32",
    .layers = "CACA",
    .kinds = { { 'C', LFM2_CONVOLUTION("4") }, { 'A', LFM2_ATTENTION } },
    .tensors = "token_embd_norm.weight=64",
    .random = true,
};

/* Positions of several dimensions (M-RoPE), gated delta nets. */
const struct md_tiny_model md_tiny_hybrid_mrope = {
    .name = "hybrid with M-RoPE",
    .arch = "qwen35",
    .keys = KEYS(4) "attention.head_count=4 attention.head_count_kv=2 attention.key_length=16 "
                    "attention.value_length=16 rope.dimension_count=16 rope.dimension_sections=[4,2,2,0] "
                    "full_attention_interval=2 ssm.conv_kernel=4 ssm.inner_size=64 ssm.state_size=16 "
                    "ssm.time_step_rank=4 ssm.group_count=2",
    .layers = "DADA",
    .kinds = { { 'D', "attn_norm.weight=64 post_attention_norm.weight=64 attn_qkv.weight=64x128 "
                      "attn_gate.weight=64x64 ssm_conv1d.weight=4x128 ssm_dt.bias=4 ssm_a=4 "
                      "ssm_beta.weight=64x4 ssm_alpha.weight=64x4 ssm_norm.weight=16 ssm_out.weight=64x64 "
                      "ffn_gate.weight=64x128 ffn_up.weight=64x128 ffn_down.weight=128x64" },
               { 'A',
                 "attn_norm.weight=64 post_attention_norm.weight=64 attn_q.weight=64x128 "
                 "attn_k.weight=64x32 attn_v.weight=64x32 attn_output.weight=64x64 attn_q_norm.weight=16 "
                 "attn_k_norm.weight=16 ffn_gate.weight=64x128 ffn_up.weight=64x128 "
                 "ffn_down.weight=128x64" } },
    .random = true,
};

const struct md_tiny_model md_tiny_recurrent = {
    .name = "recurrent",
    .arch = "rwkv7",
    .keys = KEYS(2) RWKV_KEYS,
    .layers = "RR",
    .kinds = { { 'R', RWKV_LAYER } },
    .tensors = RWKV_TENSORS,
    .random = true,
};

const struct md_tiny_model md_tiny_state_space = {
    .name = "state space",
    .arch = "mamba",
    .keys = KEYS(2) "ssm.conv_kernel=4 ssm.inner_size=128 ssm.state_size=8 ssm.time_step_rank=8",
    .layers = "SS",
    .kinds = { { 'S', "attn_norm.weight=64 ssm_in.weight=64x256 ssm_conv1d.weight=4x128 ssm_conv1d.bias=128 "
                      "ssm_x.weight=128x24 ssm_dt.weight=8x128 ssm_dt.bias=128 ssm_a=8x128 ssm_d=128 "
                      "ssm_out.weight=128x64" } },
    .random = true,
};

#define ATTENTION                                                                      \
    "attn_norm.weight=64 attn_q.weight=64x64 attn_k.weight=64x32 attn_v.weight=64x32 " \
    "attn_output.weight=64x64 "
#define HEADS "attention.head_count=4 attention.head_count_kv=2 "
#define LENGTHS "attention.key_length=16 attention.value_length=16 "

const struct md_tiny_model md_tiny_qwen2 = {
    .name = "qwen2",
    .arch = "qwen2",
    .keys = KEYS(4) HEADS "rope.freq_base=f32:1000000",
    .layers = "AAAA",
    .kinds = { { 'A', ATTENTION "attn_q.bias=64 attn_k.bias=32 attn_v.bias=32 " FFN } },
    .random = true,
    .strong = true,
};

const struct md_tiny_model md_tiny_qwen3 = {
    .name = "qwen3",
    .arch = "qwen3",
    .keys = KEYS(4) HEADS LENGTHS "rope.freq_base=f32:1000000",
    .layers = "AAAA",
    .kinds = { { 'A', ATTENTION "attn_q_norm.weight=16 attn_k_norm.weight=16 " FFN } },
    .random = true,
    .strong = true,
};

const struct md_tiny_model md_tiny_gemma = {
    .name = "gemma",
    .arch = "gemma",
    .keys = KEYS(4) HEADS LENGTHS,
    .layers = "AAAA",
    .kinds = { { 'A', ATTENTION FFN } },
    .random = true,
    .strong = true,
};

const struct md_tiny_model md_tiny_models[] = {
    { .name = "windows only",
      .arch = "gemma3", /* the first five layers have a window */
      .keys = KEYS(4) "attention.head_count=4 attention.head_count_kv=2 attention.key_length=16 "
                      "attention.value_length=16 attention.sliding_window=32",
      .layers = "WWWW",
      .kinds = { { 'W', WINDOWED_LAYER } } },
    { .name = "mla",
      .arch = "deepseek2",
      .keys = KEYS(3) "attention.head_count=4 attention.head_count_kv=1 attention.key_length=48 "
                      "attention.value_length=32 attention.key_length_mla=24 attention.value_length_mla=16 "
                      "attention.kv_lora_rank=32 attention.q_lora_rank=24 rope.dimension_count=16 "
                      "leading_dense_block_count=3 expert_feed_forward_length=32 expert_shared_count=0",
      .layers = "AAA",
      .kinds = { { 'A', "attn_norm.weight=64 attn_q_a_norm.weight=24 attn_kv_a_norm.weight=32 "
                        "attn_q_a.weight=64x24 "
                        "attn_q_b.weight=24x96 attn_kv_a_mqa.weight=64x48 attn_k_b.weight=8x32x4 "
                        "attn_v_b.weight=32x16x4 attn_output.weight=64x64 " FFN } } },
    { .name = "state where there are no KV heads",
      .arch = "jamba",
      .keys = KEYS(4) SSM_KEYS "attention.head_count=4 attention.head_count_kv=[0,0,2,0]",
      .layers = "SSAS",
      .kinds = { { 'S', SSM "ssm_dt_norm.weight=8 ssm_b_norm.weight=256 ssm_c_norm.weight=256 " FFN },
                 { 'A', "attn_norm.weight=64 attn_q.weight=64x64 attn_k.weight=64x32 attn_v.weight=64x32 "
                        "attn_output.weight=64x64 " FFN } } },
    { .name = "state and KV in each layer",
      .arch = "falcon-h1",
      .keys = KEYS(2) "ssm.conv_kernel=4 ssm.inner_size=128 ssm.state_size=256 ssm.time_step_rank=8 "
                      "ssm.group_count=2 attention.head_count=4 attention.head_count_kv=2",
      .layers = "BB",
      .kinds = { { 'B', "attn_norm.weight=64 ssm_in.weight=64x1288 ssm_conv1d.weight=4x1152 "
                        "ssm_conv1d.bias=1152 ssm_dt.bias=8 "
                        "ssm_a=1x8 "
                        "ssm_d=1x8 ssm_out.weight=128x64 attn_q.weight=64x64 attn_k.weight=64x32 "
                        "attn_v.weight=64x32 attn_output.weight=64x64 ffn_norm=64 ffn_gate.weight=64x128 "
                        "ffn_up.weight=64x128 ffn_down.weight=128x64" } } },
    { .name = "short convolutions",
      .arch = "lfm2",
      .keys = KEYS(4) LFM2_KEYS "512",
      .layers = "CACA",
      .kinds = { { 'C', LFM2_CONVOLUTION("512") }, { 'A', LFM2_ATTENTION } },
      .tensors = "token_embd_norm.weight=64" },
    { .name = "short convolutions and windows",
      .arch = "lfm2",
      .keys = KEYS(4) LFM2_KEYS "512 attention.sliding_window=512",
      .layers = "CACA",
      .kinds = { { 'C', LFM2_CONVOLUTION("512") }, { 'A', LFM2_ATTENTION } },
      .tensors = "token_embd_norm.weight=64" },
    { .name = "heads of each layer",
      .arch = "deci",
      .keys = KEYS(4) "attention.head_count=[4,4,4,2] attention.head_count_kv=[2,1,0,2]",
      .layers = "ABNC",
      .kinds = { { 'A', "attn_norm.weight=64 attn_q.weight=64x64 attn_k.weight=64x32 attn_v.weight=64x32 "
                        "attn_output.weight=64x64 " FFN },
                 { 'B', "attn_norm.weight=64 attn_q.weight=64x64 attn_k.weight=64x16 attn_v.weight=64x16 "
                        "attn_output.weight=64x64 " FFN },
                 { 'C', "attn_norm.weight=64 attn_q.weight=64x32 attn_k.weight=64x32 attn_v.weight=64x32 "
                        "attn_output.weight=32x64 " FFN } } },
    { .name = "windows, their lengths, and shared layers",
      .arch = "gemma4",
      .keys = KEYS(6) "attention.head_count=4 attention.head_count_kv=2 attention.key_length=32 "
                      "attention.value_length=32 attention.key_length_swa=16 attention.value_length_swa=16 "
                      "rope.dimension_count=32 rope.dimension_count_swa=16 attention.sliding_window=512 "
                      "attention.sliding_window_pattern=bool:[1,1,1,0,1,0] attention.shared_kv_layers=2 "
                      "embedding_length_per_layer_input=0",
      .layers = "WWWGWG",
      .kinds = { { 'W',
                   "attn_q.weight=64x64 attn_k.weight=64x32 attn_v.weight=64x32 attn_output.weight=64x64 "
                   "attn_q_norm.weight=16 attn_k_norm.weight=16 " GEMMA4_LAYER },
                 { 'G',
                   "attn_q.weight=64x128 attn_k.weight=64x64 attn_v.weight=64x64 attn_output.weight=128x64 "
                   "attn_q_norm.weight=32 attn_k_norm.weight=32 " GEMMA4_LAYER } },
      .tensors = "output_norm.weight=64 rope_freqs.weight=16" },
    { .name = "state alone",
      .arch = "mamba",
      .keys = KEYS(48) SSM_KEYS, /* so many that a row more or less of the convolution shows */
      .layers = "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS",
      .kinds = { { 'S', SSM } } },
    { .name = "token shift and a matrix per head",
      .arch = "rwkv7",
      .keys = KEYS(16) RWKV_KEYS,
      .layers = "RRRRRRRRRRRRRRRR",
      .kinds = { { 'R', RWKV_LAYER } },
      .tensors = RWKV_TENSORS },
};
const size_t md_tiny_model_count = sizeof md_tiny_models / sizeof md_tiny_models[0];

/* Where some of the tensors lie, in numbers. */
struct places {
    uint64_t from[32], to[32];
    size_t count;
};
static struct places
    decays; /* `ssm_a`: what a state is multiplied by is e to their power, and must not be above 1 */
static struct places norms; /* of a strong model */

static void note(struct places *p, const struct gguf_writer *w, uint64_t values)
{
    ck_assert_uint_lt(p->count, sizeof p->from / sizeof p->from[0]);
    p->from[p->count] = w->data_bytes / sizeof(float);
    p->to[p->count++] = w->data_bytes / sizeof(float) + values;
}

static bool is_in(const struct places *p, uint64_t value)
{
    for (size_t i = 0; i < p->count; i++)
        if (value >= p->from[i] && value < p->to[i])
            return true;
    return false;
}

/* "a.weight=64x128 b=64", each behind `before`. */
static void put_tensors(struct gguf_writer *w, const struct md_tiny_model *m, const char *before,
                        const char *list)
{
    char copy[2048], name[96], *save = NULL;
    ck_assert_uint_lt(strlen(list), sizeof copy);
    strcpy(copy, list);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *at = strchr(word, '=');
        uint64_t dimensions[4], values = 1;
        uint32_t n = 0;
        ck_assert_msg(at != NULL, "'%s' has no shape", word);
        *at = '\0';
        for (at++; n < 4; at++) {
            dimensions[n] = strtoull(at, &at, 10);
            values *= dimensions[n++];
            if (*at != 'x')
                break;
        }
        snprintf(name, sizeof name, "%s%s", before, word);
        if (m->random && strcmp(word, "ssm_a") == 0)
            note(&decays, w, values);
        if (m->strong && strstr(word, "norm") != NULL)
            note(&norms, w, values);
        gw_tensor(w, name, GW_F32, dimensions, n, values * sizeof(float));
    }
}

/* Numbers in [-0.25, 0.25): wide enough that attention tells tokens apart.  Source of the generator: xorshift64
 * (Marsaglia, "Xorshift RNGs"). */
static void put_random(struct gguf_writer *w)
{
    uint64_t x = 88172645463325252ull;
    gw_pad(w);
    for (uint64_t i = 0; i < w->data_bytes / sizeof(float); i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        float v = (float)(x >> 40) / (float)(1 << 25) - 0.25f;
        v = v > 0 && is_in(&decays, i) ? -v : v;
        v = is_in(&norms, i) ? 1 + v : v;
        gw_put(w, &v, sizeof v);
    }
}

enum md_status md_tiny_model_write(const struct md_tiny_model *m, const char *path, struct md_err *err)
{
    struct gguf_writer w;
    char before[16];
    gw_init(&w);
    decays.count = norms.count = 0;
    gw_string(&w, "general.architecture", m->arch);
    gw_spec(&w, m->arch, m->keys);
    md_exact_model_vocabulary(&w);
    put_tensors(&w, m, "", "token_embd.weight=64x259");
    put_tensors(&w, m, "", m->tensors != NULL ? m->tensors : "output_norm.weight=64");
    for (int i = 0; m->layers[i] != '\0'; i++) {
        snprintf(before, sizeof before, "blk.%d.", i);
        if (m->layers[i] == 'N') { /* deci: a matrix where the heads were */
            put_tensors(&w, m, before, "attn_norm.weight=64 attn_output.weight=64x64 " FFN);
            continue;
        }
        for (size_t k = 0; k < sizeof m->kinds / sizeof m->kinds[0]; k++) {
            if (m->kinds[k].letter == m->layers[i])
                put_tensors(&w, m, before, m->kinds[k].tensors);
        }
    }
    if (m->random)
        put_random(&w);
    else
        gw_zeros(&w);
    enum md_status s = gw_save(&w, path, err);
    gw_done(&w);
    return s;
}
