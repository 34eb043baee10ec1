"""From a spec to a finished run: the room where engine, store and loop are joined."""
