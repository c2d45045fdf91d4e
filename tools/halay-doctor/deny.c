/* SPDX-License-Identifier: Apache-2.0 */
/* deny.c - for the test: deny CALL PROGRAM ... runs a program that a seccomp filter forbids a call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        unsigned number;
    } calls[] = {{"memfd_create", SYS_memfd_create},
                 {"process_vm_readv", SYS_process_vm_readv},
                 {"pidfd_open", 434}};
    for (size_t i = 0; argc > 2 && i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(argv[1], calls[i].name))
            continue;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
            printf("skipped: no seccomp filter can be set: %s\n", strerror(errno));
            return 77;
        }
        execv(argv[2], argv + 2);
    }
    fprintf(stderr, "deny: memfd_create|process_vm_readv|pidfd_open PROGRAM ...\n");
    return 2;
}
