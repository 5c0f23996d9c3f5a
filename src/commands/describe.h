/* describe.h - a capacity answer as JSON, by the field names of the wire protocol's ModelInfo, and more.
 *
 * Threads: one at a time.
 * Source: modeld/transport: ModelInfo. */
#ifndef MD_COMMANDS_DESCRIBE_H
#define MD_COMMANDS_DESCRIBE_H

#include "commands/sizing.h"

#include <yyjson.h>

/* Add the fields to obj.  Strings of s are copied. */
void md_describe(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s);
/* "layers": one object per layer, for `context` tokens. */
void md_describe_layers(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_kv_shape *shape,
                        const struct md_kv_mode *mode, int32_t context);
/* "unsupported": the codes as an array; none is an empty one. */
void md_describe_unsupported(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_model_facts *facts);
/* "devices" and what else the engine says about this machine. */
void md_describe_machine(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_machine *m);

#endif
