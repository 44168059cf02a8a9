"""Files that are copied into the jail: standard library only, and never imported by the service."""
