"""How well the noise of simulated cameras is measured."""
