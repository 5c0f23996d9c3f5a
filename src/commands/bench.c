/* bench.c - `modeld bench`: prefill, decode, export and restore on this machine, in one run, at one depth; of one engine,
 * or of both side by side. */
#include "commands/bench.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/print.h"
#include "commands/stack.h"
#include "commands/start.h"

#include <stdio.h>
#include <string.h>

static const char about[] = "Measure prefill and decode at a depth, and export and restore of KV blocks.\n"
                            "--engine both: of llama and openvino in turn, with the ratios.";
static const char both[] = "both";

/* The engines that are measured; closed by close_all. */
struct opened {
    struct md_stack stacks[MD_BENCH_ENGINES_MAX];
    struct md_engine *engines[MD_BENCH_ENGINES_MAX];
    int count;
};

static void close_all(struct opened *all)
{
    for (int i = 0; i < all->count; i++)
        md_stack_close(&all->stacks[i]);
    all->count = 0;
}

/* Into o->engine goes which one it was, with --engine auto. */
static enum md_status open_one(struct md_options *o, const struct md_backend *backends, int32_t cells,
                               struct opened *all, struct md_err *err)
{
    enum md_status s = md_choose_engine(o, backends, true, err);
    if (s == MD_OK)
        s = md_stack_open_engine(o, backends, cells, &all->stacks[all->count], err);
    if (s == MD_OK) {
        all->engines[all->count] = all->stacks[all->count].engine;
        all->count++;
    }
    return s;
}

/* What one of them refuses is not measured on the other alone: who asks for both wants to compare. */
static enum md_status open_both(const struct md_options *o, const struct md_backend *backends, int32_t cells,
                                struct opened *all, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (backends[0].name == NULL || backends[1].name == NULL)
        return md_fail(err, MD_UNSUPPORTED, "--engine both: this build has '%s' only: build it with openvino",
                       backends[0].name != NULL ? backends[0].name : "none");
    for (int i = 0; i < MD_BENCH_ENGINES_MAX && s == MD_OK; i++) {
        struct md_options mine = *o;
        struct md_err why;
        mine.engine = backends[i].name;
        s = open_one(&mine, backends, cells, all, &why);
        if (s != MD_OK)
            md_fail(err, s, "--engine both: '%s' refuses: %.440s", backends[i].name, why.text);
    }
    return s;
}

static enum md_status report(const struct md_options *o, const struct opened *all,
                             const struct md_bench_figures *figures, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (o->json)
        s = md_bench_print_json(all->engines, all->count, (int32_t)o->depth, figures, err);
    else
        md_bench_print_text(all->engines, all->count, (int32_t)o->depth, figures);
    if (s == MD_OK)
        s = md_print_flush(err);
    for (int i = 0; i < all->count && s == MD_OK; i++)
        md_stack_note_speed(&all->stacks[i], figures[i].prefill.tokens, figures[i].prefill.ns);
    return s;
}

int md_command_bench(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct opened all = { .count = 0 };
    struct md_bench_figures figures[MD_BENCH_ENGINES_MAX];
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_BENCH, about, &o);
    if (rc >= 0)
        return rc;
    const int32_t depth = (int32_t)o.depth,
                  decoded = o.predict > 0 ? (int32_t)o.predict : MD_BENCH_DECODE_TOKENS;
    const int64_t room = o.ctx_size > 0 ? o.ctx_size : INT32_MAX;
    if ((int64_t)depth + decoded > room) {
        fprintf(stderr, "modeld bench: --depth %d and %d decoded tokens do not fit %d tokens (--ctx-size)\n",
                depth, decoded, (int)room);
        return 2;
    }
    const int32_t cells = o.ctx_size > 0 ? (int32_t)o.ctx_size : depth + decoded;
    enum md_status s = strcmp(o.engine, both) == 0 ? open_both(&o, backends, cells, &all, &err)
                                                   : open_one(&o, backends, cells, &all, &err);
    if (s == MD_OK)
        s = md_bench_measure(all.engines, all.count, depth, decoded, figures, &err);
    if (s == MD_OK)
        s = report(&o, &all, figures, &err);
    close_all(&all);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
