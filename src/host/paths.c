#include "host/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* $HOME, or what the system knows of this user; relative values are no folder. */
static const char *home_folder(void)
{
    const char *home = getenv("HOME");
    if (home != NULL && home[0] == '/')
        return home;
    const struct passwd *user = getpwuid(getuid());
    return user != NULL && user->pw_dir != NULL ? user->pw_dir : "/";
}

/* name under data_root, or under this program's folder of a kind ("XDG_DATA_HOME", ".local/share").  False:
 * cut to out_bytes. */
static bool place(const char *data_root, const char *variable, const char *under_home, const char *name,
                  char *out, size_t out_bytes)
{
    const char *xdg = getenv(variable);
    int n;
    if (data_root != NULL)
        n = snprintf(out, out_bytes, "%s/%s", data_root, name);
    else if (xdg != NULL && xdg[0] == '/') /* the specification: relative values are ignored */
        n = snprintf(out, out_bytes, "%s/modeld/%s", xdg, name);
    else
        n = snprintf(out, out_bytes, "%s/%s/modeld/%s", home_folder(), under_home, name);
    return n >= 0 && (size_t)n < out_bytes;
}

void md_paths_models_folder(const char *data_root, char *out, size_t out_bytes)
{
    (void)place(data_root, "XDG_DATA_HOME", ".local/share", "models", out, out_bytes);
}

bool md_paths_state_file(const char *data_root, const char *name, char *out, size_t out_bytes)
{
    return place(data_root, "XDG_STATE_HOME", ".local/state", name, out, out_bytes);
}

bool md_paths_make_folder_of(const char *path)
{
    char folder[MD_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

enum md_status md_paths_check_folder(const char *path, struct md_err *err)
{
    struct stat st;
    if (path[0] == '\0' || strlen(path) >= MD_PATH_MAX)
        return md_fail(err, MD_INVALID, "a folder must have 1 to %d bytes, not %zu", MD_PATH_MAX - 1,
                       strlen(path));
    if (stat(path, &st) != 0)
        return errno == ENOENT ? MD_OK
                               : md_fail(err, errno == ENOTDIR ? MD_INVALID : MD_IO,
                                         "look at the folder '%.250s': %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? MD_OK : md_fail(err, MD_INVALID, "'%.250s' is not a folder", path);
}

enum md_status md_paths_make_folder(const char *path, struct md_err *err)
{
    struct stat st;
    if (!md_paths_make_folder_of(path) || (mkdir(path, 0700) != 0 && errno != EEXIST))
        return md_fail(err, MD_IO, "make the folder '%s': %s", path, strerror(errno));
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return md_fail(err, MD_IO, "'%s' is not a folder", path);
    return MD_OK;
}

enum md_status md_paths_check_writable(const char *path, struct md_err *err)
{
    if (faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        return md_fail(err, MD_IO, "write to the folder '%s': %s", path, strerror(errno));
    return MD_OK;
}

enum md_status md_paths_free_bytes(const char *path, int64_t *ret_bytes, struct md_err *err)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0)
        return md_fail(err, MD_IO, "free space of '%s': %s", path, strerror(errno));
    const uint64_t unit = v.f_frsize > 0 ? v.f_frsize : v.f_bsize;
    *ret_bytes = v.f_bavail > (uint64_t)INT64_MAX / unit ? INT64_MAX : (int64_t)(v.f_bavail * unit);
    return MD_OK;
}

enum md_status md_paths_file_bytes(const char *path, int64_t *ret_bytes, struct md_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return md_fail(err, errno == ENOENT || errno == ENOTDIR ? MD_NOT_FOUND : MD_IO, "open '%s': %s", path,
                       strerror(errno));
    if (!S_ISREG(st.st_mode))
        return md_fail(err, MD_INVALID, "'%s' is not a regular file", path);
    *ret_bytes = st.st_size;
    return MD_OK;
}

enum md_status md_paths_config_file(const char *data_root, char *ret_path, size_t path_bytes,
                                    struct md_err *err)
{
    if (!place(data_root, "XDG_CONFIG_HOME", ".config", "modeld.json", ret_path, path_bytes))
        return md_fail(err, MD_INVALID, "the path of modeld.json is longer than %zu bytes", path_bytes - 1);
    return MD_OK;
}

bool md_paths_program_folder(char *out, size_t out_bytes)
{
    char exe[MD_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash == NULL || (size_t)(slash - exe) >= out_bytes)
        return false;
    *slash = '\0';
    strcpy(out, exe);
    return true;
}

/* The models that the checkout fetched, when the program is run from its build folder. */
static bool checkout_folder(char *out, size_t out_bytes)
{
    char exe[MD_PATH_MAX];
    if (!md_paths_program_folder(exe, sizeof exe))
        return false;
    char folder[MD_PATH_MAX + 32], whole[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/../.deps/models", exe);
    if (realpath(folder, whole) == NULL || strlen(whole) >= out_bytes)
        return false;
    strcpy(out, whole);
    return true;
}

static bool ends_in_gguf(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".gguf") == 0;
}

void md_paths_model_name(const char *path, char *out, size_t out_bytes)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    size_t len = strlen(base) - (ends_in_gguf(base) ? 5 : 0);
    snprintf(out, out_bytes, "%.*s", (int)(len < out_bytes ? len : out_bytes - 1), base);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct md_model_file *)a)->name, ((const struct md_model_file *)b)->name);
}

static bool known_name(const struct md_model_file *files, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(files[i].name, name) == 0)
            return true;
    return false;
}

/* Add folder's models to files[*count...]; what cannot be read is not there. */
static void add_folder(const char *folder, struct md_model_file *files, size_t *count)
{
    DIR *d = opendir(folder);
    size_t first = *count;
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL && *count < MD_MODELS_MAX; e = readdir(d)) {
        size_t len = strlen(e->d_name);
        struct md_model_file *f = &files[*count];
        struct stat st;
        if (!ends_in_gguf(e->d_name) || len - 5 >= sizeof f->name)
            continue;
        md_paths_model_name(e->d_name, f->name, sizeof f->name);
        int n = snprintf(f->path, sizeof f->path, "%s/%s", folder, e->d_name);
        if (n < 0 || (size_t)n >= sizeof f->path || known_name(files, first, f->name) ||
            stat(f->path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        f->bytes = st.st_size;
        ++*count;
    }
    closedir(d);
    qsort(files + first, *count - first, sizeof *files, by_name);
}

enum md_status md_paths_models(const char *data_root, struct md_model_file **ret_files, size_t *ret_count,
                               struct md_err *err)
{
    char folder[MD_PATH_MAX];
    size_t count = 0;
    struct md_model_file *files = calloc(MD_MODELS_MAX, sizeof *files);
    if (files == NULL)
        return md_fail(err, MD_NO_MEMORY, "list of models");
    md_paths_models_folder(data_root, folder, sizeof folder);
    add_folder(folder, files, &count);
    if (checkout_folder(folder, sizeof folder))
        add_folder(folder, files, &count);
    *ret_files = files;
    *ret_count = count;
    return MD_OK;
}

enum md_status md_paths_find_model(const char *data_root, const char *name, char *ret_path, size_t path_bytes,
                                   struct md_err *err)
{
    struct stat st;
    if (strchr(name, '/') != NULL || (ends_in_gguf(name) && stat(name, &st) == 0)) {
        int n = snprintf(ret_path, path_bytes, "%s", name);
        if (n < 0 || (size_t)n >= path_bytes)
            return md_fail(err, MD_INVALID, "the model path is longer than %zu bytes", path_bytes - 1);
        return MD_OK;
    }
    struct md_model_file *files;
    size_t count;
    enum md_status s = md_paths_models(data_root, &files, &count, err);
    if (s != MD_OK)
        return s;
    char folder[MD_PATH_MAX];
    md_paths_models_folder(data_root, folder, sizeof folder);
    s = md_fail(err, MD_NOT_FOUND,
                "no model '%.100s': give the path of a .gguf file, or put it into '%.250s'", name, folder);
    for (size_t i = 0; i < count && s != MD_OK; i++) {
        size_t len = strlen(files[i].name); /* with or without .gguf */
        if (strncmp(files[i].name, name, len) != 0 || (name[len] != '\0' && strcmp(name + len, ".gguf") != 0))
            continue;
        snprintf(ret_path, path_bytes, "%s", files[i].path);
        s = MD_OK;
    }
    free(files);
    return s;
}
