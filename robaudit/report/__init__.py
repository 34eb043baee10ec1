"""Tables, pages and pictures of runs for people, and the formats of CI systems for pipelines."""
