/* kv_log.h - what llama.cpp's log says it allocated, and the comparison with what we planned.
 *
 * Lines it knows (llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-context.cpp of release 0.4.0):
 *     size = 45.00 MiB ( 2048 cells, 30 layers, 5/1 seqs), K (f16): 22.50 MiB, V (f16): 22.50 MiB
 *     size =  0.02 MiB (    1 cells,  2 layers, 1 seqs  0 rs_seq), R (f32): ... MiB, S (f32): ... MiB, ...
 *     CPU KV buffer size = 45.00 MiB
 *     CPU compute buffer size = 98.25 MiB
 *     CPU output buffer size = 0.94 MiB */
#ifndef MD_TESTS_KV_LOG_H
#define MD_TESTS_KV_LOG_H

#include "policy/kv_shape.h"

enum { MD_KV_LOG_CACHES = 4 };

struct md_kv_log {
    struct {
        int cells, layers, seqs;
        double mib, k_mib, v_mib;
        char type_k[12], type_v[12];
    } caches[MD_KV_LOG_CACHES]; /* in the library's order: global layers, then windowed ones */
    int cache_count;
    double buffer_mib;             /* of all caches */
    double rolling_mib, state_mib; /* of recurrent layers; negative: no such line */
    double compute_mib, output_mib;
};

void md_kv_log_init(struct md_kv_log *log);
/* For md_llama_log_hook; user is the struct md_kv_log. */
void md_kv_log_line(void *user, const char *line);

/* Fail the running test unless all caches have the cells, layers, sequences, types and bytes of the plan, to
 * the two decimals that are printed. */
void md_kv_log_expect(const struct md_kv_log *log, const char *label, const struct md_kv_shape *shape,
                      const struct md_kv_mode *mode, int32_t context);

#endif
