/* The first process of the container: starts the worker, relays, reaps, passes signals on.
 *
 * It ends with the worker's exit code, and with it the kernel ends every other process of the container.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mxs_helper.h"

enum { EXIT_INIT_FAILED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, SIGNAL_BASE = 128 };

static int fail(const char *what) {
    fprintf(stderr, "mxs-helper: %s: %s\n", what, strerror(errno));
    return EXIT_INIT_FAILED;
}

static pid_t start_worker(char **argv, const sigset_t *inherited) {
    pid_t worker = fork();
    if (worker != 0) return worker;
    sigprocmask(SIG_SETMASK, inherited, NULL);
    execvp(argv[0], argv);
    int reason = errno;
    fprintf(stderr, "mxs-helper: cannot run %s: %s\n", argv[0], strerror(reason));
    _exit(reason == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* Let go of the worker's standard input and output, so that their ends are the worker's own. */
static void release_stdio(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (null > STDERR_FILENO) close(null);
}

/* Collect every child that ended. True when the worker was among them; its exit code is then in `code`. */
static bool reap(pid_t worker, int *code) {
    int status = 0;
    bool ended = false;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (child != worker) continue;
        ended = true;
        *code = WIFSIGNALED(status) ? SIGNAL_BASE + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return ended;
}

/* Take the waiting signals: pass them on to the worker. True when a child ended. */
static bool take_signals(int signals, pid_t worker) {
    struct signalfd_siginfo info;
    bool child_ended = false;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) child_ended = true;
        else kill(worker, (int)info.ssi_signo);
    }
    return child_ended;
}

static int watch(int signals, pid_t worker) {
    struct pollfd fds[RELAY_FDS + 1];
    int code = EXIT_INIT_FAILED;
    for (;;) {
        int count = relay_poll_set(fds);
        fds[count] = (struct pollfd){.fd = signals, .events = POLLIN};
        if (poll(fds, (nfds_t)count + 1, -1) < 0 && errno != EINTR) return fail("poll");
        if (fds[count].revents != 0 && take_signals(signals, worker) && reap(worker, &code)) return code;
        relay_step(fds, count);
    }
}

int run_init(int port, const char *socket_path, char **argv) {
    sigset_t all, inherited;
    if (!relay_listen(port, socket_path)) return fail("cannot listen for the relay");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &inherited);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) return fail("signalfd");
    pid_t worker = start_worker(argv, &inherited);
    if (worker < 0) return fail("fork");
    release_stdio();
    return watch(signals, worker);
}
