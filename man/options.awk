# Makes Markdown for page.awk of the sample configuration, which is made of the table of options
# (src/config/options.c): awk -f options.awk etc/unseen.conf
#
# There, each option is a block of comments and then "#name = default". The block above the first section explains the
# file; unseen.conf.md says that at length.

/^\[/ {
    print (began ? "## Section " : "# OPTIONS\n\n## Section ") "`" $0 "`\n"
    began = 1
    if (help != "" && !first) {
        print help "\n"
    }
    first = 0
    help = ""
    next
}
/^# / {
    sub(/^# /, "")
    help = help (help == "" ? "" : /^(Range: |A change needs |When changed: )/ ? "\n:   " : " ") $0
    next
}
/^#[a-z_]+ =/ {
    name = substr($1, 2)
    value = $0
    sub(/^#[a-z_]+ = ?/, "", value)
    print "**" name "** = " (value == "" ? "*nothing*" : "`" value "`") "\n:   " help "\n"
    help = ""
}
BEGIN { first = 1 }
