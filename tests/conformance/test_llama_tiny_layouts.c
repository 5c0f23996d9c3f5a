/* Models of a few layers, made here and really opened: what the library's log says it took against what was
 * planned from their headers. */
#include "adapters/llama/llama_backend.h"
#include "support/kv_log.h"
#include "support/run_suite.h"
#include "support/tiny_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 4096 };

/* A layer of arch "llama": outputs of its query and its key projections. */
#define PLAIN(q, kv)                                                                                \
    "attn_norm.weight=64 attn_q.weight=64x" #q " attn_k.weight=64x" #kv " attn_v.weight=64x" #kv    \
    " attn_output.weight=" #q "x64 ffn_norm.weight=64 ffn_gate.weight=64x128 ffn_up.weight=64x128 " \
    "ffn_down.weight=128x64"

static void compare(const struct md_tiny_model *m, const char *path, struct md_open_params p)
{
    static struct md_model_facts facts;
    struct md_err err = { 0 };
    struct md_engine *e = NULL;
    struct md_open_cost cost;
    struct md_kv_log log;
    char label[160];
    p.model_path = path;
    p.cell_count = CELLS;
    p.threads = 1;
    p.attention = true; /* which shall change no byte, and be told of no layer that it is not known of */
    snprintf(label, sizeof label, "%s (%s), %s, flash attention %d, window_full %d", m->name, m->arch,
             p.type_k != NULL ? p.type_k : "f16", p.flash_attn, p.window_full);
    ck_assert_msg(md_backend_llama.probe(path, &facts, &err) == MD_OK, "%s: %s", label, err.text);
    ck_assert_msg(facts.loadable, "%s: %s", label, facts.unsupported[0]);
    ck_assert_msg(md_backend_llama.cost(&facts, &p, 0, &cost, &err) == MD_OK, "%s: %s", label, err.text);
    md_kv_log_init(&log);
    md_llama_log_hook(md_kv_log_line, &log);
    enum md_status s = md_backend_llama.open(&p, &e, NULL, &err);
    md_llama_log_hook(NULL, NULL);
    ck_assert_msg(s == MD_OK, "%s: %s", label, err.text);
    const unsigned caps = md_engine_caps(e);
    ck_assert_msg(md_engine_kv_bytes(e, CELLS) == md_kv_bytes(&facts.shape, &cost.mode, CELLS),
                  "%s: all cells hot take %lld bytes", label, (long long)md_engine_kv_bytes(e, CELLS));
    md_engine_close(e);
    md_kv_log_expect(&log, label, &facts.shape, &cost.mode, CELLS);
    ck_assert_msg(((caps & MD_CAP_COLD_STORE) != 0) == cost.cold_store, "%s: cold store", label);
    const double planned = (double)(cost.compute_bytes + cost.compute_bytes_per_cell * CELLS) / (1 << 20);
    const double taken = log.compute_mib + log.output_mib;
    ck_assert_msg(log.compute_mib > 0 && planned >= taken - 0.01, "%s: compute: %.2f MiB planned, %.2f taken",
                  label, planned, taken);
}

START_TEST(each_layout)
{
    const struct md_tiny_model *m = &md_tiny_models[_i];
    char path[] = "/tmp/modeld-test-XXXXXX";
    struct md_err err = { 0 };
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_msg(md_tiny_model_write(m, path, &err) == MD_OK, "%s", err.text);
    compare(m, path, (struct md_open_params){ .flash_attn = -1 });
    compare(m, path, (struct md_open_params){ .flash_attn = 0 });
    compare(m, path, (struct md_open_params){ .flash_attn = -1, .window_full = true });
    compare(m, path, (struct md_open_params){ .flash_attn = -1, .type_k = "f32", .type_v = "f32" });
    unlink(path);
}
END_TEST

/* Each of these would end the process in the library: GGML_ASSERT in load_hparams and create_memory. */
START_TEST(values_it_would_abort_on)
{
    static const struct {
        const char *model, *more; /* a name of tiny_models.c, keys that are added */
        enum md_status want;
        const char *part;
    } rows[] = {
        { "heads of each layer", " rope.scaling.type=text:odd", MD_UNSUPPORTED, "'odd'" },
        { "heads of each layer", " expert_used_count=3", MD_INVALID, "expert_used_count' is 3, 0 to 0" },
        { "heads of each layer", " expert_count=2", MD_INVALID, "expert_used_count' is 0, 1 to 2" },
        { "heads of each layer", " expert_count=1025 expert_used_count=1", MD_INVALID,
          "expert_count' is 1025" },
        { "heads of each layer", " expert_count=4 expert_used_count=2 expert_group_count=3", MD_INVALID,
          "expert_group_count' is 3, a divisor of 4" },
        { "heads of each layer", " expert_used_count=[1,1]", MD_INVALID, "expected 4, found 2" },
        { "heads of each layer", " nextn_predict_layers=5", MD_INVALID, "nextn_predict_layers" },
        { "no windowed layer", "", MD_UNSUPPORTED, "unsupported_layer_pattern" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[] = "/tmp/modeld-test-XXXXXX", keys[1024];
        struct md_tiny_model m = { 0 };
        for (size_t k = 0; k < md_tiny_model_count; k++)
            if (strcmp(md_tiny_models[k].name, rows[i].model) == 0)
                m = md_tiny_models[k];
        if (m.name == NULL) /* one that the list of good models cannot have */
            m = (struct md_tiny_model){ .arch = "gemma3",
                                        .keys = "block_count=2 context_length=8192 embedding_length=64 "
                                                "attention.head_count=4 attention.sliding_window=512 "
                                                "attention.sliding_window_pattern=1",
                                        .layers = "" };
        struct md_err err = { 0 };
        struct md_engine *e = NULL;
        snprintf(keys, sizeof keys, "%s%s", m.keys, rows[i].more);
        m.keys = keys;
        int fd = mkstemp(path);
        ck_assert_int_ge(fd, 0);
        close(fd);
        ck_assert_msg(md_tiny_model_write(&m, path, &err) == MD_OK, "%s", err.text);
        const struct md_open_params p = { .model_path = path, .cell_count = 256, .threads = 1 };
        enum md_status s = md_backend_llama.open(&p, &e, NULL, &err);
        unlink(path);
        ck_assert_msg(s == rows[i].want && strstr(err.text, rows[i].part) != NULL, "row %zu: %s '%s'", i,
                      md_status_name(s), err.text);
        ck_assert_ptr_null(e);
    }
}
END_TEST

/* With YaRN the library's turn scales the keys of all cells (ggml's rope_yarn, its mscale): that moving works must
 * not be claimed.  Keys of other types than f16 and f32 would end the process (ggml_compute_forward_rope). */
START_TEST(what_cannot_be_moved)
{
    static const struct {
        const char *more, *type_k;
        bool moves;
        const char *part; /* of what is said instead */
    } rows[] = {
        { "", "f32", true, "" },
        { "", "f16", true, "" },
        { "", "bf16", false, "KV type bf16 cannot be repositioned" },
        { " attention.key_length=32 attention.value_length=32 rope.dimension_count=32", "q8_0", false,
          "KV type q8_0 cannot be repositioned" },
        { " rope.scaling.type=text:linear rope.scaling.factor=f32:4", "f16", true, "" },
        { " rope.scaling.type=text:yarn rope.scaling.factor=f32:4 rope.scaling.original_context_length=2048",
          "f16", false, "engine 'llama' cannot reposition KV with this model" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[] = "/tmp/modeld-test-XXXXXX", keys[1024];
        const bool wide = strstr(rows[i].more, "key_length") != NULL; /* q8_0 wants whole blocks of 32 */
        struct md_tiny_model m = { .name = "plain",
                                   .arch = "llama",
                                   .keys = keys,
                                   .layers = "AA",
                                   .kinds = { { 'A', wide ? PLAIN(128, 64) : PLAIN(64, 32) } },
                                   .random = true };
        snprintf(keys, sizeof keys,
                 "block_count=2 context_length=8192 embedding_length=64 feed_forward_length=128 "
                 "attention.layer_norm_rms_epsilon=f32:0.00001 attention.head_count=4 "
                 "attention.head_count_kv=2%s%s",
                 wide ? "" : " rope.dimension_count=16", rows[i].more);
        struct md_err err = { 0 };
        struct md_engine *e = NULL;
        int fd = mkstemp(path);
        ck_assert_int_ge(fd, 0);
        close(fd);
        ck_assert_msg(md_tiny_model_write(&m, path, &err) == MD_OK, "%s", err.text);
        const struct md_open_params p = {
            .model_path = path, .cell_count = 256, .threads = 1, .flash_attn = 1, .type_k = rows[i].type_k
        };
        enum md_status s = md_backend_llama.open(&p, &e, NULL, &err);
        unlink(path);
        ck_assert_msg(s == MD_OK, "row %zu: %s", i, err.text);
        ck_assert_msg(((md_engine_caps(e) & MD_CAP_POSITION_SHIFT) != 0) == rows[i].moves, "row %zu", i);
        s = md_engine_admit_moved(e, 0, (struct md_range){ 4, 8 }, 0, (struct md_bytes){ "x", 1 }, &err);
        ck_assert_int_eq(s, rows[i].moves ? MD_CORRUPT : MD_UNSUPPORTED);
        ck_assert_msg(strstr(err.text, rows[i].part) != NULL, "row %zu: '%s'", i, err.text);
        md_engine_close(e);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_tiny_layouts");
    TCase *c = tcase_create("plan_and_log");
    tcase_add_loop_test(c, each_layout, 0, (int)md_tiny_model_count);
    tcase_add_test(c, values_it_would_abort_on);
    tcase_add_test(c, what_cannot_be_moved);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
