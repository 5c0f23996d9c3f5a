/* host/paths.h - where files live: XDG folders, or one folder for all with --data-root.  Threads: any.
 * Source: XDG Base Directory Specification 0.8. */
#ifndef MD_HOST_PATHS_H
#define MD_HOST_PATHS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>

enum { MD_PATH_MAX = 4096, MD_MODELS_MAX = 256 };

struct md_model_file {
    char path[MD_PATH_MAX];
    char name[256]; /* file name without .gguf: what -m accepts */
    int64_t bytes;
};

/* The folders where models are looked for, in order: DATA_ROOT/models, or $XDG_DATA_HOME/modeld/models
 * (~/.local/share/modeld/models), and the .deps/models of the checkout the program was built in.
 *
 * data_root  NULL: XDG
 * ret_files  caller frees with free(); sorted by name within each folder; later ones of a name are left out
 * MD_NO_MEMORY; a folder that is not there has no models, which is no error. */
MD_MUST_USE enum md_status md_paths_models(const char *data_root, struct md_model_file **ret_files,
                                           size_t *ret_count, struct md_err *err);
/* The first of those folders: where people put models. */
void md_paths_models_folder(const char *data_root, char *out, size_t out_bytes);

/* Where a file of that name is kept between runs: DATA_ROOT/NAME, or $XDG_STATE_HOME/modeld/NAME
 * (~/.local/state/modeld/NAME).  False: it does not fit. */
bool md_paths_state_file(const char *data_root, const char *name, char *out, size_t out_bytes);
/* Make the folders above path, for this user alone (0700).  False: one could not be made. */
bool md_paths_make_folder_of(const char *path);
/* Can a folder be there?  It is one, or nothing is there yet.  MD_INVALID: something else is; it has no name, or one too
 * long.  MD_IO: the system does not let us look. */
MD_MUST_USE enum md_status md_paths_check_folder(const char *path, struct md_err *err);
/* Make a folder and those above it, likewise; one that is there is left as it is.  MD_IO. */
MD_MUST_USE enum md_status md_paths_make_folder(const char *path, struct md_err *err);
/* May this process look into that folder, and write to it?  MD_IO. */
MD_MUST_USE enum md_status md_paths_check_writable(const char *path, struct md_err *err);
/* Bytes that a user may still write to the file system of `path`.  MD_IO. */
MD_MUST_USE enum md_status md_paths_free_bytes(const char *path, int64_t *ret_bytes, struct md_err *err);
/* MD_NOT_FOUND, MD_IO; MD_INVALID: not a regular file. */
MD_MUST_USE enum md_status md_paths_file_bytes(const char *path, int64_t *ret_bytes, struct md_err *err);
/* The settings: DATA_ROOT/modeld.json, or $XDG_CONFIG_HOME/modeld/modeld.json (~/.config).  It need not exist.
 * MD_INVALID: does not fit. */
MD_MUST_USE enum md_status md_paths_config_file(const char *data_root, char *ret_path, size_t path_bytes,
                                                struct md_err *err);

/* The folder the running program lies in.  False when the system does not tell, or it does not fit. */
bool md_paths_program_folder(char *out, size_t out_bytes);
/* The name a model file goes by: without folder and .gguf, cut to out_bytes. */
void md_paths_model_name(const char *path, char *out, size_t out_bytes);

/* A model by path or by name.  A name with a slash, or one that ends in .gguf and exists, is a path;
 * anything else is looked for by exact name, with or without .gguf, among md_paths_models (a name never
 * becomes a path).
 *
 * MD_NOT_FOUND  the text says where it was looked for */
MD_MUST_USE enum md_status md_paths_find_model(const char *data_root, const char *name, char *ret_path,
                                               size_t path_bytes, struct md_err *err);

#endif
