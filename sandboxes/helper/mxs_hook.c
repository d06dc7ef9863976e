/* A worker's hook: carries what the worker is about to do to the gateway, and the answer back as an exit code.
 *
 * Exit 0 lets the call pass; exit 2 with text on standard error refuses it. Codex lets a call go on after every other
 * ending, so whatever goes wrong here, a stall too, ends in exit 2 with a sentence. The only answer that allows is
 * HTTP 200 with exactly {"allow": true} or {"allow": true, "message": "..."}.
 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mxs_helper.h"

enum {
    HOOK_ALLOWED = 0,
    HOOK_REFUSED = 2,
    MAX_REQUEST = 1024 * 1024,
    MAX_ANSWER = 64 * 1024,
    MAX_MESSAGE = 8 * 1024,
};

static char request[MAX_REQUEST + 1];
static char answer[MAX_ANSWER + 1];

struct verdict {
    bool allow;
    char message[MAX_MESSAGE];
};

static void on_alarm(int signal_number) {
    static const char sentence[] = "Refused: the judge did not answer this hook in time.\n";
    (void)signal_number;
    ssize_t ignored = write(STDERR_FILENO, sentence, sizeof sentence - 1);
    (void)ignored;
    _exit(HOOK_REFUSED);
}

static int refuse(const char *sentence) {
    fprintf(stderr, "%s\n", sentence);
    return HOOK_REFUSED;
}

/* Read to the end of the stream, at most `room` bytes: how many, or -1 for a fault or more than that. */
static ssize_t read_all(int fd, char *buffer, size_t room) {
    size_t total = 0;
    for (;;) {
        char extra;
        bool full = total == room;
        ssize_t got = full ? read(fd, &extra, 1) : read(fd, buffer + total, room - total);
        if (got == 0) return (ssize_t)total;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || full) return -1;
        total += (size_t)got;
    }
}

static bool send_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool send_request(int fd, size_t size) {
    char head[256];
    int length = snprintf(head, sizeof head,
                          "POST /mxs/hook HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n", size);
    return send_all(fd, head, (size_t)length) && send_all(fd, request, size);
}

/* The body of a complete HTTP 200 answer with a Content-Length that is exactly met, or NULL. */
static const char *answer_body(const char *text, size_t size) {
    static const char name[] = "\r\ncontent-length:";
    const char *head_end = strstr(text, "\r\n\r\n");
    if (strlen(text) != size || head_end == NULL) return NULL;
    if (strncmp(text, "HTTP/1.1 200 ", 13) != 0 && strncmp(text, "HTTP/1.0 200 ", 13) != 0) return NULL;
    const char *body = head_end + 4, *field = strcasestr(text, name);
    if (field == NULL || field >= head_end) return NULL;
    const char *digits = field + strlen(name);
    while (*digits == ' ' || *digits == '\t') digits++;
    if (!isdigit((unsigned char)*digits)) return NULL;
    return strtoull(digits, NULL, 10) == (unsigned long long)(text + size - body) ? body : NULL;
}

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *parse_hex4(const char *at, unsigned *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++, at++) {
        if (!isxdigit((unsigned char)*at)) return NULL;
        *unit = *unit * 16 + (unsigned)(isdigit((unsigned char)*at) ? *at - '0' : tolower((unsigned char)*at) - 'a' + 10);
    }
    return at;
}

/* One escape after its backslash; `out` gets one printable stand-in or the character itself, as UTF-8. */
static const char *parse_escape(const char *at, char *out, size_t *length) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/  \n  ";
    const char *known = *at ? strchr(names, *at) : NULL;
    *length = 1;
    if (known != NULL) {
        *out = values[known - names];
        return at + 1;
    }
    unsigned unit = 0;
    if (*at != 'u' || (at = parse_hex4(at + 1, &unit)) == NULL) return NULL;
    if (unit < 0x20 || unit == 0x7f || (unit >= 0x80 && unit < 0xa0)) *out = ' ';
    else if (unit < 0x80) *out = (char)unit;
    else if (unit < 0x800) {
        out[0] = (char)(0xc0 | unit >> 6), out[1] = (char)(0x80 | (unit & 0x3f)), *length = 2;
    } else if (unit >= 0xd800 && unit < 0xe000) *out = '?'; /* half of a pair: shown, not decoded */
    else {
        out[0] = (char)(0xe0 | unit >> 12), out[1] = (char)(0x80 | (unit >> 6 & 0x3f));
        out[2] = (char)(0x80 | (unit & 0x3f)), *length = 3;
    }
    return at;
}

/* A JSON string at its opening quote into `out`, cut at its room. The place after it, or NULL. */
static const char *parse_string(const char *at, char *out, size_t room) {
    size_t used = 0;
    if (*at++ != '"') return NULL;
    while (*at != '"') {
        char piece[4] = {*at};
        size_t length = 1;
        if ((unsigned char)*at < 0x20) return NULL; /* the end of the text, too */
        if (*at++ == '\\' && (at = parse_escape(at, piece, &length)) == NULL) return NULL;
        if (used + length < room) {
            memcpy(out + used, piece, length);
            used += length;
        }
    }
    out[used] = '\0';
    return at + 1;
}

static const char *parse_bool(const char *at, bool *value) {
    *value = strncmp(at, "true", 4) == 0;
    if (*value) return at + 4;
    return strncmp(at, "false", 5) == 0 ? at + 5 : NULL;
}

/* Exactly one object of `allow` and, if it likes, `message`. */
static bool parse_verdict(const char *at, struct verdict *verdict) {
    bool has_allow = false, has_message = false;
    char key[16];
    at = skip_space(at);
    if (*at != '{') return false;
    do {
        at = parse_string(skip_space(at + 1), key, sizeof key);
        if (at == NULL || *(at = skip_space(at)) != ':') return false;
        at = skip_space(at + 1);
        if (strcmp(key, "allow") == 0 && !has_allow) {
            has_allow = true;
            at = parse_bool(at, &verdict->allow);
        } else if (strcmp(key, "message") == 0 && !has_message) {
            has_message = true;
            at = parse_string(at, verdict->message, sizeof verdict->message);
        } else {
            return false;
        }
        if (at == NULL) return false;
        at = skip_space(at);
    } while (*at == ',');
    return has_allow && *at == '}' && *skip_space(at + 1) == '\0';
}

int run_hook(const char *socket_path, unsigned seconds) {
    struct verdict verdict = {false, ""};
    struct sigaction action = {.sa_handler = on_alarm};
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigaction(SIGALRM, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &alarm_only, NULL); /* whoever started us may have blocked it */
    alarm(seconds);
    ssize_t size = read_all(STDIN_FILENO, request, MAX_REQUEST);
    if (size < 0) return refuse("Refused: the hook's input is over 1 MiB or cannot be read.");
    int fd = connect_unix(socket_path, false);
    if (fd == CONNECT_FAILED) return refuse("Refused: the judge cannot be reached, the gateway's socket does not answer.");
    if (!send_request(fd, (size_t)size)) return refuse("Refused: the judge closed the connection before it had the hook.");
    ssize_t got = read_all(fd, answer, MAX_ANSWER);
    if (got < 0) return refuse("Refused: the judge's answer is over 64 KiB or broke off.");
    answer[got] = '\0';
    const char *body = answer_body(answer, (size_t)got);
    if (body == NULL || !parse_verdict(body, &verdict)) return refuse("Refused: the judge's answer makes no sense.");
    if (verdict.allow) return HOOK_ALLOWED;
    bool blank = verdict.message[strspn(verdict.message, " \n")] == '\0';
    return refuse(blank ? "Refused by the role's permissions." : verdict.message);
}
