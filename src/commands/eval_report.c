/* eval_report.c - what came of it, counted and printed.  See eval.h. */
#include "commands/eval.h"

#include "commands/print.h"

#include <stdlib.h>
#include <yyjson.h>

/* ---- counting ---- */

struct md_eval_cell md_eval_count(const struct md_eval_result *results, size_t count, int policy, int length,
                                  int depth, int order)
{
    struct md_eval_cell c = { .policy = policy, .length = length, .depth = depth, .order = order };
    for (size_t r = 0; r < count; r++) {
        if (results[r].unit.policy != policy || results[r].unit.length != length)
            continue;
        for (int i = 0; i < results[r].count; i++) {
            const struct md_eval_item *item = &results[r].items[i];
            if ((depth != MD_EVAL_ANY && item->depth != depth) ||
                (order != MD_EVAL_ANY && item->order != order))
                continue;
            c.total++;
            c.recalled += item->recalled;
            c.found += item->found;
            c.seconds += item->seconds;
        }
    }
    return c;
}

int md_eval_depths(const struct md_eval_result *results, size_t count, int out[MD_EVAL_DEPTHS_MAX])
{
    bool there[MD_EVAL_DEPTHS_MAX] = { false }, spread = false;
    int n = 0;
    for (size_t r = 0; r < count; r++)
        for (int i = 0; i < results[r].count; i++)
            if (results[r].items[i].depth == MD_EVAL_SPREAD)
                spread = true;
            else
                there[results[r].items[i].depth] = true;
    if (spread) /* chains: all of them are */
        out[n++] = MD_EVAL_SPREAD;
    for (int d = 0; d < MD_EVAL_DEPTHS_MAX && !spread; d++)
        if (there[d])
            out[n++] = d;
    return n;
}

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
    return s->near_duplicates ? "near-duplicates" : "distinct";
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

static void print_row(const struct md_eval_settings *s, const struct md_eval_cell *c)
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
        print_row(s, &c);
    }
    for (int o = 0; o < order_count(s) && order_count(s) > 1; o++) {
        c = md_eval_count(results, count, policy, length, MD_EVAL_ANY, o);
        print_row(s, &c);
    }
    if (n > 1) {
        c = md_eval_count(results, count, policy, length, MD_EVAL_ANY, MD_EVAL_ANY);
        print_row(s, &c);
    }
}

void md_eval_print_table(const struct md_eval_settings *s, const struct md_engine_info *engine,
                         const struct md_eval_result *results, size_t count)
{
    char model[256], hay[256];
    printf("%s: %s, %s, KV %s/%s\n", md_eval_task_name(s->task),
           md_plain_text(engine->model, model, sizeof model), engine->engine, engine->type_k, engine->type_v);
    printf("needles %d (%s), haystack %s, trials %d, seed %llu, prefill %s; 95 %% intervals\n", s->needles,
           kind_name(s), md_plain_text(haystack_name(s), hay, sizeof hay), s->trials,
           (unsigned long long)s->seed, s->dense_prefill ? "dense" : "bounded");
    printf("%-12s  %7s  %7s  %6s  %5s  %26s  %26s  %8s\n", "policy", "length", "hot", "depth", "order",
           "recall", "found", "seconds");
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

static enum md_status print_cell(const struct md_eval_settings *s, const struct md_engine_info *engine,
                                 const struct md_eval_cell *c, struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_str(doc, o, "task", md_eval_task_name(s->task));
    yyjson_mut_obj_add_str(doc, o, "kind", kind_name(s));
    yyjson_mut_obj_add_str(doc, o, "model", engine->model);
    yyjson_mut_obj_add_str(doc, o, "engine", engine->engine);
    yyjson_mut_obj_add_str(doc, o, "policy", s->policies[c->policy]->name);
    yyjson_mut_obj_add_str(doc, o, "prefill", s->dense_prefill ? "dense" : "bounded");
    yyjson_mut_obj_add_str(doc, o, "haystack", haystack_name(s));
    yyjson_mut_obj_add_uint(doc, o, "seed", s->seed);
    yyjson_mut_obj_add_int(doc, o, "trials", s->trials);
    yyjson_mut_obj_add_int(doc, o, "needles", s->needles);
    yyjson_mut_obj_add_int(doc, o, "length", s->lengths[c->length]);
    if (hot_of(s, c->policy) > 0)
        yyjson_mut_obj_add_int(doc, o, "hot", hot_of(s, c->policy));
    else
        yyjson_mut_obj_add_null(doc, o, "hot");
    if (c->depth >= 0)
        yyjson_mut_obj_add_int(doc, o, "depth", c->depth);
    else
        yyjson_mut_obj_add_null(doc, o, "depth");
    yyjson_mut_obj_add_int(doc, o, "order", c->order);
    yyjson_mut_obj_add_int(doc, o, "total", c->total);
    yyjson_mut_obj_add_int(doc, o, "recalled", c->recalled);
    yyjson_mut_obj_add_real(doc, o, "recall", share(c->recalled, c->total));
    add_share(doc, o, "recall_low", "recall_high", c->recalled, c->total);
    yyjson_mut_obj_add_int(doc, o, "found", c->found);
    add_share(doc, o, "found_low", "found_high", c->found, c->total);
    yyjson_mut_obj_add_real(doc, o, "seconds", c->seconds);
    return md_print_json(doc, false, err);
}

enum md_status md_eval_print_json(const struct md_eval_settings *s, const struct md_engine_info *engine,
                                  const struct md_eval_result *results, size_t count, struct md_err *err)
{
    int depths[MD_EVAL_DEPTHS_MAX];
    const int n = md_eval_depths(results, count, depths);
    enum md_status st = MD_OK;
    for (int p = 0; p < s->policy_count; p++)
        for (int l = 0; l < s->length_count; l++)
            for (int d = 0; d < n; d++)
                for (int o = 0; o < order_count(s) && st == MD_OK; o++) {
                    const struct md_eval_cell c = md_eval_count(results, count, p, l, depths[d], o);
                    if (c.total > 0)
                        st = print_cell(s, engine, &c, err);
                }
    return st;
}
