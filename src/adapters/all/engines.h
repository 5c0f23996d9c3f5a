/* engines.h - the engines of this build in one list, for main.c and for tests.  What the adapters do for each other is
 * said here: llama.cpp's reads header, tokenizer and templates of the model files, for all engines.
 *
 * Threads: the main one, before it starts others. */
#ifndef MD_ADAPTERS_ALL_ENGINES_H
#define MD_ADAPTERS_ALL_ENGINES_H

#include "engine/backend.h"

/* Before any other thread and anything else of an engine. */
void md_engines_prepare(void);

/* All of them, behind the last one an entry without a name.  The first one is what people get who name none.  Static. */
const struct md_backend *md_engines_list(void);

/* In builds with OpenVINO: md_openvino_* of ov_backend.h, and text as the other adapter reads it; ret_text may be NULL. */
extern const struct md_backend md_backend_openvino;

#endif
