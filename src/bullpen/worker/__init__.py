"""A worker: a process that hosts members, holding the lease for them.

`host.Host` is the lease alone, which is all that a joined member of your own needs;
`worker.Worker` runs members, and imports the whole agent for it.
"""
