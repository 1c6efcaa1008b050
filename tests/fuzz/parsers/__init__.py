"""One module for each reader of files that others may have written; each has a ``TARGET`` and ``run``."""
