/* ov_backend.h - the OpenVINO engine: the same GGUF files as llama.cpp, computed on the processor, or on a GPU.
 *
 * What it can: dense and windowed models do everything of engine.h but scores, and keys of f32 and f16 are put at other
 * positions; u8 keys stay where they are.  Each was proven while the engine opened or holds by construction: KV are rows
 * in memory of our own, which are copied as they are.  Windowed layers keep all their rows, so that a sequence is cut,
 * shared and evicted anywhere and there is no tail state; a token sees in them what is hot among the positions of its
 * window.  Recurrent models and scaled positions are refused, and architectures that were not held against llama.cpp:
 * gemma, gemma3, llama, qwen2 and qwen3 were.
 *
 * KV types are "f32", "f16" and "u8" (8 bits with a scale for each row of a head: rounded when it is computed, exact
 * when it is moved), the same for keys and values: one that is not named is as the other.  Cells come in units of 32; there are two units more than asked.
 *
 * XAttention (md_open_params.xattention, off by default) leaves out of a step blocks of 128 tokens that hardly count: each 128
 * tokens attend, in each head of a layer without a window, to the blocks that hold the given share of their attention by an
 * estimate, the first and their own among them.  Only the first step of a sequence is computed so, of more than 128 tokens and
 * with nothing before it: its KV is not exact then, and has an identity of its own.  Everything else is computed in full, to the
 * bit as without: 2026.4.1 looks at the tokens of a step alone when it chooses blocks, so that behind a past it leaves out what
 * counts, also where it is told to keep all (logits of the exact model are off by 3.9 to 7.5 then).  A step has at most a
 * micro-batch, which is also its part of a prompt.  The graph of an engine without it has nothing of it.  It is for the CPU.
 *
 * On a GPU, which the parameters name, KV lies in its memory, as f16 or f32; models with windows are refused there.  The
 * code for it was compiled, never run on one, so that an engine there tries itself when it opens (ov_engine.h, md_ov_prove)
 * and fails to open where it finds that KV does not come back as it left.  An NPU is refused.
 *
 * An interrupt stops a step between the operations of its graph.
 *
 * The library is loaded at the first call that needs it, from MODELD_OPENVINO_LIBDIR in the environment, from beside an
 * installed program, or where it was built; where it is missing the calls fail and nothing else does. */
#ifndef MD_ADAPTERS_OPENVINO_OV_BACKEND_H
#define MD_ADAPTERS_OPENVINO_OV_BACKEND_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MD_OPENVINO_SEQS = 64,      /* sequences that a user may name, by default */
    MD_OPENVINO_SEQS_MAX = 127, /* as many as llama.cpp has */
    MD_OPENVINO_BATCH = 512     /* tokens of a batch and a micro-batch, by default */
};

/* ---- what engine/backend.h asks of an adapter; adapters/all makes a table of it.  Header and text of a file are read by
 * the llama.cpp adapter for both engines. ---- */

/* Before any other thread and anything else of this engine: ask the library to take 4-bit weights (Q4_K) as they are.
 * Otherwise it rounds their offsets, for speed.  It only listens to the environment, OV_GGUF_Q4_K_ZP_F16; a value that is
 * there stays.  What is in force is part of the identity of KV. */
void md_openvino_prepare(void);

/* Of facts that md_backend_llama.probe() found: what this engine cannot run gets a code. */
void md_openvino_judge(struct md_model_facts *facts);
/* As struct md_backend says.  MD_UNSUPPORTED: a KV type that is not there, or what the device that is named cannot. */
MD_MUST_USE enum md_status md_openvino_cost(const struct md_model_facts *facts,
                                            const struct md_open_params *params, int32_t seq_count,
                                            struct md_open_cost *ret_cost, struct md_err *err);
/* The processor, and the devices that the library lists; what is no GPU is refused.  Of a card its whole memory is given as
 * free, for lack of another figure.  MD_UNSUPPORTED: the library or a part of it is missing, or it is of another release. */
MD_MUST_USE enum md_status md_openvino_machine(struct md_machine *ret_machine, struct md_err *err);

/* Open an engine.  The model is compiled for this machine, which takes seconds, each time: in this release
 * what was compiled cannot be read again (its reader asks attention for sizes that the writer leaves out).
 *
 * MD_NOT_FOUND    no such file        MD_IO        it cannot be read
 * MD_INVALID      not a GGUF file, or a parameter out of range (the text names it); XAttention in micro-batches of 128 tokens
 *                 or less, of which nothing can be left out
 * MD_UNSUPPORTED  a model of another kind, a file in several parts, another KV type, no library, a device that is not there or
 *                 is no CPU and no GPU, or one that did not stand its trial; XAttention elsewhere than on the CPU
 * MD_NO_MEMORY    the KV cache, there or here, or the heap
 * MD_INTERNAL     the library failed when it was given the KV cache, or in the steps that try it out */
MD_MUST_USE enum md_status md_openvino_open(const struct md_open_params *params,
                                            struct md_engine **ret_engine, struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
