"""What the experiments on scale share: one measured run, server processes, many keys, published figures."""
