/* f32_file.h - a GGUF file with all its tensors in f32, so that engines that read it round nothing.
 *
 * Source: ggml-common.h, block_q4_1, block_q5_0, block_q8_0, block_q4_K and block_q6_K. */
#ifndef MD_TESTS_F32_FILE_H
#define MD_TESTS_F32_FILE_H

/* Header and entries of `from` as they are, then its tensors, which must be of f32 and the types above.  What cannot be
 * read or written fails the running test. */
void md_f32_file_write(const char *from, const char *to);

#endif
