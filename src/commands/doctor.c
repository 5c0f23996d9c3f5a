/* doctor.c - `modeld doctor`: what this machine offers, and what would be refused on it and why. */
#include "base/log.h"
#include "commands/commands.h"
#include "commands/describe.h"
#include "commands/device.h"
#include "commands/print.h"
#include "commands/start.h"
#include "host/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char about[] = "What this machine offers, and what would be refused and why.";

enum { FINDINGS_MAX = 8, ENGINES_MAX = 8 };

struct engine_found {
    const char *name;
    bool works;
    struct md_machine machine;
    struct md_err why;
};

struct finding {
    const char *code;
    char text[256];
};

struct checkup {
    struct engine_found engines[ENGINES_MAX];
    int engine_count;
    int processors;
    struct md_host_memory host;
    struct md_memory_policy policy; /* as for a model on the host */
    struct md_model_file *models;
    size_t model_count;
    char models_folder[MD_PATH_MAX];
    struct finding findings[FINDINGS_MAX];
    int finding_count;
};

static struct finding *found(struct checkup *c, const char *code)
{
    struct finding *f = &c->findings[c->finding_count < FINDINGS_MAX ? c->finding_count++ : FINDINGS_MAX - 1];
    f->code = code;
    return f;
}

static void ask_engines(struct checkup *c, const struct md_backend *backends)
{
    for (const struct md_backend *b = backends; b->name != NULL && c->engine_count < ENGINES_MAX; b++) {
        struct engine_found *e = &c->engines[c->engine_count];
        e->name = b->name;
        e->works = b->machine(&e->machine, &e->why) == MD_OK;
        c->engine_count++;
    }
}

/* What will be said no to, before anybody runs into it. */
static void judge(struct checkup *c)
{
    bool works = false, accelerator = false;
    for (int i = 0; i < c->engine_count; i++) {
        works |= c->engines[i].works;
        accelerator |= c->engines[i].works && md_device_accelerator(&c->engines[i].machine) != NULL;
        if (!c->engines[i].works) {
            struct finding *f = found(c, "engine_unavailable");
            snprintf(f->text, sizeof f->text, "engine '%s': %.200s", c->engines[i].name,
                     c->engines[i].why.text);
        }
    }
    if (works && !accelerator)
        snprintf(found(c, "no_accelerator_present")->text, sizeof c->findings[0].text,
                 "no accelerator is seen: -ngl above 0 is refused, models run on the processor");
    if (c->policy.max_resident_bytes > c->host.available_bytes) {
        char cap[32], free_text[32];
        snprintf(found(c, "limit_above_free_memory")->text, sizeof c->findings[0].text,
                 "--mem-max %s is more than the %s that are free: the free memory decides",
                 md_size_text(c->policy.max_resident_bytes, cap, sizeof cap),
                 md_size_text(c->host.available_bytes, free_text, sizeof free_text));
    }
    snprintf(found(c, "quantized_values_need_flash_attention")->text, sizeof c->findings[0].text,
             "quantised KV types for values are refused with -fa off");
    if (c->model_count == 0)
        snprintf(found(c, "no_model")->text, sizeof c->findings[0].text,
                 "no model is found by name: put a .gguf file into '%.180s', or give its path",
                 c->models_folder);
}

static enum md_status examine(const struct md_options *o, const struct md_backend *backends,
                              struct checkup *c, struct md_err *err)
{
    c->processors = md_host_processor_count();
    enum md_status s = md_start_memory(&c->host, err);
    if (s == MD_OK)
        s = md_paths_models(o->data_root, &c->models, &c->model_count, err);
    if (s != MD_OK)
        return s;
    const struct md_device_memory host = { .total_bytes = c->host.total_bytes,
                                           .free_bytes = c->host.available_bytes };
    c->policy = md_capacity_policy(md_sizing_policy(o), &host, c->host.available_bytes, 0);
    md_paths_models_folder(o->data_root, c->models_folder, sizeof c->models_folder);
    ask_engines(c, backends);
    judge(c);
    return MD_OK;
}

/* ---- output ---- */

static yyjson_mut_doc *doctor_json(const struct checkup *c)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_int(doc, o, "processors", c->processors);
    yyjson_mut_val *m = yyjson_mut_obj_add_obj(doc, o, "memory");
    yyjson_mut_obj_add_sint(doc, m, "total_bytes", c->host.total_bytes);
    yyjson_mut_obj_add_sint(doc, m, "available_bytes", c->host.available_bytes);
    yyjson_mut_obj_add_sint(doc, m, "limit_bytes", c->host.limit_bytes);
    yyjson_mut_obj_add_strcpy(doc, m, "limit_path", c->host.limit_path);
    yyjson_mut_obj_add_sint(doc, m, "max_resident_bytes", c->policy.max_resident_bytes);
    yyjson_mut_obj_add_sint(doc, m, "min_free_bytes", c->policy.min_free_bytes);
    yyjson_mut_obj_add_sint(doc, m, "host_cold_budget_bytes", c->policy.host_cold_bytes);
    yyjson_mut_obj_add_sint(doc, m, "min_hot_context_tokens", c->policy.min_hot_tokens);
    yyjson_mut_obj_add_real(doc, m, "headroom_frac", c->policy.headroom_frac);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, o, "engines");
    for (int i = 0; i < c->engine_count; i++) {
        yyjson_mut_val *e = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, e, "name", c->engines[i].name);
        yyjson_mut_obj_add_bool(doc, e, "works", c->engines[i].works);
        if (c->engines[i].works)
            md_describe_machine(doc, e, &c->engines[i].machine);
        else
            yyjson_mut_obj_add_strcpy(doc, e, "error", c->engines[i].why.text);
    }
    list = yyjson_mut_obj_add_arr(doc, o, "kv_types");
    for (int t = 0; t < MD_KV_LISTED; t++)
        yyjson_mut_arr_add_str(doc, list, md_kv_type_name((enum md_kv_type)t));
    list = yyjson_mut_obj_add_arr(doc, o, "models");
    for (size_t i = 0; i < c->model_count; i++)
        yyjson_mut_arr_add_strcpy(doc, list, c->models[i].name);
    list = yyjson_mut_obj_add_arr(doc, o, "refused");
    for (int i = 0; i < c->finding_count; i++) {
        yyjson_mut_val *f = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, f, "code", c->findings[i].code);
        yyjson_mut_obj_add_strcpy(doc, f, "text", c->findings[i].text);
    }
    return doc;
}

/* Folders in it are as the environment names them. */
static void print_line(const char *text)
{
    char line[sizeof((struct md_err *)0)->text];
    snprintf(line, sizeof line, "%s", text);
    md_make_plain(line, strlen(line));
    puts(line);
}

static void print_engine(const struct engine_found *e)
{
    char free_text[32], total[32], caps[200];
    if (!e->works) {
        printf("engine %-12s does not work: ", e->name);
        print_line(e->why.text);
        return;
    }
    const struct md_machine *m = &e->machine;
    printf("engine %-12s %s %s%s\n", e->name, m->runtime_name, m->runtime_version,
           m->gpu_offload ? ", built for a GPU" : ", for the processor");
    printf("  processor         %s\n", m->system_info);
    md_engine_caps_text(m->caps, caps, sizeof caps);
    printf("  KV types          %s\n", m->kv_types);
    printf("  can, with f16 KV  %s\n", caps);
    printf("  devices           CPU%s\n", m->device_count > 0 ? ", and" : "");
    for (int32_t i = 0; i < m->device_count; i++) {
        if (m->devices[i].refused != NULL) {
            printf("  %-6s %-10s %s: refused, %s\n", m->devices[i].kind, m->devices[i].id,
                   m->devices[i].description, m->devices[i].refused);
            continue;
        }
        printf("  %-6s %-10s %s: %s free of %s%s\n", m->devices[i].kind, m->devices[i].id,
               m->devices[i].description, md_size_text(m->devices[i].free_bytes, free_text, sizeof free_text),
               md_size_text(m->devices[i].total_bytes, total, sizeof total),
               m->devices[i].shares_host ? ", shared with the host" : "");
        if (m->devices[i].can[0] != '\0')
            printf("         computes with     %s\n", m->devices[i].can);
    }
}

static void print_doctor(const struct checkup *c)
{
    char a[32], b[32], name[600];
    printf("processors          %d\n", c->processors);
    printf("memory              %s available of %s\n", md_size_text(c->host.available_bytes, a, sizeof a),
           md_size_text(c->host.total_bytes, b, sizeof b));
    if (c->host.limit_bytes > 0)
        printf("  limit             %s, set in '%s'\n", md_size_text(c->host.limit_bytes, a, sizeof a),
               c->host.limit_path);
    printf("  a model may take  %s, headroom %.0f %%; cold store %s\n",
           md_size_text(c->policy.max_resident_bytes, a, sizeof a), c->policy.headroom_frac * 100,
           md_size_text(c->policy.host_cold_bytes, b, sizeof b));
    for (int i = 0; i < c->engine_count; i++)
        print_engine(&c->engines[i]);
    printf("KV types            %s\n", md_kv_type_names());
    printf("models              ");
    for (size_t i = 0; i < c->model_count; i++)
        printf("%s%s", i == 0 ? "" : ", ", md_plain_text(c->models[i].name, name, sizeof name));
    puts(c->model_count == 0 ? "none" : "");
    puts("\nwhat would be refused");
    for (int i = 0; i < c->finding_count; i++) {
        printf("  %s: ", c->findings[i].code);
        print_line(c->findings[i].text);
    }
}

int md_command_doctor(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_DOCTOR, about, &o);
    if (rc >= 0)
        return rc;
    struct checkup *c = calloc(1, sizeof *c);
    enum md_status s = c == NULL ? md_fail(&err, MD_NO_MEMORY, "check-up") : examine(&o, backends, c, &err);
    if (s == MD_OK && o.json) {
        s = md_print_json(doctor_json(c), true, &err);
    } else if (s == MD_OK) {
        print_doctor(c);
        s = md_print_flush(&err);
    }
    if (c != NULL)
        free(c->models);
    free(c);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
