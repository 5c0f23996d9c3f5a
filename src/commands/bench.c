/* bench.c - `modeld bench`: prefill, decode, export and restore on this machine, in one run, at one depth.
 *
 * Works on the engine alone: no session, so that what is measured is the mechanism. */
#include "base/clock.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/print.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "policy/restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

static const char about[] = "Measure prefill and decode at a depth, and export and restore of KV blocks.";

enum { BLOCK = 64, DECODE_TOKENS_DEFAULT = 32 };

struct figures {
    int32_t depth, decode_tokens, moved_tokens;
    int64_t moved_bytes, prefill_ns, deep_prefill_ns, decode_ns, export_ns, restore_ns;
    int32_t prefill_tokens, deep_prefill_tokens;
    int64_t break_even_tokens; /* md_restore_break_even_tokens */
};

static double per_second(double amount, int64_t ns)
{
    return ns > 0 ? amount / ((double)ns / 1e9) : 0;
}

/* Real text is not needed to measure time; equal tokens would be kind to no cache, so they differ. */
static void fill_tokens(md_token *tokens, int32_t count, int32_t vocab)
{
    uint32_t x = 1;
    for (int32_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u; /* Numerical Recipes' LCG: any spread of ids will do */
        tokens[i] = (md_token)(x >> 8) % (vocab > 512 ? vocab / 2 : vocab);
    }
}

static enum md_status prefill(struct md_engine *e, const md_token *tokens, int32_t depth, struct figures *f,
                              struct md_err *err)
{
    int32_t batch = md_engine_info(e)->batch_tokens;
    enum md_status s = MD_OK;
    for (int32_t at = 0, n; at < depth && s == MD_OK; at += n) {
        n = depth - at < batch ? depth - at : batch;
        int64_t t0 = md_clock_mono_ns();
        s = md_engine_prefill(e, 0, at, tokens + at, n, err);
        int64_t took = md_clock_mono_ns() - t0;
        f->prefill_ns += took;
        f->prefill_tokens += n;
        f->deep_prefill_ns = took; /* the last step is the one at depth */
        f->deep_prefill_tokens = n;
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[Kprefill %d / %d tokens, %.0f tokens/s, %.0f s left", at + n, depth,
                    per_second(at + n, f->prefill_ns), (depth - at - n) / per_second(at + n, f->prefill_ns));
    }
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return s;
}

static enum md_status decode(struct md_engine *e, const md_token *tokens, struct figures *f,
                             struct md_err *err)
{
    const float *logits;
    enum md_status s = MD_OK;
    int64_t t0 = md_clock_mono_ns();
    for (int32_t i = 0; i < f->decode_tokens && s == MD_OK; i++)
        s = md_engine_decode(e, 0, f->depth + i, &tokens[i], 1, &logits, err);
    f->decode_ns = md_clock_mono_ns() - t0;
    return s;
}

/* Out and in again: every whole block between the first and the last quarter, one at a time as a session
 * moves them. */
static enum md_status move_blocks(struct md_engine *e, struct figures *f, struct md_err *err)
{
    int32_t first = f->depth / 4 / BLOCK, count = f->depth / 2 / BLOCK;
    struct md_buf *kv = calloc((size_t)count, sizeof *kv);
    enum md_status s = kv == NULL ? md_fail(err, MD_NO_MEMORY, "list of %d blocks", count) : MD_OK;
    for (int pass = 0; pass < 2 && s == MD_OK; pass++) { /* the first pass brings in the memory */
        int64_t t0 = md_clock_mono_ns();
        for (int32_t i = 0; i < count && s == MD_OK; i++) {
            struct md_range r = { (first + i) * BLOCK, (first + i + 1) * BLOCK };
            md_buf_done(&kv[i]);
            md_buf_init(&kv[i], NULL, (size_t)md_engine_export_bytes(e, BLOCK));
            s = md_engine_evict_range(e, 0, r, &kv[i], err);
            f->moved_bytes += pass == 1 ? (int64_t)kv[i].len : 0;
        }
        f->export_ns = md_clock_mono_ns() - t0;
        t0 = md_clock_mono_ns();
        for (int32_t i = 0; i < count && s == MD_OK; i++) {
            struct md_range r = { (first + i) * BLOCK, (first + i + 1) * BLOCK };
            s = md_engine_admit_range(e, 0, r, (struct md_bytes){ kv[i].data, kv[i].len }, err);
        }
        f->restore_ns = md_clock_mono_ns() - t0;
    }
    f->moved_tokens = count * BLOCK;
    for (int32_t i = 0; kv != NULL && i < count; i++)
        md_buf_done(&kv[i]);
    free(kv);
    return s;
}

/* From how many tokens on does bringing KV back beat computing it?  Blocks of several sizes, so that what a block costs
 * and what a byte costs can be told apart. */
static enum md_status find_break_even(struct md_engine *e, struct figures *f, struct md_err *err)
{
    static const int32_t sizes[] = { 1, 4, 16, BLOCK };
    enum { TIMES = 8 };
    struct md_restore speeds = { 0 };
    enum md_status s = MD_OK;
    md_restore_note_prefill(&speeds, f->deep_prefill_tokens, f->deep_prefill_ns);
    for (int i = 0; i < TIMES * (int)(sizeof sizes / sizeof sizes[0]) && s == MD_OK; i++) {
        const int32_t size = sizes[i / TIMES], start = f->depth / 4;
        const struct md_range r = { start, start + size };
        struct md_buf kv;
        md_buf_init(&kv, NULL, (size_t)md_engine_export_bytes(e, size));
        s = md_engine_evict_range(e, 0, r, &kv, err);
        int64_t t0 = md_clock_mono_ns();
        if (s == MD_OK)
            s = md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, err);
        md_restore_note_restore(&speeds, MD_TIER_HOST, (int64_t)kv.len, 1, md_clock_mono_ns() - t0);
        md_buf_done(&kv);
    }
    f->break_even_tokens =
        md_restore_break_even_tokens(&speeds, MD_TIER_HOST, md_engine_info(e)->kv_bytes_per_token);
    return s;
}

static enum md_status measure(struct md_engine *e, struct figures *f, struct md_err *err)
{
    md_token *tokens = calloc((size_t)f->depth + (size_t)f->decode_tokens, sizeof *tokens);
    if (tokens == NULL)
        return md_fail(err, MD_NO_MEMORY, "%d tokens", f->depth);
    fill_tokens(tokens, f->depth + f->decode_tokens, md_engine_info(e)->vocab_count);
    enum md_status s = prefill(e, tokens, f->depth, f, err);
    if (s == MD_OK)
        s = decode(e, tokens + f->depth, f, err);
    if (s == MD_OK && (md_engine_caps(e) & MD_CAP_COLD_STORE))
        s = move_blocks(e, f, err);
    if (s == MD_OK && f->moved_tokens > 0)
        s = find_break_even(e, f, err);
    free(tokens);
    return s;
}

static void print_text(const struct md_stack *s, const struct figures *f)
{
    const struct md_engine_info *info = md_engine_info(s->engine);
    printf("%s, %s, KV %s/%s, %d tokens deep\n", info->model, info->engine, info->type_k, info->type_v,
           f->depth);
    printf("  prefill  %8.1f tokens/s (whole)  %8.1f tokens/s (last %d, at depth)\n",
           per_second(f->prefill_tokens, f->prefill_ns),
           per_second(f->deep_prefill_tokens, f->deep_prefill_ns), f->deep_prefill_tokens);
    printf("  decode   %8.1f tokens/s\n", per_second(f->decode_tokens, f->decode_ns));
    if (f->moved_tokens == 0) {
        printf("  export and restore: this model's KV cannot be moved in parts\n");
        return;
    }
    printf("  export   %8.0f tokens/s  %6.2f GB/s\n", per_second(f->moved_tokens, f->export_ns),
           per_second((double)f->moved_bytes / 1e9, f->export_ns));
    printf("  restore  %8.0f tokens/s  %6.2f GB/s  %.0f times as fast as prefill at depth\n",
           per_second(f->moved_tokens, f->restore_ns),
           per_second((double)f->moved_bytes / 1e9, f->restore_ns),
           per_second(f->moved_tokens, f->restore_ns) /
               per_second(f->deep_prefill_tokens, f->deep_prefill_ns));
    if (f->break_even_tokens < 0)
        printf("  break-even: restoring is never faster than prefill here\n");
    else
        printf("  break-even: from %lld tokens on a block is restored faster than it is computed\n",
               (long long)f->break_even_tokens);
}

static enum md_status print_json(const struct md_stack *s, const struct figures *f, struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(s->engine);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_str(doc, o, "model", info->model);
    yyjson_mut_obj_add_str(doc, o, "engine", info->engine);
    yyjson_mut_obj_add_str(doc, o, "type_k", info->type_k);
    yyjson_mut_obj_add_str(doc, o, "type_v", info->type_v);
    yyjson_mut_obj_add_int(doc, o, "depth_tokens", f->depth);
    yyjson_mut_obj_add_real(doc, o, "prefill_tokens_per_second",
                            per_second(f->prefill_tokens, f->prefill_ns));
    yyjson_mut_obj_add_real(doc, o, "prefill_at_depth_tokens_per_second",
                            per_second(f->deep_prefill_tokens, f->deep_prefill_ns));
    yyjson_mut_obj_add_real(doc, o, "decode_tokens_per_second", per_second(f->decode_tokens, f->decode_ns));
    if (f->moved_tokens > 0) {
        yyjson_mut_obj_add_int(doc, o, "moved_tokens", f->moved_tokens);
        yyjson_mut_obj_add_int(doc, o, "moved_bytes", f->moved_bytes);
        yyjson_mut_obj_add_real(doc, o, "export_tokens_per_second",
                                per_second(f->moved_tokens, f->export_ns));
        yyjson_mut_obj_add_real(doc, o, "export_bytes_per_second",
                                per_second((double)f->moved_bytes, f->export_ns));
        yyjson_mut_obj_add_real(doc, o, "restore_tokens_per_second",
                                per_second(f->moved_tokens, f->restore_ns));
        yyjson_mut_obj_add_real(doc, o, "restore_bytes_per_second",
                                per_second((double)f->moved_bytes, f->restore_ns));
        yyjson_mut_obj_add_int(doc, o, "break_even_tokens", f->break_even_tokens);
    }
    return md_print_json(doc, true, err);
}

int md_command_bench(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_stack stack;
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_BENCH, about, &o);
    if (rc >= 0)
        return rc;
    struct figures f = { .depth = (int32_t)o.depth,
                         .decode_tokens = o.predict > 0 ? (int32_t)o.predict : DECODE_TOKENS_DEFAULT };
    int64_t room = o.ctx_size > 0 ? o.ctx_size : INT32_MAX;
    if (o.depth + f.decode_tokens > room) {
        fprintf(stderr, "modeld bench: --depth %d and %d decoded tokens do not fit %d tokens (--ctx-size)\n",
                f.depth, f.decode_tokens, (int)room);
        return 2;
    }
    int32_t cells = o.ctx_size > 0 ? (int32_t)o.ctx_size : f.depth + f.decode_tokens;
    if (md_choose_engine(&o, backends, true, &err) != MD_OK ||
        md_stack_open_engine(&o, backends, cells, &stack, &err) != MD_OK)
        return md_failed(argv[0], &err);
    enum md_status s = measure(stack.engine, &f, &err);
    if (s == MD_OK && o.json)
        s = print_json(&stack, &f, &err);
    else if (s == MD_OK)
        print_text(&stack, &f);
    if (s == MD_OK)
        s = md_print_flush(&err);
    if (s == MD_OK)
        md_stack_note_speed(&stack, f.prefill_tokens, f.prefill_ns);
    md_stack_close(&stack);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
