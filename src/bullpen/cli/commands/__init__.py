"""One module for each noun: the words of a command become verbs of `Team`."""
