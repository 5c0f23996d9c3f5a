/* origin.h - who made a conversation that lies in a file: the model that its tokens are of, and the engine and the
 * settings that its KV is of.  Two engines that read one model file have the same tokens and never the same KV.
 *
 * As bytes, little-endian: u32 version (1); then engine, version of its library, device, model in words, key of the model
 * (md_engine_info.model_key), KV types of keys and of values, and RoPE (as md_engine_info has them), each as u16 length and
 * so many bytes of UTF-8 without control characters.  Nothing follows.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_SESSION_ORIGIN_H
#define MD_SESSION_ORIGIN_H

#include "base/err.h"
#include "base/mem.h"
#include "engine/engine.h"

enum { MD_ORIGIN_BYTES_MAX = 16 << 10 }; /* no larger ones are read; those that are written are below 1 KiB */

/* Strings as in struct md_engine_info, and as large. */
struct md_origin {
    char engine[32], version[96], device[96], model[128], model_key[64];
    char type_k[8], type_v[8], rope[160];
};

/* Of this engine.  What is no text that can be shown is '?': a model file may say anything of itself. */
void md_origin_of(const struct md_engine_info *info, struct md_origin *ret);

/* Append it.  MD_NO_MEMORY: out is as long as before. */
MD_MUST_USE enum md_status md_origin_write(const struct md_origin *o, struct md_buf *out, struct md_err *err);
/* Take bytes apart, whoever wrote them.
 *
 * MD_CORRUPT      they are none: the text says what is wrong
 * MD_UNSUPPORTED  of another version */
MD_MUST_USE enum md_status md_origin_read(struct md_bytes bytes, struct md_origin *ret, struct md_err *err);

/* May what lies in a file be used on this engine?
 *
 * identity     of the KV in it (md_engine_info.identity), as it was written: any bytes
 * origin       as bytes; NULL: the file is of a time before there were any, and says nothing of its model but what is in the
 *              identity
 * tokens_only  none of its KV is wanted
 *
 * MD_INVALID  of another model: never; its KV is of another engine, KV type or RoPE: not without tokens_only.  The text
 *             names both, and what to ask for
 * MD_CORRUPT  origin is none, or contradicts the identity;  MD_UNSUPPORTED: of another version */
MD_MUST_USE enum md_status md_origin_judge(struct md_bytes identity, const struct md_bytes *origin,
                                           const struct md_engine_info *info, bool tokens_only,
                                           struct md_err *err);

#endif
