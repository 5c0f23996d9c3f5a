/* sizing.h - from options, a model's header and the memory that is free to the sizes a model is opened with.
 * The same answer for `plan`, `serve`, `run` and `chat`.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_SIZING_H
#define MD_COMMANDS_SIZING_H

#include "commands/options.h"
#include "engine/backend.h"
#include "host/memory.h"
#include "policy/capacity.h"

/* Memory that a running model and its cold store hold and would give back. */
struct md_held {
    int64_t host_bytes, device_bytes;
};

struct md_sizing {
    const struct md_backend *backend;
    char model_path[4096];
    char model_name[256]; /* file name without .gguf */
    struct md_model_facts facts;
    struct md_rope rope;        /* positions, by file and options; facts.trained_tokens is the window of it */
    struct md_open_params open; /* as the model would be opened; strings borrowed from the options */
    struct md_open_cost cost;
    struct md_machine machine;
    struct md_host_memory host;
    const struct md_device *device; /* the first accelerator that holds KV and weights; NULL: the host does */
    char device_why
        [352]; /* why AUTO is the processor here, though there is an accelerator that it takes; "" */
    struct md_kv_shape device_shape; /* the layers whose KV is there; the others lie in host memory */
    struct md_capacity_params params;
    struct md_capacity capacity;
    int32_t asked_tokens;    /* by -c; 0: automatic */
    int32_t window_tokens;   /* logical context: hot and cold together */
    int32_t hot_tokens;      /* of those, in the engine at once */
    bool past_window;        /* conversations go on past the trained window */
    const char *choice;      /* why this engine, for --engine auto; borrowed from the options; "" */
    bool manual_hot;         /* --hot was given: what the cold store cannot hold is the user's choice */
    int64_t cold_bytes;      /* of the cold store and keys_bytes; 0: nothing of this model goes cold */
    int64_t keys_bytes;      /* of those, at most: keys that --retrieval keeps to score them */
    int64_t model_bytes;     /* weights, buffers and hot KV */
    struct md_held held;     /* counted as if it were free */
    int64_t cold_room_bytes; /* what the model and the reserve leave of the host's memory for it */
};

/* The engine by name.  NULL with err: this build has no such engine. */
const struct md_backend *md_sizing_backend(const struct md_backend *backends, const char *name,
                                           struct md_err *err);

/* What the options and settings say of memory. */
struct md_memory_policy md_sizing_policy(const struct md_options *o);

/* Everything from the header of the model and the machine; nothing is loaded.
 *
 * held  what is credited: what is asked is then what would fit if that were closed; NULL: nothing
 * Points into itself: do not copy ret.
 * errors  those of md_paths_find_model, md_device_resolve, and of the backend's probe, machine and cost; MD_INVALID names the
 *         flag.  MD_UNSUPPORTED of cost on a device that was AUTO's choice is none where the processor can: device_why has it */
MD_MUST_USE enum md_status md_sizing_resolve(const struct md_options *o, const struct md_backend *backends,
                                             const struct md_held *held, struct md_sizing *ret,
                                             struct md_err *err);

/* Does anything ask what is attended: --retrieval auto, or --evict attention?  Words as md_stack_check_words takes them. */
bool md_sizing_asks_attention(const struct md_options *o);
/* Bytes of the keys that these keep of a window: what session/attend takes when the model is open and can be scored, or
 * more, where fewer layers are.  0: nothing is scored. */
int64_t md_sizing_keys_bytes(const struct md_options *o, const struct md_sizing *s, int64_t cold_bytes,
                             int64_t window_tokens);

/* The context the figures are for: what was asked, or else all that is hot. */
int32_t md_sizing_context(const struct md_sizing *s);
/* What keeps it from being more: "single allocation", "model", "request" or "memory". */
const char *md_sizing_limit(const struct md_sizing *s);

/* The widest sliding window that this engine uses; 0: there is none. */
int32_t md_sizing_window(const struct md_sizing *s);
/* Can the engine run this model at all?  MD_UNSUPPORTED names the architecture and why. */
MD_MUST_USE enum md_status md_sizing_check_model(const struct md_sizing *s, struct md_err *err);
/* May it be opened so?  That, and the refusals of md_capacity_check, with the flags that help; a context that hot and
 * cold store together do not hold is refused too, unless --hot was given. */
MD_MUST_USE enum md_status md_sizing_check(const struct md_options *o, const struct md_sizing *s,
                                           struct md_err *err);

#endif
