"""The Python interface: audits of objects in memory, and runs with queries and notebook
displays."""
