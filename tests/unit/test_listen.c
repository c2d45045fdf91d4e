/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a host's addresses a rank listens at, in hosts made for it: network and name spaces with
 * their own interfaces, routes and host name. Skipped, but for the first part, where they cannot
 * be.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../boot/common/listen.h"

#include "../check.h"

static char last_error[1024], last_info[1024];

static void keep(void *arg, int level, const char *text)
{
    MUST(!arg);
    snprintf(level == 0 ? last_error : last_info, sizeof last_error, "%s", text);
}

static const struct hly_boot_log boot_log = {keep, NULL};

static void addresses(void)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(7)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(8)};
    struct sockaddr local = {.sa_family = AF_UNIX};
    halay_address_t a, b;
    char name[HLY_LISTEN_NAME];
    inet_pton(AF_INET, "10.1.2.3", &four.sin_addr);
    MUST(hly_address_from((struct sockaddr *)&four, &a) && a.port == htons(7));
    MUST(!strcmp(hly_address_name(&a, name), "10.1.2.3:7") && !hly_address_loopback(&a));
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &six.sin6_addr);
    MUST(hly_address_from((struct sockaddr *)&six, &b) && b.family == AF_INET);
    MUST(hly_address_same_ip(&a, &b) && b.port == htons(8));
    inet_pton(AF_INET6, "2001:db8::7", &six.sin6_addr);
    MUST(hly_address_from((struct sockaddr *)&six, &b) && !hly_address_same_ip(&a, &b));
    MUST(!strcmp(hly_address_name(&b, name), "[2001:db8::7]:8") && !hly_address_is_ours(&b));
    inet_pton(AF_INET6, "fe80::7", &six.sin6_addr);
    MUST(!hly_address_from((struct sockaddr *)&six, &b)); /* of one link only */
    inet_pton(AF_INET6, "::1", &six.sin6_addr);
    MUST(hly_address_from((struct sockaddr *)&six, &b) && hly_address_loopback(&b));
    MUST(!hly_address_from(&local, &b) && !hly_address_from(NULL, &b));
    four.sin_addr.s_addr = INADDR_ANY;
    MUST(!hly_address_from((struct sockaddr *)&four, &b));
}

/* The address is bound, takes connections and does not block; another's cannot be bound. */
static void sockets(void)
{
    halay_address_t at = {.family = AF_INET, .ip = {127, 0, 0, 1}}, other = at, none = at;
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd = -1;
    MUST(hly_listen_open(&boot_log, &at, &fd) == HALAY_OK && fd >= 0 && at.port);
    int second = hly_listen_at(&other);
    MUST(second >= 0 && other.port != at.port);
    MUST(fcntl(fd, F_GETFD) & FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK);
    MUST(accept(fd, NULL, NULL) < 0 && errno == EAGAIN);
    to.sin_port = at.port;
    memcpy(&to.sin_addr, at.ip, 4);
    int call = socket(AF_INET, SOCK_STREAM, 0);
    MUST(call >= 0 && !connect(call, (struct sockaddr *)&to, sizeof to));
    int in = accept(fd, NULL, NULL);
    MUST(in >= 0);
    close(in);
    close(call);
    close(second);
    close(fd);
    inet_pton(AF_INET, "198.51.100.77", none.ip);
    fd = -1;
    MUST(hly_listen_at(&none) == -EADDRNOTAVAIL);
    MUST(hly_listen_open(&boot_log, &none, &fd) == HALAY_EBOOT && fd == -1);
    MUST(strstr(last_error, "198.51.100.77") && strstr(last_error, "HALAY_INTERFACE"));
}

/* A resolver that does not answer holds no one up for long. */
static void chooses(const char *interface, const char *expected, const char *why)
{
    halay_address_t address;
    char name[HLY_LISTEN_NAME];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int rc = hly_listen_choose(&boot_log, interface, &address);
    clock_gettime(CLOCK_MONOTONIC, &end);
    MUST(end.tv_sec - begin.tv_sec <= 4);
    hly_address_name(&address, name);
    if (rc || strcmp(name, expected) != 0 || !strstr(last_info, why)) {
        fprintf(stderr, "%d %s (%s), not %s (%s)\n", rc, name, last_info, expected, why);
        exit(1);
    }
    int fd = hly_listen_at(&address);
    MUST(fd >= 0);
    close(fd);
}

static void refuses(const char *interface, const char *listed)
{
    halay_address_t address;
    MUST(hly_listen_choose(&boot_log, interface, &address) == HALAY_EBOOT);
    if (!strstr(last_error, listed) || !strstr(last_error, interface)) {
        fprintf(stderr, "'%s' lacks '%s'\n", last_error, listed);
        exit(1);
    }
}

static void sh(const char *command)
{
    if (system(command)) {
        fprintf(stderr, "failed: %s\n", command);
        exit(1);
    }
}

static void named(const char *name)
{
    MUST(!sethostname(name, strlen(name)));
}

/* Two ends of one cable each; the names that are tested on are eth*, docker0 and so on. */
static void host_of_many(void)
{
    sh("ip link set lo up");
    chooses(NULL, "127.0.0.1", "the only address");
    sh("ip link add docker0 type veth peer name veth7 && ip addr add 10.55.7.1/24 dev docker0 && "
       "ip link set docker0 up && ip link set veth7 up");
    chooses(NULL, "10.55.7.1", "first interface"); /* there is no other */
    sh("ip link add eth1 type veth peer name eth2 && ip link set eth1 up && ip link set eth2 up");
    sh("ip addr add 10.55.2.1/24 dev eth2 && ip addr add 10.55.1.1/24 dev eth1");
    refuses("eth9", "eth1 (10.55.1.1)");
    refuses("veth7", "veth7 (no address)");
    chooses(NULL, "10.55.2.1", "first interface"); /* the far end is made first */
    chooses("eth2", "10.55.2.1", "HALAY_INTERFACE");
    chooses("docker0", "10.55.7.1", "HALAY_INTERFACE");
    chooses("lo", "127.0.0.1", "HALAY_INTERFACE");
    sh("ip route add default dev eth1");
    chooses(NULL, "10.55.1.1", "default route");
    named("10.55.2.1");
    chooses(NULL, "10.55.2.1", "name resolves");
    named("127.0.0.1");
    chooses(NULL, "10.55.1.1", "default route");
    named("10.55.9.9"); /* which is not here */
    chooses(NULL, "10.55.1.1", "default route");
    named("10.55.2.1");
    sh("ip link set eth2 down");
    chooses(NULL, "10.55.1.1", "default route");
    refuses("eth2", "eth2 (down)");
}

static void host_of_six(void)
{
    named("no-such-name.invalid");
    sh("ip link set lo up && ip link add eth1 type veth peer name eth2 && ip link set eth1 up && "
       "ip link set eth2 up");
    chooses(NULL, "127.0.0.1", "the only address"); /* those of one link do not serve */
    refuses("eth1", "eth1 (no address)");
    sh("ip addr add 2001:db8:7::1/64 dev eth2 nodad");
    chooses(NULL, "2001:db8:7::1", "first interface");
    sh("ip route add default dev eth2");
    sh("ip -6 route add default dev eth2");
    chooses(NULL, "2001:db8:7::1", "default route");
    sh("ip addr add 10.55.1.1/24 dev eth1 && ip route flush default && ip -6 route flush default");
    chooses(NULL, "10.55.1.1", "first interface");
}

/* false: such a host cannot be made here. */
static bool in_a_host(void (*body)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET | CLONE_NEWUTS) ||
            system("ip link add eth1 type veth peer name eth2 2>/dev/null && ip link del eth1"))
            _exit(77);
        named("no-such-name.invalid");
        body();
        _exit(0);
    }
    MUST(pid > 0 && waitpid(pid, &status, 0) == pid);
    MUST(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    return WEXITSTATUS(status) == 0;
}

int main(void)
{
    unsetenv("HALAY_INTERFACE");
    MUST(!hly_listen_interface());
    setenv("HALAY_INTERFACE", "", 1);
    MUST(!hly_listen_interface());
    setenv("HALAY_INTERFACE", "lo", 1);
    MUST(!strcmp(hly_listen_interface(), "lo"));
    addresses();
    sockets();
    chooses("lo", "127.0.0.1", "HALAY_INTERFACE");
    refuses("no-such-interface", "lo (127.0.0.1)");
    if (!in_a_host(host_of_many)) {
        printf("skipped: no network namespaces with interfaces can be made here\n");
        return 77;
    }
    MUST(in_a_host(host_of_six));
    return 0;
}
