#include "commands/stack.h"

#include "base/log.h"
#include "commands/start.h"
#include "engine/trace.h"
#include "host/paths.h"

#include <stdio.h>
#include <string.h>

enum { HOT_DEFAULT = 4096, WINDOW_UNKNOWN = 4096 }; /* tokens */

static const struct md_backend *find_backend(const struct md_backend *backends, const char *name,
                                             struct md_err *err)
{
    for (const struct md_backend *b = backends; b->name != NULL; b++)
        if (strcmp(b->name, name) == 0)
            return b;
    md_fail(err, MD_INVALID, "unknown engine '%.40s': this build has '%s'", name, backends->name);
    return NULL;
}

static enum md_status find_model(const struct md_options *o, const struct md_backend *backend,
                                 struct md_stack *s, struct md_err *err)
{
    enum md_status st = md_paths_find_model(o->data_root, o->model, s->model_path, sizeof s->model_path, err);
    if (st != MD_OK)
        return st;
    md_paths_model_name(s->model_path, s->model_name, sizeof s->model_name);
    return backend->probe(s->model_path, &s->facts, err);
}

static enum md_status check_window(int32_t tokens, const struct md_stack *s, struct md_err *err)
{
    if (s->facts.trained_tokens <= 0 || tokens <= s->facts.trained_tokens)
        return MD_OK;
    return md_fail(err, MD_INVALID,
                   "%d tokens are asked for, the model was trained for %d: lower --depth, -n or -c", tokens,
                   s->facts.trained_tokens);
}

static enum md_status derive_sizes(const struct md_options *o, struct md_stack *s, struct md_err *err)
{
    int32_t trained = s->facts.trained_tokens;
    s->window_tokens = o->ctx_size > 0 ? (int32_t)o->ctx_size : trained > 0 ? trained : WINDOW_UNKNOWN;
    if (trained > 0 && s->window_tokens > trained)
        return md_fail(err, MD_INVALID, "--ctx-size %d is more than the %d tokens the model was trained for",
                       s->window_tokens, trained);
    if (!o->residency) {
        if (o->hot > 0 && o->hot != s->window_tokens)
            return md_fail(err, MD_INVALID, "--hot %d needs --residency on: without it all %d tokens are hot",
                           (int)o->hot, s->window_tokens);
        s->hot_tokens = s->window_tokens;
        return MD_OK;
    }
    if (o->hot > s->window_tokens)
        return md_fail(err, MD_INVALID, "--hot %d is more than the window of %d tokens (--ctx-size)",
                       (int)o->hot, s->window_tokens);
    s->hot_tokens = o->hot > 0                       ? (int32_t)o->hot
                    : HOT_DEFAULT < s->window_tokens ? HOT_DEFAULT
                                                     : s->window_tokens;
    return MD_OK;
}

static enum md_status open_engine(const struct md_options *o, const struct md_backend *backend,
                                  int32_t cell_count, struct md_stack *s, struct md_err *err)
{
    struct md_open_params p = {
        .model_path = s->model_path,
        .cell_count = cell_count,
        .batch_tokens = (int32_t)o->batch,
        .ubatch_tokens = (int32_t)o->ubatch,
        .threads = (int32_t)o->threads,
        .gpu_layers = (int32_t)o->gpu_layers,
        .type_k = o->type_k,
        .type_v = o->type_v,
    };
    if (strcmp(o->flash_attn, "on") == 0)
        p.flash_attn = 1;
    else if (strcmp(o->flash_attn, "auto") == 0)
        p.flash_attn = -1;
    else if (strcmp(o->flash_attn, "off") != 0)
        return md_fail(err, MD_INVALID, "--flash-attn must be on, off or auto, got '%.40s'", o->flash_attn);
    enum md_status st = backend->open(&p, &s->engine, &s->text, err);
    if (st != MD_OK)
        return st;
    if (o->verbose) {
        struct md_engine *inner = s->engine;
        s->engine = NULL; /* taken over, also on failure */
        st = md_trace_open(inner, &s->engine, err);
        if (st != MD_OK)
            return st;
    }
    const struct md_engine_info *info = md_engine_info(s->engine);
    if (info->lossy_kv)
        md_log(MD_LOG_WARN, "KV types %s/%s are lossy: they round what the model computes", info->type_k,
               info->type_v);
    return MD_OK;
}

static struct md_session_config session_config(const struct md_options *o, const struct md_stack *s)
{
    return (struct md_session_config){
        .window_tokens = s->window_tokens,
        .hot_tokens = s->hot_tokens,
        .residency = o->residency,
        .block_tokens = (int32_t)o->block_tokens,
        .sink_tokens = (int32_t)o->sink,
        .recent_tokens = (int32_t)o->recent,
    };
}

static enum md_status open_session(const struct md_options *o, struct md_stack *s, struct md_err *err)
{
    struct md_session_config c = session_config(o, s);
    int64_t cold = o->mem_cold;
    struct md_host_memory memory;
    if (cold < 0) {
        enum md_status st = md_start_memory(&memory, err);
        if (st != MD_OK)
            return st;
        cold = memory.available_bytes / 4;
    }
    c.cold_bytes = (size_t)cold;
    return md_session_open(&c, s->engine, s->text, &s->session, err);
}

enum md_status md_stack_open_engine(const struct md_options *o, const struct md_backend *backends,
                                    int32_t cell_count, struct md_stack *ret_stack, struct md_err *err)
{
    struct md_stack s = { 0 };
    const struct md_backend *backend = find_backend(backends, o->engine, err);
    enum md_status st = backend == NULL ? MD_INVALID : find_model(o, backend, &s, err);
    if (st == MD_OK)
        st = check_window(cell_count, &s, err);
    if (st == MD_OK)
        st = open_engine(o, backend, cell_count, &s, err);
    if (st == MD_OK)
        *ret_stack = s;
    else
        md_stack_close(&s);
    return st;
}

enum md_status md_stack_open(const struct md_options *o, const struct md_backend *backends,
                             struct md_stack *ret_stack, struct md_err *err)
{
    struct md_stack s = { 0 };
    const struct md_backend *backend = find_backend(backends, o->engine, err);
    enum md_status st = backend == NULL ? MD_INVALID : find_model(o, backend, &s, err);
    if (st == MD_OK)
        st = derive_sizes(o, &s, err);
    struct md_session_config config = session_config(o, &s);
    if (st == MD_OK)
        st = md_session_check_config(&config, err); /* before the weights are read */
    if (st == MD_OK)
        st = open_engine(o, backend, s.hot_tokens, &s, err);
    if (st == MD_OK)
        st = open_session(o, &s, err);
    if (st == MD_OK)
        *ret_stack = s;
    else
        md_stack_close(&s);
    return st;
}

void md_stack_close(struct md_stack *s)
{
    md_session_close(s->session);
    md_engine_close(s->engine);
    md_text_close(s->text);
    *s = (struct md_stack){ 0 };
}

struct md_sample_params md_stack_sampling(const struct md_options *o)
{
    struct md_sample_params p = md_sample_defaults();
    p.temperature = (float)o->temp;
    p.top_k = (int32_t)o->top_k;
    p.top_p = (float)o->top_p;
    p.min_p = (float)o->min_p;
    p.repeat_penalty = (float)o->repeat_penalty;
    p.repeat_last_n = (int32_t)o->repeat_last_n;
    p.seed = o->seed;
    return p;
}
