/* eval_map.c - the picture of `modeld eval`: SVG, written by hand.  See eval.h. */
#include "commands/eval.h"

#include <errno.h>

/* Pixels. */
enum { CELL_W = 84, CELL_H = 40, LEFT = 72, TOP = 88, GAP = 48, BELOW = 56, LETTER_W = 7 };

/* Words of a model file are shown as text: what XML gives a meaning, and what it forbids, is written otherwise. */
static void put_text(FILE *f, const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        switch (*p) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        default: fputc((unsigned char)*p < ' ' || (unsigned char)*p > '~' ? '?' : *p, f); break;
        }
}

/* From white to a dark blue, so that more is darker in print too. */
static void put_shade(FILE *f, double share)
{
    fprintf(f, "fill=\"#%02x%02x%02x\"", (unsigned)(247 - share * 239), (unsigned)(251 - share * 203),
            (unsigned)(255 - share * 148));
}

static void put_label(FILE *f, int x, int y, const char *anchor, int size, const char *text)
{
    fprintf(f, "<text x=\"%d\" y=\"%d\" font-family=\"sans-serif\" font-size=\"%d\" text-anchor=\"%s\">", x,
            y, size, anchor);
    put_text(f, text);
    fputs("</text>\n", f);
}

static void put_cell(FILE *f, int x, int y, const struct md_eval_cell *c)
{
    const double share = c->total > 0 ? (double)c->found / c->total : 0;
    const bool all_hot = c->total > 0 && c->recalled == c->total;
    fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" stroke=\"%s\" stroke-width=\"%d\" ", x + 2,
            y + 2, CELL_W - 4, CELL_H - 4, all_hot ? "#d95f02" : "#cccccc", all_hot ? 3 : 1);
    put_shade(f, share);
    fputs("/>\n", f);
    if (c->total > 0)
        fprintf(f,
                "<text x=\"%d\" y=\"%d\" font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\" "
                "fill=\"%s\">%d/%d</text>\n",
                x + CELL_W / 2, y + CELL_H / 2 + 4, share > 0.5 ? "white" : "black", c->found, c->total);
}

static void put_panel(FILE *f, int left, const struct md_eval_settings *s, int policy,
                      const struct md_eval_result *results, size_t count, const int *depths, int n)
{
    char text[64];
    put_label(f, left, TOP - 28, "start", 14, s->policies[policy]->name);
    for (int l = 0; l < s->length_count; l++) {
        snprintf(text, sizeof text, "%d", s->lengths[l]);
        put_label(f, left + l * CELL_W + CELL_W / 2, TOP - 6, "middle", 12, text);
        for (int d = 0; d < n; d++) {
            const struct md_eval_cell c = md_eval_count(results, count, policy, l, depths[d], MD_EVAL_ANY);
            put_cell(f, left + l * CELL_W, TOP + d * CELL_H, &c);
        }
    }
}

enum md_status md_eval_map_write(FILE *f, const struct md_eval_settings *s,
                                 const struct md_engine_info *engine, const struct md_eval_result *results,
                                 size_t count, struct md_err *err)
{
    int depths[MD_EVAL_DEPTHS_MAX];
    char text[512];
    const int n = md_eval_depths(results, count, depths), panel = s->length_count * CELL_W + GAP;
    snprintf(text, sizeof text, "modeld eval %s: %s, %s, hot %d, prefill %s, %d trials",
             md_eval_task_name(s->task), engine->model, engine->engine, s->hot_tokens,
             s->dense_prefill ? "dense" : "bounded", s->trials);
    const int titled = 2 * 12 + (int)strlen(text) * LETTER_W, panels = LEFT + s->policy_count * panel;
    const int width = titled > panels ? titled : panels, height = TOP + n * CELL_H + BELOW;
    errno = 0;
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "version=\"1.1\" "
            "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<rect x=\"0\" y=\"0\" width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            width, height, width, height, width, height);
    put_label(f, 12, 24, "start", 14, text);
    for (int d = 0; d < n; d++) {
        if (depths[d] == MD_EVAL_SPREAD)
            snprintf(text, sizeof text, "spread");
        else
            snprintf(text, sizeof text, "%d %%", depths[d]);
        put_label(f, LEFT - 8, TOP + d * CELL_H + CELL_H / 2 + 4, "end", 12, text);
    }
    for (int p = 0; p < s->policy_count; p++)
        put_panel(f, LEFT + p * panel, s, p, results, count, depths, n);
    put_label(f, 12, height - 28, "start", 12, "across: tokens of the haystack; down: where the needle is");
    put_label(f, 12, height - 12, "start", 12,
              "number and shade: exact answers; thick frame: every needle was hot");
    fputs("</svg>\n", f);
    if (fflush(f) != 0 || ferror(f))
        return md_fail(err, MD_IO, "--map: write: %s", strerror(errno));
    return MD_OK;
}
