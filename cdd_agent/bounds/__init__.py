"""Documents that others may have written, looked through before anything is made of them. Pure."""
