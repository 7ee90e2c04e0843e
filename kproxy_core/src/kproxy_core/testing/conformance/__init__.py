"""The conformance kit: what every mode must do with real packets, as scenarios, laws and a second opinion."""
