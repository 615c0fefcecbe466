"""The command `bullpen`: parse, call `Team`, render. No logic and no SQL.

main        one invocation: global options out of the words, the command, errors into one line and an exit code
root        the commands; each is imported when it is used, so that `--help` answers at once
call        what a command works with: the store, the team, and where its output goes
commands/   one module for each noun: what is asked of the team
views/      pure: what people see of it
page        the only way to a terminal; nothing passes it that could steer one
"""
