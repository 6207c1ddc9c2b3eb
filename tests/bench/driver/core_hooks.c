/* Linked around core.c by the linker's --wrap, for the fuzzer: simulated time, memory that is counted and may run out.
 *
 * Nothing changes before hooks_simulate: the ordinary tests run with the same library. Simulated time passes when the core
 * would sleep, and a little with every read; so a run is the same each time, and the same in C and in Python.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old);
int __real_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout);
ssize_t __real_recv(int fd, void *bytes, size_t length, int flags);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);

static int simulated;
static int64_t now, wake, read_takes;
static int64_t allocated;          /* pieces of memory the core holds */
static int64_t until_refused = -1; /* allocations until one is refused; below 0: none is */

void hooks_simulate(int64_t time, int64_t each_read_takes) {
    simulated = 1;
    now = time;
    read_takes = each_read_takes;
}
int64_t hooks_now(void) { return now; }
int64_t hooks_allocated(void) { return allocated; }
void hooks_refuse_after(int64_t allocations) { until_refused = allocations; }

int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    if (!simulated) return __real_clock_gettime(clock, t);
    t->tv_sec = now / 1000000000;
    t->tv_nsec = now % 1000000000;
    return 0;
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old) {
    if (!simulated) return __real_timerfd_settime(fd, flags, new, old);
    wake = new->it_value.tv_sec * 1000000000 + new->it_value.tv_nsec;
    return 0;
}

/* What is there; where there is nothing, the timer runs out at once. */
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    int count = __real_epoll_wait(epoll, events, most, simulated ? 0 : timeout);
    if (!simulated || count) return count;
    if (wake > now) now = wake;
    events[0] = (struct epoll_event){.events = EPOLLIN, .data.u64 = UINT64_MAX};
    return 1;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags) {
    now += read_takes;
    return __real_recv(fd, bytes, length, flags);
}

static int is_refused(void) { return until_refused >= 0 && until_refused-- == 0; }

void *__wrap_calloc(size_t count, size_t size) {
    void *memory = is_refused() ? NULL : __real_calloc(count, size);
    allocated += memory != NULL;
    return memory;
}

void *__wrap_realloc(void *memory, size_t size) {
    void *grown = is_refused() ? NULL : __real_realloc(memory, size);
    allocated += grown && !memory;
    return grown;
}

void __wrap_free(void *memory) {
    allocated -= memory != NULL;
    __real_free(memory);
}
