"""The page: what the bridge knows, as it changes, in a browser.

    snapshot.py   makes items from the World, section by section; and the history and waterfall of one workload
    source.py     what the page of a running bridge shows
    feed.py       reads all items in short slices, and numbers the changes
    server.py     serves the files, a stream of changes, and the details of one workload; read only
    page.html, page.css, page.js   no build step, and nothing from other servers

A *section* is a mapping of items by key ("pods" by UID, "nodes" by name).  The stream sends, section by section, the items
that changed, and null for those that are gone.  So a server of the page may add sections, as `slurm-bridge dev` adds its
faults and invariants, and the page shows the sections that exist.
"""
