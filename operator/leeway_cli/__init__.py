"""The `leeway` command: one thin module a subcommand."""
