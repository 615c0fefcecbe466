"""The demo: a bookshop moves from REST to GraphQL, by a team whose model is scripted and whose rest is real.

app/            the application as it is before: plain files, copied into a workspace of its own
script/         what the members say and do (story.toml), and the files that they write
workspace       where it is played
story           the script, made ready to be played
chaos, worker   for `--chaos`: a process that hosts the teammates, and its end by `kill -9`
"""
