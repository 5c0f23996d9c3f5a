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

int main(void)
{
    Suite *suite = suite_create("llama_tiny_layouts");
    TCase *c = tcase_create("plan_and_log");
    tcase_add_loop_test(c, each_layout, 0, (int)md_tiny_model_count);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
