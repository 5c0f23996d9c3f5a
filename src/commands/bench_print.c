/* bench_print.c - see bench.h. */
#include "commands/bench.h"
#include "commands/print.h"

#include <stddef.h>
#include <stdio.h>
#include <yyjson.h>

static double bytes_per_second(const struct md_bench_speed *s)
{
    return s->ns > 0 ? (double)s->bytes / ((double)s->ns / 1e9) : 0;
}

/* ---- one engine ---- */

static void print_one(struct md_engine *e, int32_t depth, const struct md_bench_figures *f)
{
    const struct md_engine_info *info = md_engine_info(e);
    const double deep = md_bench_tokens_per_second(&f->deep);
    printf("%s, %s, KV %s/%s, %d tokens deep\n", info->model, info->engine, info->type_k, info->type_v,
           depth);
    printf("  prefill  %8.1f tokens/s (whole)  %8.1f tokens/s (last %d, at depth)\n",
           md_bench_tokens_per_second(&f->prefill), deep, (int)f->deep.tokens);
    printf("  decode   %8.1f tokens/s\n", md_bench_tokens_per_second(&f->decode));
    if (f->restored.tokens == 0) {
        printf("  export and restore: this model's KV cannot be moved in parts\n");
        return;
    }
    printf("  export   %8.0f tokens/s  %6.2f GB/s\n", md_bench_tokens_per_second(&f->taken),
           bytes_per_second(&f->taken) / 1e9);
    printf("  restore  %8.0f tokens/s  %6.2f GB/s  %.0f times as fast as prefill at depth\n",
           md_bench_tokens_per_second(&f->restored), bytes_per_second(&f->restored) / 1e9,
           deep > 0 ? md_bench_tokens_per_second(&f->restored) / deep : 0);
    if (f->break_even_tokens < 0)
        printf("  break-even: restoring is never faster than prefill here\n");
    else
        printf("  break-even: from %lld tokens on a block is restored faster than it is computed\n",
               (long long)f->break_even_tokens);
}

static void add_figures(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_bench_figures *f)
{
    if (f->near.tokens > 0)
        yyjson_mut_obj_add_real(doc, o, "prefill_first_512_tokens_per_second",
                                md_bench_tokens_per_second(&f->near));
    yyjson_mut_obj_add_real(doc, o, "prefill_tokens_per_second", md_bench_tokens_per_second(&f->prefill));
    yyjson_mut_obj_add_real(doc, o, "prefill_at_depth_tokens_per_second",
                            md_bench_tokens_per_second(&f->deep));
    yyjson_mut_obj_add_real(doc, o, "decode_tokens_per_second", md_bench_tokens_per_second(&f->decode));
    if (f->restored.tokens > 0) {
        yyjson_mut_obj_add_int(doc, o, "moved_tokens", f->restored.tokens);
        yyjson_mut_obj_add_int(doc, o, "moved_bytes", f->taken.bytes);
        yyjson_mut_obj_add_real(doc, o, "export_tokens_per_second", md_bench_tokens_per_second(&f->taken));
        yyjson_mut_obj_add_real(doc, o, "export_bytes_per_second", bytes_per_second(&f->taken));
        yyjson_mut_obj_add_real(doc, o, "restore_tokens_per_second",
                                md_bench_tokens_per_second(&f->restored));
        yyjson_mut_obj_add_real(doc, o, "restore_bytes_per_second", bytes_per_second(&f->restored));
        yyjson_mut_obj_add_int(doc, o, "break_even_tokens", f->break_even_tokens);
    }
}

static void add_engine(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_engine_info *info)
{
    yyjson_mut_obj_add_str(doc, o, "engine", info->engine);
    yyjson_mut_obj_add_str(doc, o, "version", info->version);
    yyjson_mut_obj_add_str(doc, o, "device", info->device);
    yyjson_mut_obj_add_str(doc, o, "type_k", info->type_k);
    yyjson_mut_obj_add_str(doc, o, "type_v", info->type_v);
}

/* ---- several ---- */

/* What is told of two engines as a ratio. */
static const struct row {
    const char *name, *text;
    size_t speed; /* offset in struct md_bench_figures */
} rows[] = {
    { "prefill_first_512", "prefill, first 512", offsetof(struct md_bench_figures, near) },
    { "prefill", "prefill, all", offsetof(struct md_bench_figures, prefill) },
    { "prefill_at_depth", "prefill at depth", offsetof(struct md_bench_figures, deep) },
    { "decode", "decode at depth", offsetof(struct md_bench_figures, decode) },
    { "export", "export", offsetof(struct md_bench_figures, taken) },
    { "restore", "restore", offsetof(struct md_bench_figures, restored) },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static double speed_of(const struct row *r, const struct md_bench_figures *f)
{
    return md_bench_tokens_per_second((const struct md_bench_speed *)((const char *)f + r->speed));
}

/* Of an engine to the first one; 0: one of them was not measured. */
static double ratio_of(const struct row *r, const struct md_bench_figures *first,
                       const struct md_bench_figures *other)
{
    const double a = speed_of(r, first), b = speed_of(r, other);
    return a > 0 ? b / a : 0;
}

static void print_several(struct md_engine *const *engines, int count, int32_t depth,
                          const struct md_bench_figures *figures)
{
    const struct md_engine_info *first = md_engine_info(engines[0]);
    printf("%s, KV %s/%s, %d tokens deep, in turn; tokens/s\n  %-18s", first->model, first->type_k,
           first->type_v, depth, "");
    for (int i = 0; i < count; i++)
        printf("  %10s", md_engine_info(engines[i])->engine);
    printf("  ratio to %s\n", first->engine);
    for (int n = 0; n < ROWS; n++) {
        printf("  %-18s", rows[n].text);
        for (int i = 0; i < count; i++)
            if (speed_of(&rows[n], &figures[i]) > 0)
                printf("  %10.1f", speed_of(&rows[n], &figures[i]));
            else
                printf("  %10s", "-");
        for (int i = 1; i < count; i++)
            if (ratio_of(&rows[n], &figures[0], &figures[i]) > 0)
                printf("  %.2f", ratio_of(&rows[n], &figures[0], &figures[i]));
            else
                printf("  -");
        printf("\n");
    }
}

static void add_several(yyjson_mut_doc *doc, yyjson_mut_val *root, struct md_engine *const *engines,
                        int count, const struct md_bench_figures *figures)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "engines");
    for (int i = 0; i < count; i++) {
        yyjson_mut_val *o = yyjson_mut_arr_add_obj(doc, list);
        add_engine(doc, o, md_engine_info(engines[i]));
        add_figures(doc, o, &figures[i]);
        yyjson_mut_val *ratios = i > 0 ? yyjson_mut_obj_add_obj(doc, o, "ratios") : NULL;
        for (int n = 0; ratios != NULL && n < ROWS; n++)
            if (ratio_of(&rows[n], &figures[0], &figures[i]) > 0)
                yyjson_mut_obj_add_real(doc, ratios, rows[n].name,
                                        ratio_of(&rows[n], &figures[0], &figures[i]));
    }
}

void md_bench_print_text(struct md_engine *const *engines, int count, int32_t depth,
                         const struct md_bench_figures *figures)
{
    if (count == 1)
        print_one(engines[0], depth, figures);
    else
        print_several(engines, count, depth, figures);
}

enum md_status md_bench_print_json(struct md_engine *const *engines, int count, int32_t depth,
                                   const struct md_bench_figures *figures, struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_str(doc, o, "model", md_engine_info(engines[0])->model);
    yyjson_mut_obj_add_int(doc, o, "depth_tokens", depth);
    if (count == 1) {
        add_engine(doc, o, md_engine_info(engines[0]));
        add_figures(doc, o, figures);
    } else {
        add_several(doc, o, engines, count, figures);
    }
    return md_print_json(doc, true, err);
}
