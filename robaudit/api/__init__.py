"""The Python interface: an audit of objects in memory, and runs that answer questions and show themselves in notebooks."""
