/* fake.h - an engine that computes: a small llama-architecture forward pass in plain C, f32 throughout.
 *
 * It is what the conformance suite takes as the meaning of engine_ops.h, what session tests run on, and
 * where thread sanitizers see every instruction.  Attention sums run in order of position whatever
 * cells the KV lies in, so every operation is exact to the last bit: chunking, evicting and admitting in
 * any order, parking, recomputing, rewinding.
 *
 * With dims.tail_period (fake_model.h) it has a tail state: windowed layers keep their keys and values for the last
 * window_tokens + batch_tokens positions, apart from the cells, and recurrent layers a state.  An export has the global
 * layers only, and only those can be watched.
 *
 * Threads: as engine.h. */
#ifndef MD_ENGINE_FAKE_H
#define MD_ENGINE_FAKE_H

#include "engine/engine.h"
#include "engine/fake_model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct md_fake_options {
    int32_t cell_count;   /* physical cells, 1..2^24 */
    int32_t seq_count;    /* 0: 4; at most 256 */
    int32_t batch_tokens; /* 0: 512 */
    unsigned caps_off;    /* bits of enum md_cap that this engine shall not claim: for tests of gates.
                             Without COLD_STORE there is no POSITION_SHIFT either; without CHECKPOINT a model
                             with a tail state is cut as far back as its windows reach (REMOVE_TAIL) or, with a
                             recurrent one, not at all */
    const char *name;     /* of the engine; NULL: "fake".  Two of other names have other KV of one model, for
                             tests of what is refused */
    bool attention;       /* claim MD_CAP_ATTENTION_SCORES, where there are global layers and COLD_STORE */
    const struct md_alloc *alloc; /* NULL: the heap; must outlive the engine */
};

/* Open an empty engine.
 *
 * model  borrowed, must outlive the engine; NULL: one of the default dims and seed 1, owned by the engine
 *
 * MD_INVALID    an option out of its range
 * MD_NO_MEMORY  cells or work memory; nothing is allocated after open, but by md_engine_watch */
MD_MUST_USE enum md_status md_fake_open(const struct md_fake_model *model,
                                        const struct md_fake_options *options, struct md_engine **ret_engine,
                                        struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
