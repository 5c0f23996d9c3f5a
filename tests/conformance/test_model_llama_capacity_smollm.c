/* What SmolLM2, Qwen2.5-Coder and Gemma 3 really take when they are opened, read out of the library's log,
 * against what was planned from their headers.  The models lie in .deps/models; a missing one fails. */
#include "adapters/llama/llama_backend.h"
#include "support/kv_log.h"
#include "support/run_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *model_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, ".deps/models/%s.gguf", name); /* tests run from the top of the checkout */
    ck_assert_msg(access(path, R_OK) == 0, "'%s' is not there: run tools/setup.sh model %s", path, name);
    return path;
}

/* Open, and compare what was taken with the plan.  Returns the planned KV bytes. */
static int64_t compare(const char *name, struct md_open_params p, struct md_open_cost *ret_cost,
                       struct md_kv_log *log)
{
    static struct md_model_facts facts;
    struct md_err err = { 0 };
    struct md_engine *e = NULL;
    char label[160];
    p.model_path = model_path(name);
    p.threads = 1;
    snprintf(label, sizeof label, "%s, %d cells, %s/%s, flash attention %d, window_full %d", name,
             p.cell_count, p.type_k != NULL ? p.type_k : "f16", p.type_v != NULL ? p.type_v : "f16",
             p.flash_attn, p.window_full);
    ck_assert_msg(md_backend_llama.probe(p.model_path, &facts, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_backend_llama.cost(&facts, &p, 0, ret_cost, &err) == MD_OK, "%s: %s", label, err.text);
    md_kv_log_init(log);
    md_llama_log_hook(md_kv_log_line, log);
    enum md_status s = md_backend_llama.open(&p, &e, NULL, &err);
    md_llama_log_hook(NULL, NULL);
    ck_assert_msg(s == MD_OK, "%s: %s", label, err.text);
    const unsigned caps = md_engine_caps(e);
    md_engine_close(e);
    md_kv_log_expect(log, label, &facts.shape, &ret_cost->mode, p.cell_count);
    ck_assert_msg(((caps & MD_CAP_COLD_STORE) != 0) == ret_cost->cold_store, "%s: cold store", label);
    return md_kv_bytes(&facts.shape, &ret_cost->mode, p.cell_count);
}

/* Types whose values are lossy need flash attention, which f16 and the mixed row have too (-1: auto). */
START_TEST(b024_b025_dense_models)
{
    static const char *const names[] = { "smollm2", "qwen2.5-coder-0.5b" };
    static const struct {
        const char *k, *v;
    } types[] = { { "f16", "f16" }, { "q8_0", "q8_0" }, { "q4_0", "q4_0" }, { "q8_0", "f16" } };
    static const int32_t cells[] = { 1000, 4096 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
                struct md_open_cost cost;
                struct md_kv_log log;
                const struct md_open_params p = {
                    .cell_count = cells[c], .flash_attn = -1, .type_k = types[t].k, .type_v = types[t].v
                };
                const int64_t bytes = compare(names[i], p, &cost, &log);
                if (i == 0 && t == 0 && c == 0)
                    ck_assert_int_eq(bytes, 23592960); /* case B025: 1000 tokens are 1024 cells */
            }
        }
    }
}
END_TEST

/* The bytes are those of case B019 (27, 39 and 111 MiB), and of B021 where the windowed layers keep all. */
START_TEST(b019_b021_gemma)
{
    static const struct {
        int32_t cells;
        bool window_full;
        int64_t bytes;
    } rows[] = { { 4096, false, 28311552 },
                 { 8192, false, 40894464 },
                 { 32768, false, 116391936 },
                 { 32768, true, 603979776 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_open_cost cost;
        struct md_kv_log log;
        const struct md_open_params p = { .cell_count = rows[i].cells,
                                          .flash_attn = -1,
                                          .window_full = rows[i].window_full };
        ck_assert_int_eq(compare("gemma3-270m", p, &cost, &log), rows[i].bytes);
        ck_assert_int_eq(cost.mode.ubatch_tokens, 512);
        ck_assert_int_eq(cost.mode.seq_count, 1);
    }
}
END_TEST

/* The estimate is never less than what the library takes, and not half as much again at the micro-batch
 * the product opens with. */
START_TEST(compute_buffers_are_covered)
{
    static const char *const names[] = { "smollm2", "qwen2.5-coder-0.5b", "gemma3-270m" };
    static const struct {
        int32_t cells, ubatch;
        int flash_attn;
        const char *type;
        bool window_full;
    } rows[] = { { 4096, 512, -1, "f16", false },  { 32768, 512, -1, "f16", false },
                 { 4096, 512, 0, "f16", false },   { 32768, 512, 0, "f16", false },
                 { 8192, 512, -1, "f16", true },   { 8192, 512, 0, "f16", true },
                 { 8192, 512, -1, "q8_0", false }, { 8192, 1, -1, "f16", false },
                 { 8192, 1, 0, "f16", false },     { 8192, 32, -1, "f32", false },
                 { 1024, 32, -1, "f16", false },   { 8192, 256, -1, "f32", false },
                 { 8192, 1024, -1, "f16", false }, { 8192, 1024, 0, "f16", false } };
    for (size_t i = 0; i < sizeof names / sizeof names[0] * (sizeof rows / sizeof rows[0]); i++) {
        struct md_open_cost c;
        struct md_kv_log log;
        const size_t row = i % (sizeof rows / sizeof rows[0]);
        const char *name = names[i / (sizeof rows / sizeof rows[0])];
        compare(name,
                (struct md_open_params){ .cell_count = rows[row].cells,
                                         .batch_tokens = rows[row].ubatch,
                                         .ubatch_tokens = rows[row].ubatch,
                                         .flash_attn = rows[row].flash_attn,
                                         .type_k = rows[row].type,
                                         .type_v = rows[row].type,
                                         .window_full = rows[row].window_full },
                &c, &log);
        const double planned =
            (double)(c.compute_bytes + c.compute_bytes_per_cell * rows[row].cells) / (1 << 20);
        const double real = log.compute_mib + log.output_mib;
        ck_assert_msg(log.compute_mib > 0 && log.output_mib > 0, "%s, row %zu: no buffers in the log", name,
                      row);
        ck_assert_msg(planned >= real - 0.01, "%s, row %zu: %.2f MiB planned, %.2f taken", name, row, planned,
                      real); /* the log has two decimals, twice */
        ck_assert_msg(rows[row].ubatch != 512 || planned <= 1.5 * real,
                      "%s, row %zu: %.2f MiB planned, %.2f taken", name, row, planned, real);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_llama_capacity_smollm");
    TCase *c = tcase_create("plan_and_log");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, b024_b025_dense_models);
    tcase_add_test(c, b019_b021_gemma);
    tcase_add_test(c, compute_buffers_are_covered);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
