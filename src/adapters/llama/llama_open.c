/* llama_open.c - the backend table: what is asked for is checked here, in our words, before the library
 * is asked to do it. */
#include "adapters/llama/llama_backend.h"
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"

#include <stddef.h>

static enum md_status check_params(const struct md_open_params *p, struct md_err *err)
{
    enum { LIMIT = 1 << 30, THREADS_MAX = 512 }; /* the library's own limit of threads */
    if (p->cell_count < 1 || p->cell_count > LIMIT)
        return md_fail(err, MD_INVALID, "KV cells must be 1 to %d, got %d", LIMIT, p->cell_count);
    if (p->threads < 0 || p->threads > THREADS_MAX)
        return md_fail(err, MD_INVALID, "threads must be 0 to %d, got %d", THREADS_MAX, p->threads);
    if (p->gpu_layers < -1)
        return md_fail(err, MD_INVALID, "GPU layers must be -1 or more, got %d", p->gpu_layers);
    return MD_OK;
}

/* What the library would refuse late, or with an assertion. */
static enum md_status check_model(struct md_gguf *file, const struct md_open_params *p,
                                  struct md_model_facts *ret_facts, struct md_open_cost *ret_cost,
                                  struct md_rope *ret_rope, struct md_err *err)
{
    enum md_status s = md_llama_read_facts(file, ret_facts, err);
    if (s == MD_OK && !ret_facts->loadable && ret_facts->refusal[0] != '\0')
        return md_fail(err, MD_INVALID, "%s", ret_facts->refusal);
    if (s == MD_OK && !ret_facts->loadable)
        return md_fail(err, MD_UNSUPPORTED, "model '%s' of architecture '%s' cannot be opened: %s",
                       p->model_path, ret_facts->architecture, ret_facts->unsupported[0]);
    if (s == MD_OK)
        s = md_rope_resolve(&ret_facts->rope, &p->rope, ret_rope, err);
    if (s != MD_OK)
        return s;
    ret_facts->trained_tokens = ret_rope->trained_tokens;
    return md_llama_cost(ret_facts, p, 0, ret_cost, err);
}

static enum md_status open_file(struct md_gguf *file, const struct md_open_params *params,
                                struct md_engine **ret_engine, struct md_text **ret_text, struct md_err *err)
{
    struct md_model_facts facts;
    struct md_open_cost cost;
    struct md_rope rope;
    struct md_llama_model *m;
    struct md_engine *e = NULL;
    struct md_text *t = NULL;
    enum md_status s = check_model(file, params, &facts, &cost, &rope, err);
    if (s == MD_OK)
        s = md_llama_model_open(file, MD_LLAMA_WHOLE, params->gpu_layers, params->device, &m, err);
    if (s != MD_OK)
        return s;
    s = md_llama_engine_new(m, params, &facts.shape, &cost, &rope, &e, err);
    if (s == MD_OK && ret_text != NULL)
        s = md_llama_text_new(m, &t, err);
    md_llama_model_unref(m);
    if (s != MD_OK) {
        md_engine_close(e);
        return s;
    }
    *ret_engine = e;
    if (ret_text != NULL)
        *ret_text = t;
    return MD_OK;
}

static enum md_status llama_open(const struct md_open_params *params, struct md_engine **ret_engine,
                                 struct md_text **ret_text, struct md_err *err)
{
    struct md_gguf *file = NULL;
    enum md_status s = check_params(params, err);
    if (s == MD_OK)
        s = md_llama_file_open(params->model_path, &file, err);
    if (s == MD_OK)
        s = open_file(file, params, ret_engine, ret_text, err);
    md_gguf_close(file);
    return s;
}

enum md_status md_llama_text_open(const char *model_path, struct md_text **ret_text, struct md_err *err)
{
    struct md_llama_model *m;
    struct md_gguf *file = NULL;
    enum md_status s = md_llama_file_open(model_path, &file, err);
    if (s == MD_OK)
        s = md_llama_model_open(file, MD_LLAMA_VOCAB_ONLY, 0, NULL, &m, err);
    md_gguf_close(file);
    if (s != MD_OK)
        return s;
    s = md_llama_text_new(m, ret_text, err);
    md_llama_model_unref(m);
    return s;
}

const struct md_backend md_backend_llama = { .name = "llama",
                                             .probe = md_llama_probe,
                                             .cost = md_llama_cost,
                                             .machine = md_llama_machine,
                                             .open = llama_open };
