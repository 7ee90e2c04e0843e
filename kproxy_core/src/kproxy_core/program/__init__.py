"""Programs and what differs between them: pure, and the same for every mode."""
