/* engines.c - see engines.h. */
#include "adapters/all/engines.h"

#include "adapters/llama/llama_backend.h"
#include "text/text.h"
#ifdef MODELD_OPENVINO
#include "adapters/openvino/ov_backend.h"
#endif

#include <string.h>

#ifdef MODELD_OPENVINO
static enum md_status openvino_probe(const char *model_path, struct md_model_facts *ret_facts,
                                     struct md_err *err)
{
    enum md_status s = md_backend_llama.probe(model_path, ret_facts, err);
    if (s == MD_OK)
        md_openvino_judge(ret_facts);
    return s;
}

static enum md_status openvino_open(const struct md_open_params *params, struct md_engine **ret_engine,
                                    struct md_text **ret_text, struct md_err *err)
{
    struct md_text *text = NULL;
    enum md_status s = ret_text != NULL ? md_llama_text_open(params->model_path, &text, err) : MD_OK;
    if (s == MD_OK)
        s = md_openvino_open(params, ret_engine, err);
    if (s != MD_OK)
        md_text_close(text);
    else if (ret_text != NULL)
        *ret_text = text;
    return s;
}

const struct md_backend md_backend_openvino = { .name = "openvino",
                                                .probe = openvino_probe,
                                                .cost = md_openvino_cost,
                                                .machine = md_openvino_machine,
                                                .open = openvino_open };
#endif

void md_engines_prepare(void)
{
#ifdef MODELD_OPENVINO
    md_openvino_prepare();
#endif
}

const struct md_backend *md_engines_list(void)
{
    enum { ENGINES_MAX = 2 };
    static struct md_backend list[ENGINES_MAX + 1];
    struct md_backend *next = list;
    *next++ = md_backend_llama;
#ifdef MODELD_OPENVINO
    *next++ = md_backend_openvino;
#endif
    *next = (struct md_backend){ .name = NULL };
    return list;
}
