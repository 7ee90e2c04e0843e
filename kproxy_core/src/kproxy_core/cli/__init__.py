"""The kproxy command, one module per subcommand."""
