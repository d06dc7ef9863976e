/* The relay: 127.0.0.1:port inside the container to the gateway's unix socket, bytes unread.
 *
 * It lives in the first process, which nothing inside the container can kill. Bounded: RELAY_CONNECTIONS connections,
 * two buffers each; a slow reader stops its writer and nobody else. An end of one direction is passed on alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mxs_helper.h"

/* One direction: bytes [start, end) of `data` were read and wait to be written. */
struct flow {
    char data[RELAY_BUFFER];
    size_t start, end;
    bool read_ended;    /* the source said end of stream */
    bool write_ended;   /* and that was passed on */
};

/* A client and its gateway connection: fd[0] client, fd[1] gateway; flow[i] runs from fd[i] to fd[1 - i]. */
struct connection {
    bool open;
    int fd[2];
    struct flow flow[2];
};

static struct connection connections[RELAY_CONNECTIONS];
static int listener = -1;
static const char *gateway_path;

bool relay_listen(int port, const char *path) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1;
    gateway_path = path;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
           bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, SOMAXCONN) == 0;
}

static struct connection *free_connection(void) {
    for (int i = 0; i < RELAY_CONNECTIONS; i++)
        if (!connections[i].open) return &connections[i];
    return NULL;
}

/* What to wait for on fd[side]: room to write what the other side sent, bytes to read while there is room for them. */
static short wanted_events(const struct connection *connection, int side) {
    const struct flow *outgoing = &connection->flow[side], *incoming = &connection->flow[1 - side];
    short events = 0;
    if (!outgoing->read_ended && outgoing->end < RELAY_BUFFER) events |= POLLIN;
    if (incoming->start < incoming->end) events |= POLLOUT;
    return events;
}

int relay_poll_set(struct pollfd *fds) {
    /* A negative descriptor is skipped by poll(): with nothing wanted, a hang-up must not wake us again and again. */
    fds[0] = (struct pollfd){.fd = free_connection() == NULL ? -1 : listener, .events = POLLIN};
    for (int i = 0; i < RELAY_CONNECTIONS; i++) {
        for (int side = 0; side < 2; side++) {
            short events = connections[i].open ? wanted_events(&connections[i], side) : 0;
            fds[1 + 2 * i + side] = (struct pollfd){.fd = events ? connections[i].fd[side] : -1, .events = events};
        }
    }
    return RELAY_FDS;
}

static void close_connection(struct connection *connection) {
    close(connection->fd[0]);
    close(connection->fd[1]);
    connection->open = false;
}

static void accept_client(void) {
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    int gateway = connect_unix(gateway_path, true);
    struct connection *connection = free_connection();
    if (gateway == CONNECT_FAILED || connection == NULL) {
        close(client);
        if (gateway != CONNECT_FAILED) close(gateway);
        return;
    }
    connection->open = true;
    connection->fd[0] = client;
    connection->fd[1] = gateway;
    for (int side = 0; side < 2; side++) {
        struct flow *flow = &connection->flow[side];
        flow->start = flow->end = 0;
        flow->read_ended = flow->write_ended = false;
    }
}

static bool is_passing_fault(void) { return errno == EAGAIN || errno == EINTR; }

/* Read once into the flow's free room. False when the connection is broken. */
static bool fill(struct flow *flow, int from) {
    ssize_t got = recv(from, flow->data + flow->end, RELAY_BUFFER - flow->end, 0);
    if (got < 0) return is_passing_fault();
    if (got == 0) flow->read_ended = true;
    flow->end += (size_t)got;
    return true;
}

/* Write what waits, and the end of the stream behind it. False when the connection is broken. */
static bool drain(struct flow *flow, int to) {
    if (flow->start < flow->end) {
        ssize_t sent = send(to, flow->data + flow->start, flow->end - flow->start, MSG_NOSIGNAL);
        if (sent < 0) return is_passing_fault();
        flow->start += (size_t)sent;
        if (flow->start < flow->end) return true;
        flow->start = flow->end = 0;
    }
    if (flow->read_ended && !flow->write_ended) {
        flow->write_ended = true;
        return shutdown(to, SHUT_WR) == 0 || errno == ENOTCONN;
    }
    return true;
}

static bool serve_connection(struct connection *connection, const struct pollfd *fds) {
    for (int side = 0; side < 2; side++) {
        struct flow *flow = &connection->flow[side];
        bool readable = fds[side].revents & (POLLIN | POLLHUP | POLLERR);
        if (readable && !flow->read_ended && flow->end < RELAY_BUFFER && !fill(flow, connection->fd[side])) return false;
        if (!drain(flow, connection->fd[1 - side])) return false;
    }
    return !(connection->flow[0].write_ended && connection->flow[1].write_ended);
}

void relay_step(const struct pollfd *fds, int count) {
    for (int i = 0; 2 * i + 2 < count; i++) {
        const struct pollfd *pair = &fds[1 + 2 * i];
        bool stirred = pair[0].revents != 0 || pair[1].revents != 0;
        if (connections[i].open && stirred && !serve_connection(&connections[i], pair)) close_connection(&connections[i]);
    }
    if (fds[0].revents != 0) accept_client(); /* last: a connection made now has no events of its own yet */
}
