/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - see meeting.h. */
#include "groups/shared_gpu/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
char hly_meeting_address[64];
#endif

struct id {
    uint64_t token;
    int32_t process, descriptor;
};

static size_t bytes_of(uint32_t n)
{
    return sizeof(struct hly_meeting) + n * sizeof(struct hly_meeting_member);
}

static struct id id_of(const unsigned char bytes[HALAY_CIRCLE_ID_BYTES])
{
    struct id id;
    memcpy(&id, bytes, sizeof(id));
    return id;
}

int hly_meeting_make(unsigned char bytes[HALAY_CIRCLE_ID_BYTES])
{
    struct id id = {.process = getpid()};
    id.descriptor = memfd_create("halay-device-comm", MFD_CLOEXEC);
    if (id.descriptor < 0)
        return HALAY_ENOMEM;
    if (getrandom(&id.token, sizeof(id.token), 0) != sizeof(id.token) ||
        write(id.descriptor, &id.token, sizeof(id.token)) != sizeof(id.token)) {
        close(id.descriptor);
        return HALAY_ENOMEM;
    }
    memset(bytes, 0, HALAY_CIRCLE_ID_BYTES);
    memcpy(bytes, &id, sizeof(id));
    return HALAY_OK;
}

int hly_meeting_enter(const unsigned char bytes[HALAY_CIRCLE_ID_BYTES], uint32_t n,
                      struct hly_meeting **meeting)
{
    const struct id id = id_of(bytes);
    uint64_t token = 0;
    struct rlimit limit;
    char path[64];
    int rc = HALAY_EDEVICE;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)id.process, (int)id.descriptor);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOMEM || errno == EMFILE || errno == ENFILE ? HALAY_ENOMEM : HALAY_EDEVICE;
    if (pread(fd, &token, sizeof(token), 0) != sizeof(token) || token != id.token)
        goto close_fd; /* the number is another file's now */
    rc = HALAY_ENOMEM;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes_of(n))
        goto close_fd;                              /* else SIGXFSZ */
    if (posix_fallocate(fd, 0, (off_t)bytes_of(n))) /* whoever comes first */
        goto close_fd;
    void *at = mmap(NULL, bytes_of(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        goto close_fd;
    *meeting = at;
    rc = HALAY_OK;

close_fd:
    close(fd);
    return rc;
}

void hly_meeting_leave(struct hly_meeting *meeting, uint32_t n)
{
    munmap(meeting, bytes_of(n));
}

void hly_meeting_shut(const unsigned char bytes[HALAY_CIRCLE_ID_BYTES])
{
    close(id_of(bytes).descriptor);
}
