# Makes Markdown for page.awk of the table of subcommands in main.c and the examples of the overview that
# `unseen help` prints: awk -f overview.awk src/main.c src/cli/lib/help.c

BEGIN { print "# SUBCOMMANDS\n" }
/^    \{"[a-z-]+", cli_/ {
    split($0, quoted, "\"")
    page = quoted[2] == "version" ? "" : ": **unseen-" quoted[2] "**(1)" # which is explained here
    print "**" quoted[2] "**\n:   " quoted[4] page "\n"
}
/"\\nExamples:\\n"/ {
    print "**help** [*SUBCOMMAND*]\n:   explain a subcommand, or list them\n\n# EXAMPLES\n\n```"
    examples = 1
    next
}
examples && /^ *"/ {
    sub(/^ *"  /, "")
    sub(/\\n".*/, "")
    print
}
examples && /,$/ {
    print "```"
    examples = 0
}
