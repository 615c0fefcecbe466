"""What people see while a team works.

news    one line for each thing worth telling, for scrollback, pipes and logs
picture the few lines that always show how things stand
story   the news of the console, with what is said to the human told whole
question what the human is asked, and the keys that answer it
slash   what may be typed after a slash
desk    the terminal of the console: scrolls, draws, reads keys
console a team on a terminal: all of these together
"""
