/* gguf_walk.h - asks an open GGUF file for all that it can be asked, and checks what must hold for any file.
 *
 * Threads: one at a time per object. */
#ifndef MD_TESTS_GGUF_WALK_H
#define MD_TESTS_GGUF_WALK_H

#include "host/gguf.h"

/* Stops the program (assert) where a promise of gguf.h is broken. */
void gguf_walk(struct md_gguf *f);

#endif
