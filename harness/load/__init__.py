"""The open-model load generator: pacer, runner, contenders, and the fleet of processes that runs them."""
