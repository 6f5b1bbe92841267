"""Guards where the write happens: the fence is compared in the same atomic step that stores."""
