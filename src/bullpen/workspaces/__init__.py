"""Where members work: implementations of the contract in `workspace`."""
