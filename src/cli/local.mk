# the subcommands
