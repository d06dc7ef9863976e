/* mxs-helper: the one program of ours inside a worker's container.
 *
 *   mxs-helper init [--port N] [--socket PATH] -- ARGV...   first process: relay, reaper, the worker's parent
 *   mxs-helper hook [--seconds N] [--socket PATH]           a worker's hook: asks the gateway, fails closed
 *   mxs-helper health [--socket PATH]                       does the gateway's socket answer
 *
 * Static and without dependencies, so that every Linux image will do. It knows nothing of permissions and of what the
 * worker says; above it stands the container's engine, beside it the gateway at the other end of the socket.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mxs_helper.h"

enum {
    DEFAULT_PORT = 8080,
    DEFAULT_HOOK_SECONDS = 570, /* below the 600 s after which Codex gives up on a hook and goes on */
    MAX_HOOK_SECONDS = 3600,
    EXIT_USAGE = 125,
    EXIT_REFUSED = 2,
};
static const char DEFAULT_SOCKET[] = "/run/mxs/gateway.sock";

struct options {
    int port;
    unsigned seconds;
    const char *socket_path;
    char **argv;
};

static bool parse_number(const char *text, long low, long high, long *value) {
    char *end = NULL;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= low && *value <= high;
}

static bool parse_options(char **words, struct options *options) {
    for (; *words != NULL; words += 2) {
        long value = 0;
        if (strcmp(*words, "--") == 0) {
            options->argv = words + 1;
            return true;
        }
        if (words[1] == NULL) return false;
        if (strcmp(*words, "--socket") == 0) {
            options->socket_path = words[1];
        } else if (strcmp(*words, "--port") == 0 && parse_number(words[1], 1, 65535, &value)) {
            options->port = (int)value;
        } else if (strcmp(*words, "--seconds") == 0 && parse_number(words[1], 1, MAX_HOOK_SECONDS, &value)) {
            options->seconds = (unsigned)value;
        } else {
            return false;
        }
    }
    return true;
}

static int run_health(const char *socket_path) {
    int fd = connect_unix(socket_path, true);
    if (fd == CONNECT_FAILED) {
        fprintf(stderr, "mxs-helper: the gateway's socket does not answer: %s\n", strerror(errno));
        return 1;
    }
    close(fd);
    return 0;
}

int main(int argc, char **argv) {
    struct options options = {DEFAULT_PORT, DEFAULT_HOOK_SECONDS, DEFAULT_SOCKET, NULL};
    const char *mode = argc > 1 ? argv[1] : "";
    bool valid = argc > 1 && parse_options(argv + 2, &options);
    bool runs_program = options.argv != NULL && options.argv[0] != NULL;
    if (valid && strcmp(mode, "init") == 0 && runs_program)
        return run_init(options.port, options.socket_path, options.argv);
    if (valid && strcmp(mode, "health") == 0 && options.argv == NULL) return run_health(options.socket_path);
    if (valid && strcmp(mode, "hook") == 0 && options.argv == NULL)
        return run_hook(options.socket_path, options.seconds);
    fputs("mxs-helper: usage: init [--port N] [--socket PATH] -- ARGV... | hook [--seconds N] [--socket PATH] | "
          "health [--socket PATH]\n", stderr);
    return strcmp(mode, "hook") == 0 ? EXIT_REFUSED : EXIT_USAGE; /* a hook called wrongly must not let a call pass */
}
