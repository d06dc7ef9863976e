/* What the files of the helper share. See mxs_helper.c for what it is. */
#ifndef MXS_HELPER_H
#define MXS_HELPER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    RELAY_CONNECTIONS = 64, /* the worker's clients keep fewer than ten; more wait in the listener's queue */
    RELAY_BUFFER = 32 * 1024,
    RELAY_FDS = 1 + 2 * RELAY_CONNECTIONS,
    CONNECT_FAILED = -1,
};

/* Connect to a unix socket, blocking or not: a descriptor, or CONNECT_FAILED with errno. */
int connect_unix(const char *path, bool nonblocking);

/* Listen on 127.0.0.1:port and relay every connection to the unix socket at `path`. False with errno on failure. */
bool relay_listen(int port, const char *path);
/* Fill `fds` (room for RELAY_FDS) with what the relay waits for; returns their number. */
int relay_poll_set(struct pollfd *fds);
/* Act on what poll() reported in the set that relay_poll_set filled. */
void relay_step(const struct pollfd *fds, int count);

/* Ask the gateway about the hook on standard input: 0 = allowed, 2 = refused with a sentence on standard error. */
int run_hook(const char *socket_path, unsigned seconds);

/* Run `argv` as the container's first process: its exit code, or 128 + the signal that ended it. */
int run_init(int port, const char *socket_path, char **argv);

#endif
