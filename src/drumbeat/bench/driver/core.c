/* The hot path of the load driver: many PostgreSQL connections in one thread, without Python.
 *
 * Python encodes the messages (Bind, Execute, Sync) in advance, in blocks, and reads the results as an array of records.
 * This code sends the messages, waits, reads the few bytes of each answer that matter, and records the times.
 * Python opens and closes the sockets; each is connected, authenticated, prepared and non-blocking when it is added.
 * Plain C without Python.h, so that one library works with every Python; ctypes releases the GIL during core_run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE 65536
#define KEPT 192          /* bytes stored of a message that is read: CommandComplete, ErrorResponse */
#define EVENTS_AT_ONCE 256
#define COMPLAINTS 64     /* for how many SQLSTATEs the first message is stored */
#define DEBTS 64          /* for how many earlier rates overdue operations are stored */
#define MOST_OVERDUE 1000000000000 /* operations; limits the count so that it cannot overflow */
#define SWEEP_NS 50000000 /* how often running operations are checked for a timeout */

enum { OK = 0, FAILED = 1, TIMED_OUT = 2, LOST = 3 };                            /* record.outcome */
enum { FREE = 0, IDLE = 1, BUSY = 2, THINKING = 3, DEAD = 4, RETIRED = 5 };      /* connection.state */

typedef struct {
    int64_t due;      /* when it should have started; in a closed loop, when it started */
    int64_t start;    /* when its first byte was sent */
    int64_t duration; /* from start to the last byte of its answer */
    int32_t connection;
    int32_t rows;
    int16_t kind;
    uint8_t outcome;
    uint8_t epoch; /* the number of the phase in which it started */
    char sqlstate[8];
} record;

typedef struct { /* messages in Python's memory; core_feed_block returns how many blocks must stay allocated */
    const uint8_t *bytes;
    const uint32_t *offsets; /* where each message begins, and where the last ends; count + 1 of them */
    const int16_t *kinds;
    const uint8_t *more; /* for each message, 1 if the next one belongs to the same operation */
    uint32_t count;
    uint32_t used;
} block;

typedef struct {
    int fd;
    uint8_t state, retiring, outcome, epoch, failed_in_transaction, cleaning;
    int16_t kind;
    int32_t rows;
    int64_t due, start, wake;
    /* the message being read */
    uint8_t header[5];
    uint8_t have_header;
    uint8_t type;
    uint32_t left; /* bytes of the body that have not arrived yet */
    uint32_t kept;
    uint8_t body[KEPT];
    char sqlstate[8];
    /* bytes that the socket has not accepted yet */
    uint8_t *unsent;
    size_t unsent_length, unsent_sent;
    /* the later messages of an operation: first where each ends, then their bytes */
    uint32_t *step_ends;
    uint32_t steps, step;
    int32_t next; /* the next connection in the same queue (idle or thinking); -1: none */
} connection;

typedef struct { /* the server's message when it first answered with this SQLSTATE */
    char sqlstate[8];
    char words[KEPT];
} complaint;

typedef struct { /* overdue operations from an earlier rate */
    double due, interval;
    int64_t count;
} debt;

typedef struct {
    int epoll, timer;
    connection *all;
    int32_t size;
    block now, next;
    int32_t idle_head, idle_tail, thinking_head, thinking_tail;
    record *records;
    uint32_t room, recorded;
    int32_t *news; /* connections that died or retired since the last core_take_news */
    uint32_t news_count;
    int64_t limit_ns, think_ns, next_sweep, armed;
    uint8_t paced;                /* open loop: each operation has a due time */
    double interval_ns, next_due; /* interval 0: no more operations become due */
    debt debts[DEBTS];            /* oldest first, all due before next_due */
    int32_t owing;
    int64_t operations, failed, sent_late_ns;
    int32_t in_flight;
    _Atomic uint8_t accepting, epoch; /* may be set from another thread while core_run runs */
    uint8_t lifo;
    complaint complaints[COMPLAINTS];
    uint32_t complained;
    uint8_t scratch[READ_SIZE];
} core;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void core_free(core *c) {
    if (!c) return;
    for (int32_t i = 0; i < c->size; i++) {
        free(c->all[i].unsent);
        free(c->all[i].step_ends);
    }
    if (c->epoll >= 0) close(c->epoll);
    if (c->timer >= 0) close(c->timer);
    free(c->all);
    free(c);
}

/* Create a core; NULL if memory or file descriptors ran out. The caller owns records (room of them) and news (one entry
 * per connection). */
core *core_new(int32_t connections, record *records, uint32_t room, int32_t *news) {
    if (connections < 1) return NULL;
    core *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->all = calloc((size_t)connections, sizeof *c->all);
    c->size = c->all ? connections : 0;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!c->all || c->epoll < 0 || c->timer < 0) {
        core_free(c);
        return NULL;
    }
    c->records = records;
    c->room = room;
    c->news = news;
    c->idle_head = c->idle_tail = c->thinking_head = c->thinking_tail = -1;
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &e);
    return c;
}

static void queue_push(core *c, int32_t *head, int32_t *tail, int32_t i) {
    c->all[i].next = -1;
    if (*tail < 0) *head = i;
    else c->all[*tail].next = i;
    *tail = i;
}

static int32_t queue_pop(core *c, int32_t *head, int32_t *tail) {
    int32_t i = *head;
    if (i >= 0) {
        *head = c->all[i].next;
        if (*head < 0) *tail = -1;
    }
    return i;
}

static void queue_remove(core *c, int32_t *head, int32_t *tail, int32_t i) {
    int32_t before = -1, at = *head;
    while (at >= 0 && at != i) before = at, at = c->all[at].next;
    if (at < 0) return;
    if (before < 0) *head = c->all[i].next;
    else c->all[before].next = c->all[i].next;
    if (*tail == i) *tail = before;
}

/* Report a lost or retired connection. news cannot overflow: core_add accepts a number again only after core_collect. */
static void tell(core *c, int32_t i) { c->news[c->news_count++] = i; }

static void make_idle(core *c, int32_t i) {
    connection *k = &c->all[i];
    if (k->retiring) {
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, k->fd, NULL);
        k->state = RETIRED;
        tell(c, i);
        return;
    }
    k->state = IDLE;
    if (c->lifo && c->idle_head >= 0) { /* most recently used connection first */
        k->next = c->idle_head;
        c->idle_head = i;
    } else {
        queue_push(c, &c->idle_head, &c->idle_tail, i);
    }
}

static int is_place(core *c, int32_t i) { return i >= 0 && i < c->size; }

/* Add a connected socket as connection i. Returns 0, or a negative errno. */
int core_add(core *c, int32_t i, int fd) {
    if (!is_place(c, i)) return -EINVAL;
    connection *k = &c->all[i];
    if (k->state != FREE) return -EBUSY;
    free(k->unsent);
    free(k->step_ends);
    memset(k, 0, sizeof *k);
    k->fd = fd;
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e) < 0) return -errno;
    make_idle(c, i);
    return 0;
}

/* Let connection i finish its operation and then report it as retired. An idle one is reported at the next run. */
void core_retire(core *c, int32_t i) {
    if (is_place(c, i)) c->all[i].retiring = 1;
}

/* The state of connection i; frees the slot of a dead or retired one. */
int core_collect(core *c, int32_t i) {
    if (!is_place(c, i)) return FREE;
    int state = c->all[i].state;
    if (state == DEAD || state == RETIRED) c->all[i].state = FREE;
    return state;
}

/* Return the block with the next message to send, or NULL. Replaces a used-up block by the next one. */
static block *next_block(core *c) {
    if (c->now.used >= c->now.count) {
        c->now = c->next;
        memset(&c->next, 0, sizeof c->next);
    }
    return c->now.used < c->now.count ? &c->now : NULL;
}

/* Return how many blocks are queued: 0 (nothing to send), 1 or 2. */
int core_blocks(core *c) { return (next_block(c) != NULL) + (c->next.used < c->next.count); }

/* Queue a block. Returns how many of the most recent blocks, including this one, are still in use and must stay allocated;
 * 0 if two blocks are queued already, so that this one was refused. */
int core_feed_block(core *c, const uint8_t *bytes, const uint32_t *offsets, const int16_t *kinds, const uint8_t *more,
                    uint32_t count) {
    int waiting = core_blocks(c);
    if (waiting == 2) return 0;
    *(waiting ? &c->next : &c->now) = (block){bytes, offsets, kinds, more, count, 0};
    return waiting + 1;
}

void core_set(core *c, int64_t limit_ns, int64_t think_ns, uint8_t lifo) {
    c->limit_ns = limit_ns;
    c->think_ns = think_ns;
    c->lifo = lifo;
}

/* Return how many operations are due at the current rate but have not begun. */
static int64_t overdue(core *c, double now) {
    if (c->interval_ns <= 0 || c->next_due > now) return 0;
    double passed = (now - c->next_due) / c->interval_ns;
    return passed < MOST_OVERDUE ? (int64_t)passed + 1 : MOST_OVERDUE;
}

/* Store the overdue operations before the rate changes. If the list is full, add them to its last entry. */
static void owe(core *c, double now) {
    int64_t count = overdue(c, now);
    if (!count) return;
    if (c->owing == DEBTS) c->debts[DEBTS - 1].count += count;
    else c->debts[c->owing++] = (debt){c->next_due, c->interval_ns, count};
    c->next_due += (double)count * c->interval_ns;
}

/* Make operations due at a fixed rate, independent of the server (open loop); 0: none become due; below 0: send as fast as
 * connections become free. Operations that are due stay due; setting the same rate again changes nothing. */
void core_set_rate(core *c, double per_second) {
    uint8_t paced = per_second >= 0;
    double interval = per_second > 0 ? 1e9 / per_second : 0, now = (double)now_ns();
    if (paced == c->paced && interval == c->interval_ns) return;
    owe(c, now);
    if (c->interval_ns <= 0) c->next_due = now;
    else if (interval > 0 && now + interval < c->next_due) c->next_due = now + interval;
    if (!paced) c->owing = 0;
    c->paced = paced;
    c->interval_ns = interval;
}

/* Drop the operations that are due but have not begun. */
void core_forgive(core *c) {
    double now = (double)now_ns();
    c->owing = 0;
    c->next_due += (double)overdue(c, now) * c->interval_ns;
}

/* Return when the next operation is due; INT64_MAX if none becomes due. */
static int64_t due_at(core *c) {
    if (c->owing) return (int64_t)c->debts[0].due;
    return c->interval_ns > 0 && c->next_due < (double)INT64_MAX ? (int64_t)c->next_due : INT64_MAX;
}

static void take_due(core *c) {
    debt *oldest = &c->debts[0];
    if (!c->owing) {
        c->next_due += c->interval_ns;
        return;
    }
    oldest->due += oldest->interval;
    if (--oldest->count == 0) memmove(oldest, oldest + 1, (size_t)--c->owing * sizeof *oldest);
}

/* Allow or stop new operations. When they are allowed again, only operations due from now on are sent. */
void core_accept(core *c, uint8_t accepting) {
    if (accepting && !c->accepting) {
        c->next_due = (double)now_ns();
        c->owing = 0;
    }
    c->accepting = accepting;
}
void core_set_epoch(core *c, uint8_t epoch) { c->epoch = epoch; }
int32_t core_in_flight(core *c) { return c->in_flight; }
int64_t core_operations(core *c) { return c->operations; }
int64_t core_failed(core *c) { return c->failed; }

/* Return how many operations are due but cannot be sent, because every connection is busy. */
int64_t core_backlog(core *c) {
    if (!c->accepting || c->idle_head >= 0) return 0;
    int64_t count = overdue(c, (double)now_ns());
    for (int32_t n = 0; n < c->owing; n++) count += c->debts[n].count;
    return count;
}

uint32_t core_take_records(core *c, record *fresh) {
    uint32_t n = c->recorded;
    c->records = fresh;
    c->recorded = 0;
    return n;
}

uint32_t core_take_news(core *c) {
    uint32_t n = c->news_count;
    c->news_count = 0;
    return n;
}

static void finish(core *c, int32_t i, uint8_t outcome, int64_t now) {
    connection *k = &c->all[i];
    record *r = &c->records[c->recorded++];
    r->due = k->due;
    r->start = k->start;
    r->duration = now - k->start;
    r->connection = i;
    r->rows = k->rows;
    r->kind = k->kind;
    r->outcome = outcome;
    r->epoch = k->epoch;
    memcpy(r->sqlstate, k->sqlstate, sizeof r->sqlstate);
    c->operations++;
    c->failed += outcome != OK;
    c->in_flight--;
}

static void lose(core *c, int32_t i, uint8_t outcome, int64_t now) {
    connection *k = &c->all[i];
    if (k->state == BUSY) finish(c, i, outcome, now);
    else if (k->state == IDLE) queue_remove(c, &c->idle_head, &c->idle_tail, i);
    else if (k->state == THINKING) queue_remove(c, &c->thinking_head, &c->thinking_tail, i);
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, k->fd, NULL);
    k->state = DEAD;
    tell(c, i);
}

static void watch(core *c, int32_t i, uint32_t events) {
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)i};
    epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->all[i].fd, &e);
}

/* Send bytes. Returns how many the socket accepted: 0 if none for now, -1 if the connection is lost. */
static ssize_t offer(connection *k, const uint8_t *bytes, size_t length) {
    ssize_t sent = send(k->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

/* Append bytes to those that are still to be sent. */
static int keep_unsent(core *c, int32_t i, const uint8_t *bytes, size_t length) {
    connection *k = &c->all[i];
    uint8_t *kept = realloc(k->unsent, k->unsent_length + length);
    if (!kept) return 0;
    memcpy(kept + k->unsent_length, bytes, length);
    if (!k->unsent_length) watch(c, i, EPOLLIN | EPOLLOUT);
    k->unsent = kept;
    k->unsent_length += length;
    return 1;
}

/* Send bytes after those still unsent (a server may answer early). Returns 0 if the connection is lost. */
static int send_bytes(core *c, int32_t i, const uint8_t *bytes, size_t length) {
    connection *k = &c->all[i];
    ssize_t sent = k->unsent_length ? 0 : offer(k, bytes, length);
    if (sent < 0) return 0;
    return (size_t)sent == length || keep_unsent(c, i, bytes + sent, length - (size_t)sent);
}

static void send_more(core *c, int32_t i, int64_t now) {
    connection *k = &c->all[i];
    ssize_t sent = offer(k, k->unsent + k->unsent_sent, k->unsent_length - k->unsent_sent);
    if (sent < 0) {
        lose(c, i, LOST, now);
        return;
    }
    k->unsent_sent += (size_t)sent;
    if (k->unsent_sent < k->unsent_length) return;
    k->unsent_length = k->unsent_sent = 0;
    watch(c, i, EPOLLIN);
}

/* Whether an operation may begin: allowed, a message to send, and room for its record and those of running operations. */
static int may_begin(core *c) {
    return c->accepting && c->recorded + (uint32_t)c->in_flight + 1 < c->room && next_block(c) != NULL;
}

/* Copy the later messages of an operation, because their block may be freed before they are sent. */
static int keep_steps(connection *k, const block *b, uint32_t first, uint32_t last) {
    uint32_t count = last - first + 1, from = b->offsets[first], length = b->offsets[last + 1] - from;
    uint32_t *kept = realloc(k->step_ends, count * sizeof *kept + length);
    if (!kept) return 0;
    for (uint32_t n = 0; n < count; n++) kept[n] = b->offsets[first + n + 1] - from;
    memcpy(kept + count, b->bytes + from, length);
    k->step_ends = kept;
    k->steps = count;
    return 1;
}

static void begin(core *c, int32_t i, int64_t due, int64_t now) {
    connection *k = &c->all[i];
    block *b = next_block(c);
    uint32_t first = b->used, last = first;
    while (b->more[last] && last + 1 < b->count) last++;
    b->used = last + 1;
    k->kind = b->kinds[first];
    k->due = due;
    k->start = now;
    k->rows = 0;
    k->epoch = c->epoch;
    k->state = BUSY;
    k->failed_in_transaction = k->cleaning = 0;
    memset(k->sqlstate, 0, sizeof k->sqlstate);
    k->steps = k->step = 0;
    c->in_flight++;
    if (last > first && !keep_steps(k, b, first + 1, last)) {
        lose(c, i, LOST, now);
        return;
    }
    if (!send_bytes(c, i, b->bytes + b->offsets[first], b->offsets[first + 1] - b->offsets[first])) lose(c, i, LOST, now);
}

static int send_step(core *c, int32_t i) {
    connection *k = &c->all[i];
    const uint8_t *bytes = (const uint8_t *)(k->step_ends + k->steps);
    uint32_t from = k->step ? k->step_ends[k->step - 1] : 0, end = k->step_ends[k->step];
    k->step++;
    return send_bytes(c, i, bytes + from, end - from);
}

static const uint8_t ROLLBACK[] = {'Q', 0, 0, 0, 13, 'R', 'O', 'L', 'L', 'B', 'A', 'C', 'K', 0};

static void after_operation(core *c, int32_t i, int64_t now) {
    connection *k = &c->all[i];
    if (c->think_ns > 0 && !c->paced && !k->retiring) {
        k->state = THINKING;
        k->wake = now + c->think_ns;
        queue_push(c, &c->thinking_head, &c->thinking_tail, i);
        return;
    }
    if (!c->paced && !k->retiring && c->idle_head < 0 && may_begin(c)) {
        begin(c, i, now, now);
        return;
    }
    make_idle(c, i);
}

/* The server is ready again: send the next message of the operation, or record its end. */
static void ready(core *c, int32_t i, uint8_t transaction, int64_t now) {
    connection *k = &c->all[i];
    if (k->state != BUSY) return;
    if (k->cleaning) {
        k->cleaning = 0;
        finish(c, i, FAILED, now);
        after_operation(c, i, now);
        return;
    }
    int failed = k->sqlstate[0] != 0;
    if (!failed && k->step < k->steps) {
        if (!send_step(c, i)) lose(c, i, LOST, now);
        return;
    }
    if (failed && transaction != 'I') {
        k->cleaning = 1;
        if (!send_bytes(c, i, ROLLBACK, sizeof ROLLBACK)) lose(c, i, LOST, now);
        return;
    }
    finish(c, i, failed ? FAILED : OK, now);
    after_operation(c, i, now);
}

/* Add the row count of a command tag ("SELECT 5", "INSERT 0 5", "UPDATE 5"): its last word, if that is a number. */
static void note_rows(connection *k) {
    int64_t rows = 0;
    int is_number = 1;
    for (uint32_t at = 0; at < k->kept && k->body[at]; at++) {
        uint8_t digit = (uint8_t)(k->body[at] - '0');
        if (k->body[at] == ' ') rows = 0, is_number = 1;
        else if (digit > 9) is_number = 0;
        else if (rows < INT32_MAX) rows = rows * 10 + digit;
    }
    if (!is_number) return;
    rows += k->rows;
    k->rows = rows < INT32_MAX ? (int32_t)rows : INT32_MAX;
}

/* Return the first error message that the server sent with this SQLSTATE; NULL if it sent none. */
const char *core_said(core *c, const char *sqlstate) {
    for (uint32_t n = 0; n < c->complained; n++)
        if (!strncmp(c->complaints[n].sqlstate, sqlstate, 5)) return c->complaints[n].words;
    return NULL;
}

static void note_words(core *c, const char *sqlstate, const uint8_t *words, uint32_t length) {
    if (c->complained == COMPLAINTS || core_said(c, sqlstate)) return;
    complaint *said = &c->complaints[c->complained++];
    memcpy(said->sqlstate, sqlstate, 5);
    memcpy(said->words, words, length);
}

static void note_error(core *c, connection *k) {
    uint32_t at = 0, words = 0, length = 0;
    char sqlstate[8] = "XX000";
    while (at < k->kept && k->body[at]) {
        uint8_t field = k->body[at++];
        uint32_t start = at;
        while (at < k->kept && k->body[at]) at++;
        if (field == 'C' && at - start == 5) memcpy(sqlstate, k->body + start, 5);
        if (field == 'M') words = start, length = at - start;
        at++;
    }
    if (!k->sqlstate[0]) memcpy(k->sqlstate, sqlstate, sizeof sqlstate);
    note_words(c, sqlstate, k->body + words, length);
}

/* Process received bytes message by message. */
static void walk(core *c, int32_t i, const uint8_t *p, const uint8_t *end, int64_t now) {
    connection *k = &c->all[i];
    while (p < end) {
        if (k->have_header < 5) {
            while (k->have_header < 5 && p < end) k->header[k->have_header++] = *p++;
            if (k->have_header < 5) return;
            uint32_t length = big_endian(k->header + 1);
            if (length < 4) { /* this is not PostgreSQL's protocol */
                lose(c, i, LOST, now);
                return;
            }
            k->type = k->header[0];
            k->left = length - 4;
            k->kept = 0;
        }
        uint32_t there = (uint32_t)(end - p), take = there < k->left ? there : k->left;
        if ((k->type == 'C' || k->type == 'E' || k->type == 'Z') && k->kept < KEPT) {
            uint32_t keep = take < KEPT - k->kept ? take : KEPT - k->kept;
            memcpy(k->body + k->kept, p, keep);
            k->kept += keep;
        }
        p += take;
        k->left -= take;
        if (k->left) return;
        k->have_header = 0;
        if (k->type == 'C') note_rows(k);
        else if (k->type == 'E') note_error(c, k);
        else if (k->type == 'Z') ready(c, i, k->kept ? k->body[0] : 'I', now);
        if (k->state == DEAD || k->state == RETIRED) return;
    }
}

static void readable(core *c, int32_t i) {
    connection *k = &c->all[i];
    for (;;) {
        ssize_t got = recv(k->fd, c->scratch, READ_SIZE, MSG_DONTWAIT);
        int64_t now = now_ns();
        if (got > 0) {
            walk(c, i, c->scratch, c->scratch + got, now);
            if (got < READ_SIZE || k->state == DEAD || k->state == RETIRED) return;
        } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            lose(c, i, LOST, now);
            return;
        } else {
            return;
        }
    }
}

static void sweep(core *c, int64_t now) {
    for (int32_t i = 0; i < c->size; i++) {
        connection *k = &c->all[i];
        if (k->state == BUSY && c->limit_ns > 0 && now - k->start > c->limit_ns) lose(c, i, TIMED_OUT, now);
    }
    c->next_sweep = now + SWEEP_NS;
}

/* Record every running operation as timed out, when a drain reaches its time limit. */
void core_give_up(core *c) {
    int64_t now = now_ns();
    for (int32_t i = 0; i < c->size; i++)
        if (c->all[i].state == BUSY) lose(c, i, TIMED_OUT, now);
}

/* Remove retiring connections from the idle queue and report them. */
static void retire_idle(core *c) {
    int32_t head = -1, tail = -1, i;
    while ((i = queue_pop(c, &c->idle_head, &c->idle_tail)) >= 0) {
        connection *k = &c->all[i];
        if (k->state != IDLE) continue;
        if (k->retiring) make_idle(c, i);
        else queue_push(c, &head, &tail, i);
    }
    c->idle_head = head;
    c->idle_tail = tail;
}

static void wake_thinkers(core *c, int64_t now) {
    while (c->thinking_head >= 0 && c->all[c->thinking_head].wake <= now) {
        int32_t i = queue_pop(c, &c->thinking_head, &c->thinking_tail);
        if (c->all[i].state == THINKING) make_idle(c, i);
    }
}

static void begin_what_is_due(core *c, int64_t now) {
    while (c->idle_head >= 0 && may_begin(c)) {
        int64_t due = now;
        if (c->paced && (due = due_at(c)) > now) return;
        int32_t i = queue_pop(c, &c->idle_head, &c->idle_tail);
        if (c->all[i].state != IDLE) continue;
        if (c->paced) take_due(c);
        begin(c, i, due, now);
        now = now_ns();
    }
}

/* Set the timer that wakes epoll at the next due operation, timeout check or end of think time. */
static void arm(core *c, int64_t now, int64_t until) {
    int64_t wake = until;
    if (c->next_sweep < wake && c->limit_ns > 0) wake = c->next_sweep;
    if (c->thinking_head >= 0 && c->all[c->thinking_head].wake < wake) wake = c->all[c->thinking_head].wake;
    if (c->paced && c->idle_head >= 0 && may_begin(c) && due_at(c) < wake) wake = due_at(c);
    if (wake <= now) wake = now + 1;
    if (wake == c->armed) return;
    c->armed = wake;
    struct itimerspec t = {.it_value = {.tv_sec = wake / 1000000000, .tv_nsec = wake % 1000000000}};
    timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* Send and receive for this long, then return to Python. Returns how many records wait to be taken. */
uint32_t core_run(core *c, int64_t budget_ns) {
    struct epoll_event events[EVENTS_AT_ONCE];
    int64_t now = now_ns(), until = now + budget_ns;
    retire_idle(c);
    for (;;) {
        now = now_ns();
        if (now >= until || c->recorded + (uint32_t)c->in_flight + 1 >= c->room) return c->recorded;
        if (now >= c->next_sweep) sweep(c, now);
        if (c->thinking_head >= 0) wake_thinkers(c, now);
        begin_what_is_due(c, now);
        if (c->accepting && next_block(c) == NULL && c->idle_head >= 0) return c->recorded;
        if (!c->accepting && c->in_flight == 0) return c->recorded;
        arm(c, now, until);
        int count = epoll_wait(c->epoll, events, EVENTS_AT_ONCE, -1);
        for (int e = 0; e < count; e++) {
            if (events[e].data.u64 == UINT64_MAX) {
                uint64_t ticks;
                c->armed = 0;
                if (read(c->timer, &ticks, sizeof ticks) < 0) continue;
                continue;
            }
            int32_t i = (int32_t)events[e].data.u64;
            if (events[e].events & EPOLLOUT && c->all[i].unsent_length) send_more(c, i, now_ns());
            if (events[e].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && c->all[i].state != DEAD) readable(c, i);
        }
    }
}
