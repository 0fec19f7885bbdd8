/* Preloaded into a process: writes down every system call that changes files below a folder, and makes chosen ones fail.
 *
 * It does nothing until the process calls `chappe_trace` with the folder, the file that the trace goes to, and a fault:
 * "sync:N", the Nth sync fails with EIO; "full:N:M", the writes N to M fail with ENOSPC (from 1); or "".
 *
 * A record: kind (1 byte), inode (8), offset or length (8), length of the first text (4), of the second (4), the texts.
 * Kinds: C create, T truncate, W write, S sync of a file, D sync of a folder, F failed sync, R rename, U unlink, M mkdir,
 * X rmdir, L link, A what was written to the descriptor of the file `acknowledged`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1;
static long syncs, writes, fail_sync, full_from, full_to;

/* Begin another trace; without a folder none. */
int chappe_trace(const char *folder, const char *file, const char *fault) {
    pthread_mutex_lock(&lock);
    if (trace >= 0) syscall(SYS_close, trace);
    trace = -1;
    syncs = writes = fail_sync = full_from = full_to = 0;
    root_length = strlen(folder);
    if (root_length && root_length < sizeof root) {
        strcpy(root, folder);
        if (!strncmp(fault, "sync:", 5)) fail_sync = atol(fault + 5);
        if (!strncmp(fault, "full:", 5)) sscanf(fault + 5, "%ld:%ld", &full_from, &full_to);
        trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    pthread_mutex_unlock(&lock);
    return trace;
}

static int below(const char *path) { return trace >= 0 && !strncmp(path, root, root_length) && path[root_length] == '/'; }

/* The path of a name as the trace has it: absolute; empty if it is not below the root. */
static const char *absolute(int at, const char *name, char *path) {
    path[0] = 0;
    if (trace < 0 || !name) return path;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char link[64], base[PATH_MAX];
        if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t size = readlink(link, base, sizeof base - 1);
        if (size < 0) return path;
        base[size] = 0;
        if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) path[0] = 0;
    }
    if (!below(path)) path[0] = 0;
    return path;
}

/* Whether a descriptor is of a file or folder below the root; its path. */
static int of(int descriptor, char *path) {
    char link[64];
    if (trace < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path) || !strcmp(path, root);
}

static uint64_t inode(int descriptor) {
    struct stat found;
    return fstat(descriptor, &found) ? 0 : found.st_ino;
}

static void put(char kind, uint64_t number, uint64_t at, const void *one, uint32_t size, const void *two, uint32_t more) {
    char head[25];
    head[0] = kind;
    memcpy(head + 1, &number, 8);
    memcpy(head + 9, &at, 8);
    memcpy(head + 17, &size, 4);
    memcpy(head + 21, &more, 4);
    struct iovec parts[3] = {{head, sizeof head}, {(void *)one, size}, {(void *)two, more}};
    int before = errno;
    syscall(SYS_writev, trace, parts, 3);
    errno = before;
}

static void put_path(char kind, uint64_t number, const char *path, const char *other) {
    put(kind, number, 0, path, strlen(path), other ? other : "", other ? strlen(other) : 0);
}

/* --- what appears and goes */

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !*absolute(at, name, path)) return syscall(SYS_openat, at, name, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat found;
    int was = !fstatat(at, name, &found, 0);
    int descriptor = syscall(SYS_openat, at, name, flags, mode);
    if (descriptor >= 0) {
        if (!was) put_path('C', inode(descriptor), path, NULL);
        else if (flags & O_TRUNC) put('T', inode(descriptor), 0, "", 0, "", 0);
    }
    pthread_mutex_unlock(&lock);
    return descriptor;
}

#define MODE(flags, last) ({ mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, last); mode = va_arg(list, mode_t); va_end(list); } mode; })
int open(const char *name, int flags, ...) { return opened(AT_FDCWD, name, flags, MODE(flags, flags)); }
int open64(const char *name, int flags, ...) { return opened(AT_FDCWD, name, flags | O_LARGEFILE, MODE(flags, flags)); }
int openat(int at, const char *name, int flags, ...) { return opened(at, name, flags, MODE(flags, flags)); }
int openat64(int at, const char *name, int flags, ...) { return opened(at, name, flags | O_LARGEFILE, MODE(flags, flags)); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int renamed(int from, const char *old, int to, const char *new) {
    char before[PATH_MAX], after[PATH_MAX];
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_renameat2, from, old, to, new, 0);
    if (!result && *absolute(from, old, before) && *absolute(to, new, after)) put_path('R', 0, before, after);
    pthread_mutex_unlock(&lock);
    return result;
}
int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int from, const char *old, int to, const char *new) { return renamed(from, old, to, new); }

static int removed(int at, const char *name, int flags) {
    char path[PATH_MAX];
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_unlinkat, at, name, flags);
    if (!result && *absolute(at, name, path)) put_path(flags & AT_REMOVEDIR ? 'X' : 'U', 0, path, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}
int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int at, const char *name, int flags) { return removed(at, name, flags); }
int rmdir(const char *name) { return removed(AT_FDCWD, name, AT_REMOVEDIR); }

static int made(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, at, name, mode);
    if (!result && *absolute(at, name, path)) put_path('M', 0, path, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}
int mkdir(const char *name, mode_t mode) { return made(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return made(at, name, mode); }

int linkat(int from, const char *old, int to, const char *new, int flags) {
    char before[PATH_MAX], after[PATH_MAX];
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_linkat, from, old, to, new, flags);
    if (!result && *absolute(from, old, before) && *absolute(to, new, after)) put_path('L', 0, before, after);
    pthread_mutex_unlock(&lock);
    return result;
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

/* --- what is written */

static int is_full(void) {
    writes++;
    return full_from && writes >= full_from && writes <= full_to;
}

static void noted(int descriptor, const char *path, const void *content, size_t size, off_t at) {
    const char *name = strrchr(path, '/');
    if (name && !strcmp(name, "/acknowledged")) put('A', 0, 0, content, size, "", 0);
    else put('W', inode(descriptor), at, content, size, "", 0);
}

static int spared(const char *path) {
    const char *name = strrchr(path, '/');
    return name && (!strcmp(name, "/acknowledged") || (strlen(path) > 4 && !strcmp(path + strlen(path) - 4, "-shm")));
}

ssize_t write(int descriptor, const void *content, size_t size) {
    char path[PATH_MAX];
    if (!of(descriptor, path)) return syscall(SYS_write, descriptor, content, size);
    pthread_mutex_lock(&lock);
    ssize_t result = -1;
    if (!spared(path) && is_full()) errno = ENOSPC;
    else {
        result = syscall(SYS_write, descriptor, content, size);
        if (result > 0) noted(descriptor, path, content, result, lseek(descriptor, 0, SEEK_CUR) - result);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static ssize_t placed(int descriptor, const void *content, size_t size, off_t at) {
    char path[PATH_MAX];
    if (!of(descriptor, path)) return syscall(SYS_pwrite64, descriptor, content, size, at);
    pthread_mutex_lock(&lock);
    ssize_t result = -1;
    if (!spared(path) && is_full()) errno = ENOSPC;
    else {
        result = syscall(SYS_pwrite64, descriptor, content, size, at);
        if (result > 0) noted(descriptor, path, content, result, at);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
ssize_t pwrite(int descriptor, const void *content, size_t size, off_t at) { return placed(descriptor, content, size, at); }
ssize_t pwrite64(int descriptor, const void *content, size_t size, off64_t at) { return placed(descriptor, content, size, at); }

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!of(descriptor, path)) return syscall(SYS_writev, descriptor, parts, count);
    ssize_t total = 0;
    for (int part = 0; part < count; part++) {
        ssize_t done = write(descriptor, parts[part].iov_base, parts[part].iov_len);
        if (done < 0) return total ? total : done;
        total += done;
        if ((size_t)done < parts[part].iov_len) break;
    }
    return total;
}

static int cut(int descriptor, off_t length) {
    char path[PATH_MAX];
    if (!of(descriptor, path)) return syscall(SYS_ftruncate, descriptor, length);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_ftruncate, descriptor, length);
    if (!result) put('T', inode(descriptor), length, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int ftruncate(int descriptor, off_t length) { return cut(descriptor, length); }
int ftruncate64(int descriptor, off64_t length) { return cut(descriptor, length); }

static int synced(int descriptor, long number) {
    char path[PATH_MAX];
    if (!of(descriptor, path)) return syscall(number, descriptor);
    pthread_mutex_lock(&lock);
    struct stat found;
    int folder = !fstat(descriptor, &found) && S_ISDIR(found.st_mode), result = 0;
    if (++syncs == fail_sync) {
        put_path('F', found.st_ino, path, folder ? "folder" : NULL);
        errno = EIO;
        result = -1;
    } else {
        put_path(folder ? 'D' : 'S', found.st_ino, path, NULL); /* a disk is not needed: nothing is lost here */
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int fsync(int descriptor) { return synced(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, SYS_fdatasync); }
