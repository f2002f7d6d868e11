"""A communicator for each engine, by what the engine itself has for several processes."""
