"""What people see while a team works.

news    one line for each thing worth telling, for scrollback, pipes and logs
picture the few lines that always show how things stand
"""
