/* http_json.h - the two ends of JSON: a guard before the parser, a writer behind the replies.
 *
 * The guard makes a hostile body harmless in one pass and no recursion; the writer cannot produce anything
 * but valid UTF-8 JSON strings, whatever bytes it is given.
 *
 * Threads: any; they touch nothing but their arguments. */
#ifndef MD_FRONTS_HTTP_HTTP_JSON_H
#define MD_FRONTS_HTTP_HTTP_JSON_H

#include "base/err.h"
#include "base/mem.h"

#include <yyjson.h>

enum { MD_JSON_NUMBER_MAX = 512 }; /* characters of one number; a double needs no more than 24 */

/* Check what the parser would pay for, and make lone surrogates whole: `\ud83d` without its partner is
 * rewritten in place as `\ufffd` (the same length).  Says nothing about the rest of the syntax.
 *
 * MD_INVALID  nested deeper than depth_max, or a number of more than MD_JSON_NUMBER_MAX characters */
MD_MUST_USE enum md_status md_json_guard(char *json, size_t len, int depth_max, struct md_err *err);

enum {
    MD_JSON_KEYS_MAX = 4096
}; /* of one object: the templates' and schemas' library takes their number squared */

/* Is no key given twice in one object, however deep?  Readers differ in which of two they take, and a request passes
 * through several: what this front checked would not be what the template is given.
 *
 * root         of a text that md_json_guard has passed: recursion is as deep as that allows
 * ret_where    on MD_INVALID: the key with its path, "tools[0].function.name", cut to its size
 * MD_INVALID   its text says so, or that an object has more than MD_JSON_KEYS_MAX keys; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_json_unique(yyjson_val *root, char *ret_where, size_t where_bytes,
                                          struct md_err *err);

/* The last key of the outermost object before `offset`: says where in a broken body the parser stopped.
 * Empty when there is none, it has an escape, or it is not a plain word. */
struct md_bytes md_json_key_before(const char *json, size_t len, size_t offset);

/* Append `text` as a JSON string with its quotes.  Each maximal ill-formed part becomes U+FFFD. */
MD_MUST_USE enum md_status md_json_put_string(struct md_buf *out, struct md_bytes text, struct md_err *err);

#endif
