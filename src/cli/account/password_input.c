#include "cli/account/password_input.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { INTERRUPTED = 130 };

static int terminal = -1;
static struct termios shown;

static void on_signal(int number)
{
    (void)number;
    tcsetattr(terminal, TCSAFLUSH, &shown);
    _exit(INTERRUPTED);
}

/* One line, without its end. */
static int read_line(int fd, bool to_the_end, char out[PASSWORD_TEXT], struct err *err)
{
    char line[PASSWORD_TEXT + 1]; /* and a byte that shows that there is more */
    size_t len = 0;
    ssize_t n = 1;
    while (n != 0 && len < sizeof line && (to_the_end || len == 0 || line[len - 1] != '\n')) {
        n = read(fd, line + len, sizeof line - len);
        if (n < 0 && errno != EINTR) {
            return err_set(err, ERR_IO, "can't read the password: %s", strerror(errno));
        }
        len += n > 0 ? (size_t)n : 0;
    }
    len -= len > 0 && line[len - 1] == '\n';
    const char *what = NULL;
    if (len == 0) {
        what = "is empty";
    } else if (len > ACCOUNT_PASSWORD_MAX) {
        what = "is longer than 255 bytes";
    } else if (memchr(line, '\0', len) != NULL || memchr(line, '\n', len) != NULL) {
        what = "is more than one line of text";
    } else {
        memcpy(out, line, len);
        out[len] = '\0';
    }
    explicit_bzero(line, sizeof line);
    return what != NULL ? err_set(err, ERR_INVALID, "the password %s", what) : 0;
}

static int ask(const char *prompt, const char *account, char out[PASSWORD_TEXT], struct err *err)
{
    dprintf(terminal, "%s %s: ", prompt, account);
    int code = read_line(terminal, false, out, err);
    dprintf(terminal, "\n");
    return code;
}

static int ask_twice(const char *account, char out[PASSWORD_TEXT], struct err *err)
{
    char again[PASSWORD_TEXT];
    int code = ask("New password for", account, out, err);
    if (code == 0) {
        code = ask("The same again, for", account, again, err);
    }
    if (code == 0 && strcmp(out, again) != 0) {
        code = err_set(err, ERR_INVALID, "the two passwords are not the same");
    }
    explicit_bzero(again, sizeof again);
    return code;
}

int password_input(const char *account, bool from_stdin, char out[PASSWORD_TEXT], struct err *err)
{
    if (from_stdin) {
        return read_line(STDIN_FILENO, true, out, err);
    }
    terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal < 0 || tcgetattr(terminal, &shown) < 0) {
        return err_set(err, ERR_SYSTEM, "there is no terminal to ask for the password on: give --password-stdin");
    }
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    const struct sigaction action = {.sa_handler = on_signal};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, NULL);
    }
    struct termios hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(terminal, TCSAFLUSH, &hidden);
    int code = ask_twice(account, out, err);
    tcsetattr(terminal, TCSAFLUSH, &shown);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        signal(signals[i], SIG_DFL);
    }
    close(terminal);
    return code;
}
