# Takes the help text of a subcommand out of its source and makes Markdown for page.awk of it:
# awk -v name=why -f help.awk src/main.c src/cli/inspect/why.c
#
# The text is the literal `help`: what it does; "Usage: ..."; more of that; "Options:"; "Exit code: ..."; "Examples:".
# What the name stands for comes from the table of subcommands in main.c.

/^    \{"[a-z-]+", cli_/ && summary == "" {
    split($0, quoted, "\"")
    if (quoted[2] == name) {
        summary = quoted[4]
    }
}
/^static const char help\[\]/ { inside = 1 }
inside {
    line = $0
    while (match(line, /"([^"\\]|\\.)*"/)) {
        help = help substr(line, RSTART + 1, RLENGTH - 2)
        line = substr(line, RSTART + RLENGTH)
    }
    inside = $0 !~ /;$/
}

END {
    if (summary == "" || help == "") {
        print "help.awk: no subcommand or no help text of " name > "/dev/stderr"
        exit 1
    }
    help = unescaped(help)
    print "# NAME\n\n**unseen-" name "** - " summary "\n"
    n = split(help, lines, "\n")
    print "# DESCRIPTION\n"
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^Usage: /) {
            for (usage = substr(lines[i], 8); lines[i + 1] ~ /^  /; i++) {
                usage = usage " " lines[i + 1]
            }
            gsub(/ +/, " ", usage)
        } else if (lines[i] == "Options:") {
            print "# OPTIONS\n"
            part = "options"
        } else if (lines[i] == "Examples:") {
            print "# EXAMPLES\n"
            part = "examples"
        } else if (lines[i] ~ /^Exit code: /) {
            i = print_exit_codes(i)
        } else if (part == "options") {
            i = print_option(i)
        } else if (lines[i] ~ /^  /) {
            i = print_block(i)
        } else {
            print lines[i]
        }
    }
    print "\n# SYNOPSIS\n\n" marked(usage)
}

# The first line has the term, and the explanation goes on in lines that are indented further.
function print_option(i,    term, body)
{
    if (lines[i] !~ /^ +-/) {
        print lines[i]
        return i
    }
    match(lines[i], /^ +(-[a-z], )?--[a-z-]+( [A-Z][A-Z:]*( |$))?/)
    term = substr(lines[i], 1, RLENGTH)
    body = substr(lines[i], RLENGTH + 1)
    while (lines[i + 1] ~ /^          /) {
        body = body " " lines[++i]
    }
    gsub(/ +/, " ", body)
    sub(/^ /, "", body)
    gsub(/^ +| +$/, "", term)
    print marked(term) "\n:   " body "\n"
    return i
}

# As it is typed.
function print_block(i)
{
    print "```"
    for (; lines[i] ~ /^  /; i++) {
        print substr(lines[i], 3)
    }
    print "```"
    return i - 1
}

# "Exit code: 0 good; 1 failed, or ...; 2 wrong usage."
function print_exit_codes(i,    codes, n, k, all)
{
    for (all = substr(lines[i], 12); lines[i + 1] != ""; i++) {
        all = all " " lines[i + 1]
    }
    sub(/\.$/, "", all)
    print "# EXIT STATUS\n"
    n = split(all, codes, "; ")
    for (k = 1; k <= n; k++) {
        print "**" substr(codes[k], 1, index(codes[k], " ") - 1) "**\n:   " substr(codes[k], index(codes[k], " ") + 1) "\n"
    }
    return i
}

# What is typed as it is, is bold; what stands for something is in capitals, and italic.
function marked(s,    words, n, i, out, word, before, after)
{
    n = split(s, words, " ")
    for (i = 1; i <= n; i++) {
        match(words[i], /^\[*/)
        before = substr(words[i], 1, RLENGTH)
        word = substr(words[i], RLENGTH + 1)
        match(word, /[].,]*$/)
        after = substr(word, RSTART)
        word = substr(word, 1, RSTART - 1)
        if (word ~ /^[A-Z]/) {
            word = "*" word "*"
        } else if (word != "") {
            word = "`" word "`"
        }
        out = out (i > 1 ? " " : "") before word after
    }
    return out
}

# A literal's escapes: no others are used.
function unescaped(s,    out, i, c)
{
    while ((i = index(s, "\\")) > 0) {
        c = substr(s, i + 1, 1)
        out = out substr(s, 1, i - 1) (c == "n" ? "\n" : c)
        s = substr(s, i + 2)
    }
    return out s
}
