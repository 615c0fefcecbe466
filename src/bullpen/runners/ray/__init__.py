"""Ray as placement: it starts workers on its nodes, and starts them again when their process or node has died.

    this process                          another one             on the nodes of the cluster
    RayRunner ── looks into the store
              └─ line ── JSON lines ──>  driver ── Ray ──>  actor: one `Worker`, as everywhere

Who lives, who hosts whom and who may write is decided by the store alone: leases and incarnations. Ray may bring a
worker back late, or run two copies of it side by side: each registers anew, and fencing makes that harmless.

Ray itself is imported in `driver` only, in a process of its own: it prints what it likes to the standard output of
its driver, takes over signals, and ends the process when it cannot connect. `driver` also runs outside of every
workspace, because Ray lets all workers import from the directory in which their driver runs.
"""
