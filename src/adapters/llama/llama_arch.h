/* llama_arch.h - what llama.cpp 0.4.0 makes of each architecture, as far as it decides what its KV cache
 * takes.  A table; the library is not asked, so a file can be judged before it is loaded.
 *
 * Source, all in llama.cpp's src/: llama-arch.cpp (names; recurrent and hybrid families), llama-model.cpp
 * (load_hparams, create_memory), models/NAME.cpp (load_arch_hparams: windows, recurrent layers),
 * llama-hparams.cpp (sizes of states). */
#ifndef MD_ADAPTERS_LLAMA_ARCH_H
#define MD_ADAPTERS_LLAMA_ARCH_H

#include <stdbool.h>
#include <stdint.h>

enum md_llama_memory {
    MD_LLAMA_MEMORY_KV,        /* a KV cache in every layer, but for what is said below            */
    MD_LLAMA_MEMORY_RECURRENT, /* a state in every layer, no KV                                    */
    MD_LLAMA_MEMORY_HYBRID,    /* some layers this, some that                                      */
    MD_LLAMA_MEMORY_NONE,      /* nothing to keep: it does not generate text; `code` says what     */
    MD_LLAMA_MEMORY_UNKNOWN    /* caches of its own (indexers, compressed, another model's): not   *
                                * modelled here                                                    */
};

/* Which layers have a window, when the family uses windows at all. */
enum md_llama_pattern {
    MD_LLAMA_PATTERN_IGNORED,  /* none, whatever the file declares                                */
    MD_LLAMA_PATTERN_DECLARED, /* by the declared number or array; none without                    */
    MD_LLAMA_PATTERN_STRIDE,   /* by the declared number or the family's; a declared array is not  *
                                * read by the library and does not count                           */
    MD_LLAMA_PATTERN_EITHER,   /* by a number or an array, one must be there                       */
    MD_LLAMA_PATTERN_MASK,     /* by an array, one number holds for all; must be there             */
    MD_LLAMA_PATTERN_MASK_ALL, /* the same, and the array counts nextn layers too                  */
    MD_LLAMA_PATTERN_ARRAY,    /* by an array only                                                 */
    MD_LLAMA_PATTERN_ATTENTION /* each layer with attention                                        */
};

enum { MD_LLAMA_WINDOW_NEEDED = -1 };

struct md_llama_window {
    enum md_llama_pattern pattern;
    int32_t period;    /* PATTERN_STRIDE without a declared number                            */
    bool global_first; /* the first of each period is the global one, not the last           */
    int32_t absent;    /* window without a declared one; 0: no windows; WINDOW_NEEDED          */
    int32_t fixed;     /* not 0: this window, whatever the declared one                        */
    bool zero_is_none; /* a declared 0 turns windows off; otherwise it is an error             */
    double base;       /* rope base of windowed layers when none is declared; 0: as the others */
    int32_t layers;    /* not 0: windows only in models of so many layers                      */
};

/* Which layers of a hybrid are recurrent. */
enum md_llama_recurrence {
    MD_LLAMA_RECURRENT_NO_HEADS, /* those with no KV heads                                            */
    MD_LLAMA_RECURRENT_NO_FFN,   /* those with neither KV heads nor a feed-forward part; what has     *
                                  * a feed-forward part keeps nothing                                 */
    MD_LLAMA_RECURRENT_INTERVAL, /* as declared, or all but every interval-th                         */
    MD_LLAMA_RECURRENT_ALL       /* each layer is both                                                */
};

/* What a recurrent layer keeps. */
enum md_llama_state {
    MD_LLAMA_STATE_SSM, /* mamba: convolution and state; without groups */
    MD_LLAMA_STATE_SSM_GROUPS,
    MD_LLAMA_STATE_WKV,       /* rwkv: token shift and matrix per head */
    MD_LLAMA_STATE_SHORTCONV, /* lfm2 */
    MD_LLAMA_STATE_KDA,       /* kimi: three convolutions and a matrix per head */
    MD_LLAMA_STATE_LINEAR     /* minimax-01: a matrix per head */
};

enum md_llama_latent { /* multi-head latent attention: keys only */
                       MD_LLAMA_LATENT_NEVER,
                       MD_LLAMA_LATENT_DECLARED, /* where key_length_mla and value_length_mla are there */
                       MD_LLAMA_LATENT_ALWAYS    /* they must be there */
};

struct md_llama_arch {
    const char *name; /* general.architecture; "plain", "unlisted" for those without a row */
    enum md_llama_memory memory;
    const char *code; /* why the engine does not open it, for md_model_facts.unsupported; NULL: it does */
    struct md_llama_window window;
    enum md_llama_recurrence recurrence;
    int32_t interval; /* RECURRENT_INTERVAL without a declared one */
    enum md_llama_state state;
    enum md_llama_latent latent;
    bool nextn_dropped;      /* layers for speculation get no KV in an ordinary context               */
    int32_t own_kv_layers;   /* not 0: only so many first layers have KV, the others use theirs       */
    bool shared_declared;    /* the same, the number of sharing layers is declared                    */
    bool loops;              /* the layers run num_loops times, each time with KV of its own          */
    bool router_layer;       /* one more layer with a single KV head                                  */
    bool lengths_need_a_key; /* head lengths are read even where the first layer has no heads         */
    bool no_flash_attention; /* the library turns it off                                              */
};

/* An unlisted name has the code "unsupported_architecture" and is taken by what the file declares. */
const struct md_llama_arch *md_llama_arch_find(const char *name);

#endif
