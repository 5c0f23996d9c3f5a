/* show.c - `modeld show`: what a model file says about itself, key by key, and its layers. */
#include "commands/commands.h"
#include "commands/describe.h"
#include "commands/print.h"
#include "commands/start.h"
#include "host/gguf.h"
#include "host/paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char about[] =
    "The metadata and layers of a model file, with --json the tensors too.  Reads its header only.";

enum { VALUE_BYTES = 4 * 64 + 8, KEY_BYTES = 300 }; /* a string of 64 bytes, each of them escaped */

struct shown {
    struct md_gguf *file;
    struct md_model_facts facts;
    bool laid_out;     /* facts are there */
    struct md_err why; /* or this says why not */
};

static enum md_status look(const struct md_options *o, const struct md_backend *backends, struct shown *s,
                           struct md_err *err)
{
    char path[MD_PATH_MAX];
    const struct md_backend *backend =
        strcmp(o->engine, "auto") == 0 ? backends : md_sizing_backend(backends, o->engine, err);
    enum md_status st =
        backend == NULL ? MD_INVALID : md_paths_find_model(o->data_root, o->model, path, sizeof path, err);
    if (st == MD_OK)
        st = md_gguf_open(path, &s->file, err);
    if (st != MD_OK)
        return st;
    st = backend->probe(path, &s->facts, &s->why);
    s->laid_out = st == MD_OK;
    return MD_OK; /* a file this engine cannot use still has metadata to show */
}

/* ---- JSON ---- */

static void add_metadata(yyjson_mut_doc *doc, yyjson_mut_val *o, struct md_gguf *f)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_obj(doc, o, "metadata");
    for (size_t i = 0; i < md_gguf_entry_count(f); i++) {
        const struct md_gguf_entry *e = md_gguf_entry_at(f, i);
        char value[VALUE_BYTES];
        md_gguf_value_text(f, e, value, sizeof value);
        yyjson_mut_obj_add(list, yyjson_mut_strcpy(doc, e->key), yyjson_mut_strcpy(doc, value));
    }
}

static void add_tensors(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_gguf *f)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, o, "tensors");
    for (size_t i = 0; i < md_gguf_tensor_count(f); i++) {
        const struct md_gguf_tensor *t = md_gguf_tensor_at(f, i);
        yyjson_mut_val *one = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_strcpy(doc, one, "name", t->name);
        yyjson_mut_obj_add_str(doc, one, "type", t->type);
        yyjson_mut_val *shape = yyjson_mut_obj_add_arr(doc, one, "shape");
        for (uint32_t d = 0; d < t->dimension_count; d++)
            yyjson_mut_arr_add_uint(doc, shape, t->dimensions[d]);
        yyjson_mut_obj_add_sint(doc, one, "bytes", t->bytes);
    }
}

static const struct md_kv_mode plain = {
    .type_k = MD_KV_F16, .type_v = MD_KV_F16, .seq_count = 1, .ubatch_tokens = 512
};

/* As the file has it: nothing is asked, so nothing is refused. */
static struct md_rope rope_of(const struct shown *s)
{
    struct md_rope r = { 0 };
    return md_rope_resolve(&s->facts.rope, &(struct md_rope_asked){ 0 }, &r, NULL) == MD_OK
               ? r
               : (struct md_rope){ .scaling = MD_ROPE_NONE };
}

static yyjson_mut_doc *show_json(const struct shown *s)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_strcpy(doc, o, "path", md_gguf_path(s->file));
    yyjson_mut_obj_add_uint(doc, o, "version", md_gguf_version(s->file));
    yyjson_mut_obj_add_sint(doc, o, "parts", md_gguf_part_count(s->file));
    yyjson_mut_obj_add_sint(doc, o, "file_bytes", md_gguf_file_bytes(s->file));
    yyjson_mut_obj_add_uint(doc, o, "alignment", md_gguf_alignment(s->file));
    yyjson_mut_obj_add_uint(doc, o, "data_offset", md_gguf_data_offset(s->file));
    if (s->laid_out) {
        yyjson_mut_obj_add_strcpy(doc, o, "architecture", s->facts.architecture);
        yyjson_mut_obj_add_strcpy(doc, o, "description", s->facts.description);
        yyjson_mut_obj_add_sint(doc, o, "context_length", s->facts.trained_tokens);
        yyjson_mut_obj_add_real(doc, o, "rope_freq_base", s->facts.rope_base);
        yyjson_mut_obj_add_real(doc, o, "rope_freq_base_swa", s->facts.rope_base_window);
        const struct md_rope rope = rope_of(s);
        md_describe_rope(doc, o, &rope);
        md_describe_unsupported(doc, o, &s->facts);
        if (s->facts.note != NULL)
            yyjson_mut_obj_add_str(doc, o, "note", s->facts.note);
        md_describe_layers(doc, o, &s->facts.shape, &plain, s->facts.trained_tokens);
    } else {
        yyjson_mut_obj_add_strcpy(doc, o, "refused", s->why.text);
    }
    add_metadata(doc, o, s->file);
    add_tensors(doc, o, s->file);
    return doc;
}

/* ---- text ---- */

static bool same_layer(const struct md_kv_layer *a, const struct md_kv_layer *b)
{
    return a->kv_heads == b->kv_heads && a->key_length == b->key_length && a->window == b->window &&
           a->value_length == b->value_length && a->window_cells == b->window_cells &&
           a->keys_only == b->keys_only && a->shared == b->shared && a->state_bytes == b->state_bytes;
}

static void print_layer(const struct md_kv_layer *l, int32_t first, int32_t last)
{
    char size[32], range[32];
    snprintf(range, sizeof range, first == last ? "%d" : "%d-%d", first, last);
    printf("  %-9s", range);
    if (l->kv_heads > 0)
        printf("%d KV heads, keys %d, values %d", l->kv_heads, l->key_length, l->value_length);
    else
        printf("no KV");
    if (l->window > 0)
        printf(", window %d%s", l->window, l->window_cells ? "" : " (not used by this engine)");
    else if (l->kv_heads > 0)
        printf(", all tokens");
    if (l->keys_only)
        printf(", keys only (latent attention)");
    if (l->shared)
        printf(", shares the KV of another layer");
    if (l->state_bytes > 0)
        printf(", state of %s per sequence", md_size_text(l->state_bytes, size, sizeof size));
    putchar('\n');
}

static void print_layers(const struct md_kv_shape *shape)
{
    puts("\nlayers");
    for (int32_t i = 0, end; i < shape->layer_count; i = end) {
        for (end = i + 1; end < shape->layer_count && same_layer(&shape->layers[i], &shape->layers[end]);)
            end++;
        print_layer(&shape->layers[i], i, end - 1);
    }
}

static void print_show(const struct shown *s)
{
    struct md_gguf *f = s->file;
    char size[32], value[VALUE_BYTES], key[KEY_BYTES], path[MD_PATH_MAX];
    printf("%s\n  GGUF version %u, %s in %d part%s, %zu tensors\n",
           md_plain_text(md_gguf_path(f), path, sizeof path), md_gguf_version(f),
           md_size_text(md_gguf_file_bytes(f), size, sizeof size), md_gguf_part_count(f),
           md_gguf_part_count(f) == 1 ? "" : "s", md_gguf_tensor_count(f));
    puts("\nmetadata");
    for (size_t i = 0; i < md_gguf_entry_count(f); i++) {
        const struct md_gguf_entry *e = md_gguf_entry_at(f, i);
        md_gguf_value_text(f, e, value, sizeof value);
        printf("  %-44s %s\n", md_plain_text(e->key, key, sizeof key), value);
    }
    if (!s->laid_out) {
        printf("\nthis engine cannot use it: %s\n", md_plain_text(s->why.text, path, sizeof path));
        return;
    }
    print_layers(&s->facts.shape);
    if (s->facts.rope_base > 0)
        printf("\nRoPE base %g%s", s->facts.rope_base, s->facts.rope_base_window > 0 ? "" : "\n");
    if (s->facts.rope_base_window > 0)
        printf(", %g in windowed layers\n", s->facts.rope_base_window);
    char scaling[MD_ROPE_TEXT_BYTES];
    const struct md_rope rope = rope_of(s);
    md_rope_text(&rope, scaling);
    if (scaling[0] != '\0')
        printf("RoPE scaling %s: trained for %d tokens\n", scaling, s->facts.trained_tokens);
    if (s->facts.note != NULL)
        printf("\nnote: %s\n", s->facts.note);
    for (int i = 0; i < MD_UNSUPPORTED_MAX && s->facts.unsupported[i] != NULL; i++)
        printf("unsupported: %s\n", s->facts.unsupported[i]);
}

int md_command_show(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct shown s = { 0 };
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_SHOW, about, &o);
    if (rc >= 0)
        return rc;
    enum md_status st = look(&o, backends, &s, &err);
    if (st == MD_OK && o.json) {
        st = md_print_json(show_json(&s), true, &err);
    } else if (st == MD_OK) {
        print_show(&s);
        st = md_print_flush(&err);
    }
    md_gguf_close(s.file);
    return st == MD_OK ? 0 : md_failed(argv[0], &err);
}
