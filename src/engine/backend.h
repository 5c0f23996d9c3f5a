/* backend.h - how an engine is opened without naming one: each adapter has one const table, adapters/all lists
 * them, commands are given the list. */
#ifndef MD_ENGINE_BACKEND_H
#define MD_ENGINE_BACKEND_H

#include "base/err.h"
#include "engine/engine.h"
#include "policy/kv_shape.h"
#include "policy/rope.h"
struct md_text; /* text/text.h: both come from the same model file */

struct md_open_params {
    const char *model_path;
    int32_t cell_count; /* physical KV cells wanted (hot tokens; the adapter rounds up to its unit) */
    int32_t seq_count;  /* sequences a user may name; 0: the adapter's default */
    int32_t batch_tokens, ubatch_tokens; /* 0: the adapter's default */
    int32_t threads;                     /* 0: as many as the machine has */
    int32_t gpu_layers;                  /* -1: as many as the device takes; 0: CPU only */
    const char *device;          /* id of one of the machine's devices: nowhere else; NULL: any, or the CPU
                                          where a model lies on one whole (md_machine.one_device) */
    int flash_attn;              /* 1 on, 0 off, -1 auto */
    const char *type_k, *type_v; /* NULL: f16 */
    bool window_full;          /* windowed layers keep the whole context: costs memory, cuts back anywhere */
    bool attention;            /* MD_CAP_ATTENTION_SCORES is wanted, where it is found to work */
    struct md_rope_asked rope; /* zero: positions as the file scales them */
    double
        xattention; /* share of attention that the first step of a sequence keeps, above 0, 1 at most; 0: off.  An engine
                         that has none refuses it: MD_UNSUPPORTED */
};

enum { MD_UNSUPPORTED_MAX = 8 };

/* What the file of a model says, and what this engine will make of it: for defaults, plans and refusals
 * before memory is taken. */
/* What the text of a chat template mentions. */
struct md_template_facts {
    bool present, tools, thinking, effort; /* tools; "enable_thinking" or "<think>"; "reasoning_effort" */
    bool think_tag;                        /* "<think>" */
};

struct md_model_facts {
    char architecture[64];
    char description[128]; /* for people: name, size, quantisation */
    int32_t trained_tokens;
    int64_t file_bytes; /* weights, all parts of the file */
    bool loadable;      /* false: the engine will refuse it; `unsupported` says why */
    const char
        *unsupported[MD_UNSUPPORTED_MAX]; /* codes ("unsupported_architecture"), static, NULL at the end */
    char refusal[400]; /* what the engine will say of this file, for people; "" when the codes say it all */
    const char *note;  /* one line about how layers are counted, or NULL; static */
    double rope_base, rope_base_window; /* of global and windowed layers; 0: none */
    struct md_rope_file rope;           /* of global layers; trained_tokens counts its scaling */
    int32_t head_count, embedding_length, ffn_length, /* of the widest layer: what compute buffers go by */
        vocab_count;                                  /* 0: unknown                                      */
    struct md_template_facts chat_template;
    struct md_kv_shape shape;
};

/* What opening with these parameters costs besides weights, for md_capacity_resolve. */
struct md_open_cost {
    struct md_kv_mode mode;
    int64_t compute_bytes;          /* estimate, for any context */
    int64_t compute_bytes_per_cell; /* estimate, grows with the context */
    bool cold_store;                /* ranges can be exported and put back for this model */
    int64_t export_bytes,
        export_cell_bytes; /* of an exported range besides its KV, at most: once, for each token */
    bool checkpoints;      /* it has a tail state, with which it is cut and switched (MD_CAP_CHECKPOINT) */
};

struct md_device {
    char kind[8]; /* "gpu", "igpu", "accel", "npu" */
    char id[32], description[128];
    char can[96]; /* what it computes with, in the library's words; "": it does not say */
    int64_t total_bytes, free_bytes, max_allocation_bytes; /* 0: unknown */
    bool shares_host;                                      /* its memory is the host's */
    const char *refused; /* why this engine computes nothing there; static; NULL: it can */
};

enum { MD_DEVICES_MAX = 16 };

enum { MD_KV_TYPES_TEXT = 96 };

/* What an engine finds on this machine. */
struct md_machine {
    char runtime_name[32], runtime_version[64]; /* "llama.cpp", its release */
    char system_info[512];                      /* the processor features in use, in the library's words */
    bool gpu_offload;                           /* this build can use a GPU */
    bool one_device;                 /* a model lies on one of them whole: none is spread over several */
    char kv_types[MD_KV_TYPES_TEXT]; /* that can be asked for, blanks between them */
    unsigned caps;                   /* MD_CAP_* of a dense model with KV of f16 */
    int32_t device_count;            /* accelerators; the processor is not counted */
    struct md_device devices[MD_DEVICES_MAX];
};

struct md_backend {
    const char *name;
    /* Read the model file's header; no weights, no library state.
     *
     * MD_NOT_FOUND no such file; MD_INVALID not a model or a broken one; MD_UNSUPPORTED the KV of this
     * architecture is laid out in a way that is not known here; MD_IO; MD_NO_MEMORY. */
    enum md_status (*probe)(const char *model_path, struct md_model_facts *ret_facts, struct md_err *err);
    /* seq_count  sequences that the library sets memory aside for; 0: what open() takes for this model
     * MD_INVALID an unknown KV type or a parameter out of range; MD_UNSUPPORTED a KV type that does not
     * fit the model's heads, more sequences than this model can be run with, or XAttention where there is none */
    enum md_status (*cost)(const struct md_model_facts *facts, const struct md_open_params *params,
                           int32_t seq_count, struct md_open_cost *ret_cost, struct md_err *err);
    enum md_status (*machine)(struct md_machine *ret_machine, struct md_err *err);
    /* Errors of probe; MD_NO_MEMORY the KV cache or the weights. */
    enum md_status (*open)(const struct md_open_params *params, struct md_engine **ret_engine,
                           struct md_text **ret_text, struct md_err *err);
};

#endif
