"""What the operator decides: settings as one frozen value, whatever they were read from."""
