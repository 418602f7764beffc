"""Everything that waits, talks or remembers: cache, extender, stand-alone loop, binder, offline tools."""
