"""Files that mean harm, made on the spot, and the commands that meet them."""
