"""Where objects come from: manifests in files, or the API server."""
