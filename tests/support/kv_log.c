#include "support/kv_log.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
enum { PRINTED_WITHIN = 6 }; /* thousandths of a MiB: half of the last decimal and f32's own rounding */

void md_kv_log_init(struct md_kv_log *log)
{
    *log = (struct md_kv_log){ .rolling_mib = -1, .state_mib = -1 };
}

static void read_size(struct md_kv_log *log, const char *at)
{
    int cells, layers, seqs, streams;
    double mib, k, v;
    char type_k[12], type_v[12];
    if (sscanf(at,
               "size = %lf MiB ( %d cells, %d layers, %d/%d seqs), K (%11[^)]): %lf MiB, V (%11[^)]): %lf",
               &mib, &cells, &layers, &seqs, &streams, type_k, &k, type_v, &v) == 9) {
        ck_assert_int_lt(log->cache_count, MD_KV_LOG_CACHES);
        log->caches[log->cache_count].cells = cells;
        log->caches[log->cache_count].layers = layers;
        log->caches[log->cache_count].seqs = seqs;
        log->caches[log->cache_count].mib = mib;
        log->caches[log->cache_count].k_mib = k;
        log->caches[log->cache_count].v_mib = v;
        strcpy(log->caches[log->cache_count].type_k, type_k);
        strcpy(log->caches[log->cache_count].type_v, type_v);
        log->cache_count++;
    }
    const char *rolling = strstr(at, "R (f32): "), *state = strstr(at, "S (f32): ");
    if (rolling != NULL && state != NULL) {
        ck_assert_int_eq(sscanf(rolling, "R (f32): %lf", &log->rolling_mib), 1);
        ck_assert_int_eq(sscanf(state, "S (f32): %lf", &log->state_mib), 1);
    }
}

void md_kv_log_line(void *user, const char *line)
{
    struct md_kv_log *log = user;
    double mib;
    const char *at;
    if ((at = strstr(line, "size = ")) != NULL && strstr(at, " cells,") != NULL)
        read_size(log, at);
    if ((at = strstr(line, "KV buffer size = ")) != NULL && sscanf(at, "KV buffer size = %lf", &mib) == 1)
        log->buffer_mib += mib;
    if ((at = strstr(line, "compute buffer size = ")) != NULL &&
        sscanf(at, "compute buffer size = %lf", &mib) == 1)
        log->compute_mib += mib;
    if ((at = strstr(line, "output buffer size = ")) != NULL &&
        sscanf(at, "output buffer size = %lf", &mib) == 1)
        log->output_mib += mib;
}

static void expect_mib(const char *label, const char *what, double logged, int64_t bytes)
{
    const double off = logged - (double)bytes / MIB;
    ck_assert_msg(off < PRINTED_WITHIN / 1000.0 && off > -PRINTED_WITHIN / 1000.0,
                  "%s: %s: %.2f MiB in the log, %lld bytes (%.3f MiB) planned", label, what, logged,
                  (long long)bytes, (double)bytes / MIB);
}

/* One cache: the layers with or without cells for a window only. */
static void expect_cache(const struct md_kv_log *log, int index, const char *label,
                         const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context,
                         bool windowed)
{
    int64_t cells = -1, k = 0, total = 0;
    int layers = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        if (l->shared || l->window_cells != windowed || (l->kv_heads == 0 && l->state_bytes > 0))
            continue;
        const int64_t own = md_kv_layer_cells(l, mode, context);
        cells = own > cells ? own : cells;
        k += own * md_kv_type_bytes(mode->type_k, (int64_t)l->kv_heads * l->key_length);
        total += md_kv_layer_bytes(shape, i, mode, context) - l->state_bytes * mode->seq_count;
        layers++;
    }
    ck_assert_msg(log->caches[index].layers == layers, "%s: cache %d: %d layers, %d planned", label, index,
                  log->caches[index].layers, layers);
    if (cells > 0)
        ck_assert_msg(log->caches[index].cells == cells, "%s: cache %d: %d cells, %lld planned", label, index,
                      log->caches[index].cells, (long long)cells);
    ck_assert_msg(log->caches[index].seqs == mode->seq_count, "%s: %d sequences, %d planned", label,
                  log->caches[index].seqs, mode->seq_count);
    ck_assert_str_eq(log->caches[index].type_k, md_kv_type_name(mode->type_k));
    ck_assert_str_eq(log->caches[index].type_v, md_kv_type_name(mode->type_v));
    expect_mib(label, "keys", log->caches[index].k_mib, k);
    expect_mib(label, "values", log->caches[index].v_mib, total - k);
    expect_mib(label, "size", log->caches[index].mib, total);
}

void md_kv_log_expect(const struct md_kv_log *log, const char *label, const struct md_kv_shape *shape,
                      const struct md_kv_mode *mode, int32_t context)
{
    bool kv = false, windows = false;
    int64_t state = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        windows = windows || l->window_cells;
        kv = kv || (!l->shared && l->kv_heads > 0);
        state += l->state_bytes * mode->seq_count;
    }
    const int caches = kv + windows;
    ck_assert_msg(log->cache_count == caches, "%s: %d caches in the log, %d planned", label, log->cache_count,
                  caches);
    if (kv)
        expect_cache(log, 0, label, shape, mode, context, false);
    if (windows)
        expect_cache(log, 1, label, shape, mode, context, true);
    if (state > 0)
        expect_mib(label, "recurrent state", log->rolling_mib + log->state_mib, state);
    ck_assert_msg(state > 0 || log->state_mib < 0, "%s: a recurrent state that was not planned", label);
    expect_mib(label, "KV buffers", log->buffer_mib, md_kv_bytes(shape, mode, context) - state);
}
