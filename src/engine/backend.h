/* backend.h - how an engine is opened without naming one: each adapter has one const table, main.c lists
 * them, commands are given the list. */
#ifndef MD_ENGINE_BACKEND_H
#define MD_ENGINE_BACKEND_H

#include "base/err.h"
#include "engine/engine.h"
struct md_text; /* text/text.h: both come from the same model file */

struct md_open_params {
    const char *model_path;
    int32_t cell_count; /* physical KV cells wanted (hot tokens; the adapter rounds up to its unit) */
    int32_t batch_tokens, ubatch_tokens; /* 0: the adapter's default */
    int32_t threads;                     /* 0: as many as the machine has */
    int32_t gpu_layers;                  /* -1: as many as the device takes; 0: CPU only */
    int flash_attn;                      /* 1 on, 0 off, -1 auto */
    const char *type_k, *type_v;         /* NULL: f16 */
};

/* Facts that need the model file but no KV: for defaults and refusals before memory is taken. */
struct md_model_facts {
    int32_t trained_tokens;
    char description[128];
};

struct md_backend {
    const char *name;
    /* MD_NOT_FOUND no such file; MD_INVALID not a model, or an unknown parameter; MD_UNSUPPORTED the
     * architecture; MD_NO_MEMORY. */
    enum md_status (*probe)(const char *model_path, struct md_model_facts *ret_facts, struct md_err *err);
    enum md_status (*open)(const struct md_open_params *params, struct md_engine **ret_engine,
                           struct md_text **ret_text, struct md_err *err);
};

#endif
