/* ov_engine.h - what the files of the engine share: its operations (ov_engine.c), what it tells of attention
 * (ov_attention.c), what it takes (ov_cost.c), where it computes (ov_where.c), opening (ov_open.c), and the trial that a
 * device stands first (ov_prove.c). */
#ifndef MD_ADAPTERS_OPENVINO_OV_ENGINE_H
#define MD_ADAPTERS_OPENVINO_OV_ENGINE_H

#include "adapters/openvino/ov_cache.h"
#include "adapters/openvino/ov_rows.h"
#include "engine/backend.h"
#include "engine/engine_ops.h"

/* Of any model; POSITION_SHIFT where turning keys was tried and works. */
enum {
    MD_OV_CAPS = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION | MD_CAP_COLD_STORE |
                 MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE
};

struct md_ov_engine {
    struct md_engine base;
    struct md_ov_model *model;
    struct md_ov_cache cache;
    struct md_ov_rows rows;
    struct md_ov_turn turn; /* length 0: keys cannot be turned */
    uint64_t identity_hash;
    float threshold; /* of a step with nothing before it: md_ov_step.threshold */
};

extern const struct md_engine_ops md_ov_engine_ops;

/* How keys and values are kept, and read, by what is asked for (ov_cost.c).
 * MD_UNSUPPORTED: another type, two of them, or no flash attention */
MD_MUST_USE enum md_status md_ov_kv_type(const struct md_open_params *params, enum md_ov_type *ret_type,
                                         struct md_err *err);
const char *md_ov_kv_type_name(enum md_ov_type type);
/* Can the first step of a sequence be sparse as `params` want it?  Nothing is wanted: MD_OK (ov_cost.c).
 * MD_INVALID: no share of attention, or micro-batches in which nothing would be left out; MD_UNSUPPORTED: on another device
 * than the CPU */
MD_MUST_USE enum md_status md_ov_check_xattention(const struct md_open_params *params, struct md_err *err);

/* ---- ov_where.c ---- */

/* Why nothing is computed on devices of this name; static; NULL: it can. */
const char *md_ov_refusal(const char *id);
/* Is the device that is asked among them?
 * MD_UNSUPPORTED  it is not, or nothing is computed there; the text lists those that can be taken */
MD_MUST_USE enum md_status md_ov_check_there(const struct md_ov_device *devices, int32_t count,
                                             const char *asked, struct md_err *err);
bool md_ov_on_cpu(const struct md_open_params *p);
/* What can be said of device, layers and KV type before anything is read.  MD_UNSUPPORTED */
MD_MUST_USE enum md_status md_ov_check_device(const struct md_open_params *p, enum md_ov_type type,
                                              struct md_err *err);

/* ---- ov_open.c ---- */

/* md_openvino_open.
 * pooled  KV lies in memory that the library gives, of which whole blocks are copied out and in, and the engine has proven
 *         itself before it is given out: always so on a device that is not the processor */
MD_MUST_USE enum md_status md_ov_engine_open(const struct md_open_params *params, bool pooled,
                                             struct md_engine **ret_engine, struct md_err *err);

/* ---- ov_prove.c ---- */

/* Try on an engine that is open and empty that KV leaves and comes back as it was, into other rows too.  Some steps of one
 * prompt of two blocks; the engine is empty afterwards.
 * MD_UNSUPPORTED  it does not, or a step fails: the text says what to do
 * MD_INVALID      fewer cells than the trial takes      MD_NO_MEMORY  the heap */
MD_MUST_USE enum md_status md_ov_prove(struct md_ov_engine *e, struct md_err *err);

/* ---- ov_attention.c ---- */

/* Keep the queries of the step that came to its end, whose first token is row `row` of the call, where they are wanted. */
MD_MUST_USE enum md_status md_ov_attention_step(struct md_ov_engine *e, int32_t row, struct md_err *err);
enum md_status md_ov_keys(const struct md_engine *base, struct md_range r, struct md_bytes kv,
                          const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err);
/* While the engine opens, is empty, and its graph gives the queries of all layers: compute a few tokens, and see that
 * what comes can be what is attended; adds the capability where some layer can be watched.  Empty again afterwards.
 * MD_NO_MEMORY: the heap */
MD_MUST_USE enum md_status md_ov_attention_open(struct md_ov_engine *e, unsigned *caps, struct md_err *err);

#endif
