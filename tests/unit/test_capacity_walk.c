/* test_capacity_walk.c - what every answer of md_capacity_resolve promises, over random machines and models;
 * and the eviction budget (B132). */
#include "policy/capacity.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>

/* ---- the walk ---- */

static void random_params(struct rng *r, struct md_kv_shape *shape, struct md_capacity_params *p)
{
    shape->layer_count = (int32_t)rng_below(r, 8);
    for (int i = 0; i < shape->layer_count; i++)
        shape->layers[i] = (struct md_kv_layer){ .kv_heads = (int32_t)rng_below(r, 4),
                                                 .key_length = (int32_t)rng_below(r, 3) * 32,
                                                 .value_length = (int32_t)rng_below(r, 3) * 32,
                                                 .window = (int32_t)rng_below(r, 2000),
                                                 .window_cells = rng_below(r, 2),
                                                 .state_bytes = rng_below(r, 3) ? 0 : rng_below(r, 10000) };
    const uint32_t bytes = 64u << 20;
    *p = (struct md_capacity_params){
        .model_max_tokens = rng_below(r, 8) ? (int32_t)rng_below(r, 40000) : 0,
        .cost = { .shape = rng_below(r, 4) ? shape : NULL,
                  .mode = { MD_KV_F16, MD_KV_F16, 1, 512, false, false },
                  .profile = { (int32_t)rng_below(r, 4), (int32_t)rng_below(r, 4), (int32_t)rng_below(r, 900),
                               rng_below(r, 3000) },
                  .extra_per_cell = rng_below(r, 2) ? rng_below(r, 500) : 0 },
        .weights_bytes = rng_below(r, bytes / 4),
        .compute_bytes = rng_below(r, bytes / 16),
        .mmproj_bytes = rng_below(r, 4) ? 0 : rng_below(r, bytes / 16),
        .device = { rng_below(r, 2), rng_below(r, 2) ? bytes : 0, rng_below(r, bytes),
                    rng_below(r, 3) ? 0 : 1 + rng_below(r, bytes / 32) },
        .reclaimable_bytes = rng_below(r, 3) ? 0 : rng_below(r, bytes / 4),
        .reserved_bytes = rng_below(r, 4) ? 0 : rng_below(r, bytes / 16),
        .policy = { .max_resident_bytes = rng_below(r, 3) ? 0 : rng_below(r, bytes),
                    .min_free_bytes = rng_below(r, bytes / 16),
                    .host_cold_bytes = rng_below(r, 3) ? (int64_t)rng_below(r, bytes) : -1,
                    .min_hot_tokens = (int32_t)rng_below(r, 3000) - 1,
                    .headroom_frac = rng_below(r, 100) / 100.0 },
        .request_tokens = rng_below(r, 2) ? 0 : (int32_t)rng_below(r, 50000),
        .past_window = rng_below(r, 2),
        .cold_store = rng_below(r, 2),
    };
}

static int64_t walk_bytes(const struct md_capacity_params *p, int32_t tokens)
{
    const bool shape = p->cost.shape != NULL && p->cost.shape->layer_count > 0;
    return p->weights_bytes + p->compute_bytes + p->mmproj_bytes +
           (shape ? md_kv_bytes(p->cost.shape, &p->cost.mode, tokens) +
                        p->cost.extra_per_cell * md_kv_pad(tokens)
                  : md_kv_profile_bytes(&p->cost.profile, tokens));
}

/* What one answer promises of itself. */
static void holds(const struct md_capacity_params *p, const struct md_capacity *c, int round)
{
    const int32_t request = p->request_tokens;
    ck_assert_msg(c->effective_tokens == c->hot_tokens && c->planner_tokens >= c->hot_tokens, "round %d",
                  round);
    ck_assert_msg(p->cold_store || c->planner_tokens == c->hot_tokens, "round %d", round);
    ck_assert_msg(request == 0 || c->planner_tokens <= request, "round %d", round);
    ck_assert_msg(p->model_max_tokens == 0 || c->planner_tokens <= p->model_max_tokens ||
                      (p->past_window && c->planner_tokens <= request),
                  "round %d", round);
    ck_assert_msg(c->clamped == (c->reason != MD_CLAMP_NONE), "round %d", round);
    ck_assert_msg(c->required_bytes == walk_bytes(p, request > 0 ? request : c->effective_tokens), "round %d",
                  round);
    if (c->effective_tokens > 0) { /* it fits, to the byte, in pieces that can be had */
        ck_assert_msg(walk_bytes(p, c->effective_tokens) <= c->usable_bytes, "round %d", round);
        ck_assert_msg(p->cost.shape == NULL || p->device.max_allocation_bytes == 0 ||
                          md_kv_largest_tensor(p->cost.shape, &p->cost.mode, c->effective_tokens) <=
                              p->device.max_allocation_bytes,
                      "round %d", round);
    }
    if (c->reason == MD_CLAMP_REQUEST || (c->reason == MD_CLAMP_MODEL && p->model_max_tokens > 0))
        /* a unit more does not */
        ck_assert_msg(walk_bytes(p, c->effective_tokens + 256) > c->usable_bytes, "round %d", round);
    if (c->reason == MD_CLAMP_USER_LIMIT)
        ck_assert_msg(!p->policy.max_resident_derived, "round %d", round);
    struct md_err err;
    const bool enough = request > 0 ? c->effective_tokens == request
                                    : !c->below_floor && (c->effective_tokens > 0 || !c->clamped);
    ck_assert_msg((md_capacity_check(p, c, &err) == MD_OK) == enough, "round %d: %s", round, err.text);
}

START_TEST(walk_is_monotone_in_free_memory)
{
    struct rng r = rng_open("capacity walk");
    static struct md_kv_shape shape;
    int fitted = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        struct md_capacity_params p;
        random_params(&r, &shape, &p);
        const struct md_memory_policy set = p.policy;
        const bool rederive = rng_below(&r, 2); /* a derived cap follows what is free */
        p.policy = md_capacity_policy(set, &p.device, p.device.free_bytes, p.model_max_tokens);
        struct md_capacity c = md_capacity_resolve(&p);
        holds(&p, &c, round);
        fitted += c.effective_tokens > 0;
        refused += c.clamped;
        struct md_capacity_params q = p;
        q.device.free_bytes += rng_below(&r, 8u << 20);
        if (rederive)
            q.policy = md_capacity_policy(set, &q.device, q.device.free_bytes, q.model_max_tokens);
        struct md_capacity d = md_capacity_resolve(&q);
        holds(&q, &d, round);
        ck_assert_msg(d.usable_bytes >= c.usable_bytes && d.budget_bytes >= c.budget_bytes &&
                          d.memory_tokens >= c.memory_tokens && d.effective_tokens >= c.effective_tokens &&
                          d.planner_tokens >= c.planner_tokens,
                      "round %d: %d then %d", round, c.effective_tokens, d.effective_tokens);
    }
    ck_assert_msg(fitted > 2000 && refused > 2000, "%d %d", fitted, refused);
}
END_TEST

/* ---- engines that evict by themselves ---- */

START_TEST(eviction_budget)
{
    static const struct {
        int32_t window, sliding, block, sink, recent, max;
    } rows[] = {
        { 2048, 0, 32, 128, 512, 2048 },
        { 400, 0, 1, 25, 100, 400 },
        { 2048, 512, 32, 32, 128, 512 },
        { 4096, 500, 32, 32, 128, 480 },
        { 512, 4096, 32, 32, 128, 512 }, /* a sliding window wider than the context */
        { 129, 0, 32, 32, 32, 128 },
        { 200, 0, 32, 32, 64, 192 },
        { 2000, 0, 32, 128, 512, 1984 },
        { 4940, 0, 32, 320, 1248, 4928 },
        { 8191, 0, 32, 512, 2048, 8160 },
        { 128, 0, 32, 32, 32, 128 },
        { 127, 0, 32, 0, 127, 127 }, /* fewer than four blocks: none */
        { 64, 0, 32, 0, 64, 64 },
        { 100, 0, 32, 0, 100, 100 },
        { 2048, 100, 32, 0, 100, 100 },
        { 0, 0, 32, 0, 0, 0 },
        { 4, 0, 1, 1, 1, 4 },
        { 3, 0, 1, 0, 3, 3 },
        { 400, 0, 0, 25, 100, 400 }, /* a block of 0 is one of 1 */
        { INT32_MAX, 0, INT32_MAX, 0, INT32_MAX, INT32_MAX },
        { INT32_MAX, 0, 32, 134217728, 536870912, 2147483616 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_eviction_budget b =
            md_capacity_eviction_budget(rows[i].window, rows[i].sliding, rows[i].block);
        ck_assert_msg(b.sink_tokens == rows[i].sink && b.recent_tokens == rows[i].recent &&
                          b.max_tokens == rows[i].max,
                      "%d/%d/%d: %d %d %d", rows[i].window, rows[i].sliding, rows[i].block, b.sink_tokens,
                      b.recent_tokens, b.max_tokens);
    }
}
END_TEST

/* Whatever the window: nothing, or whole blocks within it, of which at least one can leave (B132). */
START_TEST(b132_eviction_budget_of_any_window)
{
    for (int32_t block = 1; block <= 64; block += block < 8 ? 1 : 8) {
        for (int32_t window = 0; window < 3000; window++) {
            struct md_eviction_budget b = md_capacity_eviction_budget(window, 0, block);
            ck_assert_msg((b.sink_tokens == 0) == (window < 4 * block), "%d/%d", window, block);
            if (b.sink_tokens == 0)
                continue;
            ck_assert_msg(b.sink_tokens % block == 0 && b.recent_tokens % block == 0 &&
                              b.max_tokens % block == 0,
                          "%d/%d", window, block);
            ck_assert_msg(b.max_tokens <= window && b.sink_tokens + b.recent_tokens + block <= b.max_tokens,
                          "%d/%d", window, block);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("capacity_walk");
    TCase *t = tcase_create("capacity_walk");
    tcase_add_test(t, walk_is_monotone_in_free_memory);
    tcase_add_test(t, eviction_budget);
    tcase_add_test(t, b132_eviction_budget_of_any_window);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
