/* eval_report.c - what came of it, printed.  See eval.h. */
#include "commands/eval.h"

#include "commands/print.h"

#include <stdlib.h>
#include <yyjson.h>

static int order_count(const struct md_eval_settings *s)
{
    return s->all_orders ? s->needles : 1;
}

static double share(int part, int total)
{
    return total > 0 ? (double)part / total : 0;
}

static const char *kind_name(const struct md_eval_settings *s)
{
    return s->near_duplicates ? "near" : "distinct";
}

static const char *haystack_name(const struct md_eval_settings *s)
{
    return s->file != NULL ? s->file : md_eval_text_name(s->text);
}

static int32_t hot_of(const struct md_eval_settings *s, int policy)
{
    return s->policies[policy]->all_hot ? 0 : s->hot_tokens;
}

/* ---- for people ---- */

static void print_share(int part, int total)
{
    const struct md_eval_interval w = md_eval_wilson(part, total);
    char text[24];
    snprintf(text, sizeof text, "%d/%d", part, total);
    printf("  %9s %4.0f %% (%3.0f-%3.0f)", text, share(part, total) * 100, w.low * 100, w.high * 100);
}

/* Mean and 90th percentile of the last scoring's ranks. */
static void print_ranks(const struct md_eval_result *results, size_t count, const struct md_eval_cell *c)
{
    const struct md_eval_ranks r = md_eval_rank_count(results, count, c, false);
    char text[32] = "-";
    if (r.count > 0)
        snprintf(text, sizeof text, "%.1f, %d", r.mean, r.p90);
    printf("  %11s", text);
}

static void print_row(const struct md_eval_settings *s, const struct md_eval_result *results, size_t count,
                      const struct md_eval_cell *c)
{
    char hot[16] = "all", depth[16] = "all", order[16] = "all";
    if (c->total == 0)
        return;
    if (hot_of(s, c->policy) > 0)
        snprintf(hot, sizeof hot, "%d", hot_of(s, c->policy));
    if (c->depth == MD_EVAL_SPREAD)
        snprintf(depth, sizeof depth, "spread");
    else if (c->depth >= 0)
        snprintf(depth, sizeof depth, "%d %%", c->depth);
    if (c->order >= 0)
        snprintf(order, sizeof order, "%d", c->order);
    printf("%-12s  %7d  %7s  %6s  %5s", s->policies[c->policy]->name, s->lengths[c->length], hot, depth,
           order);
    print_share(c->recalled, c->total);
    print_ranks(results, count, c);
    print_share(c->found, c->total);
    printf("  %8.1f\n", c->seconds);
}

static void print_group(const struct md_eval_settings *s, const struct md_eval_result *results, size_t count,
                        int policy, int length)
{
    int depths[MD_EVAL_DEPTHS_MAX];
    const int n = md_eval_depths(results, count, depths);
    struct md_eval_cell c;
    for (int d = 0; d < n; d++) {
        c = md_eval_count(results, count, policy, length, depths[d], MD_EVAL_ANY);
        print_row(s, results, count, &c);
    }
    for (int o = 0; o < order_count(s) && order_count(s) > 1; o++) {
        c = md_eval_count(results, count, policy, length, MD_EVAL_ANY, o);
        print_row(s, results, count, &c);
    }
    if (n > 1) {
        c = md_eval_count(results, count, policy, length, MD_EVAL_ANY, MD_EVAL_ANY);
        print_row(s, results, count, &c);
    }
    if (order_count(s) > 1) {
        const struct md_eval_rotations x =
            md_eval_rotation_count(results, count, policy, length, order_count(s));
        printf("%-12s  %7d  %d orders: blocks of a question alike in mean %.2f, least %.2f (Jaccard); exact "
               "answers "
               "%.0f to %.0f %%, recall %.0f to %.0f %%\n",
               s->policies[policy]->name, s->lengths[length], x.orders, x.jaccard_mean, x.jaccard_least,
               x.found_least * 100, x.found_most * 100, x.recall_least * 100, x.recall_most * 100);
    }
}

void md_eval_print_table(const struct md_eval_settings *s, const struct md_engine_info *engine,
                         const struct md_eval_result *results, size_t count)
{
    char model[256], hay[256];
    printf("%s: %s, %s, KV %s/%s\n", md_eval_task_name(s->task),
           md_plain_text(engine->model, model, sizeof model), engine->engine, engine->type_k, engine->type_v);
    printf("needles %d (%s), asked %s, haystack %s, trials %d, seed %llu, prefill %s; 95 %% intervals\n",
           s->needles, kind_name(s), md_eval_asking_name(s->asking),
           md_plain_text(haystack_name(s), hay, sizeof hay), s->trials, (unsigned long long)s->seed,
           s->dense_prefill ? "dense" : "bounded");
    printf("%-12s  %7s  %7s  %6s  %5s  %26s  %11s  %26s  %8s\n", "policy", "length", "hot", "depth", "order",
           "recall", "rank, p90", "found", "seconds");
    for (int p = 0; p < s->policy_count; p++)
        for (int l = 0; l < s->length_count; l++)
            print_group(s, results, count, p, l);
}

/* ---- for programs ---- */

static void add_share(yyjson_mut_doc *doc, yyjson_mut_val *o, const char *low, const char *high, int part,
                      int total)
{
    const struct md_eval_interval w = md_eval_wilson(part, total);
    yyjson_mut_obj_add_real(doc, o, low, w.low);
    yyjson_mut_obj_add_real(doc, o, high, w.high);
}

static void add_ranks(yyjson_mut_doc *doc, yyjson_mut_val *o, const char *mean, const char *p90,
                      const struct md_eval_ranks *r)
{
    if (r->count > 0) {
        yyjson_mut_obj_add_real(doc, o, mean, r->mean);
        yyjson_mut_obj_add_int(doc, o, p90, r->p90);
    } else {
        yyjson_mut_obj_add_null(doc, o, mean);
        yyjson_mut_obj_add_null(doc, o, p90);
    }
}

/* What all cells of one policy and length have. */
static void add_head(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_eval_settings *s,
                     const struct md_engine_info *engine, int policy, int length)
{
    yyjson_mut_obj_add_str(doc, o, "task", md_eval_task_name(s->task));
    yyjson_mut_obj_add_str(doc, o, "kind", kind_name(s));
    yyjson_mut_obj_add_str(doc, o, "ask", md_eval_asking_name(s->asking));
    yyjson_mut_obj_add_str(doc, o, "model", engine->model);
    yyjson_mut_obj_add_str(doc, o, "engine", engine->engine);
    yyjson_mut_obj_add_str(doc, o, "policy", s->policies[policy]->name);
    yyjson_mut_obj_add_str(doc, o, "prefill", s->dense_prefill ? "dense" : "bounded");
    yyjson_mut_obj_add_str(doc, o, "haystack", haystack_name(s));
    yyjson_mut_obj_add_uint(doc, o, "seed", s->seed);
    yyjson_mut_obj_add_int(doc, o, "trials", s->trials);
    yyjson_mut_obj_add_int(doc, o, "needles", s->needles);
    yyjson_mut_obj_add_int(doc, o, "length", s->lengths[length]);
    if (hot_of(s, policy) > 0)
        yyjson_mut_obj_add_int(doc, o, "hot", hot_of(s, policy));
    else
        yyjson_mut_obj_add_null(doc, o, "hot");
}

static enum md_status print_cell(const struct md_eval_settings *s, const struct md_engine_info *engine,
                                 const struct md_eval_result *results, size_t count,
                                 const struct md_eval_cell *c, struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    const struct md_eval_ranks first = md_eval_rank_count(results, count, c, true),
                               last = md_eval_rank_count(results, count, c, false);
    yyjson_mut_doc_set_root(doc, o);
    add_head(doc, o, s, engine, c->policy, c->length);
    if (c->depth >= 0)
        yyjson_mut_obj_add_int(doc, o, "depth", c->depth);
    else
        yyjson_mut_obj_add_null(doc, o, "depth");
    yyjson_mut_obj_add_int(doc, o, "order", c->order);
    yyjson_mut_obj_add_int(doc, o, "total", c->total);
    yyjson_mut_obj_add_int(doc, o, "recalled", c->recalled);
    yyjson_mut_obj_add_real(doc, o, "recall", share(c->recalled, c->total));
    add_share(doc, o, "recall_low", "recall_high", c->recalled, c->total);
    yyjson_mut_obj_add_int(doc, o, "ranked", last.count);
    add_ranks(doc, o, "rank_mean", "rank_p90", &last);
    add_ranks(doc, o, "first_rank_mean", "first_rank_p90", &first);
    yyjson_mut_obj_add_int(doc, o, "found", c->found);
    add_share(doc, o, "found_low", "found_high", c->found, c->total);
    yyjson_mut_obj_add_real(doc, o, "seconds", c->seconds);
    return md_print_json(doc, false, err);
}

static enum md_status print_rotations(const struct md_eval_settings *s, const struct md_engine_info *engine,
                                      const struct md_eval_result *results, size_t count, int policy,
                                      int length, struct md_err *err)
{
    const struct md_eval_rotations x = md_eval_rotation_count(results, count, policy, length, order_count(s));
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    add_head(doc, o, s, engine, policy, length);
    yyjson_mut_obj_add_int(doc, o, "orders", x.orders);
    yyjson_mut_obj_add_int(doc, o, "pairs", x.pairs);
    yyjson_mut_obj_add_real(doc, o, "jaccard_mean", x.jaccard_mean);
    yyjson_mut_obj_add_real(doc, o, "jaccard_least", x.jaccard_least);
    yyjson_mut_obj_add_real(doc, o, "found_least", x.found_least);
    yyjson_mut_obj_add_real(doc, o, "found_most", x.found_most);
    yyjson_mut_obj_add_real(doc, o, "recall_least", x.recall_least);
    yyjson_mut_obj_add_real(doc, o, "recall_most", x.recall_most);
    return md_print_json(doc, false, err);
}

enum md_status md_eval_print_json(const struct md_eval_settings *s, const struct md_engine_info *engine,
                                  const struct md_eval_result *results, size_t count, struct md_err *err)
{
    int depths[MD_EVAL_DEPTHS_MAX];
    const int n = md_eval_depths(results, count, depths);
    enum md_status st = MD_OK;
    for (int p = 0; p < s->policy_count; p++)
        for (int l = 0; l < s->length_count; l++) {
            for (int d = 0; d < n; d++)
                for (int o = 0; o < order_count(s) && st == MD_OK; o++) {
                    const struct md_eval_cell c = md_eval_count(results, count, p, l, depths[d], o);
                    if (c.total > 0)
                        st = print_cell(s, engine, results, count, &c, err);
                }
            if (st == MD_OK && order_count(s) > 1)
                st = print_rotations(s, engine, results, count, p, l, err);
        }
    return st;
}
