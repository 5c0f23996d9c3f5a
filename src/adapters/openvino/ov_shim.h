/* ov_shim.h - the little of OpenVINO that the engine needs, in C; behind it stand ov_shim.cc and ov_graph.cc, the only
 * code that sees its C++.
 *
 * A model is read from a GGUF file by the library's own frontend and turned into a graph whose attention reads and
 * writes keys and values in blocks of rows: in memory of the caller on the processor, in memory of the library's on any
 * device.  A step names the blocks it attends to in a table; visibility follows that table and a count of rows, positions
 * only turn queries and keys.
 *
 * In each block stand the rows of the first head, then those of the next, as ov_layout.h has them.  Rows do not depend on
 * each other, quantised ones (u8, on the processor) neither: each has its own scale and zero point in front.
 *
 * The shim is a library of its own, because the program runs where OpenVINO is missing too: ov_load.c has the functions
 * below for the rest of the engine, loads the shim at the first call and hands on to it.
 *
 * No C++ exception leaves a function.  Threads: a model belongs to one thread at a time; it computes on threads of
 * its own.
 * Source: headers of OpenVINO 2026.4.1; what its CPU plugin was seen to do.  Its GPU plugin was compiled against, never
 * run: what it does is as its documents have it. */
#ifndef MD_ADAPTERS_OPENVINO_OV_SHIM_H
#define MD_ADAPTERS_OPENVINO_OV_SHIM_H

#include "adapters/openvino/ov_layout.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MD_OV_BLOCK_ROWS: of a block on the processor, and the most of any device that is known. */
enum { MD_OV_BLOCK_ROWS = 32, MD_OV_SPARSE_ROWS = 128, MD_OV_LAYERS_MAX = 512 };

enum md_ov_type { MD_OV_F32, MD_OV_F16, MD_OV_U8 };

struct md_ov_layer {
    int32_t heads;                  /* of keys and values */
    int32_t key_length;             /* numbers in a key of one head */
    int32_t key_bytes, value_bytes; /* of one row of one head */
    struct md_ov_layout keys, values;
    float
        scale; /* of query times key, before softmax; 0: not known, or there are ALiBi slopes or sinks as well */
    bool windowed;
};

/* Fixed when the model is open. */
struct md_ov_facts {
    int32_t layer_count, vocab_count;
    int32_t input_count;
    int32_t output_count;  /* of the graph: logits, and what is watched */
    int32_t window_tokens; /* that a token sees in windowed layers, itself included; 0: there are none */
    int32_t block_rows;    /* of all layers */
    size_t block_bytes;    /* of keys and values of all layers */
    struct md_ov_layer layers[MD_OV_LAYERS_MAX];
};

struct md_ov_model;

/* The library's release, "2026.4.1-...". */
void md_ov_version(char *out, size_t out_bytes);

/* Load the shim, and with it the library; once.  All functions below but this one and close need it.
 * MD_UNSUPPORTED  it is missing, or is of another release than this was built for
 * Threads: any. */
MD_MUST_USE enum md_status md_ov_ready(struct md_err *err);

/* What the library makes of this processor: its name, and the kinds of numbers that it computes with.
 * MD_UNSUPPORTED  its part for processors cannot be loaded */
MD_MUST_USE enum md_status md_ov_processor(char *out, size_t out_bytes, struct md_err *err);

/* What a step gives besides logits, see below, and may leave out. */
enum { MD_OV_WATCH_ALL = -1 };
struct md_ov_watch {
    const int32_t *layers; /* whose queries are given, in rising order */
    int32_t count; /* 0: none, and the graph has the outputs it has without; MD_OV_WATCH_ALL: all layers */
    bool scores;   /* the library's own scores of these layers, too */
    bool
        sparse; /* steps may leave out what hardly counts: md_ov_step.threshold.  The graph has other inputs then */
};

enum { MD_OV_DEVICES_MAX = 16 };
struct md_ov_device {
    char id[32], description[128]; /* "CPU", "GPU.0", "NPU"; its full name */
    char numbers[96]; /* kinds of numbers it computes with, and what else the library tells of it */
    bool integrated;  /* its memory is the host's */
    int64_t total_bytes, max_allocation_bytes; /* of a GPU; 0: unknown */
};
/* The devices that the library lists.
 * MD_UNSUPPORTED  it cannot say */
MD_MUST_USE enum md_status md_ov_devices(struct md_ov_device ret_devices[MD_OV_DEVICES_MAX],
                                         int32_t *ret_count, struct md_err *err);

/* Read, transform and compile.  Takes seconds.
 *
 * device   as md_ov_devices names it
 * threads  at least 1; of the processor
 * watch    NULL: nothing
 * MD_INVALID      a layer to watch that the model does not have, or twice
 * MD_UNSUPPORTED  the library cannot run the file there, it has recurrent layers, or the device keeps KV in another type
 *                 than was asked or in a way that is not known; layers with a window elsewhere than on the processor
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_ov_model_open(const char *path, const char *device, enum md_ov_type kv_type,
                                            int32_t threads, const struct md_ov_watch *watch,
                                            struct md_ov_model **ret_model, struct md_err *err);
void md_ov_model_close(struct md_ov_model *m); /* accepts NULL */
const struct md_ov_facts *md_ov_model_facts(const struct md_ov_model *m);

/* Where keys and values of a layer lie from now on: `blocks` blocks each, borrowed until close, and zeroed (what
 * nobody has written must be finite).  The last block is the shim's own: no step may name it.  Before the first step, for
 * each layer.
 * MD_INTERNAL  the library does not take them */
MD_MUST_USE enum md_status md_ov_model_bind(struct md_ov_model *m, int32_t layer, void *keys, void *values,
                                            int32_t blocks, struct md_err *err);

/* The same in memory of the device, which the library gives and keeps until close: all layers, `blocks` blocks, zeroed.
 * Instead of md_ov_model_bind; also for the processor, where it is memory of the host.
 * MD_NO_MEMORY  the library does not give it: the device has not as much, or not in one piece for each layer */
MD_MUST_USE enum md_status md_ov_model_hold(struct md_ov_model *m, int32_t blocks, struct md_err *err);
/* A block of what is held, out and in: facts->block_bytes, keys and values of each layer in turn.  When it returns, it
 * is done.
 * MD_INTERNAL  the library; after a put that failed the block may hold parts of both */
MD_MUST_USE enum md_status md_ov_model_get(const struct md_ov_model *m, int32_t block, uint8_t *ret_bytes,
                                           struct md_err *err);
MD_MUST_USE enum md_status md_ov_model_put(struct md_ov_model *m, int32_t block, const uint8_t *bytes,
                                           struct md_err *err);

struct md_ov_step {
    const int32_t *tokens;
    int32_t start, count; /* positions start, start + 1, ... */
    const int32_t *table; /* blocks attended, in order */
    int32_t table_count;
    int32_t past;        /* rows of the table that are there; the new ones are written behind them */
    int32_t window_rows; /* with windowed layers: rows that each token sees there, itself the last of them */
    /* XAttention, in a graph for sparse steps and with nothing past: each MD_OV_SPARSE_ROWS tokens attend, in each head, to
     * as many blocks of as many rows as have this share of their attention by an estimate, the first and their own among
     * them.  Windowed layers attend to all they see.  0: so do all, to the bit as in a graph without */
    float threshold;
};

/* Compute the keys and values of the tokens, and the logits behind the last of them.
 *
 * stop         NULL, or asked every few milliseconds on this thread; true makes the step end soon
 * ret_logits   vocab_count floats, the library's, valid until the next step
 * MD_CANCELLED, MD_INTERNAL, MD_NO_MEMORY  rows from `past` on hold anything finite */
MD_MUST_USE enum md_status md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step,
                                           bool (*stop)(void *user), void *user, const float **ret_logits,
                                           struct md_err *err);

/* ---- what was watched: of the last step, which came to its end ---- */

/* Queries as a layer's attention takes them: normed and turned to their positions where the model does that, not yet
 * multiplied by the layer's scale.
 * Number i of head h of row r stands at (r * heads + h) * length + i; heads h * keys' heads / heads of the keys, which
 * lie in the memory that was bound, go with it. */
struct md_ov_queries {
    const float *at; /* the library's, valid until the next step */
    int32_t rows;    /* the tokens of the step */
    int32_t heads, length;
};
/* MD_INVALID  the layer is not watched, or no step came to its end; MD_INTERNAL  the library */
MD_MUST_USE enum md_status md_ov_model_queries(struct md_ov_model *m, int32_t layer,
                                               struct md_ov_queries *ret_queries, struct md_err *err);

/* What the library itself says of a layer: for each row of the table, the new ones included, the share of attention
 * that the last token of the step paid it, summed over the heads of queries.
 *
 * ret_scores  the library's, valid until the next step; ret_count of them
 * errors      those of md_ov_model_queries; MD_INVALID also: scores were not asked for */
MD_MUST_USE enum md_status md_ov_model_scores(struct md_ov_model *m, int32_t layer, const float **ret_scores,
                                              int32_t *ret_count, struct md_err *err);

/* Of this struct and of all that is read and written on both sides: a program and a shim of one build have the same. */
enum { MD_OV_SHIM_SIZES_COUNT = 9 };
#define MD_OV_SHIM_SIZES                                                                          \
    {                                                                                             \
        sizeof(struct md_ov_shim), sizeof(struct md_ov_facts), sizeof(struct md_ov_layer),        \
            sizeof(struct md_ov_layout), sizeof(struct md_ov_watch), sizeof(struct md_ov_device), \
            sizeof(struct md_ov_step), sizeof(struct md_ov_queries), sizeof(struct md_err)        \
    }

/* What the shim gives to ov_load.c: the functions above by their names. */
struct md_ov_shim {
    size_t sizes[MD_OV_SHIM_SIZES_COUNT]; /* MD_OV_SHIM_SIZES; the first tells whether there are others */
    void (*version)(char *out, size_t out_bytes);
    enum md_status (*processor)(char *out, size_t out_bytes, struct md_err *err);
    enum md_status (*devices)(struct md_ov_device *ret_devices, int32_t *ret_count, struct md_err *err);
    enum md_status (*open)(const char *path, const char *device, enum md_ov_type kv_type, int32_t threads,
                           const struct md_ov_watch *watch, struct md_ov_model **ret_model,
                           struct md_err *err);
    void (*close)(struct md_ov_model *m);
    const struct md_ov_facts *(*facts)(const struct md_ov_model *m);
    enum md_status (*bind)(struct md_ov_model *m, int32_t layer, void *keys, void *values, int32_t blocks,
                           struct md_err *err);
    enum md_status (*hold)(struct md_ov_model *m, int32_t blocks, struct md_err *err);
    enum md_status (*get)(const struct md_ov_model *m, int32_t block, uint8_t *ret_bytes, struct md_err *err);
    enum md_status (*put)(struct md_ov_model *m, int32_t block, const uint8_t *bytes, struct md_err *err);
    enum md_status (*run)(struct md_ov_model *m, const struct md_ov_step *step, bool (*stop)(void *user),
                          void *user, const float **ret_logits, struct md_err *err);
    enum md_status (*queries)(struct md_ov_model *m, int32_t layer, struct md_ov_queries *ret_queries,
                              struct md_err *err);
    enum md_status (*scores)(struct md_ov_model *m, int32_t layer, const float **ret_scores,
                             int32_t *ret_count, struct md_err *err);
};

/* The one name that the shim shows.
 * MD_UNSUPPORTED  the library that was loaded is of another release than the headers it was built with */
typedef enum md_status (*md_ov_shim_get_fn)(const struct md_ov_shim **ret_shim, struct md_err *err);
#define MD_OV_SHIM_GET "md_ov_shim_get"

#ifdef __cplusplus
}
#endif
#endif
