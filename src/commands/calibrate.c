/* calibrate.c - `modeld calibrate`: measure now which heads of a model find things, instead of when a daemon is idle. */
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/sizing.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "session/haystack.h"

#include <stdio.h>
#include <unistd.h>

static const char about[] =
    "Measure which attention heads of a model find what a question asks for, and keep them: --retrieval auto "
    "uses them from then "
    "on.\nWithout it a daemon does the same when it is idle for the first time with a model.";

/* All of a haystack and of a question is hot; a window that is larger, for else nothing is ever retrieved. */
static enum md_status sized(const struct md_options *o, const struct md_backend *backends,
                            struct md_options *ret, struct md_err *err)
{
    const int64_t block = o->block_tokens;
    int64_t hot = MD_HAYSTACK_TOKENS + MD_HAYSTACK_QUESTION + 2 * block;
    struct md_sizing z;
    enum md_status st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check_model(&z, err);
    if (st != MD_OK)
        return st;
    if (z.facts.trained_tokens > 0 && hot + block > z.facts.trained_tokens)
        hot = z.facts.trained_tokens - block;
    *ret = *o;
    ret->hot = hot;
    ret->ctx_size = hot + block;
    ret->min_hot_context = 0;
    ret->retrieval = "auto";
    return MD_OK;
}

static void configure(struct md_pool_config *config)
{
    config->calibrate = MD_CALIBRATE_ANEW;
    config->sink_tokens = config->recent_tokens = config->block_tokens;
}

static enum md_status measure(struct md_pool *pool, struct md_err *err)
{
    const bool shown = isatty(STDERR_FILENO);
    const char *no = md_pool_status(pool).no_retrieval;
    if (no != NULL)
        return md_fail(err, MD_UNSUPPORTED, "heads of this model cannot be measured: %s", no);
    while (md_pool_wants_idle(pool)) {
        md_pool_idle(pool, NULL, NULL);
        if (shown)
            fprintf(stderr, "\rcalibrating: %d %%", md_pool_status(pool).heads.percent);
    }
    if (shown)
        fputs("\r                      \r", stderr);
    const struct md_heads_status h = md_pool_status(pool).heads;
    return h.state == MD_HEADS_SETTLED ? MD_OK : md_fail(err, MD_UNSUPPORTED, "%s", h.why);
}

static enum md_status print(const struct md_pool *pool, struct md_err *err)
{
    struct md_buf text MD_CLEANUP(md_buf_done);
    md_buf_init(&text, NULL, MD_CALIBRATE_TEXT_BYTES);
    enum md_status s = md_pool_print_heads(pool, &text, err);
    if (s == MD_OK)
        fwrite(text.data, 1, text.len, stdout);
    return s;
}

static enum md_status calibrate(const struct md_options *o, const struct md_backend *backends,
                                struct md_err *err)
{
    struct md_options mine;
    struct md_stack stack = { 0 };
    enum md_status s = sized(o, backends, &mine, err);
    if (s == MD_OK)
        s = md_stack_open_with(&mine, backends, configure, &stack, err);
    if (s == MD_OK)
        s = measure(stack.pool, err);
    if (s == MD_OK && o->print_heads)
        s = print(stack.pool, err);
    if (s == MD_OK && !o->print_heads) {
        const struct md_heads_status h = md_pool_status(stack.pool).heads;
        if (h.kept)
            printf("%s: %d heads by %s, kept for `--retrieval auto`\n", stack.model_name, h.count,
                   md_calibrate_source_name(h.source));
        else
            s = md_fail(err, MD_IO, "%s", h.why);
    }
    md_stack_close(&stack);
    return s;
}

int md_command_calibrate(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_CALIBRATE, about, &o);
    if (rc >= 0)
        return rc;
    enum md_status s = md_choose_engine(&o, backends, false, &err);
    if (s == MD_OK)
        s = calibrate(&o, backends, &err);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
