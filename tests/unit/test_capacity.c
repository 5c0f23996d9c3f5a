/* test_capacity.c - how much context a machine gives: the rules of Resolve and their order, the derived
 * policy, the refusals, B074, B131.  The walk is in test_capacity_walk.c.
 *
 * Most figures are small enough to work out beside the row.  The model of the service's scenarios has a
 * window of 32,768, 2 layers and 1 head of 128: 1024 bytes of f16 KV per token. */
#include "policy/capacity.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

static const int64_t MIB = 1 << 20, GIB = 1 << 30;
static const struct md_kv_mode f16 = { MD_KV_F16, MD_KV_F16, 1, 512, false, false };

static struct md_kv_shape equal_layers(int32_t count, int32_t heads, int32_t length)
{
    struct md_kv_shape s = { .layer_count = count };
    for (int32_t i = 0; i < count; i++)
        s.layers[i] = (struct md_kv_layer){ .kv_heads = heads, .key_length = length, .value_length = length };
    return s;
}

/* A flat cost, and nothing set but a headroom of a tenth. */
static struct md_capacity_params flat(int64_t bytes_per_token, int32_t model_max, int64_t free_bytes)
{
    return (struct md_capacity_params){
        .model_max_tokens = model_max,
        .cost.profile = { .global_layers = bytes_per_token > 0, .per_layer_kv_bytes = bytes_per_token },
        .device.free_bytes = free_bytes,
        .policy.headroom_frac = 0.10,
        .cold_store = true,
    };
}

/* The service's model by shape, with a policy derived from the device alone. */
static struct md_capacity_params service(struct md_device_memory device, int64_t host_free)
{
    static struct md_kv_shape shape;
    shape = equal_layers(2, 1, 128);
    return (struct md_capacity_params){
        .model_max_tokens = 32768,
        .cost = { .shape = &shape, .mode = f16 },
        .weights_bytes = 16,
        .device = device,
        .policy = md_capacity_policy((struct md_memory_policy){ .host_cold_bytes = -1, .min_hot_tokens = -1 },
                                     &device, host_free, 32768),
        .cold_store = true,
    };
}

static enum md_status check(const struct md_capacity_params *p, struct md_err *err)
{
    struct md_capacity c = md_capacity_resolve(p);
    *err = (struct md_err){ .text = "" };
    return md_capacity_check(p, &c, err);
}

/* ---- the policy ---- */

START_TEST(policy_accelerator_reserve)
{
    static const struct {
        const char *label;
        bool accelerator;
        int64_t total, set, want;
    } rows[] = {
        { "6 GiB card: 10 %", true, INT64_C(6442450944), 0, 644245094 },
        { "16 GiB card: 10 %", true, INT64_C(17179869184), 0, 1717986918 },
        { "4 GiB card: 512 MiB is more", true, INT64_C(4294967296), 0, 536870912 },
        { "1 GiB card: at most a quarter", true, 1073741824, 0, 268435456 },
        { "256 MiB card: 64 MiB", true, 268435456, 0, 67108864 },
        { "unknown total: 512 MiB", true, 0, 0, 536870912 },
        { "explicit is kept", true, INT64_C(6442450944), 1, 1 },
        { "explicit is kept on the host", false, INT64_C(6442450944), 7, 7 },
        { "system: none", false, INT64_C(6442450944), 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_device_memory d = { .accelerator = rows[i].accelerator, .total_bytes = rows[i].total };
        struct md_memory_policy set = { .min_free_bytes = rows[i].set };
        struct md_memory_policy m = md_capacity_policy(set, &d, 0, 0);
        ck_assert_msg(m.min_free_bytes == rows[i].want, "%s: %lld", rows[i].label,
                      (long long)m.min_free_bytes);
    }
}
END_TEST

START_TEST(policy_shares_of_what_is_free)
{
    static const struct {
        int64_t free_mib, set, want;
        bool derived;
    } rows[] = {
        { 10, 0, 8388608, true },        { 4, 0, 3355443, true },   { 12, 0, 10066329, true },
        { 10, 3145728, 3145728, false }, { 10, -1, 8388608, true }, { 0, 0, 0, true },
        { 10, 1 << 30, 1 << 30, false }, /* more than there is: as it was said */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_device_memory d = { .free_bytes = rows[i].free_mib * MIB };
        struct md_memory_policy m =
            md_capacity_policy((struct md_memory_policy){ .max_resident_bytes = rows[i].set }, &d, 0, 0);
        ck_assert_msg(m.max_resident_bytes == rows[i].want && m.max_resident_derived == rows[i].derived,
                      "row %zu: %lld", i, (long long)m.max_resident_bytes);
    }
    static const int64_t cold[][2] = { { -1, 4194304 }, { 0, 0 }, { 5, 5 } }; /* a quarter of 16 MiB */
    for (size_t i = 0; i < 3; i++) {
        struct md_memory_policy m =
            md_capacity_policy((struct md_memory_policy){ .host_cold_bytes = cold[i][0] },
                               &(struct md_device_memory){ .free_bytes = GIB }, 16 * MIB, 0);
        ck_assert_int_eq(m.host_cold_bytes, cold[i][1]);
    }
}
END_TEST

START_TEST(policy_floor_and_headroom)
{
    static const int32_t floors[][3] = {
        /* set, window, want */
        { -1, 32768, 4096 }, { -1, 0, 4096 },   { -1, 2048, 2048 },   { 0, 32768, 0 },
        { 1, 32768, 1 },     { 8192, 0, 8192 }, { 8192, 2048, 2048 },
    };
    const struct md_device_memory d = { .free_bytes = GIB };
    for (size_t i = 0; i < sizeof floors / sizeof floors[0]; i++) {
        struct md_memory_policy m =
            md_capacity_policy((struct md_memory_policy){ .min_hot_tokens = floors[i][0] }, &d, 0,
                               floors[i][1]);
        ck_assert_msg(m.min_hot_tokens == floors[i][2], "row %zu: %d", i, m.min_hot_tokens);
    }
    const double fracs[][2] = { { 0, 0.10 },
                                { 0.15, 0.15 },
                                { 0.5, 0.5 },
                                { 1, 0.10 },
                                { -0.2, 0.10 },
                                { 7, 0.10 },
                                { __builtin_nan(""), 0.10 } };
    for (size_t i = 0; i < sizeof fracs / sizeof fracs[0]; i++) {
        struct md_memory_policy m =
            md_capacity_policy((struct md_memory_policy){ .headroom_frac = fracs[i][0] }, &d, 0, 0);
        ck_assert_msg(m.headroom_frac == fracs[i][1], "row %zu: %f", i, m.headroom_frac);
    }
}
END_TEST

/* ---- resolve ---- */

START_TEST(resolve_within_memory_window_and_request)
{
    static const struct {
        const char *label;
        int64_t per_token, free_bytes, weights, compute, mmproj;
        int32_t window, request;
        int32_t memory, effective;
        enum md_clamp reason;
    } rows[] = {
        /* 0.9 * 64 GiB / 28,672 = 2,157,070.2 */
        { "64 GiB", 28672, INT64_C(1) << 36, 0, 0, 0, 32768, 0, 2157070, 32768, MD_CLAMP_NONE },
        /* 0.9 * 512 MiB = 483,183,820; / 28,672 = 16,852.1 */
        { "512 MiB", 28672, 1 << 29, 0, 0, 0, 32768, 0, 16852, 16852, MD_CLAMP_MODEL },
        { "request below both", 28672, 1 << 29, 0, 0, 0, 32768, 8192, 16852, 8192, MD_CLAMP_NONE },
        { "request above memory", 28672, 1 << 29, 0, 0, 0, 32768, 16853, 16852, 16852, MD_CLAMP_REQUEST },
        { "request as memory", 28672, 1 << 29, 0, 0, 0, 32768, 16852, 16852, 16852, MD_CLAMP_NONE },
        { "window unknown", 28672, 1 << 29, 0, 0, 0, 0, 0, 16852, 16852, MD_CLAMP_NONE },
        { "window unknown, request", 28672, 1 << 29, 0, 0, 0, 0, 100, 16852, 100, MD_CLAMP_NONE },
        /* 10 MiB * 0.9 = 9 MiB; 9 - 4 - 2 = 3 MiB; / 1024 */
        { "weights and compute", 1024, 10485760, 4194304, 2097152, 0, 32768, 0, 3072, 3072, MD_CLAMP_MODEL },
        { "weights and projector", 1024, 10485760, 4194304, 0, 2097152, 32768, 0, 3072, 3072,
          MD_CLAMP_MODEL },
        { "flat path", 28672, 10485760, 4194304, 2097152, 0, 32768, 0, 109, 109, MD_CLAMP_MODEL },
        { "no room for weights", 1024, 1 << 30, INT64_C(1) << 31, 0, 0, 32768, 0, 0, 0, MD_CLAMP_MODEL },
        { "nor for a request", 1024, 1 << 30, INT64_C(1) << 31, 0, 0, 32768, 4096, 0, 0, MD_CLAMP_REQUEST },
        { "nor where the window is unknown", 1024, 1 << 30, INT64_C(1) << 31, 0, 0, 0, 0, 0, 0,
          MD_CLAMP_MODEL },
        { "no memory", 1024, 0, 0, 0, 0, 32768, 4096, 0, 0, MD_CLAMP_REQUEST },
        { "KV unknown", 0, 1 << 29, 1000, 0, 0, 32768, 0, 0, 32768, MD_CLAMP_NONE },
        { "KV unknown, request", 0, 1 << 29, 1000, 0, 0, 32768, 4096, 0, 4096, MD_CLAMP_NONE },
        { "KV and window unknown", 0, 1 << 29, 1000, 0, 0, 0, 4096, 0, 4096, MD_CLAMP_NONE },
        { "nothing known", 0, 1 << 29, 1000, 0, 0, 0, 0, 0, 0, MD_CLAMP_NONE },
        { "KV unknown, no room", 0, 1 << 29, 1 << 30, 0, 0, 32768, 0, 0, 0, MD_CLAMP_MODEL },
        { "KV unknown, no room, request", 0, 1 << 29, 1 << 30, 0, 0, 32768, 4096, 0, 0, MD_CLAMP_REQUEST },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_capacity_params p = flat(rows[i].per_token, rows[i].window, rows[i].free_bytes);
        p.weights_bytes = rows[i].weights;
        p.compute_bytes = rows[i].compute;
        p.mmproj_bytes = rows[i].mmproj;
        p.request_tokens = rows[i].request;
        struct md_capacity c = md_capacity_resolve(&p);
        ck_assert_msg(c.memory_tokens == rows[i].memory, "%s: memory %d", rows[i].label, c.memory_tokens);
        ck_assert_msg(c.effective_tokens == rows[i].effective && c.hot_tokens == rows[i].effective &&
                          c.planner_tokens == rows[i].effective,
                      "%s: %d %d %d", rows[i].label, c.effective_tokens, c.hot_tokens, c.planner_tokens);
        ck_assert_msg(c.reason == rows[i].reason && c.clamped == (c.reason != MD_CLAMP_NONE), "%s: '%s'",
                      rows[i].label, md_clamp_text(c.reason));
        const int64_t counted = rows[i].request > 0 ? rows[i].request : rows[i].effective;
        ck_assert_int_eq(c.kv_bytes_per_token, rows[i].per_token);
        ck_assert_int_eq(c.kv_bytes, counted * rows[i].per_token);
        ck_assert_int_eq(c.overhead_bytes, rows[i].compute + rows[i].mmproj);
        ck_assert_int_eq(c.required_bytes, c.kv_bytes + c.overhead_bytes + rows[i].weights);
        const int64_t left = c.usable_bytes - rows[i].weights - c.overhead_bytes;
        ck_assert_int_eq(c.budget_bytes, left > 0 ? left : 0);
    }
}
END_TEST

START_TEST(usable_bytes_by_rule)
{
    static const struct {
        const char *label;
        int64_t free_mib, reclaim_mib, min_free_mib, max_resident_mib, reserved_mib;
        double headroom;
        int64_t usable;
    } rows[] = {
        { "headroom", 100, 0, 0, 0, 0, 0.5, 52428800 },
        { "reserve", 100, 0, 20, 0, 0, 0.5, 41943040 },
        { "cap", 100, 0, 0, 30, 0, 0.5, 15728640 },
        { "cap above the rest", 100, 0, 20, 90, 0, 0.5, 41943040 },
        { "cap partly taken", 100, 0, 0, 30, 10, 0.5, 10485760 },
        { "cap taken", 100, 0, 0, 30, 31, 0.5, 0 },
        { "what comes back is free", 100, 50, 20, 0, 0, 0.5, 68157440 },
        { "but not above a cap that was set", 100, 50, 20, 90, 0, 0.5, 47185920 },
        { "all in reserve", 100, 0, 100, 0, 0, 0.5, 0 },
        { "more in reserve than free", 100, 0, 200, 0, 0, 0.5, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_capacity_params p = flat(1024, 32768, rows[i].free_mib * MIB);
        p.reclaimable_bytes = rows[i].reclaim_mib * MIB;
        p.reserved_bytes = rows[i].reserved_mib * MIB;
        p.policy = (struct md_memory_policy){ .min_free_bytes = rows[i].min_free_mib * MIB,
                                              .max_resident_bytes = rows[i].max_resident_mib * MIB,
                                              .headroom_frac = rows[i].headroom };
        int64_t usable = md_capacity_resolve(&p).usable_bytes;
        ck_assert_msg(usable == rows[i].usable, "%s: %lld", rows[i].label, (long long)usable);
    }
}
END_TEST

/* 2 MiB * 0.5 / 1024 = 1024 hot; 3 MiB / 1024 = 3072 cold. */
START_TEST(planner_counts_cold_tokens)
{
    static const struct {
        const char *label;
        int64_t cold, weights;
        int32_t window, request, hot, planner;
        bool store;
    } rows[] = {
        { "hot and cold", 3 << 20, 0, 8192, 0, 1024, 4096, true },
        { "within the request", 3 << 20, 0, 8192, 2048, 1024, 2048, true },
        { "within the window", 3 << 20, 0, 3000, 0, 1024, 3000, true },
        { "within a request below hot", 3 << 20, 0, 8192, 700, 700, 700, true },
        { "the engine cannot use it", 3 << 20, 0, 8192, 0, 1024, 1024, false },
        { "none", 0, 0, 8192, 0, 1024, 1024, true },
        { "a token's worth less one", 1023, 0, 8192, 0, 1024, 1024, true },
        { "window unknown", INT64_C(3) << 20, 0, 0, 0, 1024, 4096, true },
        { "nothing hot", 3 << 20, 2 << 20, 8192, 0, 0, 0, true },
        { "of a disk's size", INT64_C(1) << 50, 0, 0, 0, 1024, 1 << 30, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_capacity_params p = flat(1024, rows[i].window, 2 * MIB);
        p.policy.headroom_frac = 0.5;
        p.policy.host_cold_bytes = rows[i].cold;
        p.request_tokens = rows[i].request;
        p.weights_bytes = rows[i].weights;
        p.cold_store = rows[i].store;
        struct md_capacity c = md_capacity_resolve(&p);
        ck_assert_msg(c.hot_tokens == rows[i].hot && c.effective_tokens == c.hot_tokens, "%s: %d",
                      rows[i].label, c.hot_tokens);
        ck_assert_msg(c.planner_tokens == rows[i].planner, "%s: %d", rows[i].label, c.planner_tokens);
        ck_assert_int_eq(c.host_cold_bytes, rows[i].store ? rows[i].cold : 0);
    }
}
END_TEST

/* 2 MiB * 0.5 / 1024 = 1024 tokens fit; the model was trained for 1000, of which 875 may be hot. */
START_TEST(past_the_window)
{
    static const struct {
        const char *label;
        int64_t cold, free;
        int32_t request, hot, planner;
        enum md_clamp reason;
    } rows[] = {
        { "what is moved is cold as well", 3 << 20, 2 << 20, 0, 875, 3072, MD_CLAMP_NONE },
        { "a request far behind the window", 3 << 20, 2 << 20, 3000, 875, 3000, MD_CLAMP_NONE },
        { "as much as the store holds", 3 << 20, 2 << 20, 3072, 875, 3072, MD_CLAMP_NONE },
        { "one more", 3 << 20, 2 << 20, 3073, 875, 3072, MD_CLAMP_REQUEST },
        { "within the window", 3 << 20, 2 << 20, 600, 600, 600, MD_CLAMP_NONE },
        { "between what may be hot and the window", 3 << 20, 2 << 20, 900, 875, 900, MD_CLAMP_NONE },
        { "memory for less than may be hot", 3 << 20, 1 << 20, 3000, 512, 3000, MD_CLAMP_REQUEST },
        { "a store smaller than the hot set", 1 << 10, 2 << 20, 0, 875, 875, MD_CLAMP_NONE },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_capacity_params p = flat(1024, 1000, rows[i].free);
        p.policy.headroom_frac = 0.5;
        p.policy.host_cold_bytes = rows[i].cold;
        p.request_tokens = rows[i].request;
        p.past_window = true;
        p.hot_most_tokens = 875;
        struct md_capacity c = md_capacity_resolve(&p);
        ck_assert_msg(c.hot_tokens == rows[i].hot && c.effective_tokens == c.hot_tokens, "%s: %d",
                      rows[i].label, c.hot_tokens);
        ck_assert_msg(c.planner_tokens == rows[i].planner, "%s: %d", rows[i].label, c.planner_tokens);
        ck_assert_msg(c.reason == rows[i].reason, "%s: %s", rows[i].label, md_clamp_text(c.reason));
    }
}
END_TEST

/* The planner sees 384 tokens over a context of 256: 128 KiB of cold store. */
START_TEST(planner_of_the_service)
{
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = 384 << 10 }, 512 << 10);
    struct md_capacity c = md_capacity_resolve(&p); /* 384 KiB * 0.8 * 0.9 = 276 KiB */
    ck_assert_int_eq(c.hot_tokens, 256);
    ck_assert_int_eq(c.planner_tokens, 384);
}
END_TEST

/* Everything that can be wrong is; then one after the other is put right, and the next one shows. */
START_TEST(reasons_come_in_order)
{
    struct md_kv_shape shape = equal_layers(2, 8, 128); /* 8192 bytes per token, 2048 per token and tensor */
    struct md_capacity_params p = {
        .model_max_tokens = 8192,
        .request_tokens = 16384,
        .cost = { .shape = &shape, .mode = f16 },
        .device = { .free_bytes = MIB, .max_allocation_bytes = MIB },
        .policy = { .min_free_bytes = MIB, .max_resident_bytes = 127 * MIB, .headroom_frac = 0.10 },
    };
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "request_exceeds_model_window");
    p.past_window = true; /* 16,384 * 8192 = 128 MiB */
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "request_exceeds_user_limit");
    p.policy.max_resident_derived = true; /* nobody set it */
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "device_free_memory_below_reserve");
    p.device.free_bytes = 65 * MIB; /* 64 MiB * 0.9 / 8192 = 7372.8 */
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "single_allocation");
    ck_assert_int_eq(c.effective_tokens, 512); /* 1 MiB / 2048 */
    p.device.max_allocation_bytes = 0;
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "request_exceeds_memory_budget");
    ck_assert_int_eq(c.effective_tokens, 7168);
    p.request_tokens = 0;
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "model_context_exceeds_memory_budget");
    ck_assert_int_eq(c.effective_tokens, 7168);
    p.model_max_tokens = 7168;
    c = md_capacity_resolve(&p);
    ck_assert_str_eq(md_clamp_text(c.reason), "");
    ck_assert(!c.clamped);
}
END_TEST

START_TEST(a_limit_that_was_set)
{
    struct md_capacity_params p = flat(1024, 32768, 64 * MIB);
    p.policy.max_resident_bytes = 8 * MIB;
    p.policy.min_free_bytes = 4 * MIB;
    p.request_tokens = 16384;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert(c.clamped && c.reason == MD_CLAMP_USER_LIMIT);
    ck_assert_int_eq(c.usable_bytes, 7549747); /* 8 MiB * 0.9 */
    ck_assert_int_eq(c.effective_tokens, 7372);
    ck_assert_int_eq(c.required_bytes, 16 * MIB);
    p.request_tokens = 8192; /* 8 MiB: the limit itself, but not with the headroom */
    ck_assert_int_eq(md_capacity_resolve(&p).reason, MD_CLAMP_REQUEST);
}
END_TEST

START_TEST(past_the_trained_window)
{
    struct md_capacity_params p = flat(1024, 8192, GIB);
    struct md_err err;
    p.request_tokens = 16384;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.reason, MD_CLAMP_REQUEST_WINDOW);
    ck_assert_int_eq(c.effective_tokens, 8192);
    ck_assert_int_eq(check(&p, &err), MD_TOO_LARGE);
    ck_assert_str_eq(err.text,
                     "a context of 16384 tokens is too large: the model was trained for 8192; ask for "
                     "less");
    p.request_tokens = 8192;
    ck_assert_int_eq(check(&p, &err), MD_OK);
    p.past_window = true;
    p.request_tokens = 16384;
    c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 16384);
    ck_assert_int_eq(c.reason, MD_CLAMP_NONE);
    ck_assert_int_eq(check(&p, &err), MD_OK);
    p.request_tokens = 0; /* nobody asked: the window it was trained for */
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 8192);
}
END_TEST

/* ---- by shape ---- */

START_TEST(b031_limited_by_memory_or_model)
{
    struct md_kv_shape shape = equal_layers(12, 4, 64);
    struct md_capacity_params p = flat(0, 32768, 0);
    p.cost = (struct md_kv_cost){ .shape = &shape, .mode = f16 };
    p.policy.headroom_frac = 0.5;
    p.weights_bytes = 12345;
    p.device.free_bytes = 2 * (104857600 + 12345); /* exactly 100 MiB for KV */
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.budget_bytes, 104857600);
    ck_assert_int_eq(c.effective_tokens, 8448);
    ck_assert_int_eq(c.kv_bytes, 103809024);
    ck_assert_int_eq(c.reason, MD_CLAMP_MODEL);
    p.device.free_bytes = 2 * (GIB + 12345);
    c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 32768);
    ck_assert_int_eq(c.memory_tokens, 87296); /* 2^30 / 12,288 = 87,381.3: what memory would allow */
    ck_assert_int_eq(c.reason, MD_CLAMP_NONE);
}
END_TEST

/* What grows with the context beside KV: 1024 + 512 bytes per cell. */
START_TEST(compute_that_grows_with_the_context)
{
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = 10 * MIB }, 0);
    p.cost.extra_per_cell = 512;
    p.compute_bytes = 1000;
    struct md_capacity c = md_capacity_resolve(&p); /* 10 MiB * 0.8 * 0.9 / 1536 = 4915 */
    ck_assert_int_eq(c.effective_tokens, 4864);
    ck_assert_int_eq(c.kv_bytes, 4864 * 1024);
    ck_assert_int_eq(c.overhead_bytes, 1000 + 4864 * 512);
    ck_assert_int_eq(c.required_bytes, 16 + 1000 + 4864 * 1536);
    p.request_tokens = 1000; /* 1024 cells */
    c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 1000);
    ck_assert_int_eq(c.required_bytes, 16 + 1000 + 1024 * 1536);
}
END_TEST

/* Model G of the cases: 3 global layers, 15 of window 512. */
START_TEST(windowed_layers_cost_their_window)
{
    struct md_kv_shape shape = equal_layers(18, 1, 256);
    for (int i = 0; i < 18; i++) {
        shape.layers[i].window = (i + 1) % 6 == 0 ? 0 : 512;
        shape.layers[i].window_cells = (i + 1) % 6 != 0;
    }
    struct md_capacity_params p = flat(0, 32768, 0);
    p.cost = (struct md_kv_cost){ .shape = &shape, .mode = f16 };
    p.policy.headroom_frac = 0.5;
    p.policy.host_cold_bytes = 18432 * 1000;
    p.device.free_bytes = 2 * 40894464; /* B019: 8192 tokens */
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 8192);
    ck_assert_int_eq(c.kv_bytes_per_token, 18432);
    ck_assert_int_eq(c.planner_tokens, 9192); /* a cold token has all its layers */
    p.cost.mode.window_full = true;           /* 40,894,464 / 18,432 = 2218.7 */
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 2048);
}
END_TEST

/* A recurrent model has no KV that grows, but its state and its weights must fit. */
START_TEST(state_only)
{
    struct md_kv_shape shape = { .layer_count = 2 };
    shape.layers[0].state_bytes = shape.layers[1].state_bytes = MIB;
    struct md_capacity_params p = flat(0, 32768, 8 * MIB);
    p.cost = (struct md_kv_cost){ .shape = &shape, .mode = f16 };
    p.policy.headroom_frac = 0.5;
    p.policy.host_cold_bytes = GIB;
    p.weights_bytes = 2 * MIB;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 32768);
    ck_assert_int_eq(c.planner_tokens, 32768);
    ck_assert_int_eq(c.required_bytes, 4 * MIB);
    p.weights_bytes++;
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 0);
    struct md_err err;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    shape.layer_count = 0; /* a shape of nothing is none: the profile counts, then the window */
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 32768);
    p.cost.profile = (struct md_kv_profile){ .global_layers = 1, .per_layer_kv_bytes = 1024 };
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 2047);
}
END_TEST

/* 8 GiB free, shared with the host: 80 % of it less a tenth are 5.76 GiB.  629,248 tokens take 4.8 GiB,
 * 1.2 GiB in each of 4 tensors; 1 GiB holds 524,288. */
START_TEST(b131_single_allocation)
{
    struct md_kv_shape shape = equal_layers(2, 8, 128);
    struct md_capacity_params p =
        service((struct md_device_memory){ .total_bytes = 8 * GIB, .free_bytes = 8 * GIB }, 0);
    p.cost.shape = &shape;
    p.model_max_tokens = 1 << 20;
    p.request_tokens = 629248;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 629248);
    p.device.max_allocation_bytes = GIB;
    c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 524288);
    ck_assert_int_eq(md_kv_largest_tensor(&shape, &f16, c.effective_tokens), GIB);
    ck_assert_str_eq(md_clamp_text(c.reason), "single_allocation");
    struct md_err err;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    ck_assert_str_eq(
        err.text,
        "a context of 629248 tokens does not fit: it needs 4.80 GiB (weights 0.0 MiB + KV 4.80 GiB + "
        "buffers 0.0 MiB), of 8.00 GiB free 5.76 GiB are usable, at most 1.00 GiB in one piece, which "
        "is enough for 524288 tokens: free memory, or ask for less (single_allocation)");
    p.request_tokens = 0;
    c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 524288);
    ck_assert_int_eq(c.reason, MD_CLAMP_ALLOCATION);
    ck_assert_int_eq(check(&p, &err), MD_OK); /* nothing was asked for, and it is above the floor */
    p.device.free_bytes = 2 * GIB; /* now the cap, 8 GiB * 0.8 a moment ago, is no longer what binds */
    ck_assert_int_eq(md_capacity_resolve(&p).reason, MD_CLAMP_MODEL);
}
END_TEST

/* What the resident model holds, cold store included, counts as free for the next one. */
START_TEST(b074_a_switch_credits_what_it_frees)
{
    for (int accelerator = 0; accelerator < 2; accelerator++) {
        struct md_device_memory now = { accelerator, 40 * MIB, 10 * MIB, 0 }, then = now;
        then.free_bytes += 4 * MIB;
        struct md_capacity_params p = service(now, 0), q = service(then, 0);
        p.reclaimable_bytes = 4 * MIB;
        struct md_capacity a = md_capacity_resolve(&p), b = md_capacity_resolve(&q);
        ck_assert_int_eq(a.usable_bytes, b.usable_bytes);
        ck_assert_int_eq(a.effective_tokens, b.effective_tokens);
        ck_assert_int_eq(a.required_bytes, b.required_bytes);
        p.reclaimable_bytes = 0;
        ck_assert_int_lt(md_capacity_resolve(&p).usable_bytes, a.usable_bytes);
    }
    /* 14 MiB * 0.8 * 0.9 = 10.08 MiB */
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = 10 * MIB }, 0);
    p.reclaimable_bytes = 4 * MIB;
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 10240);
    /* nothing at all is free until the resident model goes */
    p = service((struct md_device_memory){ .free_bytes = 0 }, 0);
    p.reclaimable_bytes = 10 * MIB; /* 7.2 MiB */
    ck_assert_int_eq(md_capacity_resolve(&p).effective_tokens, 7168);
}
END_TEST

/* ---- may it be opened ---- */

START_TEST(service_open_or_refuse)
{
    const int64_t compute = 768 * MIB;
    const struct {
        const char *label;
        struct md_device_memory device;
        int64_t compute;
        int32_t request, floor;
        enum md_status want;
        int32_t effective;
    } rows[] = {
        /* 3 MiB * 0.8 * 0.9 = 2.16 MiB: 2211 */
        { "3 MiB, floor by default", { false, 0, 3 * MIB, 0 }, 0, 0, -1, MD_NO_MEMORY, 2048 },
        { "3 MiB, no floor", { false, 0, 3 * MIB, 0 }, 0, 0, 0, MD_OK, 2048 },
        { "3 MiB, floor as it is", { false, 0, 3 * MIB, 0 }, 0, 0, 2048, MD_OK, 2048 },
        { "3 MiB, floor one above", { false, 0, 3 * MIB, 0 }, 0, 0, 2049, MD_NO_MEMORY, 2048 },
        { "3 MiB, asked for less", { false, 0, 3 * MIB, 0 }, 0, 1000, -1, MD_OK, 1000 },
        { "3 MiB, asked for more", { false, 0, 3 * MIB, 0 }, 0, 2049, -1, MD_NO_MEMORY, 2048 },
        { "3 MiB, asked for as much", { false, 0, 3 * MIB, 0 }, 0, 2048, -1, MD_OK, 2048 },
        { "256 MiB", { false, 0, 256 * MIB, 0 }, 0, 0, -1, MD_OK, 32768 },
        { "nothing, no floor", { false, 0, 0, 0 }, 0, 0, 0, MD_NO_MEMORY, 0 },
        { "4 MiB card", { true, 4 * MIB, 4 * MIB, 0 }, compute, 0, -1, MD_NO_MEMORY, 0 },
        { "16 GiB card", { true, 16 * GIB, 16 * GIB, 0 }, compute, 0, -1, MD_OK, 32768 },
        { "16 GiB card, -c", { true, 16 * GIB, 16 * GIB, 0 }, compute, 4096, -1, MD_OK, 4096 },
        { "card that is full", { true, 16 * GIB, GIB, 0 }, compute, 0, 0, MD_NO_MEMORY, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_capacity_params p = service(rows[i].device, 0);
        p.compute_bytes = rows[i].compute;
        p.request_tokens = rows[i].request;
        p.policy = md_capacity_policy((struct md_memory_policy){ .min_hot_tokens = rows[i].floor },
                                      &rows[i].device, 0, p.model_max_tokens);
        struct md_capacity c = md_capacity_resolve(&p);
        ck_assert_msg(c.effective_tokens == rows[i].effective, "%s: %d", rows[i].label, c.effective_tokens);
        struct md_err err = { .text = "" };
        enum md_status s = md_capacity_check(&p, &c, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s", rows[i].label, err.text);
        ck_assert_msg(s == MD_OK || c.reason != MD_CLAMP_NONE, "%s", rows[i].label);
        ck_assert_msg(c.below_floor == (rows[i].request == 0 && rows[i].effective < p.policy.min_hot_tokens),
                      "%s", rows[i].label);
    }
}
END_TEST

/* By its env the service takes a context of 16,384 with q8_0: 2 * 2 * 128 / 32 * 34 = 544 bytes per token. */
START_TEST(service_quantized)
{
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = GIB }, 0);
    p.request_tokens = 16384;
    p.cost.mode.type_k = p.cost.mode.type_v = MD_KV_Q8_0;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.kv_bytes_per_token, 544);
    ck_assert_int_eq(c.kv_bytes, 16384 * 544);
    ck_assert_int_eq(c.effective_tokens, 16384);
}
END_TEST

/* An explicit cap of 1 MiB and a request of 4096 (4 MiB). */
START_TEST(service_capped_below_the_request)
{
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = GIB }, 0);
    p.request_tokens = 4096;
    p.policy.max_resident_bytes = MIB;
    p.policy.max_resident_derived = false;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 768); /* 1 MiB * 0.9 / 1024 = 921 */
    ck_assert_int_eq(c.reason, MD_CLAMP_USER_LIMIT);
    struct md_err err;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    ck_assert_str_eq(err.text,
                     "a context of 4096 tokens does not fit: it needs 4.0 MiB (weights 0.0 MiB + KV 4.0 "
                     "MiB + buffers 0.0 MiB), of 1.00 GiB free 0.9 MiB are usable, which is enough for "
                     "768 tokens: raise --mem-max, or ask for less (request_exceeds_user_limit)");
    p.policy.max_resident_derived = true; /* nobody set it: it is memory that is short */
    ck_assert_int_eq(md_capacity_resolve(&p).reason, MD_CLAMP_REQUEST);
}
END_TEST

START_TEST(refusals_have_the_arithmetic)
{
    struct md_err err;
    struct md_capacity_params p = service((struct md_device_memory){ .free_bytes = 3 * MIB }, 0);
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY); /* what the floor would need, not what there is */
    ck_assert_str_eq(err.text,
                     "a context of 4096 tokens does not fit: it needs 4.0 MiB (weights 0.0 MiB + KV 4.0 "
                     "MiB + buffers 0.0 MiB), of 3.0 MiB free 2.2 MiB are usable, which is enough for "
                     "2048 tokens: free memory, or lower --min-hot-context, or ask for less with -c "
                     "(model_context_exceeds_memory_budget)");
    /* 200 MiB of weights, 320 MiB for the encoder and 20 MiB of projector against 100 MiB of memory */
    p = service((struct md_device_memory){ true, 100 * MIB, 100 * MIB, 0 }, 0);
    p.weights_bytes = 200 * MIB;
    p.compute_bytes = 320 * MIB;
    p.mmproj_bytes = 20 * MIB;
    struct md_capacity c = md_capacity_resolve(&p);
    ck_assert_int_eq(c.effective_tokens, 0);
    ck_assert_int_eq(c.overhead_bytes, 340 * MIB);
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY); /* min(100 - 25, 80) * 0.9 */
    ck_assert_str_eq(err.text,
                     "a context of 4096 tokens does not fit: it needs 544.0 MiB (weights 200.0 MiB + KV "
                     "4.0 MiB + buffers 340.0 MiB), of 100.0 MiB free 67.5 MiB are usable, which is "
                     "enough for 0 tokens: free memory, or take a smaller model "
                     "(model_context_exceeds_memory_budget)");
    p.device.free_bytes = 25 * MIB;
    p.request_tokens = 8192;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "(device_free_memory_below_reserve)"));
    /* the window is unknown: measured against the floor, and a reason is given */
    p = service((struct md_device_memory){ .free_bytes = 3 * MIB }, 0);
    p.model_max_tokens = 0;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "(model_context_exceeds_memory_budget)"));
    p.policy.min_hot_tokens = 0;
    ck_assert_int_eq(check(&p, &err), MD_OK);
    p.weights_bytes = GIB;
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    p.cost = (struct md_kv_cost){ .shape = NULL }; /* nor is the KV: the weights are */
    ck_assert_int_eq(check(&p, &err), MD_NO_MEMORY);
    p.policy.min_hot_tokens = 4096;
    ck_assert(md_capacity_resolve(&p).below_floor);
    p.weights_bytes = MIB; /* nothing speaks against it */
    ck_assert(!md_capacity_resolve(&p).below_floor);
    ck_assert_int_eq(check(&p, &err), MD_OK);
}
END_TEST

/* A file and a user can say what they like. */
START_TEST(windows_and_requests_past_any_memory)
{
    static const int32_t sizes[] = { 0, 1, 255, 32768, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, INT32_MAX };
    enum { N = sizeof sizes / sizeof sizes[0] };
    for (int i = 0; i < N * N * 4; i++) {
        struct md_capacity_params p =
            service((struct md_device_memory){ .free_bytes = i % 2 ? GIB : INT64_C(1) << 50 }, 0);
        p.model_max_tokens = sizes[i / 4 % N];
        p.request_tokens = sizes[i / 4 / N];
        p.past_window = i / 2 % 2;
        struct md_capacity c = md_capacity_resolve(&p);
        struct md_err err;
        ck_assert_int_le(c.effective_tokens, 1 << 30);
        if (p.request_tokens > 1 << 30)
            ck_assert_int_ne(md_capacity_check(&p, &c, &err), MD_OK);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("capacity");
    TCase *t = tcase_create("capacity");
    tcase_add_test(t, policy_accelerator_reserve);
    tcase_add_test(t, policy_shares_of_what_is_free);
    tcase_add_test(t, policy_floor_and_headroom);
    tcase_add_test(t, resolve_within_memory_window_and_request);
    tcase_add_test(t, usable_bytes_by_rule);
    tcase_add_test(t, planner_counts_cold_tokens);
    tcase_add_test(t, past_the_window);
    tcase_add_test(t, planner_of_the_service);
    tcase_add_test(t, reasons_come_in_order);
    tcase_add_test(t, a_limit_that_was_set);
    tcase_add_test(t, past_the_trained_window);
    tcase_add_test(t, b031_limited_by_memory_or_model);
    tcase_add_test(t, compute_that_grows_with_the_context);
    tcase_add_test(t, windowed_layers_cost_their_window);
    tcase_add_test(t, state_only);
    tcase_add_test(t, b131_single_allocation);
    tcase_add_test(t, b074_a_switch_credits_what_it_frees);
    tcase_add_test(t, service_open_or_refuse);
    tcase_add_test(t, service_quantized);
    tcase_add_test(t, service_capped_below_the_request);
    tcase_add_test(t, refusals_have_the_arithmetic);
    tcase_add_test(t, windows_and_requests_past_any_memory);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
