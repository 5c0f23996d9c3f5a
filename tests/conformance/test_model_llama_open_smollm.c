/* How the llama adapter opens SmolLM2 and what it refuses to open.
 * MODELD_TEST_MODEL names the model file; a missing one fails. */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "support/model_copy.h"
#include "text/text.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCAB = 49152, HELLO = 28120 };

static const char *model_path;

/* ---- files that are no models ---- */

static void expect_refusal(const char *label, const char *path, enum md_status want, const char *part)
{
    struct md_engine *e = NULL;
    struct md_text *t = NULL;
    struct md_model_facts facts;
    struct md_err err = { 0 };
    const struct md_open_params p = { .model_path = path, .cell_count = 256, .threads = 1 };
    for (int way = 0; way < 3; way++) {
        err = (struct md_err){ 0 };
        enum md_status s = way == 0   ? md_backend_llama.open(&p, &e, &t, &err)
                           : way == 1 ? md_backend_llama.probe(path, &facts, &err)
                                      : md_llama_text_open(path, &t, &err);
        ck_assert_msg(s == want, "%s, way %d: %s '%s'", label, way, md_status_name(s), err.text);
        ck_assert_msg(strstr(err.text, part) != NULL, "%s, way %d: '%s'", label, way, err.text);
        ck_assert_msg(strchr(err.text, '\n') == NULL && e == NULL && t == NULL, "%s, way %d", label, way);
    }
}

START_TEST(b008_cut_files)
{
    struct stat st;
    ck_assert_int_eq(stat(model_path, &st), 0);
    const struct {
        const char *label;
        int64_t keep;
        const char *part;
    } rows[] = {
        { "by one byte", st.st_size - 1, "file has 98362431 bytes, tensor '" },
        { "by a page", st.st_size - 4096, "file has 98358336 bytes, tensor '" },
        { "to half", st.st_size / 2, "file has 49181216 bytes, tensor '" },
        { "inside the header", 100, "are left in the file" },
        { "to the mark alone", 4, "version needs 4 bytes, 0 are left" },
        { "to nothing", 0, "magic needs 4 bytes, 0 are left" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char copy[] = "/tmp/modeld-test-XXXXXX";
        md_copy_cut(model_path, copy, rows[i].keep);
        expect_refusal(rows[i].label, copy, MD_INVALID, rows[i].part);
        unlink(copy);
    }
    char copy[] = "/tmp/modeld-test-XXXXXX";
    /* name, u32 dimensions (2), 2 u64 sizes, u32 type, u64 offset: byte 5 of the offset is 2^40 */
    md_copy_patched(model_path, copy, "blk.3.attn_k.weight", 4 + 16 + 4 + 5, "\1", 1);
    expect_refusal("offset raised by 2^40", copy, MD_INVALID,
                   "file has 98362432 bytes, tensor 'blk.3.attn_k.weight' needs 10995");
    unlink(copy);
}
END_TEST

START_TEST(files_that_are_no_models)
{
    char copy[] = "/tmp/modeld-test-XXXXXX";
    expect_refusal("missing", "/nowhere/model.gguf", MD_NOT_FOUND,
                   "open '/nowhere/model.gguf': No such file");
    expect_refusal("no name", "", MD_INVALID, "no model file");
    expect_refusal("directory", "/tmp", MD_INVALID, "'/tmp' is not a file");
    expect_refusal("device", "/dev/zero", MD_INVALID, "is not a file");
    int fd = mkstemp(copy);
    ck_assert(fd >= 0 && write(fd, "just some text, no model", 24) == 24);
    close(fd);
    expect_refusal("text", copy, MD_INVALID, "not a GGUF file: it begins with");
    unlink(copy);
    memcpy(copy + sizeof copy - 7, "XXXXXX", 6);
    md_copy_patched(model_path, copy, "general.architecture", 4 + 8, "nomad", 5);
    expect_refusal("architecture", copy, MD_UNSUPPORTED, "architecture");
    unlink(copy);
}
END_TEST

/* ---- how the engine is opened ---- */

static struct {
    int n_ctx, cells, lines;
    double buffer_mib;
} seen_log;

static void on_line(void *user, const char *line)
{
    (void)user;
    const char *p;
    int n;
    double mib;
    seen_log.lines++;
    if ((p = strstr(line, "n_ctx ")) != NULL && sscanf(p, "n_ctx = %d", &n) == 1)
        seen_log.n_ctx = n;
    if ((p = strstr(line, "KV buffer size")) != NULL && sscanf(p, "KV buffer size = %lf MiB", &mib) == 1)
        seen_log.buffer_mib += mib;
    if (strstr(line, "cells") != NULL && (p = strchr(line, '(')) != NULL && sscanf(p, "( %d cells", &n) == 1)
        seen_log.cells = n;
}

static struct md_engine *open_engine(struct md_open_params p)
{
    struct md_err err = { 0 };
    struct md_engine *e = NULL;
    p.model_path = model_path;
    ck_assert_msg(md_backend_llama.open(&p, &e, NULL, &err) == MD_OK, "%s", err.text);
    return e;
}

START_TEST(cells_asked_are_cells_taken)
{
    static const struct {
        int32_t asked, taken;
    } rows[] = { { 512, 512 }, { 257, 512 }, { 256, 256 }, { 1, 256 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&seen_log, 0, sizeof seen_log);
        md_llama_log_hook(on_line, NULL);
        struct md_engine *e = open_engine((struct md_open_params){ .cell_count = rows[i].asked });
        md_llama_log_hook(NULL, NULL);
        const struct md_engine_info *info = md_engine_info(e);
        ck_assert_int_eq(info->cell_count, rows[i].taken);
        ck_assert_int_eq(info->kv_bytes_per_token, 23040);
        ck_assert_int_eq(info->trained_tokens, 8192);
        ck_assert_int_eq(info->vocab_count, VOCAB);
        ck_assert_int_eq(info->seq_count, 64); /* llama_internal.h */
        ck_assert_int_le(info->batch_tokens, rows[i].taken);
        ck_assert(!info->lossy_kv);
        ck_assert_int_eq(seen_log.n_ctx, rows[i].taken);
        ck_assert_int_eq(seen_log.cells, rows[i].taken);
        ck_assert_double_eq_tol(seen_log.buffer_mib, rows[i].taken * 23040.0 / (1 << 20), 0.005);
        md_engine_close(e);
    }
}
END_TEST

START_TEST(nothing_is_printed)
{
    char path[] = "/tmp/modeld-test-XXXXXX";
    int fd = mkstemp(path), out = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
    struct stat st;
    struct md_text *t = NULL;
    fflush(NULL);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    struct md_engine *e = open_engine((struct md_open_params){ .cell_count = 256 });
    enum md_status s = md_llama_text_open("/etc/passwd", &t, NULL);
    md_engine_close(e);
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(s, MD_INVALID);
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(kv_types)
{
    static const struct {
        const char *type;
        int64_t bytes;
        bool lossy;
    } rows[] = {
        /* values per token: 2 x 30 layers x 3 heads x 64; a block of 32 takes so many bytes */
        { "f32", 11520 * 4, false }, { "f16", 11520 * 2, false }, { "bf16", 11520 * 2, false },
        { "q8_0", 360 * 34, true },  { "q5_1", 360 * 24, true },  { "q5_0", 360 * 22, true },
        { "q4_1", 360 * 20, true },  { "q4_0", 360 * 18, true },  { "iq4_nl", 360 * 18, true },
    };
    char names[128] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_engine *e = open_engine((struct md_open_params){
            .cell_count = 256, .flash_attn = 1, .type_k = rows[i].type, .type_v = rows[i].type });
        const struct md_engine_info *info = md_engine_info(e);
        ck_assert_msg(info->kv_bytes_per_token == rows[i].bytes, "%s: %lld", rows[i].type,
                      (long long)info->kv_bytes_per_token);
        ck_assert_str_eq(info->type_k, rows[i].type);
        ck_assert_str_eq(info->type_v, rows[i].type);
        ck_assert_msg(info->lossy_kv == rows[i].lossy, "%s", rows[i].type);
        ck_assert_msg(strstr(info->identity, rows[i].type) != NULL, "%s", info->identity);
        ck_assert_msg(md_engine_caps(e) & MD_CAP_COLD_STORE, "%s", rows[i].type);
        ck_assert_msg(((md_engine_caps(e) & MD_CAP_POSITION_SHIFT) != 0) == (i < 2), "%s", rows[i].type);
        md_engine_close(e);
        strcat(strcat(names, i > 0 ? " " : ""), rows[i].type);
    }
    ck_assert_str_eq(md_kv_type_names(), names);
}
END_TEST

START_TEST(parameters_that_are_refused)
{
    static const struct {
        struct md_open_params p;
        enum md_status want;
        const char *part;
    } rows[] = {
        { { .cell_count = 256, .type_k = "q9" },
          MD_INVALID,
          "unknown KV type 'q9' for keys: one of f32 f16 bf16 q8_0" },
        { { .cell_count = 256, .type_v = "" }, MD_INVALID, "unknown KV type '' for values" },
        { { .cell_count = 256, .type_v = "q8_0", .flash_attn = 0 },
          MD_INVALID,
          "'q8_0' for values needs flash attention" },
        { { .cell_count = 256, .gpu_layers = 1 }, MD_UNSUPPORTED, "this build sees none" },
        { { .cell_count = 256, .gpu_layers = -2 }, MD_INVALID, "GPU layers" },
        { { .cell_count = 0 }, MD_INVALID, "KV cells" },
        { { .cell_count = INT32_MAX }, MD_INVALID, "KV cells" },
        { { .cell_count = 256, .batch_tokens = -1 }, MD_INVALID, "batch sizes" },
        { { .cell_count = 256, .threads = 513 }, MD_INVALID, "threads" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_open_params p = rows[i].p;
        struct md_err err = { 0 };
        struct md_engine *e = NULL;
        struct md_text *t = NULL;
        p.model_path = model_path;
        ck_assert_msg(md_backend_llama.open(&p, &e, &t, &err) == rows[i].want, "row %zu: '%s'", i, err.text);
        ck_assert_msg(strstr(err.text, rows[i].part) != NULL, "row %zu: '%s'", i, err.text);
        ck_assert(e == NULL && t == NULL);
    }
}
END_TEST

START_TEST(bytes_of_another_kv_type_are_refused)
{
    const md_token tokens[40] = { HELLO, HELLO, HELLO };
    const struct md_range r = { 8, 24 };
    struct md_err err = { 0 };
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 20);
    struct md_engine *f16 = open_engine((struct md_open_params){ .cell_count = 256 });
    struct md_engine *bf16 =
        open_engine((struct md_open_params){ .cell_count = 256, .type_k = "bf16", .type_v = "bf16" });
    ck_assert_int_eq(md_engine_prefill(f16, 0, 0, tokens, 40, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(bf16, 0, 0, tokens, 40, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(f16, 0, r, &kv, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(bf16, 0, r, NULL, NULL), MD_OK);
    ck_assert_int_eq(md_engine_admit_range(bf16, 0, r, (struct md_bytes){ kv.data, kv.len }, &err),
                     MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "another model, KV type or engine"));
    ck_assert(!md_engine_is_hot(bf16, 0, r));
    ck_assert_int_eq(md_engine_admit_range(f16, 0, r, (struct md_bytes){ kv.data, kv.len }, &err), MD_OK);
    md_engine_close(f16);
    md_engine_close(bf16);
    md_buf_done(&kv);
}
END_TEST

START_TEST(engine_and_text_close_in_any_order)
{
    for (int order = 0; order < 2; order++) {
        const struct md_open_params p = { .model_path = model_path, .cell_count = 256 };
        const md_token one = HELLO;
        struct md_engine *e = NULL;
        struct md_text *t = NULL;
        ck_assert_int_eq(md_backend_llama.open(&p, &e, &t, NULL), MD_OK);
        if (order == 0) {
            md_text_close(t);
            ck_assert_int_eq(md_engine_prefill(e, 0, 0, &one, 1, NULL), MD_OK);
            md_engine_close(e);
        } else {
            md_engine_close(e);
            struct md_tokens ids = { 0 };
            ck_assert_int_eq(md_text_tokenize(t, (struct md_bytes){ "hello", 5 }, true, false, &ids, NULL),
                             MD_OK);
            ck_assert_int_eq(ids.ids[0], one);
            md_tokens_done(&ids);
            md_text_close(t);
        }
    }
}
END_TEST

int main(void)
{
    model_path = getenv("MODELD_TEST_MODEL");
    if (model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL must name the SmolLM2 file\n");
        return 1;
    }
    Suite *suite = suite_create("model_llama_open_smollm");
    TCase *c = tcase_create("files_and_opening");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, b008_cut_files);
    tcase_add_test(c, files_that_are_no_models);
    tcase_add_test(c, cells_asked_are_cells_taken);
    tcase_add_test(c, nothing_is_printed);
    tcase_add_test(c, kv_types);
    tcase_add_test(c, parameters_that_are_refused);
    tcase_add_test(c, bytes_of_another_kv_type_are_refused);
    tcase_add_test(c, engine_and_text_close_in_any_order);
    suite_add_tcase(suite, c);

    return md_run_suite(suite);
}
