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

START_TEST(compute_buffers_are_covered)
{
    static const char *const names[] = { "smollm2", "qwen2.5-coder-0.5b", "gemma3-270m" };
    static const int32_t cells[] = { 4096, 32768 };
    for (size_t i = 0; i < 3; i++) {
        for (int row = 0; row < 8; row++) {
            struct md_open_cost c;
            struct md_kv_log log;
            const int32_t n = cells[row % 2];
            const struct md_open_params p = { .cell_count = n,
                                              .flash_attn = row & 2 ? 0 : -1,
                                              .window_full = (row & 4) != 0 };
            if (i < 2 && p.window_full)
                continue;
            compare(names[i], p, &c, &log);
            const double planned = (double)(c.compute_bytes + c.compute_bytes_per_cell * n) / (1 << 20);
            const double real = log.compute_mib + log.output_mib;
            printf("%s %d fa %d full %d: planned %.2f real %.2f+%.2f ratio %.3f\n", names[i], n, p.flash_attn,
                   p.window_full, planned, log.compute_mib, log.output_mib, planned / real);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_llama_capacity_smollm");
    TCase *c = tcase_create("plan_and_log");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, compute_buffers_are_covered);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
