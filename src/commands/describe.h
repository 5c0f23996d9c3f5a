/* describe.h - a capacity answer as JSON, by the field names of the wire protocol's ModelInfo, and more.
 *
 * Threads: one at a time.
 * Source: modeld/transport: ModelInfo. */
#ifndef MD_COMMANDS_DESCRIBE_H
#define MD_COMMANDS_DESCRIBE_H

#include "base/mem.h"
#include "commands/sizing.h"

#include <yyjson.h>

/* Add the fields to obj.  Strings of s are copied. */
void md_describe(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s);
/* "layers": one object per layer, for `context` tokens. */
void md_describe_layers(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_kv_shape *shape,
                        const struct md_kv_mode *mode, int32_t context);
/* "unsupported": the codes as an array; none is an empty one. */
void md_describe_unsupported(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_model_facts *facts);
/* "rope": how positions are scaled; null: not at all, and the base is the file's. */
void md_describe_rope(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_rope *r);
/* "devices" and what else the engine says about this machine. */
void md_describe_machine(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_machine *m);

/* All of `plan --json`.  speed: tokens of prefill a second, 0: not known; refusal: why it would not be opened, or
 * NULL.  The caller's; NULL or incomplete when memory ran out, which writing it tells. */
yyjson_mut_doc *md_describe_plan(const struct md_sizing *s, double speed, const char *refusal);
/* The same, as JSON, of a model that is open in this process: what would fit now if it were closed.  What is credited
 * is what this process holds, cold store and work memory included, as measured; on an accelerator device_bytes.
 * MD_NO_MEMORY, and errors of md_sizing_resolve */
MD_MUST_USE enum md_status md_describe_capacity(const struct md_options *o, const struct md_backend *backends,
                                                int64_t device_bytes, struct md_buf *out, struct md_err *err);

#endif
