# Turns a text file into C: awk -v name=page -f embed.awk FILE makes a header with `static const char embedded_page[]`.
{
    gsub(/\\/, "&&")
    gsub(/"/, "\\\"")
    body = body "    \"" $0 "\\n\"\n"
}
END { printf "/* Made by src/http/embed.awk. */\nstatic const char embedded_%s[] =\n%s    \"\";\n", name, body }
