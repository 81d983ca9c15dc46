# Makes a manual page, in the man(7) macros, of Markdown files: awk -v name=unseen-why -v section=1 -v version=V
# -v date=2026-11-21 -v sysconfdir=/etc -v docdir=/usr/share/doc/unseen -f page.awk FILE ...
#
# "# Title" begins a section of the page, and one that is in several files gets what all of them say, in their order;
# but common.md only adds what the others lack. Sections come out in the order below, those with other names between
# OPTIONS and EXIT STATUS. Of Markdown it knows what docs/ uses: headings, paragraphs, lists of "- ", tables (the first
# column is the term, the others explain it), fences, `code`, **bold**, *italic*, links; and "term" with ":   what it is"
# on the next lines, each of which may go on with "    more".

BEGIN {
    n_order = split("NAME,SYNOPSIS,DESCRIPTION,SUBCOMMANDS,OPTIONS,*,EXIT STATUS,ENVIRONMENT,FILES,EXAMPLES,SEE ALSO",
                    order, ",")
    for (i = 1; i <= n_order; i++) {
        known[order[i]] = 1
    }
}

FNR == 1 {
    title = ""
    fence = 0
    file = FILENAME
    sub(/.*\//, "", file)
    parts[file] = 1
}
/^```/ { fence = !fence }
!fence && /^# / {
    title = toupper(substr($0, 3))
    if (file == "common.md" && title in text) {
        title = "" # the page says it itself
    } else if (!(title in text)) {
        text[title] = ""
        if (!(title in known)) {
            others[++n_others] = title
        }
    }
    next
}
title != "" {
    gsub(/@sysconfdir@/, sysconfdir)
    gsub(/@docdir@/, docdir)
    text[title] = text[title] $0 "\n"
}

END {
    print ".\\\" Made by man/page.awk. Nothing is hyphenated (HY), since names of options would be, too; so lines are"
    print ".\\\" not spread out (ad).\n.nr HY 0"
    printf ".TH %s %s \"%s\" \"unseen %s\" \"Unseen\"\n.ad l\n", toupper(name), section, date, version
    for (i = 1; i <= n_order; i++) {
        if (order[i] != "*") {
            print_section(order[i])
        } else {
            for (k = 1; k <= n_others; k++) {
                print_section(others[k])
            }
        }
    }
}

function print_section(title,    lines, n, i, body, broken)
{
    if (!(title in text)) {
        return
    }
    print ".SH " heading(title)
    fresh = 1 # nothing stands below the heading yet
    n = split(text[title], lines, "\n")
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^```/) {
            i = print_fence(lines, i + 1)
        } else if (lines[i] ~ /^##+ /) {
            sub(/^#+ /, "", lines[i])
            print ".SS " heading(lines[i])
            fresh = 1
        } else if (lines[i] ~ /^\|[ |]*-[- |]*\|$/) {
            continue # a table's rule
        } else if (lines[i] ~ /^\|/) {
            print_row(lines, i)
        } else if (lines[i + 1] ~ /^:   /) {
            print ".TP"
            print guarded(inline(lines[i])) # a term is one line
            for (broken = 0; lines[i + 1] ~ /^:   /; broken = 1) {
                for (body = substr(lines[++i], 5); lines[i + 1] ~ /^    /; i++) {
                    body = body " " substr(lines[i + 1], 5)
                }
                print_text(body, broken)
            }
            fresh = 0
        } else if (lines[i] ~ /^- /) {
            for (body = substr(lines[i], 3); lines[i + 1] ~ /^  /; i++) {
                body = body " " substr(lines[i + 1], 3)
            }
            print ".IP \\(bu 2"
            print_text(body)
            fresh = 0
        } else if (lines[i] ~ /[^ ]/ && lines[i] !~ /^!\[/) {
            for (body = lines[i]; lines[i + 1] ~ /^[^ |#]/ && lines[i + 1] !~ /^(```|- )/; i++) {
                body = body " " lines[i + 1]
            }
            if (!fresh) {
                print ".PP"
            }
            print_text(body)
            fresh = 0
        }
    }
}

# A fence, from its first line on; returns where it ends.
function print_fence(lines, i)
{
    print (fresh ? "" : ".PP\n") ".RS 4\n.EX"
    for (; i in lines && lines[i] !~ /^```/; i++) {
        print guarded(literal(lines[i]))
    }
    print ".EE\n.RE"
    fresh = 0
    return i
}

# The row above a table's rule is its head: of a table with more than two columns it names them.
function print_row(lines, i,    cells, n, k)
{
    n = split_row(lines[i], cells)
    if (lines[i + 1] ~ /^\|[ |]*-[- |]*\|$/) {
        split_row(lines[i], columns)
        return
    }
    print ".TP"
    print guarded(inline(cells[1]))
    for (k = 2; k <= n; k++) {
        print_text((n > 2 && columns[k] != "" ? columns[k] ": " : "") cells[k], k > 2)
    }
    fresh = 0
}

function split_row(line, cells,    i, c, n)
{
    split("", cells)
    n = 0
    for (i = 1; i < length(line); i++) {
        c = substr(line, i, 1)
        if (c == "|") {
            cells[++n] = ""
        } else {
            if (c == "\\" && substr(line, i + 1, 1) == "|") {
                c = substr(line, ++i, 1)
            }
            cells[n] = cells[n] c
        }
    }
    for (i = 1; i <= n; i++) {
        gsub(/^ +| +$/, "", cells[i])
    }
    return n
}

function heading(s)
{
    gsub(/`/, "", s)
    return "\"" escaped(s, "\\", "\\e") "\""
}

# Broken between words, so that the page can be read as it is. broken: it begins a new line in print, too.
function print_text(s, broken,    words, n, i, line)
{
    if (broken) {
        print ".br"
    }
    n = split(inline(s), words, " ")
    line = words[1]
    for (i = 2; i <= n; i++) {
        if (length(line) + 1 + length(words[i]) > 78) {
            print guarded(line)
            line = words[i]
        } else {
            line = line " " words[i]
        }
    }
    print guarded(line)
}

# What begins with these would be a macro.
function guarded(line)
{
    return line ~ /^[.']/ ? "\\&" line : line
}

function inline(s,    out, c, rest, end, link)
{
    out = ""
    for (; s != ""; s = substr(s, 2)) {
        c = substr(s, 1, 1)
        rest = substr(s, 2)
        if (c == "`" && (end = index(rest, "`")) > 0) {
            out = out "\\fB" literal(substr(rest, 1, end - 1)) "\\fP"
            s = substr(s, end + 1)
        } else if (substr(s, 1, 2) == "**" && (end = index(substr(s, 3), "**")) > 0) {
            out = out "\\fB" literal(substr(s, 3, end - 1)) "\\fP"
            s = substr(s, end + 3)
        } else if (c == "*" && rest ~ /^[A-Za-z]/ && (end = index(rest, "*")) > 0) {
            out = out "\\fI" plain(substr(rest, 1, end - 1)) "\\fP"
            s = substr(s, end + 1)
        } else if (match(s, /^\[[^]]+\]\([^)]*\)/)) {
            link = substr(s, 1, RLENGTH)
            s = substr(s, RLENGTH)
            end = index(link, "](")
            out = out inline(substr(link, 2, end - 2)) where(substr(link, end + 2, length(link) - end - 2))
        } else if (c == "\\" && rest ~ /^[^A-Za-z0-9 ]/) {
            out = out plain(substr(rest, 1, 1))
            s = rest
        } else {
            out = out ((c == "-" && (out == "" || out ~ /[ ([-]$/)) ? "\\-" : plain(c))
        }
    }
    return out
}

# Behind a link: its address, or which document it is in, unless that is a part of this page.
function where(target)
{
    if (target !~ /^http/) {
        sub(/#.*/, "", target)
    }
    return target == "" || target in parts ? "" : " (" literal(target) ")"
}

function plain(s)
{
    return escaped(s, "\\", "\\e")
}

# As it is typed: dashes, quotes and such are not to be made beautiful.
function literal(s)
{
    s = plain(s)
    s = escaped(s, "-", "\\-")
    s = escaped(s, "'", "\\(aq")
    s = escaped(s, "`", "\\(ga")
    s = escaped(s, "^", "\\(ha")
    return escaped(s, "~", "\\(ti")
}

function escaped(s, what, as,    parts, n, i, out)
{
    out = ""
    while ((i = index(s, what)) > 0) {
        out = out substr(s, 1, i - 1) as
        s = substr(s, i + 1)
    }
    return out s
}
