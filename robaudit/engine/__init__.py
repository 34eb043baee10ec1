"""What an estimator gets and gives: the contract, batches of images, passes of the network, and the
registry."""
